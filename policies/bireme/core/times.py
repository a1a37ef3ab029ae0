"""Times and spans of time as people write them."""

import math
from datetime import UTC, datetime
from typing import Final

HOUR: Final = 3600
"""Seconds."""
DAY: Final = 24 * HOUR
_YEAR_10000: Final = 253_402_300_800
"""POSIX seconds where written times end. Whoever estimates run times may pass it."""


def duration(seconds: float) -> str:
    """A span of time in the unit that people would count it in, rounded up."""
    for name, unit in (("s", 1), ("min", 60), ("h", HOUR)):
        if seconds <= 120 * unit:
            return f"{math.ceil(seconds / unit)} {name}"
    return f"{math.ceil(seconds / DAY)} days"


def clock_time(seconds: float) -> str:
    """POSIX seconds as people and Kubernetes write a time, in UTC."""
    if seconds >= _YEAR_10000:
        return "the year 10000"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
