"""Waiting with an end: every wait in this package has a deadline and says what it waited for."""

import time
from collections.abc import Callable
from typing import Final

from testbed.controlplane.errors import ControlPlaneError

POLL_SECONDS: Final = 0.05


def wait_until(
    condition: Callable[[], bool],
    timeout_seconds: float,
    what: str,
    details: Callable[[], str] = str,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Return once ``condition()`` holds; it is asked at least once.

    ``what`` completes the sentence "waited ... for"; ``details()`` is added when time ran out.
    """
    deadline_seconds = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline_seconds:
            raise ControlPlaneError(f"waited {timeout_seconds:g} s for {what}\n{details()}".strip())
        time.sleep(poll_seconds)
