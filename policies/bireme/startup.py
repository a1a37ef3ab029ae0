"""Speed up the start of programs, and keep them small."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UNUSED: Final = ("kubernetes", "rich")
"""Packages that libraries import only because they are installed: kopf, to know the models of the
first, and structlog, to colour tracebacks with the second. Together 14 MiB."""


@contextmanager
def importing() -> Iterator[None]:
    """Import without what is ``UNUSED``, and exempt all that is imported from garbage collection.

    Almost nothing of it becomes garbage, and scanning it takes a tenth of a program's start.
    Whoever needs an unused package imports it later.
    """
    gc.disable()
    hidden = [name for name in UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: cannot be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        gc.enable()
