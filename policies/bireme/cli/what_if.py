"""What-if questions of ``bireme why`` and ``bireme submit``, and their answers as text and data.

The leader answers (:mod:`bireme.cli.leader`), or the last cycle of a record does
(:mod:`bireme.replay.what_if`). Both use :mod:`bireme.core.what_if`.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme.cli import cluster as common
from bireme.cli import outlook
from bireme.cli.arguments import Json, UsageError, naming, whole
from bireme.cli.recorded_cycle import last_cycle, policy_that_decided
from bireme.core.play import Cut
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time, duration
from bireme.core.what_if import (
    Begins,
    ExpectedStart,
    GangChange,
    Others,
    PriorityClass,
    WhatIfError,
)
from bireme.kube.conditions import cleaned
from bireme.replay.what_if import Inquiry, Known, NamedChange, Told, check_changes, gangs_of
from bireme.replay.what_if import answers as told_of

_VERSION: Final = "cli.bireme.dev/v1"
ASSUMPTIONS: Final = (
    "The forecast assumes that no gangs arrive, nothing fails, and all run as long as estimated."
)
_MAX_NODES: Final = 8
_CUTS: Final = {
    Cut.ALL_STARTED: "it does not start in the forecast",
    Cut.NOTHING_ENDS: "it cannot start even when all running gangs have ended",
    Cut.HORIZON: "not within 30 days",
    Cut.CYCLES: "not before the forecast ends",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers, and the policy that gave them."""

    answers: Sequence[Told]
    policy: str


def answers(options: argparse.Namespace, question: Inquiry) -> Answered:
    """Return the answers: one for each manifest, or one for the gang that waits."""
    if options.record:
        return _of_record(options, question)
    return _of_leader(options, question)


def write(options: argparse.Namespace, result: Answered, *, is_list: bool) -> None:
    """Write the answers as ``--output`` asks; ``is_list`` if several questions are possible."""
    items = [_json(answer, result.policy) for answer in result.answers]
    head = {"apiVersion": _VERSION}
    if is_list:
        data = {**head, "kind": "WhatIfList", "items": items}
    else:
        data = {**head, "kind": "WhatIf", **items[0]}
    common.write(options.output, data, text(result))


def text(result: Answered) -> str:
    """Return the answers as text."""
    return (
        "\n".join(_text(answer, result.policy) for answer in result.answers) + f"\n{ASSUMPTIONS}\n"
    )


# --- changes as they are written on a command line ---------------------------------------------


def change_of(pairs: Sequence[tuple[str, str]]) -> NamedChange:
    """Return the change of KEY=VALUE ``pairs``; WhatIfError names key, value and remedy."""
    fields, keys = dict[str, Any](), set[str]()
    replicas = dict[str, int]()
    for key, value in pairs:
        if key in keys:
            raise WhatIfError(f"{key} is given twice; give it once")
        keys.add(key)
        name, _, task = key.partition(".")
        try:
            if name == "replicas":
                replicas[task] = whole(value)
            elif key in ("queue", "class"):
                fields["priority_class" if key == "class" else key] = value
            elif key == "estimate":
                fields["estimated_seconds"] = common.duration(value)
            else:
                raise argparse.ArgumentTypeError(
                    "is no key; write replicas, replicas.TASK, queue, class or estimate"
                )
        except argparse.ArgumentTypeError as error:
            raise WhatIfError(f"{key}: {error}") from error
    return NamedChange(replicas=replicas, **fields)


def _classes_of(options: argparse.Namespace) -> dict[str, PriorityClass]:
    """Return the PriorityClasses that the options state, by name."""
    classes = {}
    for name, value in options.priority_classes:
        try:
            number = int(value)
        except ValueError as error:
            raise UsageError(
                f"argument --priority-class: {name}: {value!r} is not a whole number; write one"
            ) from error
        classes[name] = PriorityClass(name, number)
    return classes


# --- from a record -----------------------------------------------------------------------------


def _of_record(options: argparse.Namespace, question: Inquiry) -> Answered:
    classes = _classes_of(options)
    settings, cycle = last_cycle(options)
    name, policy = policy_that_decided(settings, cycle, options.checkpoints, "--record")
    snapshot = cycle.snapshot
    facts = record_facts(settings, classes, "by --priority-class NAME=VALUE")
    if not question.manifests:
        question = msgspec.structs.replace(question, namespace=_namespace_of(snapshot, question))
    gangs, with_all = gangs_of(question, facts, snapshot)
    with naming("--what-if"):
        change = facts.resolve(question.change)
        check_changes(gangs, with_all, change, ())
    with naming("--try"):
        tries = [facts.resolve(named_change) for named_change in question.tries]
        check_changes(gangs, with_all, change, tries)
    return Answered(told_of(question, facts, snapshot, policy, time.monotonic), name)


