"""Plans: make one from a placement, resize it, write it to ``status.plan``, read it back.

The plan is the contract between operator and extender. It is in the status of the object that owns
the gang: a TrainingJob, or a PodGroup for pods of other controllers. It names every member of the
gang once: replicas that Bireme creates by task and index, pods of other controllers by UID. After
a restart the usage of unbound planned members is recomputed from it.
"""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, Protocol

import msgspec
from pydantic import TypeAdapter

from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.resources import Request, add, request_of
from bireme.kube import quantities
from bireme.kube.api import plan as plan_api
from bireme.kube.api.base import MAX_REPLICAS
from bireme.kube.api.plan import Plan

Mode = Literal["Pinned", "Score"]


@dataclass(frozen=True, slots=True)
class Member:
    """A planned member: Bireme's own replica by ``index``, another controller's pod by ``uid``."""

    task: str
    node: str
    index: int = -1
    uid: str = ""


@dataclass(frozen=True)
class PlanFacts:
    """A plan as the operator and the extender use it."""

    epoch: int
    attempt: int
    spec_hash: str
    mode: str
    planned: float
    """POSIX seconds."""
    requests: dict[str, Request]
    """Request of one replica by task name."""
    roles: dict[str, str]
    members: tuple[Member, ...]
    resized: float = -math.inf
    """Time of the last resize, POSIX seconds; minus infinity for never."""
    queue: str = ""
    """The queue that admitted it."""
    is_opportunistic: bool = False
    """It holds places that are reserved for another gang, and yields them to that gang."""
    ended: frozenset[tuple[str, int]] = frozenset()
    """(task, replica index) of Bireme's replicas that are recorded as succeeded."""

    @property
    def label(self) -> str:
        """Value of the plan label on pods created from this plan."""
        return f"{self.epoch}.{self.attempt}"

    def only_adds_ends(self, previous: "PlanFacts") -> bool:
        """Return whether it differs from ``previous`` only in the recorded ends."""
        return replace(previous, ended=self.ended) == self

    @cached_property
    def node_by_index(self) -> dict[tuple[str, int], str]:
        """Node by (task, replica index), for Bireme's replicas."""
        return {(m.task, m.index): m.node for m in self.members if not m.uid}

    @cached_property
    def member_by_uid(self) -> dict[str, Member]:
        """Member by UID, for pods of other controllers."""
        return {member.uid: member for member in self.members if member.uid}

    @cached_property
    def demand(self) -> dict[str, int]:
        """Sum of the requests of all members."""
        total: dict[str, int] = {}
        for task, count in self.replicas.items():
            total = add(total, self.requests.get(task, ()), count)
        return total

    @cached_property
    def replicas(self) -> dict[str, int]:
        """Number of planned members by task name."""
        return Counter(member.task for member in self.members)


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """A plan, and the object with that plan in its status; ``uid`` is the object's uid."""

    uid: str
    is_job: bool
    """True for a TrainingJob, false for a PodGroup."""
    plan: PlanFacts

    @property
    def job_uid(self) -> str:
        """UID of the TrainingJob; empty for pods of other controllers."""
        return self.uid if self.is_job else ""


def spec_digest(tasks: list[dict[str, Any]]) -> str:
    """Return a digest of raw ``spec.tasks``: 16 hex digits, independent of key order."""
    return hashlib.sha256(msgspec.json.encode(tasks, order="deterministic")).hexdigest()[:16]


