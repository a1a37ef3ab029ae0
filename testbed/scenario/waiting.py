"""Waiting for what a distributed system promises: it will be so, soon, and not right now."""

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
POLL_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = float(os.environ.get("BIREME_PATIENCE_SECONDS") or 120.0)
"""Longest wait for what must come: the machine may be slow, and do more than this.

Where it will not come, by a planted fault, the environment may have less patience.
"""


def eventually(
    read: Callable[[], T],
    is_right: Callable[[T], object] = bool,
    timeout_seconds: float = PATIENCE_SECONDS,
    *,
    explain: Callable[[], str] = str,
) -> T:
    """Return the first value of ``read()`` that ``is_right``; it is read at least once.

    The AssertionError shows the last value and what ``explain()`` adds.
    """
    deadline_seconds = time.monotonic() + timeout_seconds
    while not is_right(value := read()):
        if time.monotonic() > deadline_seconds:
            raise AssertionError(f"after {timeout_seconds:g} s still {value!r}\n{explain()}")
        time.sleep(POLL_SECONDS)
    return value


def always(
    read: Callable[[], T], is_right: Callable[[T], object], seconds: float, *, what: str
) -> None:
    """Fail with ``what`` and the value as soon as one within ``seconds`` is not right."""
    deadline_seconds = time.monotonic() + seconds
    while time.monotonic() < deadline_seconds:
        if not is_right(value := read()):
            raise AssertionError(f"not {what}: {value!r}")
        time.sleep(POLL_SECONDS)
