"""The allowed values of a setting, beside its type.

For example ``lease_seconds: Annotated[int, Within(1)] = 15``. They are stated once and
used by all: the programs check them, the reference lists them, and with the chart's schema Helm
refuses a value before the programs do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias, get_type_hints

from bireme.core.errors import SettingError


@dataclass(frozen=True, slots=True)
class Within:
    """A number from ``minimum`` to ``maximum``."""

    minimum: float
    maximum: float = inf

    def allows(self, value: float) -> bool:
        return self.minimum <= value <= self.maximum

    def __str__(self) -> str:
        return (
            f"from {self.minimum} to {self.maximum}"
            if self.maximum < inf
            else f"at least {self.minimum}"
        )


@dataclass(frozen=True, slots=True)
class Above:
    """A number above ``limit``."""

    limit: float

    def allows(self, value: float) -> bool:
        return value > self.limit

    def __str__(self) -> str:
        return f"above {self.limit}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of ``choices``."""

    choices: tuple[str, ...]

    def allows(self, value: str) -> bool:
        return value in self.choices

    def __str__(self) -> str:
        return f"one of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Distinct:
    """A list of at least one text, each once."""

    def allows(self, value: tuple[str, ...]) -> bool:
        return 0 < len(value) == len(set(value))

    def __str__(self) -> str:
        return "at least one text, each once"


@dataclass(frozen=True, slots=True)
class Pairs:
    """A list of texts NAME=VALUE, each name once; in a file also a mapping of names to values."""

    def allows(self, value: tuple[str, ...]) -> bool:
        return all("=" in text for text in value)

    def __str__(self) -> str:
        return "NAME=VALUE each"


@dataclass(frozen=True, slots=True)
class Address:
    """A text HOST:PORT to listen on, or, if it ``may_be_empty``, an empty one for none."""

    may_be_empty: bool = False

    def allows(self, value: str) -> bool:
        if not value:
            return self.may_be_empty
        try:
            split_address(value)
        except ValueError:
            return False
        return True

    def __str__(self) -> str:
        form = "HOST:PORT, with a port from 1 to 65535"
        return f"{form}, or empty" if self.may_be_empty else form


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, the host without the brackets of an IPv6 address.

    Raises:
        ValueError: the text is no such address.
    """
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not (host and colon and is_number) or (":" in host and not is_bracketed):
        raise ValueError(text)
    if not 0 < int(port) < 2**16:
        raise ValueError(text)
    return host.strip("[]"), int(port)


Bound: TypeAlias = Within | Above | OneOf | Distinct | Pairs | Address
"""A check that ``allows`` a value or not, and its description in words."""


@dataclass(frozen=True, slots=True)
class Internal:
    """Mark of a field that simulations and tests may set, and that no configuration names."""


def internal_fields(cls: type[Any]) -> frozenset[str]:
    """Return the names of the fields of a settings dataclass that are internal."""
    return frozenset(name for name, note in _notes(cls) if isinstance(note, Internal))


def bounds_of(cls: type[Any]) -> Mapping[str, Bound]:
    """Return the bounds of the fields of a settings dataclass, by name, in their order."""
    return {name: note for name, note in _notes(cls) if isinstance(note, Bound)}


def _notes(cls: type[Any]) -> Iterator[tuple[str, object]]:
    """Yield the notes of ``Annotated`` at each field of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    for name, hint in hints.items():
        for note in getattr(hint, "__metadata__", ()):
            yield name, note


def check_bounds(settings: Any) -> None:
    """Check every field of a settings dataclass that has bounds.

    Raises:
        SettingError: names the first field outside its bounds, its value and the bounds.
    """
    for name, limits in bounds_of(type(settings)).items():
        value = getattr(settings, name)
        if not limits.allows(value):
            raise SettingError(f"{name} is {value!r}; it must be {limits}")
