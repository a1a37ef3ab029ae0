"""Units of time, and times and durations formatted for people."""

import math
from datetime import UTC, datetime
from typing import Final

HOUR: Final = 3600
"""Seconds."""
DAY: Final = 24 * HOUR
MAX_SECONDS: Final = 10 * 365 * 86_400
"""Ten years; a longer run time is an error."""
_YEAR_10000: Final = 253_402_300_800
"""POSIX seconds where formatted times end: an estimate of a run time may lie beyond."""


def duration(seconds: float) -> str:
    """Format a duration, rounded up, in the largest unit that keeps it readable."""
    for name, unit in (("s", 1), ("min", 60), ("h", HOUR)):
        if seconds <= 120 * unit:
            return f"{math.ceil(seconds / unit)} {name}"
    return f"{math.ceil(seconds / DAY)} days"


def clock_time(seconds: float) -> str:
    """Format POSIX seconds as RFC 3339 in UTC, as Kubernetes does."""
    if seconds >= _YEAR_10000:
        return "the year 10000"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_at(begin: float, seconds: float) -> float:
    """Return ``begin + seconds``, late enough that ``moment - begin >= seconds`` in floats."""
    moment = begin + seconds  # may be rounded down, so that its difference to begin is too small
    while moment - begin < seconds:
        moment = math.nextafter(moment, math.inf)
    return moment


def moment_past(begin: float, seconds: float) -> float:
    """Return ``begin + seconds``, late enough that ``moment - begin > seconds`` in floats."""
    moment = moment_at(begin, seconds)
    while moment - begin <= seconds:
        moment = math.nextafter(moment, math.inf)
    return moment
