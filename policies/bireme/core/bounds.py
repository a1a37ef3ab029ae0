"""The allowed values of a setting, beside its type.

For example ``lease_seconds: Annotated[int, Within(1)] = 15``. They are stated once and
used by all: the programs check them, the reference lists them, and with the chart's schema Helm
refuses a value before the programs do.
"""

from collections.abc import Mapping
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


Bound: TypeAlias = Within | Above | OneOf | Distinct | Pairs
"""A check that ``allows`` a value or not, and its description in words."""


def bounds_of(cls: type[Any]) -> Mapping[str, Bound]:
    """Return the bounds of the fields of a settings dataclass, by name, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    notes = ((name, note) for name in hints for note in getattr(hints[name], "__metadata__", ()))
    return {name: note for name, note in notes if isinstance(note, Bound)}


def check_bounds(settings: Any) -> None:
    """Check every field of a settings dataclass that has bounds.

    Raises:
        SettingError: names the first field outside its bounds, its value and the bounds.
    """
    for name, limits in bounds_of(type(settings)).items():
        value = getattr(settings, name)
        if not limits.allows(value):
            raise SettingError(f"{name} is {value!r}; it must be {limits}")
