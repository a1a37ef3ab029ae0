"""What-if questions of ``bireme why`` and ``bireme submit``: asked, and told in words.

The leader is asked (:mod:`bireme.cli.leader`), or the last cycle of a record is
(:mod:`bireme.replay.what_if`). Both answer by :mod:`bireme.core.what_if`.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from bireme.cli import cluster as common
from bireme.cli import leader
from bireme.cli.arguments import Json, UsageError, naming, whole
from bireme.core.play import Cut
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time, duration
from bireme.core.what_if import Begins, Change, Foreseen, Others, PriorityClass, WhatIfError
from bireme.kube.conditions import cleaned
from bireme.replay.what_if import Asked, Known, NamedChange, Told, check_changes, gangs_of
from bireme.replay.what_if import answers as told_of

_VERSION: Final = "cli.bireme.dev/v1"
_LEADER_VERSION: Final = "what-if.bireme.dev/v1"
_QUEUE_SECONDS: Final = 240.0
"""The longest that the leader, by its defaults, answers others first."""
_ASSUMED: Final = "Nobody arrives in this, nothing fails, and all run as long as estimated."
_MAX_NODES: Final = 8
_CUTS: Final = {
    Cut.ALL_STARTED: "it does not start in this",
    Cut.NOTHING_ENDS: "it would wait on, though all that runs had ended",
    Cut.HORIZON: "not within 30 days",
    Cut.CYCLES: "not as far as was played",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers, and the policy that gave them."""

    told: Sequence[Told]
    policy: str


def answers(options: argparse.Namespace, asked: Asked) -> Answered:
    """Return the answers: one for each manifest, or one for the gang that waits."""
    if options.record:
        return _of_record(options, asked)
    return _of_leader(options, asked)


def write(options: argparse.Namespace, found: Answered, *, is_list: bool) -> None:
    """Write the answers as ``--output`` asks; ``is_list`` where a person may ask for several."""
    items = [_json(each, found.policy) for each in found.told]
    head = {"apiVersion": _VERSION}
    if is_list:
        data = {**head, "kind": "WhatIfList", "items": items}
    else:
        data = {**head, "kind": "WhatIf", **items[0]}
    common.write(options.output, data, text(found))


def text(found: Answered) -> str:
    """Return the answers in words."""
    return "\n".join(_text(each, found.policy) for each in found.told) + f"\n{_ASSUMED}\n"


# --- changes as they are written on a command line ---------------------------------------------


def change_of(pairs: Sequence[tuple[str, str]]) -> NamedChange:
    """Return the change of KEY=VALUE ``pairs``; WhatIfError names key, value and remedy."""
    found, seen = dict[str, Any](), set[str]()
    replicas = dict[str, int]()
    for key, value in pairs:
        if key in seen:
            raise WhatIfError(f"{key} is given twice; give it once")
        seen.add(key)
        name, _, task = key.partition(".")
        try:
            if name == "replicas":
                replicas[task] = whole(value)
            elif key in ("queue", "class"):
                found["priority_class" if key == "class" else key] = value
            elif key == "estimate":
                found["estimated_seconds"] = common.duration(value)
            else:
                raise argparse.ArgumentTypeError(
                    "is no key; write replicas, replicas.TASK, queue, class or estimate"
                )
        except argparse.ArgumentTypeError as error:
            raise WhatIfError(f"{key}: {error}") from error
    return NamedChange(replicas=replicas, **found)


def _classes_of(options: argparse.Namespace) -> dict[str, PriorityClass]:
    """Return the PriorityClasses that the options state, by name."""
    found = {}
    for name, value in options.priority_classes:
        try:
            number = int(value)
        except ValueError as error:
            raise UsageError(
                f"argument --priority-class: {name}: {value!r} is no value; write a whole number"
            ) from error
        found[name] = PriorityClass(name, number)
    return found


# --- from a record -----------------------------------------------------------------------------


