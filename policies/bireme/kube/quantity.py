"""Kubernetes quantities to exact integers and back, as apimachinery reads and writes them.

CPU counts in millicores, every other resource in its own base unit (bytes, GPUs, pods), so that
adding and comparing never meets a float. What a pod asks for rounds up and what a node offers
rounds down: the error, below one unit, always falls on the safe side. Anything that could turn
arithmetic around (negative, not a number, beyond 2**53) is refused here, once.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

CPU: Final = "cpu"
LARGEST: Final = 2**53
"""The largest amount accepted; beyond it neither JSON numbers nor float64 arrays stay exact."""

_LONGEST_TEXT: Final = 64
_PATTERN: Final = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?"
)
_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTORS: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(_DECIMAL)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY)},
}
_IN_BYTES: Final = ("memory", "ephemeral-storage", "storage", "hugepages-")


class QuantityError(ValueError):
    """A quantity Bireme cannot count with; names the resource, the value and the remedy."""

    def __init__(self, resource_name: str, value: object, problem: str) -> None:
        super().__init__(f"{ascii(resource_name)[1:-1]}: quantity {_shown(value)} {problem}")
        self.resource_name = resource_name
        self.value = value


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print huge ones
        return f"(an integer of {value.bit_length()} bits)"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def parse(
    resource_name: str, value: str | int | float, *, rounding: Literal["up", "down"] = "up"
) -> int:
    """The amount in millicores (``cpu``) or base units (all else), between 0 and ``LARGEST``.

    Use ``rounding="up"`` for requests and limits, ``"down"`` for what a node can give.
    Raises :class:`QuantityError`.
    """
    units = 1000 if resource_name == CPU else 1
    if type(value) is int and 0 <= value * units <= LARGEST:  # bool is no amount
        return value * units
    try:
        return _amount(_text(value), units, rounding == "up")
    except ValueError as error:
        raise QuantityError(resource_name, value, str(error)) from None


def format(resource_name: str, amount: int) -> str:  # noqa: A001 - read as quantity.format
    """The canonical text of an amount in millicores (``cpu``) or base units (all else).

    No fraction, the largest suffix that stays exact: ``cpu 1500 -> "1500m"``,
    ``memory 2**30 -> "1Gi"``. Raises :class:`QuantityError` outside 0..``LARGEST``.
    """
    if not 0 <= amount <= LARGEST:
        raise QuantityError(resource_name, amount, f"is outside 0..{LARGEST}")
    if resource_name == CPU:
        return f"{amount}m" if amount % 1000 else _suffixed(amount // 1000, 1000, _DECIMAL)
    if resource_name.startswith(_IN_BYTES):
        return _suffixed(amount, 1024, _BINARY)
    return _suffixed(amount, 1000, _DECIMAL)


def _suffixed(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while amount and amount % base == 0 and power < len(suffixes) - 1:
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}"


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('is not text or a number; write it as "500m", "8Gi" or 4')
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not finite; write zero or a positive amount")
    if isinstance(value, int) and value.bit_length() > 128:
        raise ValueError(f"is outside 0..{LARGEST}; write an amount inside")
    return repr(value)  # a float's shortest digits: what stood in the JSON


@lru_cache(maxsize=4096)  # thousands of nodes and pods repeat a few dozen texts
def _amount(text: str, units: int, round_up: bool) -> int:
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise ValueError('cannot be read; write digits with an optional suffix: "500m", "8Gi", 4')
    sign, number, suffix, exponent = match.groups()
    exact = Fraction(number) * (Fraction(10) ** int(exponent or 0)) * _FACTORS[suffix or ""] * units
    if sign == "-" and exact > 0:
        raise ValueError("is negative; write zero or a positive amount")
    if exact > LARGEST:
        raise ValueError(f"is above the largest amount, {LARGEST}; write a smaller one")
    return math.ceil(exact) if round_up else math.floor(exact)
