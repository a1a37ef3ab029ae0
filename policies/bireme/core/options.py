"""Options behind a name, as in a URL: ``NAME?OPTION=VALUE&OPTION=VALUE``."""

from collections.abc import Iterable, Mapping
from math import isfinite
from urllib.parse import parse_qsl

from bireme.core.errors import BiremeError, nearest


def check_name(kind: str, name: str, names: Iterable[str], error: type[BiremeError]) -> str:
    """Return ``name`` if ``names`` contain it; else raise ``error`` with the nearest."""
    names = sorted(names)
    if name in names:
        return name
    raise error(f"no {kind} is called {name!r}; {nearest(name, names)}")


def read_options(
    query: str, defaults: Mapping[str, object], error: type[BiremeError]
) -> dict[str, object]:
    """Return the options in ``query``, each with the type of its default.

    Raises ``error`` for an option without a default, or if a number is needed but not given.
    """
    return {
        name: _value(name, text, defaults[check_name("option", name, defaults, error)], error)
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