def _of_record(options: argparse.Namespace, asked: Asked) -> Answered:
    # Here, as they bring the simulator with them.
    from bireme.cli.outlook import last_cycle, policy_that_decided

    classes = _classes_of(options)
    settings, cycle = last_cycle(options, "--record")
    name, policy = policy_that_decided(settings, cycle, options.checkpoints, "--record")
    snapshot = cycle.snapshot
    known = known_of_record(settings, classes, "by --priority-class NAME=VALUE")
    if not asked.manifests:
        asked = msgspec.structs.replace(asked, namespace=_namespace_of(snapshot, asked))
    gangs, with_all = gangs_of(asked, known, snapshot)
    with naming("--what-if"):
        change = known.resolved(asked.change)
        check_changes(gangs, with_all, change, ())
    with naming("--try"):
        tries = [known.resolved(each) for each in asked.tries]
        check_changes(gangs, with_all, change, tries)
    return Answered(told_of(asked, known, snapshot, policy, time.monotonic), name)


def known_of_record(
    settings: SchedulingSettings, classes: Mapping[str, PriorityClass], where: str
) -> Known:
    """Return what a record does not hold; ``where`` says how a reader states a class's value."""
    return Known(
        classes=dict(classes),
        topology_levels=settings.topology_levels,
        no_class=f"a record holds no PriorityClass; state the value of this one {where}",
    )


def _namespace_of(snapshot: ClusterSnapshot, asked: Asked) -> str:
    """Return the namespace asked about; where none is given, that of the only gang of its name."""
    kind, name = asked.kind, asked.name
    every = [*snapshot.waiting, *(held.gang for held in snapshot.running)]
    found = {each.namespace for each in every if (each.kind, each.name) == (kind, name)}
    if not asked.namespace and len(found) > 1:
        known = ", ".join(sorted(found))
        raise UsageError(f"argument JOB: {name} is in namespaces {known}; choose one by -n")
    return asked.namespace or next(iter(found), "default")


# --- from the leader ---------------------------------------------------------------------------