def from_model(plan: Plan) -> PlanFacts:
    """Return the facts of a plan that the API server returned.

    Raises:
        ValueError: an index text or a quantity in it cannot be read, or it has more replicas than
            a gang may have.
    """
    members: list[Member] = []
    replicas = 0
    for placement in plan.placements:
        task, node = placement.task, placement.node
        indices = plan_api.expand(placement.indices or "")
        # A few bytes name ten thousand replicas, so a forged status of 64 KiB could name millions.
        replicas += len(indices)
        if replicas > MAX_REPLICAS:
            raise ValueError(f"more than {MAX_REPLICAS} replicas in one plan")
        members += [Member(task, node, index) for index in indices]
        members += [Member(task, node, uid=uid) for uid in placement.pods or ()]
    return PlanFacts(
        epoch=plan.epoch,
        attempt=plan.attempt,
        spec_hash=plan.spec_hash,
        mode=plan.mode,
        planned=plan.planned_time.timestamp(),
        requests={
            task.name: request_of(
                {n: quantities.parse_quantity(n, q) for n, q in task.requests.items()}
            )
            for task in plan.tasks
        },
        roles={task.name: task.role or "" for task in plan.tasks},
        members=tuple(members),
        resized=plan.resized_time.timestamp() if plan.resized_time else -math.inf,
        queue=plan.queue,
        is_opportunistic=bool(plan.opportunistic),
        ended=_replicas_of_record(plan.ended_replicas),
    )


def _replicas_of_record(
    record: Iterable[plan_api.EndedReplicas] | None,
) -> frozenset[tuple[str, int]]:
    """Return the replicas of a record, at most as many as a gang may have."""
    every = ((part.task, index) for part in record or () for index in plan_api.expand(part.indices))
    return frozenset(itertools.islice(every, MAX_REPLICAS))


class HasPlan(Protocol):
    """Facts of an object with a plan in its status."""

    @property
    def status(self) -> Mapping[str, Any]: ...
    @property
    def plan(self) -> PlanFacts | None: ...


def read(status: Mapping[str, Any], previous: HasPlan | None = None) -> PlanFacts | None:
    """Return the plan in a ``status``; None without a valid one.

    ``previous`` is the object's last version. An unchanged plan is taken from there: a plan of ten
    thousand replicas is not decoded again at every progress report.
    """
    raw = status.get("plan")
    if raw is None:
        return None
    previous_raw = previous.status.get("plan") if previous is not None else None
    if previous is not None and previous_raw == raw:
        return previous.plan
    try:
        if (
            previous is not None
            and previous.plan is not None
            and _without_ends(previous_raw) == _without_ends(raw)
        ):
            record = _RECORD.validate_python(raw.get("endedReplicas"))
            return replace(previous.plan, ended=_replicas_of_record(record))
        return from_model(Plan.model_validate(raw, extra="ignore"))
    except ValueError:
        return None  # the gang is planned again


_RECORD: Final = TypeAdapter(tuple[plan_api.EndedReplicas, ...] | None)


def _without_ends(raw: object) -> object:
    if not isinstance(raw, Mapping):
        return None
    return {name: value for name, value in raw.items() if name != "endedReplicas"}


def make_plan(
    gang: Gang,
    placement: Placement,
    nodes: NodeTable,
    *,
    epoch: int,
    attempt: int,
    spec_hash: str,
    now: float,
    mode: Mode = "Pinned",
    is_opportunistic: bool = False,
) -> PlanFacts:
    """Return the plan of ``placement``; ``now`` in POSIX seconds."""
    by_task = placement.by_task(nodes)
    members: list[Member] = []
    for task in gang.tasks:
        for index, node in enumerate(by_task[task.name]):
            uid = task.members[index] if task.members else ""
            members.append(Member(task.name, node, -1 if uid else index, uid))
    return PlanFacts(
        epoch=epoch,
        attempt=attempt,
        spec_hash=spec_hash,
        mode=mode,
        # Whole seconds, as the API server stores them: a plan that is read back is equal.
        planned=float(int(now)),
        requests={task.name: task.request for task in gang.tasks},
        roles={task.name: task.role.value for task in gang.tasks},
        members=tuple(members),
        queue=gang.queue,
        is_opportunistic=is_opportunistic,
    )


def merge(plan: PlanFacts, extension: PlanFacts, live_uids: set[str]) -> PlanFacts:
    """Return ``plan`` without members whose pods are gone, plus those of ``extension``."""
    # Deleted pods hold no place: their controller creates pods with other uids.
    live_members = tuple(member for member in plan.members if member.uid in live_uids)
    return replace(
        extension,
        attempt=plan.attempt,
        requests=plan.requests | extension.requests,
        roles=plan.roles | extension.roles,
        members=live_members + extension.members,
        is_opportunistic=plan.is_opportunistic,
    )


