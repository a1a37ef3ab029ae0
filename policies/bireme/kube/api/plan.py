"""Plan: the node of every member of an admitted gang, in the status of the object that owns it.

A TrainingJob's plan names replicas by task and index, a PodGroup's names pods of other controllers
by UID. The operator creates or releases pods by it, the extender checks every pod against it.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from bireme.kube.api.base import (
    MAX_PLANNED_TASKS,
    MAX_REPLICAS,
    ApiModel,
    Count,
    DnsLabel,
    DnsSubdomain,
    LabelValue,
    Quantity,
    Replicas,
    Timestamp,
    map_list,
)

MAX_RANGES: Final = 8192
"""Characters of one text of replica indices."""


class PlannedTask(ApiModel):
    """A task as it was planned."""

    name: LabelValue
    role: str | None = Field(default=None, max_length=32)
    # No ResourceMap: its rules would be checked at every status write.
    requests: dict[str, Quantity] = Field(default={}, max_length=32)
    """The request of each replica."""
    replicas: Replicas


class NodePlacement(ApiModel):
    """The replicas of one task on one node."""

    node: DnsSubdomain
    task: LabelValue
    indices: str | None = Field(
        default=None, max_length=MAX_RANGES, pattern="^[0-9]+([-,][0-9]+)*$"
    )
    """Replica indices such as 0-3,7, for pods that Bireme creates."""
    pods: tuple[Annotated[str, Field(max_length=64)], ...] | None = Field(
        default=None, max_length=1024
    )
    """UIDs, for pods of other controllers."""


class EndedReplicas(ApiModel):
    """Replicas of one task that have ended well: nothing is lost when their pods are deleted."""

    task: LabelValue
    indices: str = Field(max_length=MAX_RANGES, pattern="^[0-9]+([-,][0-9]+)*$")
    """Replica indices such as 0-3,7."""


class Plan(ApiModel):
    """The node of every member of a gang. Written as a whole, by the leading operator only."""

    epoch: Count
    """Lease transitions of the leader that admitted the gang."""
    attempt: Count
    """Number of restarts of the gang; 0 is the first start."""
    spec_hash: str = Field(max_length=64)
    """Digest of the spec that was planned; another digest means the plan is stale."""
    queue: DnsLabel
    """The Queue that admitted the gang. The gang's usage counts there."""
    mode: Literal["Pinned", "Score"]
    """Pinned: each pod has its node. Score: the extender's scores choose among nodes."""
    planned_time: Timestamp
    resized_time: Timestamp | None = None
    """The last time members were added or removed; absent before a resize."""
    opportunistic: bool | None = None
    """True if it was admitted to places reserved for another gang, and yields them to that gang."""
    tasks: tuple[PlannedTask, ...] = Field(
        default=(), max_length=MAX_PLANNED_TASKS, json_schema_extra=map_list("name")
    )
    placements: tuple[NodePlacement, ...] = Field(default=(), max_length=MAX_REPLICAS)
    ended_replicas: tuple[EndedReplicas, ...] | None = Field(
        default=None, max_length=8 * MAX_PLANNED_TASKS
    )
    """The replicas of a TrainingJob that have ended well. A task may have several entries."""


# Replica indices are written as ranges, ``(0, 1, 2, 3, 7)`` as ``"0-3,7"``. So the plan of 10 000
# replicas stays far below the size limit of an object.
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
