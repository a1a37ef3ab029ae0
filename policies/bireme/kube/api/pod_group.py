"""PodGroup: pods that start together or not at all, and the plan of where they go.

The spec has the shape of Volcano's. Bireme creates one for every TrainingJob; for pods of other
controllers (Jobs, StatefulSets, Kubeflow) users create their own, and the pods join by label and
scheduling gate. The extender checks every pod against the plan in the status.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from bireme.kube import names
from bireme.kube.api.base import (
    MAX_PLANNED_TASKS,
    MAX_REPLICAS,
    MAX_TASKS,
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    DnsSubdomain,
    LabelValue,
    Message,
    Reason,
    Replicas,
    Resource,
    ResourceMap,
    Rule,
    Timestamp,
    changed,
    checked_by,
    kept,
    keyed_by,
)

PodGroupPhase = Literal["Pending", "Inqueue", "Running", "Interrupted", "Completed", "Unknown"]

_TASK_SUM: Final = "self.minTaskMember.map(name, self.minTaskMember[name]).sum()"

_TASK_NAMED: Final = (
    "(name.size() <= 63 && name.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
)


class PodGroupSpec(ApiModel):
    """The size of the gang, and how it is ordered."""

    model_config = ConfigDict(
        json_schema_extra=checked_by(
            Rule(
                f"!has(self.minTaskMember) || {_TASK_SUM} <= self.minMember",
                f"minTaskMember adds up to {{{_TASK_SUM}}}, above minMember {{self.minMember}}:"
                " raise minMember or lower the tasks' numbers",
                field=".minTaskMember",
            ),
            Rule(
                f"!has(self.minTaskMember) || self.minTaskMember.all(name, {_TASK_NAMED})",
                f"minTaskMember {{self.minTaskMember.map(name, !{_TASK_NAMED}, name)}} cannot be"
                " task labels: name tasks in letters, digits and '-', '_', '.', at most 63",
                field=".minTaskMember",
            ),
        )
    )

    min_member: Replicas
    """The fewest pods that start together."""
    min_task_member: dict[str, Replicas] = Field(default={}, max_length=MAX_TASKS)
    """Task name to the fewest of its pods that start together."""
    queue: DnsLabel = names.DEFAULT_QUEUE
    """The Queue the gang waits in."""
    priority_class_name: DnsSubdomain | None = None
    """A stock PriorityClass; its value is the gang's part of the combined priority."""
    min_resources: ResourceMap = Field(default={})
    """The total request of the gang, to be known before its pods exist."""


class PlannedTask(ApiModel):
    """A task as it was planned."""

    name: LabelValue
    role: str | None = Field(default=None, max_length=32)
    requests: ResourceMap = Field(default={})
    """The request of each replica."""
    replicas: Replicas


class NodePlacement(ApiModel):
    """The replicas of one task on one node."""

    node: DnsSubdomain
    task: LabelValue
    indices: str | None = Field(default=None, max_length=8192, pattern="^[0-9]+([-,][0-9]+)*$")
    """Replica indices such as 0-3,7, for pods that Bireme creates."""
    pods: tuple[Annotated[str, Field(max_length=64)], ...] | None = Field(
        default=None, max_length=1024
    )
    """UIDs, for pods of other controllers."""


class Plan(ApiModel):
    """The node of every member of the gang. Written as a whole, by the leading operator only."""

    epoch: Count
    """Lease transitions of the leader that admitted the gang."""
    attempt: Count
    """Number of restarts of the gang; 0 is the first start."""
    spec_hash: str = Field(max_length=64)
    """Digest of the spec that was planned; another digest means the plan is stale."""
    queue: DnsLabel | None = None
    """The Queue that admitted the gang: what it uses counts there."""
    mode: Literal["Pinned", "Score"]
    """Pinned: each pod has its node. Score: the extender's scores choose among nodes."""
    planned_time: Timestamp
    resized_time: Timestamp | None = None
    """The last time members were added or removed; absent before a resize."""
    tasks: tuple[PlannedTask, ...] = Field(
        default=(), max_length=MAX_PLANNED_TASKS, json_schema_extra=keyed_by("name")
    )
    placements: tuple[NodePlacement, ...] = Field(default=(), max_length=MAX_REPLICAS)


class PodGroupStatus(ApiModel):
    """The state of the gang, written by the operator."""

    phase: PodGroupPhase | None = None
    reason: Reason | None = None
    message: Message | None = None
    conditions: Conditions = ()
    """For a group that users made. Admitted: it has its places. Running: minMember of its pods have
    come onto their nodes; this is not taken back, see phase."""
    queue_position: Count | None = None
    """1 is the next gang to be admitted, over all queues; absent when it is not waiting."""
    plan: Plan | None = None


def _kept_while_planned(field: str) -> Rule:
    return Rule(
        "!(has(oldSelf.status) && has(oldSelf.status.plan))"
        f" || ({kept(field, 'oldSelf.spec', 'self.spec')})",
        f"{changed(field)} while the gang has its places: delete it and create a new PodGroup",
        field=f".spec.{field}",
    )


_POD_GROUP_RULES: Final = checked_by(
    Rule(
        "self.metadata.name.size() <= 63",
        "metadata.name has {self.metadata.name.size()} characters, but pods carry it as a label"
        " of at most 63: choose a shorter name",
    ),
    Rule(
        "!(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Running')"
        " || self.spec.minMember == oldSelf.spec.minMember",
        "spec.minMember cannot change from {oldSelf.spec.minMember} to {self.spec.minMember}"
        " while the gang is Running: delete it and create a new PodGroup",
        field=".spec.minMember",
    ),
    *map(_kept_while_planned, ("queue", "priorityClassName")),
)


class PodGroup(Resource):
    """Pods that start together or not at all."""

    model_config = ConfigDict(json_schema_extra=_POD_GROUP_RULES)

    kind: Literal["PodGroup"] = "PodGroup"
    spec: PodGroupSpec
    status: PodGroupStatus | None = None


# Replica indices are written as ranges, ``(0, 1, 2, 3, 7)`` as ``"0-3,7"``, which keeps the plan of
# 10 000 replicas far below the largest object that the API server stores.
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def compress(indices: Iterable[int]) -> str:
    """Return the indices as text, sorted; ``""`` for none.

    Raises:
        ValueError: an index is given twice, or is outside 0..9999.
    """
    ordered = sorted(indices)
    if ordered and not 0 <= ordered[0] <= ordered[-1] < MAX_REPLICAS:
        raise ValueError(f"index outside 0..{MAX_REPLICAS - 1}: {ordered[0]}..{ordered[-1]}")
    ranges: list[list[int]] = []
    for index in ordered:
        if ranges and index == ranges[-1][1]:
            raise ValueError(f"index {index} is given twice; a replica has one place")
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def expand(text: str) -> tuple[int, ...]:
    """Return the indices of a text that :func:`compress` wrote, ascending.

    The work is bounded for any text.

    Raises:
        ValueError: the text has another form, descending or overlapping ranges, or an index above
            9999.
    """
    indices: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"indices: cannot read {part[:32]!a}; write ranges as 0-3,7")
        low, high = int(match[1]), int(match[2] or match[1])
        if high >= MAX_REPLICAS or high < low or (indices and low <= indices[-1]):
            raise ValueError(f"indices: {part} is not ascending within 0..{MAX_REPLICAS - 1}")
        indices.extend(range(low, high + 1))
    return tuple(indices)
