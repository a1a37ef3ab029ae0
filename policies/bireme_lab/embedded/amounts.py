"""Amounts of resources as the API server adds and writes them: exact, and each in its own form.

Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go``. A sum has the form of its first
amount that is not zero.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

from bireme.kube.quantities import exact_quantity

QUANTITY: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
QUANTITY_WORDS: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = {-3: "n", -2: "u", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}
_SMALLEST: Final = Fraction(1, 1000)
_PARTS: Final = re.compile(r"[+-]?0*(\d*)(?:\.(\d*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_EXPONENTS: Final = {suffix: 3 * power for power, suffix in _DECIMAL.items()}
_MAX_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Amount:
    """One amount; ``form`` is that of its suffix: Binary, Decimal or Exponent."""

    value: Fraction = Fraction(0)
    form: str = "Decimal"

    @classmethod
    def parse(cls, quantity: Any) -> "Amount":
        """Return an amount, rounded up to a thousandth as in pods.

        Raises:
            ValueError: it is no amount.
        """
        text = str(quantity)
        value = exact_quantity(text)
        units, remainder = divmod(value, _SMALLEST)
        value = (units + bool(remainder)) * _SMALLEST
        if text.endswith("i"):
            return cls(value, "Binary")
        return cls(value, "Exponent" if "e" in text.lower().rstrip("e") else "Decimal")

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.value + other.value, self.form if self.value else other.form)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.value - other.value, self.form if self.value else other.form)

    def __str__(self) -> str:
        if self.form == "Binary" and abs(self.value) >= 1024 and self.value.denominator == 1:
            return _in_binary(self.value.numerator)
        power = _power_of_thousand(self.value)
        number = self.value / Fraction(1000) ** power
        if self.form == "Exponent":
            return f"{number}e{3 * power}" if power else str(number)
        return f"{number}{_DECIMAL[power]}"


Amounts: TypeAlias = dict[str, Amount]
ZERO: Final = Amount()


def parse_amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Return the amounts of a manifest by their names."""
    return {name: Amount.parse(text) for name, text in (quantities or {}).items()}


def format_amounts(amounts: Mapping[str, Amount]) -> dict[str, str]:
    """Return amounts as a manifest has them."""
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def total(parts: Iterable[Mapping[str, Amount]]) -> Amounts:
    """Return the sum of all parts by name."""
    result: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            result[name] = result[name] + amount if name in result else amount
    return result


def highest(one: Mapping[str, Amount], other: Mapping[str, Amount]) -> Amounts:
    """Return the higher amount of each name."""
    result = dict(one)
    for name, amount in other.items():
        if name not in result or amount.value > result[name].value:
            result[name] = amount
    return result


def canonical(quantity: Any) -> Any:
    """Return a quantity as the API server writes it; what is none stays as it is."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        return quantity
    text = str(quantity)
    try:
        amount = Amount.parse(text)
        return text if _is_short(text) else str(amount)
    except ValueError:
        return quantity


def _is_short(text: str) -> bool:
    """Return whether the server leaves a text as it came, for which it need not be canonical."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return False
    whole, decimals, suffix = match[1] or "0", match[2] or "", match[3] or ""
    digits = whole + decimals
    if suffix.endswith("i"):
        return not decimals and bool(int(digits) % 8)
    exponent = _EXPONENTS[suffix] if suffix in _EXPONENTS else int(suffix[1:])
    scale = exponent - len(decimals)
    is_exact = scale % 3 == 0 and scale >= -3 and len(digits) <= _MAX_DIGITS
    return is_exact and digits[0] != "0" and not digits.endswith("000")


def _in_binary(number: int) -> str:
    power = 0
    while number % 1024 == 0 and power < len(_BINARY) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{_BINARY[power]}"


def _power_of_thousand(value: Fraction) -> int:
    """Return the highest power of 1000 that leaves a whole number."""
    power = -3
    while power < 6 and value and (value / Fraction(1000) ** (power + 1)).denominator == 1:
        power += 1
    return power if value else 0
