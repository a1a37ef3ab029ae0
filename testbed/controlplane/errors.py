"""The one error of this package: what failed, with which value, and what to do about it."""

from typing import Final

TAIL_LINES: Final = 30


class ControlPlaneError(RuntimeError):
    """A binary, a cluster or a program of it could not be built, started or stopped."""


def tail(log: str) -> str:
    """Return the last lines of a log, for error messages."""
    return "\n".join(log.splitlines()[-TAIL_LINES:])
