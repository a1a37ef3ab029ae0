"""A gang that holds places: planned, bound or running."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.resources import IntArray, ResourceAxis


@dataclass(frozen=True, eq=False)
class RunningGang:
    """A gang and the places it holds now.

    Attributes:
        gang: The gang as it would wait: at the size that was asked for.
        placement: What it holds, in rows of the snapshot's nodes. It may be smaller or larger
            than ``gang``, and it has no row for a node that is gone.
        started: When this start was admitted, POSIX seconds.
        resized: When its size last changed, POSIX seconds.
        is_leaving: Whether it is being stopped, so that its places come free by themselves.
    """

    gang: Gang
    placement: Placement
    started: float
    resized: float = -math.inf
    is_leaving: bool = False
    anchor_row: int = -1
    """The row that a shrink empties last, where others find replica 0; -1 for none."""
    _used: dict[str, tuple[ResourceAxis, IntArray, IntArray]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Replicas it holds places for, by task name; tasks without any are left out."""
        return {task.task: int(task.counts.sum()) for task in self.placement.tasks}

    @cached_property
    def current(self) -> Gang:
        """The gang at the size it has now."""
        if all(self.sizes.get(task.name, 0) == task.replicas for task in self.gang.tasks):
            return self.gang
        return self.gang.resized({t.name: self.sizes.get(t.name, 0) for t in self.gang.tasks})

    def usage(self, axis: ResourceAxis) -> tuple[IntArray, IntArray]:
        """Rows it is on, shape (entries,), and what it uses there, shape (entries, resources).

        A row appears once per task that has replicas there.
        """
        known = self._used.get("all")
        if known is None or known[0] is not axis:
            known = (axis, *usage_of(self.gang, self.placement, axis))
            self._used["all"] = known
        return known[1], known[2]

    def elapsed_seconds(self, now: float) -> float:
        """How long this start has lasted; never negative, whatever the clocks say."""
        return max(0.0, now - self.started)

    def expected_end(self, now: float) -> float:
        """When its places are expected to come free, POSIX seconds.

        A gang that is being stopped, that has outrun its estimate or that has none may end at
        any moment: it counts as ending now, so that no reservation is ever pushed back by it.
        """
        estimate = self.gang.estimated_seconds
        if self.is_leaving or estimate is None:
            return now
        return max(now, self.started + estimate)


def usage_of(gang: Gang, placement: Placement, axis: ResourceAxis) -> tuple[IntArray, IntArray]:
    """Rows of ``placement``, shape (entries,), and what ``gang`` uses there, per task."""
    requests = {task.name: task.request for task in gang.tasks}
    parts = [(t.rows, t.counts[:, None] * axis.usage(requests[t.task])) for t in placement.tasks]
    if len(parts) == 1:
        return parts[0]
    if not parts:  # all its nodes are gone
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64)
    rows, usage = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(usage)


def summed(rows: IntArray, usage: IntArray) -> tuple[IntArray, IntArray]:
    """Every row once, ascending, with all that is used there."""
    unique, at = np.unique(rows, return_inverse=True)
    total = np.zeros((len(unique), usage.shape[1]), dtype=np.int64)
    np.add.at(total, at, usage)
    return unique, total