def resize(plan: PlanFacts, placement: Placement, nodes: NodeTable, now: float) -> PlanFacts:
    """Return ``plan`` of Bireme's replicas with the places of ``placement``; no member moves.

    On every node the members with the highest indices are removed first.
    """
    room = {
        (task.task, nodes.names[row]): int(replicas)
        for task in placement.tasks
        for row, replicas in zip(task.rows, task.counts, strict=True)
    }
    stay: set[Member] = set()
    for member in sorted(plan.members, key=lambda m: m.index):
        place = (member.task, member.node)
        if room.get(place, 0):
            room[place] -= 1
            stay.add(member)
    remaining = tuple(member for member in plan.members if member in stay)
    # A new replica has not ended, even if an earlier one with its index has.
    remaining_indices = {(member.task, member.index) for member in remaining}
    free_indices = {task: _free_indices(plan, task) for task in plan.replicas}
    # Take the smallest indices in the order of the placement: close nodes get close indices.
    added = [
        Member(task, node, next(free_indices[task]))
        for (task, node), more in room.items()
        for _ in range(more)
    ]
    members = (*remaining, *added)
    return replace(
        plan, members=members, resized=float(int(now)), ended=plan.ended & remaining_indices
    )


def _free_indices(plan: PlanFacts, task: str) -> Iterator[int]:
    used = {member.index for member in plan.members if member.task == task}
    return (index for index in itertools.count() if index not in used)


def without_members(plan: PlanFacts, lost: Container[Member], now: float) -> PlanFacts:
    """Return ``plan`` without the ``lost`` members."""
    remaining = tuple(member for member in plan.members if member not in lost)
    remaining_indices = {(member.task, member.index) for member in remaining}
    return replace(
        plan, members=remaining, resized=float(int(now)), ended=plan.ended & remaining_indices
    )


def manifest_of_ends(replicas: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return ``status.plan.endedReplicas`` for (task, replica index) in any order."""
    by_task: dict[str, list[int]] = {}
    for task, index in replicas:
        by_task.setdefault(task, []).append(index)
    return [
        {"task": task, "indices": text}
        for task, indices in sorted(by_task.items())
        for text in _texts(plan_api.compress(indices))
    ]


def _texts(ranges: str) -> Iterator[str]:
    """Split a text of ranges into parts that fit into a field of the API."""
    while len(ranges) > plan_api.MAX_RANGES:
        head, _, _ = ranges[: plan_api.MAX_RANGES + 1].rpartition(",")
        yield head
        ranges = ranges[len(head) + 1 :]
    yield ranges


def to_manifest(plan: PlanFacts) -> dict[str, Any]:
    """Return ``status.plan``; replicas of one task on one node share an entry."""
    replicas = plan.replicas
    tasks = [
        {
            "name": task,
            "role": plan.roles.get(task, ""),
            "requests": {
                name: quantities.format_quantity(name, n) for name, n in plan.requests[task]
            },
            "replicas": count,
        }
        for task, count in replicas.items()
    ]
    manifest: dict[str, Any] = {
        "epoch": plan.epoch,
        "attempt": plan.attempt,
        "specHash": plan.spec_hash,
        "queue": plan.queue,
        "mode": plan.mode,
        "plannedTime": quantities.format_timestamp(plan.planned),
        "tasks": tasks,
        "placements": list(_placements(plan)),
    }
    if plan.resized > -math.inf:
        manifest["resizedTime"] = quantities.format_timestamp(plan.resized)
    if plan.is_opportunistic:
        manifest["opportunistic"] = True
    if plan.ended:
        manifest["endedReplicas"] = manifest_of_ends(plan.ended)
    return manifest


def _placements(plan: PlanFacts) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Member]] = {}
    for member in plan.members:
        groups.setdefault((member.task, member.node), []).append(member)
    for (task, node), members in groups.items():
        entry: dict[str, Any] = {"node": node, "task": task}
        if members[0].uid:
            entry["pods"] = [member.uid for member in members]
        else:
            entry["indices"] = plan_api.compress(member.index for member in members)
        yield entry
