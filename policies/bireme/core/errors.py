"""Exceptions of the library. "Does not fit" is never one: that is a ``Hold`` with a ``Reason``.

BiremeError
├── SettingError     a setting has a value it cannot have
└── SnapshotError    a snapshot contradicts itself (a programming error at the edge)
"""

import difflib
from collections import Counter
from collections.abc import Iterable
from math import inf


class BiremeError(Exception):
    """Root of everything Bireme raises on purpose."""


class SettingError(BiremeError, ValueError):
    """A setting has a value it cannot have; the text names setting, value and remedy."""


class SnapshotError(BiremeError):
    """A snapshot contradicts itself, for example arrays of different lengths."""


def error_text(error: BaseException) -> str:
    """Return the text of ``error``; of errors that are not Bireme's, with the type in front."""
    if isinstance(error, BiremeError):
        return str(error)
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def require(
    name: str,
    value: float,
    least: float,
    most: float = inf,
    error: type[BiremeError] = SettingError,
) -> None:
    """Raise ``error``, with the parameter's name, unless ``least <= value <= most``."""
    if not least <= value <= most:  # not NaN either
        remedy = f"from {least} to {most}" if most < inf else f"at least {least}"
        raise error(f"{name} is {value}; it must be {remedy}")


def installing(extra: str) -> str:
    """Return the remedy where what comes with ``extra`` of Bireme's package is not installed."""
    return f"pip install '.[{extra}]' in a checkout of Bireme"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for ``name``, which is none of ``known``: the nearest, else all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def repeated(names: Iterable[str]) -> str | None:
    """Return a name that comes more than once; None where all differ."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
