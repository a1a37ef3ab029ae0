"""Speed up the start of programs, and keep them small."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UNUSED: Final = ("kubernetes", "rich")
"""Packages that libraries import only because they are installed: kopf, to know the models of the
first, and structlog, to colour tracebacks with the second. Together 14 MiB."""

THRESHOLDS: Final = (10_000, 10, 25)
"""Of the three generations. With Python's own, a decision on 20,000 gangs, of which nearly all is
freed by reference counts, had all objects scanned once: 0.4 of its 0.9 s."""

_M_ARENA_MAX: Final = -8
"""The option of glibc's mallopt: heaps at most, where each thread gets one of its own."""


@contextmanager
def importing() -> Iterator[None]:
    """Import without what is ``UNUSED``, and spare the garbage collector what is no garbage.

    Almost nothing that is imported becomes any, and scanning it takes a tenth of a program's start.
    Code that needs an unused package imports it later. From then on collections are rarer by
    THRESHOLDS, and all threads share one heap: what a cycle frees in its thread, others use again.
    That is 50 of 600 MiB beside 20,000 gangs.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has one heap
        mallopt(_M_ARENA_MAX, 1)
    gc.disable()
    hidden = [name for name in UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: cannot be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
