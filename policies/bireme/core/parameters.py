"""Parameters of a policy, declared once: by the constructor of its class.

    def __init__(self, beta: Annotated[float, Within(1e-6, 0.1), "Least gain worth a node."] = 3e-4)

An argument is a parameter if its type is ``int`` or ``float``, and may also be None by default,
which stands for a setting or a rule that the text names. Units are part of names. Arguments of
other types can be given in Python alone.

In text parameters follow the name of the policy as options do: ``NAME?PARAMETER=VALUE&...``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import NoneType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import urlencode

from bireme.core.bounds import Bound
from bireme.core.errors import SettingError, nearest, repeated
from bireme.core.options import split_options

Maker: TypeAlias = Callable[..., object]
"""A class, or a function that makes a policy."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a policy is made with.

    Attributes:
        is_whole: Whether it must be a whole number.
        default: None where a setting or a rule gives it, as ``about`` says.
        bound: What it may be; None for any finite number.
        about: What it does, in a line.
    """

    name: str
    is_whole: bool
    default: float | None
    bound: Bound | None
    about: str

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        bound = f" {self.bound}" if self.bound else ""
        default = "" if self.default is None else f", {self.default:g} by default"
        about = f": {self.about}" if self.about else ""
        return f"{self.name}, {kind}{bound}{default}{about}"

    def read(self, value: object) -> float:
        """Return ``value``, a number or the text of one.

        Raises:
            SettingError: it is none, or not one that the parameter can have.
        """
        found = _number(value)
        is_sound = found is not None and (isfinite(found) or found == self.default)
        if found is None or not is_sound or (self.is_whole and found != int(found)):
            kind = "a whole number" if self.is_whole else "a finite number"
            bound = f" {self.bound}" if self.bound else ""
            raise SettingError(f"{self.name} is {value!r}; it must be {kind}{bound}")
        self.check(found)
        return int(found) if self.is_whole else found

    def check(self, value: float) -> None:
        """Raise SettingError unless ``value`` is within the bound."""
        if self.bound is not None and not self.bound.allows(value):  # type: ignore[arg-type]  # of numbers
            raise SettingError(f"{self.name} is {value}; it must be {self.bound}")


def parameters_of(maker: Maker) -> dict[str, Parameter]:
    """Return the parameters of what ``maker`` makes, by name, in their order."""
    function = maker.__init__ if inspect.isclass(maker) else maker
    try:
        hints = get_type_hints(function, include_extras=True)
        arguments = inspect.signature(maker).parameters
    except Exception:  # noqa: BLE001  # a user's own class may have hints of any kind
        return {}
    return {
        name: found
        for name, argument in arguments.items()
        if argument.default is not argument.empty
        and (found := _parameter(name, hints.get(name), argument.default)) is not None
    }


def read_parameters(maker: Maker, given: str | Mapping[str, object]) -> dict[str, float]:
    """Return arguments for ``maker`` from ``given``, the text behind the question mark or values.

    Raises:
        SettingError: one is unknown, given twice, or not what it can be; the text names the
            parameter, the value, the bounds and the nearest name.
    """
    pairs = split_options(given) if isinstance(given, str) else list(given.items())
    twice = repeated(name for name, _ in pairs)
    if twice is not None:
        raise SettingError(f"{twice} is given twice in {given!r}; leave one out")
    known = parameters_of(maker)
    for name, value in pairs:
        if name not in known:
            remedy = nearest(name, known) if known else "it has no parameters, so leave it out"
            raise SettingError(f"no parameter is called {name!r}, given as {value!r}; {remedy}")
    return {name: known[name].read(value) for name, value in pairs}


def check_parameters(maker: Maker, **values: float | None) -> None:
    """Check what ``maker`` was called with against its declaration; None is always sound.

    Raises:
        SettingError: names the first that is outside of its bound, and the bound.
    """
    known = parameters_of(maker)
    for name, value in values.items():
        if value is not None:
            known[name].check(value)


def with_parameters(name: str, query: str) -> str:
    """Return ``name`` with the parameters in ``query``: ``NAME?QUERY``, or ``NAME`` for none."""
    return f"{name}?{query}" if query else name


def query_of(values: Mapping[str, object]) -> str:
    """Return the text of parameters, sorted by name, the same for equal values."""
    return urlencode(sorted((name, _text(value)) for name, value in values.items()))


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _parameter(name: str, hint: Any, default: object) -> Parameter | None:
    notes: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        notes = tuple(rest)
    types = set(get_args(hint) or (hint,)) - {NoneType}
    if types not in ({int}, {float}) or not isinstance(default, int | float | None):
        return None
    bound = next((note for note in notes if isinstance(note, Bound)), None)
    about = next((note for note in notes if isinstance(note, str)), "")
    return Parameter(name, types == {int}, default, bound, about)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
