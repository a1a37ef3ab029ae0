"""A run in readable lines: what was done to it, what it said, what the API server stored."""

from collections.abc import Iterator
from typing import Any

from tests.support.history.records import Record
from tests.support.history.world import planned_nodes
from tests.support.simcluster import bodies
from tests.support.simcluster.simulation import Outcome


def story(outcome: Outcome) -> list[str]:
    """Every line, in the order of time."""
    lines = [*outcome.story, *_told(outcome.records)]
    lines.sort(key=lambda line: line[0])
    return [f"{seconds:9.3f}  {text}" for seconds, text in lines]


def _told(records: tuple[Record, ...]) -> Iterator[tuple[float, str]]:
    before: dict[tuple[str, tuple[str, str]], str] = {}
    for record in records:
        place = (record.kind, record.key)
        text = _words(record)
        if record.change == "DELETED":
            before.pop(place, None)
            yield record.seconds, f"{record.kind} {record.key[1]} is gone"
        elif before.get(place) != text:
            before[place] = text
            yield record.seconds, f"{record.kind} {record.key[1]}: {text}"


def _words(record: Record) -> str:
    obj: dict[str, Any] = record.manifest
    status = obj.get("status") or {}
    leaving = ", leaving" if bodies.is_leaving(obj) else ""
    match record.kind:
        case "Pod":
            where = bodies.node_of(obj) or ("gated" if bodies.is_gated(obj) else "no node")
            label = bodies.label(obj, "plan") or "of others"
            return f"{bodies.phase(obj)} on {where}, plan {label}{leaving}"
        case "PodGroup":
            plan = status.get("plan")
            places = planned_nodes(plan) if plan else {}
            label = f"{plan['epoch']}.{plan['attempt']} {plan['mode']}" if plan else "none"
            shown = " ".join(f"{_name(m)}@{node}" for m, node in places.items())
            return f"{bodies.phase(obj)}, plan {label} {shown}".strip()
        case "TrainingJob":
            attempt = status.get("attempt", 0)
            said = f"{status.get('reason')}: {status.get('message')}"
            return f"{bodies.phase(obj)} attempt {attempt}, {said}{leaving}"
        case "Node":
            ready = "ready" if bodies.is_ready(obj) else "not ready"
            return ready + (", cordoned" if obj["spec"].get("unschedulable") else "")
    return str(obj["spec"])


def _name(member: Any) -> str:
    return "-".join(member) if isinstance(member, tuple) else str(member)
