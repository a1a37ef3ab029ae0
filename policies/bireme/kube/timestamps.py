"""Kubernetes timestamps (RFC 3339, UTC, whole seconds or microseconds) and POSIX seconds."""

from datetime import UTC, datetime
from typing import Final

_LAST: Final = 253_402_300_799
"""The last second of the year 9999, where RFC 3339 ends."""


def parse(text: str | None) -> float | None:
    """POSIX seconds of ``text``; None when it is missing or unreadable."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def format(seconds: float) -> str:  # noqa: A001  # read as timestamps.format
    """``seconds`` as the API server writes times: ``2026-01-31T12:00:00Z``.

    What lies after the year 9999, infinity too, is told as its last second.
    """
    return datetime.fromtimestamp(int(min(seconds, _LAST)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
