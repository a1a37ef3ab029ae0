"""Options behind a name, as in a URL: ``NAME?OPTION=VALUE&OPTION=VALUE``."""

from collections.abc import Iterable, Mapping
from math import isfinite
from urllib.parse import parse_qsl

from bireme.core.errors import BiremeError, nearest


def known_name(kind: str, name: str, known: Iterable[str], error: type[BiremeError]) -> str:
    """Return ``name``, which is one of ``known``; raise ``error`` with the nearest otherwise."""
    known = sorted(known)
    if name in known:
        return name
    raise error(f"no {kind} is called {name!r}; {nearest(name, known)}")


def read_options(
    query: str, defaults: Mapping[str, object], error: type[BiremeError]
) -> dict[str, object]:
    """Return the options in ``query``, each as a value of the type that its default has.

    Raises ``error`` for an option that ``defaults`` lacks, or no number where one is needed.
    """
    return {
        name: _value(name, text, defaults[known_name("option", name, defaults, error)], error)
        for name, text in split_options(query)
    }


def split_options(query: str) -> list[tuple[str, str]]:
    """Return names and values of the options in ``query``, in its order."""
    # Blank values are kept, so that an option without a number is refused, not left out.
    return parse_qsl(query, keep_blank_values=True)


def _value(name: str, text: str, default: object, error: type[BiremeError]) -> object:
    if isinstance(default, str):
        return text
    try:
        number = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise error(f"{name} is {text!r}; it must be {kind}")
    return number
