"""Bounds of settings: what they allow, and what a person reads who gave something else."""

import dataclasses
from dataclasses import dataclass
from math import inf, nan
from typing import Annotated, Any

import pytest

from bireme.core.bounds import (
    Above,
    Address,
    Bound,
    Distinct,
    OneOf,
    Within,
    bounds_of,
    check_bounds,
)
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme_extender.settings import ExtenderSettings
from bireme_operator.settings import OperatorSettings


@pytest.mark.parametrize(
    ("bound", "allowed", "refused", "words"),
    [
        (Within(1), (1, 9**99, inf), (0.999, -inf, nan), "at least 1"),
        (Within(0, 1), (0, 0.5, 1), (-0.1, 1.1, nan), "from 0 to 1"),
        (
            Address(),
            ("127.0.0.1:1", "[::1]:65535", "localhost:80"),
            ("", ":80", "::1:80", "a:0", "a:65536", "a:b"),
            "HOST:PORT, with a port from 1 to 65535",
        ),
        (
            Address(may_be_empty=True),
            ("", "a:1"),
            ("a",),
            "HOST:PORT, with a port from 1 to 65535, or empty",
        ),
        (Above(0), (1e-9, inf), (0, -1, nan), "above 0"),
        (OneOf(("a", "b")), ("a", "b"), ("", "c", "ab"), "one of a, b"),
        (Distinct(), (("a",), ("a", "b")), ((), ("a", "a")), "at least one text, each once"),
    ],
)
def test_a_bound_allows_what_its_words_say(
    bound: Bound, allowed: tuple[Any, ...], refused: tuple[Any, ...], words: str
) -> None:
    assert [value for value in allowed if not bound.allows(value)] == []
    assert [value for value in refused if bound.allows(value)] == []
    assert str(bound) == words


def test_a_value_outside_is_refused_by_name_with_what_it_must_be() -> None:
    @dataclass
    class Settings:
        free: int = -5
        port: Annotated[int, Within(1, 9)] = 10

    with pytest.raises(SettingError, match=r"^port is 10; it must be from 1 to 9$"):
        check_bounds(Settings())


@pytest.mark.parametrize("cls", [SchedulingSettings, OperatorSettings, ExtenderSettings])
def test_every_number_among_the_settings_has_bounds_and_its_class_keeps_them(
    cls: type[Any],
) -> None:
    bounds = bounds_of(cls)
    fields = {field.name: field.default for field in dataclasses.fields(cls)}
    numbers = {n for n, value in fields.items() if type(value) in {int, float}}
    assert numbers <= set(bounds)
    for name in numbers:
        bound: Any = bounds[name]
        value = next(value for value in (-1, -(2**40)) if not bound.allows(value))
        with pytest.raises(SettingError, match=f"^{name} is {value}; it must be "):
            cls(**{name: value})