def record_facts(
    settings: SchedulingSettings, classes: Mapping[str, PriorityClass], where: str
) -> Known:
    """Return the facts that a record lacks; ``where`` names the source of a class's value."""
    return Known(
        classes=dict(classes),
        topology_levels=settings.topology_levels,
        no_class=f"a record holds no PriorityClass; state the value of this one {where}",
    )


def _namespace_of(snapshot: ClusterSnapshot, question: Inquiry) -> str:
    """Return the namespace of the question, or else that of the only gang of its name."""
    kind, name = question.kind, question.name
    every = [*snapshot.waiting, *(running_gang.gang for running_gang in snapshot.running)]
    namespaces = {gang.namespace for gang in every if (gang.kind, gang.name) == (kind, name)}
    if not question.namespace and len(namespaces) > 1:
        listed = ", ".join(sorted(namespaces))
        raise UsageError(f"argument JOB: {name} is in namespaces {listed}; choose one by -n")
    return question.namespace or next(iter(namespaces), "default")


# --- from the leader ---------------------------------------------------------------------------


def _of_leader(options: argparse.Namespace, question: Inquiry) -> Answered:
    for name, value in (
        ("--priority-class", options.priority_classes),
        ("--checkpoints", options.checkpoints),
    ):
        if value:
            raise UsageError(
                f"argument {name}: needs --record; leave it out, because the leader knows its own"
            )
    otherwise = "ask a record by --record"
    return common.ask(options, lambda reader: of_leader(reader, options, question, otherwise))


async def of_leader(
    reader: common.ClusterReader, options: argparse.Namespace, question: Inquiry, otherwise: str
) -> Answered:
    """Return the leader's answers, with the rights of ``reader``.

    ``options`` are those of :func:`bireme.cli.leader.add_leader`; ``otherwise`` is the alternative
    if there is no leader to ask. Raises ConsoleError and UsageError as
    :func:`bireme.cli.leader.fetch`.
    """
    reply = await outlook.ask_leader(reader, options, question, otherwise)
    return Answered(reply.answers, outlook.policy_of(reply.policy))


# --- words -------------------------------------------------------------------------------------


def _text(result: Told, policy: str) -> str:
    # Messages quote text of tenants, and a terminal obeys control characters.
    facts = ((label, cleaned(fact)) for label, fact in _facts(result, policy))
    lines = [f"{label:<10}{fact}" if label else fact for label, fact in facts]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts(result: Told, policy: str) -> Iterator[tuple[str, str]]:
    answer, foreseen = result.answer, result.answer.foreseen
    size = ", ".join(f"{count} {task}" for task, count in answer.replicas.items())
    estimate = answer.estimated_seconds
    runs = f"runs {_exact(estimate)}" if estimate is not None else "without an estimate"
    request = f"{size or 'no tasks'}, queue {answer.queue}, priority {answer.priority}, {runs}"
    yield "", f"{answer.kind} {answer.namespace}/{answer.name}: {request}"
    yield "", f"at {clock_time(answer.now)}, by {policy}"
    yield "", ""
    yield "starts", _start(foreseen, answer.now)
    for number, (task, nodes) in enumerate(foreseen.nodes.items()):
        places = [f"{count} on {node}" for node, count in nodes.items()][:_MAX_NODES]
        more = f" and {len(nodes) - len(places)} more nodes" if len(nodes) > len(places) else ""
        yield "places" if not number else " ", f"{task}: {', '.join(places)}{more}"
    if foreseen.reason is not None:
        yield "waits for", f"{foreseen.reason.value}: {foreseen.message}"
    if foreseen.position is not None:
        order = f"behind {_others(foreseen.ahead)}" if foreseen.ahead.count else "the first"
        yield "order", f"position {foreseen.position}, {order}"
    yield from _room(foreseen)
    for number, alternative in enumerate(answer.sooner):
        effects = "".join(f"; {what} {who}" for what, who in _room(alternative.foreseen))
        start = _start(alternative.foreseen, answer.now)
        yield (
            "sooner" if not number else " ",
            f"with {_change(alternative.change)}: {start}{effects}",
        )
    if answer.no_sooner:
        yield "no sooner", "with " + ", ".join(map(_change, answer.no_sooner))
    if answer.is_cut_short:
        yield "", "The time limit left some changes untried; name those that matter by --try."
    for remark in result.remarks:
        yield "but", remark