class _LeaderAnswers(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    policy: str
    answers: list[Told]


def _of_leader(options: argparse.Namespace, asked: Asked) -> Answered:
    for name, given in (
        ("--priority-class", options.priority_classes),
        ("--checkpoints", options.checkpoints),
    ):
        if given:
            raise UsageError(
                f"argument {name}: has a meaning with --record alone; leave it out, as the leader"
                " knows its own"
            )
    otherwise = "ask a record by --record"
    return common.ask(options, lambda reader: of_leader(reader, options, asked, otherwise))


async def of_leader(
    reader: common.Reader, options: argparse.Namespace, asked: Asked, otherwise: str
) -> Answered:
    """Return the leader's answers, with the rights of ``reader``.

    ``options`` are those of :func:`bireme.cli.leader.add_leader`; ``otherwise`` says what to do
    where there is no leader to ask. Raises ConsoleError and UsageError as
    :func:`bireme.cli.leader.fetch`.
    """
    asked = msgspec.structs.replace(asked, namespace=asked.namespace or reader.namespace)
    body = {"apiVersion": _LEADER_VERSION, "question": asked}
    request = leader.Request("what-if", "ask what if", otherwise, body)
    if options.request_timeout:  # it is for what is answered at once
        request = replace(request, timeout_seconds=options.request_timeout + _QUEUE_SECONDS)
    answer = await leader.fetch(reader, options, request)
    found = leader.decode(answer, _LeaderAnswers, _LEADER_VERSION)
    return Answered(found.answers, cleaned(found.policy) or "the policy of the settings")


# --- words -------------------------------------------------------------------------------------


def _text(told: Told, policy: str) -> str:
    # Messages quote what tenants wrote, and a terminal obeys control characters.
    facts = ((label, cleaned(fact)) for label, fact in _facts(told, policy))
    lines = [f"{label:<10}{fact}" if label else fact for label, fact in facts]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts(told: Told, policy: str) -> Iterator[tuple[str, str]]:
    answer, found = told.answer, told.answer.foreseen
    size = ", ".join(f"{count} {task}" for task, count in answer.replicas.items())
    estimate = answer.estimated_seconds
    runs = f"runs {_exact(estimate)}" if estimate is not None else "without an estimate"
    asked = f"{size or 'no tasks'}, queue {answer.queue}, priority {answer.priority}, {runs}"
    yield "", f"{answer.kind} {answer.namespace}/{answer.name}: {asked}"
    yield "", f"at {clock_time(answer.now)}, by {policy}"
    yield "", ""
    yield "starts", _start(found, answer.now)
    for number, (task, nodes) in enumerate(found.nodes.items()):
        shown = [f"{count} on {node}" for node, count in nodes.items()][:_MAX_NODES]
        more = f" and {len(nodes) - len(shown)} more nodes" if len(nodes) > len(shown) else ""
        yield "places" if not number else " ", f"{task}: {', '.join(shown)}{more}"
    if found.reason is not None:
        yield "waits for", f"{found.reason.value}: {found.message}"
    if found.position is not None:
        ahead = f"behind {_others(found.ahead)}" if found.ahead.count else "the first"
        yield "order", f"position {found.position}, {ahead}"
    yield from _room(found)
    for number, each in enumerate(answer.sooner):
        others = "".join(f"; {what} {who}" for what, who in _room(each.foreseen))
        start = _start(each.foreseen, answer.now)
        yield "sooner" if not number else " ", f"with {_change(each.change)}: {start}{others}"
    if answer.no_sooner:
        yield "no sooner", "with " + ", ".join(map(_change, answer.no_sooner))
    if answer.is_cut_short:
        yield "", "There was no time to try everything; allow more with --seconds."
    for remark in told.remarks:
        yield "but", remark


def _room(found: Foreseen) -> Iterator[tuple[str, str]]:
    if found.stops.count:
        yield "stops", _others(found.stops)
    if found.shrinks.count:
        yield "shrinks", _others(found.shrinks)


def _start(found: Foreseen, now: float) -> str:
    if found.cut is not None or found.start is None:
        why = f": {_CUTS[found.cut]}" if found.cut is not None else ""
        return f"not foreseen{why}"
    if found.begins is Begins.AT_ONCE:
        return "at once"
    if found.begins is Begins.AFTER_STOPS:
        return "as soon as those that make room are gone"
    if found.begins is Begins.AFTER_ENDS:
        return "as soon as what runs there ends, which does not say when"
    return f"in {duration(found.start - now)}, {clock_time(found.start)}"


def _others(others: Others) -> str:
    hidden = others.count - len(others.named)
    if not others.named:
        return f"{hidden} gang{'s' * (hidden != 1)}"
    more = f" and {hidden} more" if hidden else ""
    return f"{', '.join(others.named)}{more}"


def _change(change: Change) -> str:
    return " and ".join(_words(change))


def _words(change: Change) -> Iterator[str]:
    for task, count in change.replicas.items():
        yield f"{count} {task}"
    if change.queue:
        yield f"queue {change.queue}"
    if change.priority_class is not None:
        yield f"class {change.priority_class.name}"
    if change.estimated_seconds is not None:
        yield f"estimate {_exact(change.estimated_seconds)}"


def _exact(seconds: float) -> str:
    """Write whole seconds as ``spec.estimatedDuration`` takes them: rounded up it would be late."""
    hours, rest = divmod(max(1, math.floor(seconds)), 3600)
    parts = ((hours, "h"), (rest // 60, "m"), (rest % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


# --- data --------------------------------------------------------------------------------------


def _json(told: Told, policy: str) -> Json:
    answer = told.answer
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
            {"change": _json_change(each.change), **_json_of(each.foreseen, answer.now)}
            for each in answer.sooner
        ],
        "noSooner": [_json_change(each) for each in answer.no_sooner],
        "isCutShort": answer.is_cut_short,
        "remarks": list(told.remarks),
    }


def _json_of(found: Foreseen, now: float) -> Json:
    start = found.start
    return {
        "begins": found.begins.value,
        "start": clock_time(start) if start is not None else None,
        "waitSeconds": start - now if start is not None else None,
        "nodes": {task: dict(nodes) for task, nodes in found.nodes.items()},
        "position": found.position,
        "ahead": _json_others(found.ahead),
        "reason": found.reason.value if found.reason is not None else None,
        "message": found.message or None,
        "stops": _json_others(found.stops),
        "shrinks": _json_others(found.shrinks),
        "cut": found.cut.value if found.cut is not None else None,
    }


def _json_others(others: Others) -> Json:
    return {"count": others.count, "named": list(others.named)}


def _json_change(change: Change) -> Json:
    found: Json = {}
    if change.replicas:
        found["replicas"] = dict(change.replicas)
    if change.queue:
        found["queue"] = change.queue
    if change.priority_class is not None:
        found["priorityClass"] = change.priority_class.name
    if change.estimated_seconds is not None:
        found["estimatedSeconds"] = change.estimated_seconds
    return found
