"""Gangs that hold places (planned, bound or running), one by one and all as arrays."""

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.placement import Placement, usage_of
from bireme.core.resources import BoolArray, FloatArray, IntArray, ResourceAxis

_RAISED_BY = 1.5
"""Factor by which an outrun estimate is raised; a larger factor predicts later starts."""
_MIN_SECONDS = 1.0
"""The smallest estimate from which raising starts."""


@dataclass(frozen=True, eq=False)
class RunningGang:
    """A gang and the places it holds now.

    Attributes:
        gang: The gang as it would wait: at its requested size.
        placement: Its places, in rows of the snapshot's nodes. It may be smaller or larger than
            ``gang``, and it has no row for a node that is gone.
        started: When this start was admitted, POSIX seconds.
        resized: When its size last changed, POSIX seconds.
        is_leaving: True while it is stopping, so its places become free without a decision.
        is_starting: True until all its replicas have run since it started.
    """

    gang: Gang
    placement: Placement
    started: float
    resized: float = -math.inf
    is_leaving: bool = False
    anchor_row: int = -1
    """The row that a shrink empties last, where other pods find replica 0; -1 for none."""
    kept_by_budget: bool = False
    """A PodDisruptionBudget protects at least one of its pods now."""
    is_starting: bool = False
    is_opportunistic: bool = False
    """It started in places that are reserved for another gang, and yields them to that gang."""
    _used: dict[str, tuple[ResourceAxis, IntArray, IntArray]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Replicas by task name for which it holds places; tasks without any are left out."""
        return {task.task: int(task.counts.sum()) for task in self.placement.tasks}

    @cached_property
    def current(self) -> Gang:
        """The gang at the size it has now."""
        if all(self.sizes.get(task.name, 0) == task.replicas for task in self.gang.tasks):
            return self.gang  # keeps its cached properties
        return self.gang.with_sizes({t.name: self.sizes.get(t.name, 0) for t in self.gang.tasks})

    def usage(self, axis: ResourceAxis) -> tuple[IntArray, IntArray]:
        """Return its rows, shape (entries,), and its usage of them, shape (entries, resources).

        A row appears once per task with replicas there.
        """
        # The axis changes when a node of a new kind comes; gangs live longer than that.
        cached = self._used.get("all")
        if cached is None or cached[0] is not axis:
            cached = (axis, *usage_of(self.gang, self.placement, axis))
            self._used["all"] = cached
        return cached[1], cached[2]

    @cached_property
    def facts(self) -> tuple[float, ...]:
        """Its row of a :class:`RunningTable`; NaN stands for unknown."""
        gang = self.gang
        estimate, min_runtime = gang.estimated_seconds, gang.min_runtime_seconds
        return (
            self.started,
            math.nan if estimate is None or self.is_leaving else self.started + estimate,
            math.nan if min_runtime is None else min_runtime,
            gang.evictions,
            gang.arrived,
            self.is_leaving,
            gang.is_elastic,
            gang.is_preemptible,
            self.kept_by_budget,
            gang.attained_seconds,
            self.is_opportunistic,
            gang.is_resumable,
            gang.yields,
        )

    def elapsed_seconds(self, now: float) -> float:
        """Return the duration of this start; never negative, whatever the clocks say."""
        return max(0.0, now - self.started)

    def expected_end(self, now: float, blocked_since: float = -math.inf) -> float:
        """Return when its places become free, POSIX seconds, for a gang blocked since then.

        A gang that is stopping or has no estimate may end at any moment: it counts as ending now.
        So does a gang that has outrun its estimate, unless it ran already when the blocked gang
        came. Then the estimate was wrong. It is raised by half, repeatedly, until it exceeds the
        elapsed time (prediction correction of Tsafrir, Etsion and Feitelson, TPDS 2007, with steps
        that grow with the estimate).
        """
        estimate = self.gang.estimated_seconds
        if self.is_leaving or estimate is None:
            return now
        end, elapsed = self.started + estimate, now - self.started
        # A gang that came later must not delay a reservation by running on, whatever it states. The
        # number of earlier gangs falls, so the blocked gang starts in the end.
        if not end <= now or self.started >= blocked_since or elapsed <= 0:
            return max(now, end)
        first = max(estimate, _MIN_SECONDS)
        steps = max(0, 1 + math.floor(math.log(elapsed / first, _RAISED_BY)))
        return max(now, self.started + first * _RAISED_BY**steps)


def stopping(running: RunningGang) -> RunningGang:
    """Return ``running`` once it is decided that it stops, but not for another gang.

    It leaves, and owns the places where it will start (:mod:`bireme.core.returns`).
    """
    gang = replace(running.gang, interrupted=True, displaced=True)
    return replace(running, gang=gang, is_leaving=True)


_FACTS = 13


@dataclass(frozen=True, eq=False)
class RunningTable:
    """Running gangs as arrays, a row each, in order of uid.

    A decision reads every running gang several times; here that takes a few array operations.

    Attributes:
        gangs: In order.
        facts: :attr:`RunningGang.facts` of each, float64, shape (gangs, facts).
        lengths: Number of entries of each gang below, shape (gangs,).
        rows, usage: Used resources and their nodes, gang after gang: shapes (entries,) and
            (entries, resources).
    """

    gangs: tuple[RunningGang, ...]
    facts: FloatArray
    lengths: IntArray
    rows: IntArray
    usage: IntArray

    @classmethod
    def of(cls, running: Iterable[RunningGang], axis: ResourceAxis) -> "RunningTable":
        """Return the table of ``running``, in any order."""
        gangs = tuple(sorted(running, key=_uid))
        used = [gang.usage(axis) for gang in gangs]
        none = (np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64))
        return cls(
            gangs,
            np.array([gang.facts for gang in gangs], dtype=np.float64).reshape(-1, _FACTS),
            np.array([len(rows) for rows, _ in used], dtype=np.int64),
            np.concatenate([none[0], *(rows for rows, _ in used)]),
            np.concatenate([none[1], *(usage for _, usage in used)]),
        )

    def row(self, uid: str) -> int | None:
        """Return the row of the gang ``uid``; None if it holds nothing."""
        index = bisect.bisect_left(self.gangs, uid, key=_uid)
        return index if index < len(self.gangs) and self.gangs[index].gang.uid == uid else None

    def plus(self, running: RunningGang, axis: ResourceAxis) -> "RunningTable":
        """Return the table with one more gang."""
        index = bisect.bisect_left(self.gangs, running.gang.uid, key=_uid)
        first = int(self.lengths[:index].sum())
        rows, usage = running.usage(axis)
        return RunningTable(
            (*self.gangs[:index], running, *self.gangs[index:]),
            np.concatenate([self.facts[:index], [running.facts], self.facts[index:]]),
            np.concatenate([self.lengths[:index], [len(rows)], self.lengths[index:]]),
            np.concatenate([self.rows[:first], rows, self.rows[first:]]),
            np.concatenate([self.usage[:first], usage, self.usage[first:]]),
        )

    def minus(self, uid: str) -> "RunningTable":
        """Return the table without the gang ``uid``, which must be in it."""
        index = bisect.bisect_left(self.gangs, uid, key=_uid)
        first = int(self.lengths[:index].sum())
        entries = slice(first, first + int(self.lengths[index]))
        return RunningTable(
            (*self.gangs[:index], *self.gangs[index + 1 :]),
            np.delete(self.facts, index, axis=0),
            np.delete(self.lengths, index),
            np.delete(self.rows, entries),
            np.delete(self.usage, entries, axis=0),
        )

    @property
    def started(self) -> FloatArray:
        """Admission of each start, POSIX seconds, shape (gangs,)."""
        return self.facts[:, 0]

    @property
    def least_seconds(self) -> FloatArray:
        """Minimum run time of each; NaN where the setting decides, shape (gangs,)."""
        return self.facts[:, 2]

    @property
    def evictions(self) -> FloatArray:
        """Number of times each has made room, shape (gangs,)."""
        return self.facts[:, 3]

    @property
    def arrived(self) -> FloatArray:
        """Arrival of each gang, POSIX seconds, shape (gangs,)."""
        return self.facts[:, 4]

    @cached_property
    def is_leaving(self) -> BoolArray:
        """True for stopping gangs, shape (gangs,)."""
        return self.facts[:, 5] > 0

    @cached_property
    def is_elastic(self) -> BoolArray:
        """True for gangs that can be resized while they run, shape (gangs,)."""
        return self.facts[:, 6] > 0

    @property
    def is_preemptible(self) -> BoolArray:
        """True for gangs that may be stopped for others, shape (gangs,)."""
        return self.facts[:, 7] > 0

    @property
    def is_kept_by_budget(self) -> BoolArray:
        """True for gangs with a pod that a PodDisruptionBudget protects, shape (gangs,)."""
        return self.facts[:, 8] > 0

    @property
    def earlier_seconds(self) -> FloatArray:
        """Run time of earlier starts of each, shape (gangs,)."""
        return self.facts[:, 9]

    @property
    def is_opportunistic(self) -> BoolArray:
        """True for gangs that started in places reserved for another gang, shape (gangs,)."""
        return self.facts[:, 10] > 0

    @property
    def is_resumable(self) -> BoolArray:
        """True for gangs that resume from a checkpoint after a stop, shape (gangs,)."""
        return self.facts[:, 11] > 0

    @property
    def yields(self) -> FloatArray:
        """Number of times each has returned borrowed places, shape (gangs,)."""
        return self.facts[:, 12]

    @cached_property
    def owner(self) -> IntArray:
        """Row of each entry's gang, shape (entries,)."""
        return np.repeat(np.arange(len(self.gangs)), self.lengths)

    def usage_by_node(self, which: BoolArray, nodes: int) -> IntArray:
        """Return the total usage of the gangs in the mask ``which``, (gangs,), (nodes,
        resources).
        """
        total = np.zeros((nodes, self.usage.shape[1]), dtype=np.int64)
        entries = which[self.owner]
        np.add.at(total, self.rows[entries], self.usage[entries])
        return total

    def expected_ends(self, now: float, blocked_since: float) -> FloatArray:
        """:meth:`RunningGang.expected_end` of each, POSIX seconds, shape (gangs,)."""
        due = self.facts[:, 1]
        ends = np.fmax(now, due)  # NaN, without an estimate or leaving, counts as now
        # Few have outrun their estimate: the rest of the rule needs a call for each.
        for row in np.flatnonzero((due <= now) & (self.started < blocked_since)).tolist():
            ends[row] = self.gangs[row].expected_end(now, blocked_since)
        return ends


def _uid(running: RunningGang) -> str:
    return running.gang.uid


def sum_by_row(rows: IntArray, usage: IntArray) -> tuple[IntArray, IntArray]:
    """Sum ``usage`` per row; rows ascending, each once."""
    unique, inverse = np.unique(rows, return_inverse=True)
    total = np.zeros((len(unique), usage.shape[1]), dtype=np.int64)
    np.add.at(total, inverse, usage)  # not +=, which counts a repeated row once
    return unique, total
