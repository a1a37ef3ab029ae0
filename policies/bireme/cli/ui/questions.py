"""The what-if form of the board, and the question of its fields.

It has the questions of ``bireme why --what-if``. It is sent by GET: an answer changes nothing, can
be opened again by its address, and needs no script.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bireme.cli import what_if
from bireme.cli.arguments import pair, whole
from bireme.cli.gangs import GangLine
from bireme.core.what_if import PriorityClass, WhatIfError
from bireme.replay.what_if import Inquiry

_USUAL_SECONDS: Final = 10
_MAX_SECONDS: Final = 60
_VALUE: Final = "class-value"


@dataclass(frozen=True, slots=True)
class Field:
    """One input of the form.

    Attributes:
        label: Text with the current value.
        value: Value that the person entered.
        choices: Values that are proposed; others are allowed.
        is_number: Whether only whole numbers make sense.
    """

    name: str
    label: str
    value: str
    choices: tuple[str, ...] = ()
    is_number: bool = False


def is_asked(parameters: Mapping[str, str]) -> bool:
    """Return whether the form was sent; the address alone shows it empty."""
    return "seconds" in parameters


def fields(
    gang: GangLine,
    tasks: Mapping[str, int],
    queues: tuple[str, ...],
    parameters: Mapping[str, str],
    *,
    is_recorded: bool,
) -> Iterator[Field]:
    """Yield the fields for ``gang`` with the replicas of its ``tasks``, filled by ``parameters``.

    For a record the form also asks for the value of a PriorityClass, which a record lacks.
    """

    def field(name: str, label: str, **more: object) -> Field:
        return Field(name, label, parameters.get(name, ""), **more)  # type: ignore[arg-type]

    if gang.kind == "TrainingJob":  # the pods of others are made by another controller
        for task, count in tasks.items():
            yield field(f"replicas.{task}", f"Replicas of {task}, now {count}", is_number=True)
    yield field("queue", f"Queue, now {gang.queue}", choices=queues)
    yield field("estimate", "Run time, such as 2h30m")
    yield field("class", "Priority class")
    if is_recorded:
        yield field(_VALUE, "Value of the priority class", is_number=True)
    yield field("try", "Also try, such as queue=b replicas=4")
    seconds = parameters.get("seconds") or str(_USUAL_SECONDS)
    yield Field("seconds", "Time limit for trying changes, seconds", seconds, is_number=True)


def question_of(gang: GangLine, parameters: Mapping[str, str]) -> Inquiry:
    """Return the question about ``gang``; WhatIfError names the field, its value and the remedy."""
    filled = {name: value.strip() for name, value in parameters.items() if value.strip()}
    changes = [
        (name, value)
        for name, value in filled.items()
        if name in ("queue", "class", "estimate") or name.startswith("replicas.")
    ]
    try:
        tries = [pair(word) for word in filled.get("try", "").split()]
        seconds = whole(filled.get("seconds", str(_USUAL_SECONDS)))
    except argparse.ArgumentTypeError as error:
        raise WhatIfError(str(error)) from error
    return Inquiry(
        kind=gang.kind,
        name=gang.name,
        namespace=gang.namespace,
        change=what_if.change_of(changes),
        tries=[what_if.change_of([change]) for change in tries],
        seconds=min(seconds, _MAX_SECONDS),
    )


def classes(parameters: Mapping[str, str]) -> dict[str, PriorityClass]:
    """Return the PriorityClass with the entered value, by name; WhatIfError if it is no number."""
    name, value = parameters.get("class", "").strip(), parameters.get(_VALUE, "").strip()
    if not value:
        return {}
    try:
        return {name: PriorityClass(name, int(value))}
    except ValueError as error:
        raise WhatIfError(f"{_VALUE}: {value!r} is not a whole number; write one") from error