def _room(foreseen: ExpectedStart) -> Iterator[tuple[str, str]]:
    if foreseen.stops.count:
        yield "stops", _others(foreseen.stops)
    if foreseen.shrinks.count:
        yield "shrinks", _others(foreseen.shrinks)


def _start(foreseen: ExpectedStart, now: float) -> str:
    if foreseen.cut is not None or foreseen.start is None:
        suffix = f": {_CUTS[foreseen.cut]}" if foreseen.cut is not None else ""
        return f"not foreseen{suffix}"
    if foreseen.begins is Begins.AT_ONCE:
        return "at once"
    if foreseen.begins is Begins.AFTER_STOPS:
        return "when the gangs that make room have stopped"
    if foreseen.begins is Begins.AFTER_ENDS:
        return "when the gangs there end, at an unknown time"
    return f"in {duration(foreseen.start - now)}, {clock_time(foreseen.start)}"


def _others(gangs: Others) -> str:
    hidden = gangs.count - len(gangs.named)
    if not gangs.named:
        return f"{hidden} gang{'s' * (hidden != 1)}"
    more = f" and {hidden} more" if hidden else ""
    return f"{', '.join(gangs.named)}{more}"


def _change(change: GangChange) -> str:
    return " and ".join(_words(change))


def _words(change: GangChange) -> Iterator[str]:
    for task, count in change.replicas.items():
        yield f"{count} {task}"
    if change.queue:
        yield f"queue {change.queue}"
    if change.priority_class is not None:
        yield f"class {change.priority_class.name}"
    if change.estimated_seconds is not None:
        yield f"estimate {_exact(change.estimated_seconds)}"


def _exact(seconds: float) -> str:
    """Format whole seconds for ``spec.estimatedDuration``, rounded down: more would be late."""
    hours, rest = divmod(max(1, math.floor(seconds)), 3600)
    parts = ((hours, "h"), (rest // 60, "m"), (rest % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


# --- data --------------------------------------------------------------------------------------


def _json(result: Told, policy: str) -> Json:
    answer = result.answer
    return {
        "policy": policy,
        "time": clock_time(answer.now),
        "gang": {
            "kind": answer.kind,
            "namespace": answer.namespace,
            "name": answer.name,
            "queue": answer.queue,
            "replicas": dict(answer.replicas),
            "priority": answer.priority,
            "estimatedSeconds": answer.estimated_seconds,
        },
        **_json_of(answer.foreseen, answer.now),
        "sooner": [
            {
                "change": _json_change(alternative.change),
                **_json_of(alternative.foreseen, answer.now),
            }
            for alternative in answer.sooner
        ],
        "noSooner": [_json_change(change) for change in answer.no_sooner],
        "isCutShort": answer.is_cut_short,
        "remarks": list(result.remarks),
    }


def _json_of(foreseen: ExpectedStart, now: float) -> Json:
    start = foreseen.start
    return {
        "begins": foreseen.begins.value,
        "start": clock_time(start) if start is not None else None,
        "waitSeconds": start - now if start is not None else None,
        "nodes": {task: dict(nodes) for task, nodes in foreseen.nodes.items()},
        "position": foreseen.position,
        "ahead": _json_others(foreseen.ahead),
        "reason": foreseen.reason.value if foreseen.reason is not None else None,
        "message": foreseen.message or None,
        "stops": _json_others(foreseen.stops),
        "shrinks": _json_others(foreseen.shrinks),
        "cut": foreseen.cut.value if foreseen.cut is not None else None,
    }


def _json_others(gangs: Others) -> Json:
    return {"count": gangs.count, "named": list(gangs.named)}


def _json_change(change: GangChange) -> Json:
    result: Json = {}
    if change.replicas:
        result["replicas"] = dict(change.replicas)
    if change.queue:
        result["queue"] = change.queue
    if change.priority_class is not None:
        result["priorityClass"] = change.priority_class.name
    if change.estimated_seconds is not None:
        result["estimatedSeconds"] = change.estimated_seconds
    return result
