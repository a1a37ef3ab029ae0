"""The differences between two clusters in what they answer and what they come to."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.parity.answers import PlainAnswer
from testbed.parity.states import State


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """One value that two clusters do not share; ``place`` names it within its step."""

    place: str
    real: Any
    embedded: Any

    def __str__(self) -> str:
        sides = (("real", self.real), ("embedded", self.embedded))
        return "".join((self.place, *(f"\n      {side:9}{_shown(value)}" for side, value in sides)))


def compare_answers(real: PlainAnswer, embedded: PlainAnswer) -> list[ValueDifference]:
    """Return the differences of two answers to the same request."""
    pairs = (
        ("status", real.status, embedded.status),
        ("reason", real.reason, embedded.reason),
        ("message", real.message, embedded.message),
        ("warnings", list(real.warnings), list(embedded.warnings)),
    )
    differences = [ValueDifference(*pair) for pair in pairs if pair[1] != pair[2]]
    if real.status == embedded.status:
        differences += _differences("object", real.content, embedded.content)
    return differences


def compare_states(real: State, embedded: State) -> list[ValueDifference]:
    """Return the differences of two states, by subject and field."""
    return list(_differences("state", real, embedded))


def _differences(place: str, real: Any, embedded: Any) -> Iterator[ValueDifference]:
    if isinstance(real, dict) and isinstance(embedded, dict):
        for name in sorted({*real, *embedded}):
            yield from _differences(f"{place}.{name}", real.get(name), embedded.get(name))
    elif isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        for index, (one, other) in enumerate(zip(real, embedded, strict=True)):
            yield from _differences(f"{place}[{index}]", one, other)
    elif real != embedded or type(real) is not type(embedded):
        yield ValueDifference(place, real, embedded)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1500 else f"{text[:1500]}..."
