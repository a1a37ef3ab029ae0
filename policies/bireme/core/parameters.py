"""Parameters of a policy, declared once: by the constructor of its class.

    def __init__(self, beta: Annotated[float, Within(1e-6, 0.1), "Least gain worth a node."] = 3e-4)

An argument is a parameter if its type is ``int`` or ``float``. It may also be None by default; the
text then names a setting or a rule. Units are part of names. Arguments of other types can be given
only in Python.

In text, parameters follow the name of the policy as options do: ``NAME?PARAMETER=VALUE&...``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import NoneType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import urlencode

from bireme.core.bounds import Bound
from bireme.core.errors import SettingError, find_duplicate, nearest
from bireme.core.options import split_options

Maker: TypeAlias = Callable[..., object]
"""A class, or a function that makes a policy."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number with which a policy is made.

    Attributes:
        is_whole: Whether it must be a whole number.
        default: None if a setting or a rule gives it, as ``about`` says.
        bound: The allowed values; None for any finite number.
        about: Its effect, in a line.
    """

    name: str
    is_whole: bool
    default: float | None
    bound: Bound | None
    about: str

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        limits = f" {self.bound}" if self.bound else ""
        default = "" if self.default is None else f", {self.default:g} by default"
        about = f": {self.about}" if self.about else ""
        return f"{self.name}, {kind}{limits}{default}{about}"

    def read(self, value: object) -> float:
        """Return ``value``, a number or the text of one.

        Raises:
            SettingError: it is no number, or not an allowed one.
        """
        number = _number(value)
        is_sound = number is not None and (isfinite(number) or number == self.default)
        if number is None or not is_sound or (self.is_whole and number != int(number)):
            kind = "a whole number" if self.is_whole else "a finite number"
            limits = f" {self.bound}" if self.bound else ""
            raise SettingError(f"{self.name} is {value!r}; it must be {kind}{limits}")
        self.check(number)
        return int(number) if self.is_whole else number

    def check(self, value: float) -> None:
        """Raise SettingError unless ``value`` is within the bound."""
        if self.bound is not None and not self.bound.allows(value):  # type: ignore[arg-type]  # of numbers
            raise SettingError(f"{self.name} is {value}; it must be {self.bound}")


def parameters_of(maker: Maker) -> dict[str, Parameter]:
    """Return the parameters of a maker, by name, in their order."""
    function = maker.__init__ if inspect.isclass(maker) else maker
    try:
        hints = get_type_hints(function, include_extras=True)
        arguments = inspect.signature(maker).parameters
    except Exception:  # noqa: BLE001  # a user's own class may have hints of any kind
        return {}
    return {
        name: parameter
        for name, argument in arguments.items()
        if argument.default is not argument.empty
        and (parameter := _parameter(name, hints.get(name), argument.default)) is not None
    }


def read_parameters(maker: Maker, values: str | Mapping[str, object]) -> dict[str, float]:
    """Return arguments for ``maker`` from the text behind the question mark, or from values.

    Raises:
        SettingError: a parameter is unknown, given twice, or invalid; the text names the parameter,
            the value, the bounds and the nearest name.
    """
    pairs = split_options(values) if isinstance(values, str) else list(values.items())
    twice = find_duplicate(name for name, _ in pairs)
    if twice is not None:
        raise SettingError(f"{twice} is given twice in {values!r}; leave one out")
    parameters = parameters_of(maker)
    for name, value in pairs:
        if name not in parameters:
            remedy = (
                nearest(name, parameters) if parameters else "it has no parameters, so leave it out"
            )
            raise SettingError(f"no parameter is called {name!r}, given as {value!r}; {remedy}")
    return {name: parameters[name].read(value) for name, value in pairs}


def check_parameters(maker: Maker, **values: float | None) -> None:
    """Check the arguments of ``maker`` against its declaration; None is always valid.

    Raises:
        SettingError: names the first argument outside its bound, and the bound.
    """
    parameters = parameters_of(maker)
    for name, value in values.items():
        if value is not None:
            parameters[name].check(value)


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
    limits = next((note for note in notes if isinstance(note, Bound)), None)
    about = next((note for note in notes if isinstance(note, str)), "")
    return Parameter(name, types == {int}, default, limits, about)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
