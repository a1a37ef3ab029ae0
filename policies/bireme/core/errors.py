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
    """A setting has an invalid value; the text names setting, value and remedy."""


class SnapshotError(BiremeError):
    """A snapshot contradicts itself, for example arrays of different lengths."""


def error_text(error: BaseException) -> str:
    """Return the text of ``error``, with the type in front if it is not Bireme's own."""
    if isinstance(error, BiremeError):
        return str(error)
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def require(
    name: str,
    value: float,
    minimum: float,
    maximum: float = inf,
    error: type[BiremeError] = SettingError,
) -> None:
    """Raise ``error``, with the parameter's name, unless ``minimum <= value <= maximum``."""
    if not minimum <= value <= maximum:  # not NaN either
        remedy = f"from {minimum} to {maximum}" if maximum < inf else f"at least {minimum}"
        raise error(f"{name} is {value}; it must be {remedy}")


def installing(extra: str, source: str = ".") -> str:
    """Return the remedy where the dependencies of ``extra`` are not installed.

    ``source`` is the folder of the distribution that has the extra.
    """
    return f"pip install '{source}[{extra}]' in a checkout of Bireme"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for ``name``, which is not in ``names``: the nearest, else all of them."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def find_duplicate(names: Iterable[str]) -> str | None:
    """Return a name that occurs more than once; None if all differ."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
