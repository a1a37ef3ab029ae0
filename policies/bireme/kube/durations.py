"""Durations as Go and Kubernetes write them, to seconds."""

import re
from typing import Final

_NUMBER: Final = "[0-9]{1,9}([.][0-9]{1,9})?"
PATTERN: Final = f"^({_NUMBER}h)?({_NUMBER}m)?({_NUMBER}s)?$"
"""Hours, minutes and seconds, in this order; also allows nothing and zero, which are refused."""

_PARTS: Final = re.compile(r"([0-9.]+)([hms])")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse(text: str) -> float:
    """Seconds of a duration such as ``2h30m``, always above 0. Raises ValueError."""
    seconds = 0.0
    if re.fullmatch(PATTERN, text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))
    if seconds <= 0:
        raise ValueError(
            f"{text[:64]!a} is no duration above zero; write hours, minutes and seconds, "
            "such as 2h30m or 90s"
        )
    return seconds
