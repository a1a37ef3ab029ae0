"""Parse and format Kubernetes quantities, durations and timestamps.

Quantities are read and written as apimachinery does, but as exact integers: CPU and GPU units in
thousandths, every other resource in its base unit (bytes, GPUs, pods). Requests round up and
capacities round down, so the error of less than one unit is always on the safe side.
"""

import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from bireme.core.accelerators import GPU_UNITS
from bireme.core.times import MAX_SECONDS

CPU: Final = "cpu"
_IN_THOUSANDTHS: Final = (CPU, GPU_UNITS)
# The largest amount accepted; beyond it neither JSON numbers nor float64 arrays stay exact.
LARGEST: Final = 2**53

_MAX_TEXT: Final = 64
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
    """A quantity is unusable; the message names the resource, the value and the remedy."""

    def __init__(self, resource_name: str, value: object, problem: str) -> None:
        super().__init__(f"{ascii(resource_name)[1:-1]}: quantity {_value_text(value)} {problem}")
        self.resource_name = resource_name
        self.value = value


def _value_text(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print huge integers
        return f"(an integer of {value.bit_length()} bits)"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def parse_quantity(
    resource_name: str, value: str | int | float, *, rounding: Literal["up", "down"] = "up"
) -> int:
    """Return the amount in millicores (``cpu``) or base units (all else), 0 to ``LARGEST``.

    Use ``rounding="up"`` for requests and limits, ``"down"`` for capacities.

    Raises:
        QuantityError: ``value`` is unusable.
    """
    units = 1000 if resource_name in _IN_THOUSANDTHS else 1
    if type(value) is int and 0 <= value * units <= LARGEST:  # bool is no amount
        return value * units
    try:
        return _amount(_text(value), units, rounding == "up")
    except ValueError as error:
        raise QuantityError(resource_name, value, str(error)) from None


def format_quantity(resource_name: str, amount: int) -> str:
    """Return the canonical text of an amount in millicores (``cpu``) or base units (all else).

    No fraction, the largest suffix that stays exact: ``cpu 1500 -> "1500m"``,
    ``memory 2**30 -> "1Gi"``.

    Raises:
        QuantityError: ``amount`` is outside 0..``LARGEST``.
    """
    if not 0 <= amount <= LARGEST:
        raise QuantityError(resource_name, amount, f"is outside 0..{LARGEST}")
    if resource_name in _IN_THOUSANDTHS:
        return f"{amount}m" if amount % 1000 else _with_suffix(amount // 1000, 1000, _DECIMAL)
    if resource_name.startswith(_IN_BYTES):
        return _with_suffix(amount, 1024, _BINARY)
    return _with_suffix(amount, 1000, _DECIMAL)


def _with_suffix(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
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
    return repr(value)  # a float's shortest digits are those of the JSON


def exact_quantity(text: str) -> Fraction:
    """Return the exact number that ``text`` stands for, below zero too.

    Raises:
        ValueError: ``text`` is no quantity.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise ValueError('cannot be read; write digits with an optional suffix: "500m", "8Gi", 4')
    sign, number, suffix, exponent = match.groups()
    amount = Fraction(number) * (Fraction(10) ** int(exponent or 0)) * _FACTORS[suffix or ""]
    return -amount if sign == "-" else amount


@lru_cache(maxsize=4096)  # thousands of nodes and pods repeat a few dozen texts
def _amount(text: str, units: int, round_up: bool) -> int:
    exact = exact_quantity(text) * units
    if exact < 0:
        raise ValueError("is negative; write zero or a positive amount")
    if exact > LARGEST:
        raise ValueError(f"is above the largest amount, {LARGEST}; write a smaller one")
    return math.ceil(exact) if round_up else math.floor(exact)


# --- durations, as Go and Kubernetes write them ---------------------------------------------------

_NUMBER: Final = "[0-9]{1,9}([.][0-9]{1,9})?"
PATTERN: Final = f"^({_NUMBER}h)?({_NUMBER}m)?({_NUMBER}s)?$"
"""Hours, minutes and seconds, in this order. It also matches "" and zero, which are refused."""

# The part of PATTERN that can be within :data:`MAX_DURATION` and fits 64 bits of nanoseconds.
SHORT_PATTERN: Final = (
    "^(0*[0-9]{1,5}([.][0-9]{1,9})?h)?"
    "(0*[0-9]{1,7}([.][0-9]{1,9})?m)?"
    "(0*[0-9]{1,9}([.][0-9]{1,9})?s)?$"
)

MAX_DURATION: Final = f"{MAX_SECONDS // 3600}h"
"""The longest duration, ten years."""

_PARTS: Final = re.compile(r"([0-9.]+)([hms])")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``2h30m``.

    Raises:
        ValueError: it is unreadable, not above 0, or above ``MAX_DURATION``.
    """
    seconds = 0.0
    if re.fullmatch(PATTERN, text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))
    if seconds <= 0:
        raise ValueError(
            f"{text[:64]!a} is no duration above zero; write hours, minutes and seconds, "
            "such as 2h30m or 90s"
        )
    if seconds > MAX_SECONDS:
        raise ValueError(f"{text} is longer than ten years; write at most {MAX_DURATION}")
    return seconds


# --- timestamps: RFC 3339 in UTC, whole seconds or microseconds; POSIX seconds inside -------------

# The last second of the year 9999, where RFC 3339 ends.
_LAST: Final = 253_402_300_799


def parse_timestamp(text: str | None) -> float | None:
    """Return ``text`` as POSIX seconds, or None if it is missing or unreadable."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def format_timestamp(seconds: float) -> str:
    """Return ``seconds`` as the API server writes times: ``2026-01-31T12:00:00Z``.

    Times after the year 9999, infinity too, become its last second.
    """
    return datetime.fromtimestamp(int(min(seconds, _LAST)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
