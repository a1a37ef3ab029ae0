"""What-if questions of ``bireme why`` and ``bireme submit``: asked of a record, told in words.

:mod:`bireme.core.what_if` answers them. A :class:`Question` and what comes back are plain data: one
more source is one more function like ``_of_record``.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, UsageError, naming, whole
from bireme.cli.cluster import ConsoleError
from bireme.cli.submit import lint_queue
from bireme.core.gangs import Gang
from bireme.core.outlook import Cut
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time, duration
from bireme.core.what_if import (
    NO_CHANGE,
    Answer,
    Begins,
    Change,
    Foreseen,
    Others,
    PriorityClass,
    ask,
    changed,
    find_waiting,
    with_gang,
)
from bireme.kube import quantities, training_jobs, wire
from bireme.kube.conditions import cleaned

_VERSION: Final = "cli.bireme.dev/v1"
_ASSUMED: Final = "Nobody arrives in this, nothing fails, and all run as long as estimated."
_MOST_NODES: Final = 8
_CUTS: Final = {
    Cut.ALL_STARTED: "it does not start in this",
    Cut.NOTHING_ENDS: "it would wait on, though all that runs had ended",
    Cut.HORIZON: "not within 30 days",
    Cut.CYCLES: "not as far as was played",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What a person asks: about jobs as they would be submitted, or about one that waits.

    Attributes:
        manifests: TrainingJobs that would be submitted together, each sound on its own.
        kind, name: Of the gang that waits, where there are no manifests.
        namespace: That of manifests and of the gang, where they say none; "" for none given.
        change: What would be different about it.
        tries: Changes to try beside the usual ones.
    """

    manifests: tuple[Json, ...] = ()
    kind: str = "TrainingJob"
    name: str = ""
    namespace: str = ""
    change: Change = NO_CHANGE
    tries: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, the policy that gave it, and what it leaves out, in sentences."""

    answer: Answer
    policy: str
    remarks: tuple[str, ...] = ()


def answers(options: argparse.Namespace, question: Question) -> list[Told]:
    """Return the answers: one for each manifest, or one for the gang that waits."""
    if options.record:
        return _of_record(options, question)
    raise UsageError(
        "argument --record: is missing; name what an operator recorded, its files or their folder"
    )


def write(options: argparse.Namespace, told: Sequence[Told], *, is_list: bool) -> None:
    """Write the answers as ``--output`` asks; ``is_list`` where a person may ask for several."""
    items = [_json(each) for each in told]
    head = {"apiVersion": _VERSION}
    if is_list:
        data = {**head, "kind": "WhatIfList", "items": items}
    else:
        data = {**head, "kind": "WhatIf", **items[0]}
    common.write(options.output, data, "\n".join(map(_text, told)) + f"\n{_ASSUMED}\n")


# --- changes as they are written on a command line ---------------------------------------------


def change_of(
    pairs: Sequence[tuple[str, str]], argument: str, classes: Mapping[str, PriorityClass]
) -> Change:
    """Return the change of KEY=VALUE ``pairs``; UsageError names ``argument``, key and remedy."""
    change, seen = NO_CHANGE, set[str]()
    for key, value in pairs:
        if key in seen:
            raise UsageError(f"argument {argument}: {key} is given twice; give it once")
        seen.add(key)
        name, _, task = key.partition(".")
        try:
            if name == "replicas":
                change = replace(change, replicas={**change.replicas, task: whole(value)})
            elif key == "queue":
                change = replace(change, queue=value)
            elif key == "class":
                change = replace(change, priority_class=_class(value, classes))
            elif key == "estimate":
                change = replace(change, estimated_seconds=common.duration(value))
            else:
                raise argparse.ArgumentTypeError(
                    "is no key; write replicas, replicas.TASK, queue, class or estimate"
                )
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"argument {argument}: {key}: {error}") from error
    return change


def _class(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass:
    if name not in classes:
        raise argparse.ArgumentTypeError(
            f"a record holds no PriorityClass; state it by --priority-class {name}=VALUE"
        )
    return classes[name]


def classes_of(options: argparse.Namespace) -> dict[str, PriorityClass]:
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


def _of_record(options: argparse.Namespace, question: Question) -> list[Told]:
    # Here, as they bring the simulator with them.
    from bireme.cli.outlook import last_cycle, policy_that_decided

    settings, cycle = last_cycle(options.record, "--record")
    name, policy = policy_that_decided(settings, cycle, options.checkpoints, "--record")
    snapshot, gangs = cycle.snapshot, list[tuple[Gang, tuple[str, ...]]]()
    for manifest in question.manifests:
        gang, remarks = _from_manifest(manifest, snapshot, settings, question, classes_of(options))
        snapshot = with_gang(snapshot, gang)
        gangs.append((gang, remarks))
    if not question.manifests:
        gangs.append((_waiting(snapshot, question), ()))
    for gang, _ in gangs:
        with naming("--what-if"):
            asked = changed(gang, question.change, snapshot)
        for each in question.tries:
            with naming("--try"):
                changed(asked, each, snapshot)
    until = time.monotonic() + options.seconds
    return [
        Told(
            ask(
                *(snapshot, policy, gang, question.change, question.tries),
                is_time_left=lambda: time.monotonic() < until,
            ),
            name,
            remarks,
        )
        for gang, remarks in gangs
    ]


def _waiting(snapshot: ClusterSnapshot, question: Question) -> Gang:
    """Return the gang that is asked about; without a namespace, the only one of its name."""
    kind, name, namespace = question.kind, question.name, question.namespace
    every = [*snapshot.waiting, *(held.gang for held in snapshot.running)]
    found = {each.namespace for each in every if (each.kind, each.name) == (kind, name)}
    if not namespace and len(found) > 1:
        known = ", ".join(sorted(found))
        raise UsageError(f"argument JOB: {name} is in namespaces {known}; choose one by -n")
    return find_waiting(snapshot, (namespace or next(iter(found), "default"), name), kind)


def _from_manifest(
    manifest: Json,
    snapshot: ClusterSnapshot,
    settings: SchedulingSettings,
    question: Question,
    classes: Mapping[str, PriorityClass],
) -> tuple[Gang, tuple[str, ...]]:
    """Return the TrainingJob as it would wait from now on, and what is not minded about it."""
    about, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
    name = about.get("name") or f"{about.get('generateName')}xxxxx"
    namespace = about.get("namespace") or question.namespace or "default"
    written = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",  # a UID of Kubernetes has no slash
            "creationTimestamp": quantities.format_timestamp(snapshot.now),
        },
        "spec": spec,
    }
    job = training_jobs.from_manifest(
        msgspec.json.decode(msgspec.json.encode(written), type=wire.CustomObject),
        settings.topology_levels,
    )
    where = f"TrainingJob {cleaned(name)}"
    problems = list(lint_queue(job.queue, [_queue_manifest(q) for q in snapshot.queues.values()]))
    if problems and job.queue:
        raise ConsoleError(f"{where}: {problems[0]}")
    class_ = job.priority_class
    if class_ is not None and class_ not in classes:
        raise ConsoleError(
            f"{where}: spec.priorityClassName: a record holds no PriorityClass; state "
            f"the value of this one by --priority-class {cleaned(class_)}=VALUE"
        )
    gang = job.gang(classes[class_].value if class_ is not None else 0)
    return replace(gang, arrived=snapshot.now), tuple(_remarks(job, snapshot))


def _queue_manifest(queue: Queue) -> Json:
    state = "Open" if queue.is_open else "Closed"
    return {"metadata": {"name": queue.name}, "spec": {"state": state}}


def _remarks(job: training_jobs.JobFacts, snapshot: ClusterSnapshot) -> Iterator[str]:
    spec, namespace = job.spec, job.key[0]
    if spec is not None and not spec.queue:
        yield f"spec.queue names none: {job.queue} is assumed, as for namespaces without a label"
    if job.is_suspended:
        yield "spec.runPolicy.suspend is true: the answer is of the time when it is resumed"
    if job.has_claims:
        yield "what its claims of volumes and devices ask of nodes is not minded"
    if any(key[0] == namespace for key in snapshot.quotas):
        yield f"ResourceQuotas of namespace {namespace} are not minded"


# --- words -------------------------------------------------------------------------------------


def _text(told: Told) -> str:
    # Messages quote what tenants wrote, and a terminal obeys control characters.
    facts = ((label, cleaned(fact)) for label, fact in _facts(told))
    lines = [f"{label:<10}{fact}" if label else fact for label, fact in facts]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts(told: Told) -> Iterator[tuple[str, str]]:
    answer, found = told.answer, told.answer.foreseen
    size = ", ".join(f"{count} {task}" for task, count in answer.replicas.items())
    estimate = answer.estimated_seconds
    runs = f"runs {_exact(estimate)}" if estimate is not None else "without an estimate"
    asked = f"{size or 'no tasks'}, queue {answer.queue}, priority {answer.priority}, {runs}"
    yield "", f"{answer.kind} {answer.namespace}/{answer.name}: {asked}"
    yield "", f"at {clock_time(answer.now)}, by {told.policy}"
    yield "", ""
    yield "starts", _start(found, answer.now)
    for number, (task, nodes) in enumerate(found.nodes.items()):
        shown = [f"{count} on {node}" for node, count in nodes.items()][:_MOST_NODES]
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


def _json(told: Told) -> Json:
    answer = told.answer
    return {
        "policy": told.policy,
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
