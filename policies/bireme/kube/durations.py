"""Durations as Go and Kubernetes write them, to seconds."""

import re
from typing import Final

from bireme.core.estimates import LONGEST_SECONDS

_NUMBER: Final = "[0-9]{1,9}([.][0-9]{1,9})?"
PATTERN: Final = f"^({_NUMBER}h)?({_NUMBER}m)?({_NUMBER}s)?$"
"""Hours, minutes and seconds, in this order; also allows nothing and zero, which are refused."""

SHORT_PATTERN: Final = (
    "^(0*[0-9]{1,5}([.][0-9]{1,9})?h)?"
    "(0*[0-9]{1,7}([.][0-9]{1,9})?m)?"
    "(0*[0-9]{1,9}([.][0-9]{1,9})?s)?$"
)
"""What of it may be within :data:`MOST`, and is far from what 64 bits of nanoseconds hold."""

MOST: Final = f"{LONGEST_SECONDS // 3600}h"
"""The longest duration, ten years."""

_PARTS: Final = re.compile(r"([0-9.]+)([hms])")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse(text: str) -> float:
    """Seconds of a duration such as ``2h30m``; ValueError unless above 0, at most ``MOST``."""
    seconds = 0.0
    if re.fullmatch(PATTERN, text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))
    if seconds <= 0:
        raise ValueError(
            f"{text[:64]!a} is no duration above zero; write hours, minutes and seconds, "
            "such as 2h30m or 90s"
        )
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{text} is longer than ten years; write at most {MOST}")
    return seconds
