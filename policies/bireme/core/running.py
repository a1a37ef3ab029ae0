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
"""Factor by which an estimate that was outrun is raised; a larger one promises later starts."""
_MIN_SECONDS = 1.0
"""An estimate is raised from this at least."""


@dataclass(frozen=True, eq=False)
class RunningGang:
    """A gang and the places it holds now.

    Attributes:
        gang: The gang as it would wait: at the size that was asked for.
        placement: Its places, in rows of the snapshot's nodes. It may be smaller or larger than
            ``gang``, and it has no row for a node that is gone.
        started: When this start was admitted, POSIX seconds.
        resized: When its size last changed, POSIX seconds.
        is_leaving: True while it is being stopped, so that its places come free by themselves.
        is_starting: True until all its replicas have run since it started.
    """

    gang: Gang
    placement: Placement
    started: float
    resized: float = -math.inf
    is_leaving: bool = False
    anchor_row: int = -1
    """The row that a shrink empties last, where others find replica 0; -1 for none."""
    kept_by_budget: bool = False
    """A PodDisruptionBudget does not let all of its pods go now."""
    is_starting: bool = False
    is_opportunistic: bool = False
    """It started in places that are reserved for another gang, and yields them to it."""
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
            return self.gang  # with what is cached on it
        return self.gang.resized({t.name: self.sizes.get(t.name, 0) for t in self.gang.tasks})

    def usage(self, axis: ResourceAxis) -> tuple[IntArray, IntArray]:
        """Return its rows, shape (entries,), and its use of them, shape (entries, resources).

        A row appears once per task that has replicas there.
        """
        # The axis changes when a node of a new kind comes; gangs outlive that.
        known = self._used.get("all")
        if known is None or known[0] is not axis:
            known = (axis, *usage_of(self.gang, self.placement, axis))
            self._used["all"] = known
        return known[1], known[2]

    @cached_property
    def facts(self) -> tuple[float, ...]:
        """Its row of a :class:`RunningTable`; NaN stands for unknown."""
        gang = self.gang
        estimate, least = gang.estimated_seconds, gang.min_runtime_seconds
        return (
            self.started,
            math.nan if estimate is None or self.is_leaving else self.started + estimate,
            math.nan if least is None else least,
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
        """Return how long this start has lasted; never negative, whatever the clocks say."""
        return max(0.0, now - self.started)

    def expected_end(self, now: float, blocked_since: float = -math.inf) -> float:
        """Return when its places come free, POSIX seconds, as one blocked that long may expect.

        A gang that is being stopped or has no estimate may end at any moment: it counts as ending
        now. So does one that has outrun its estimate, unless it ran already when the blocked gang
        came. Then the estimate was wrong and is raised by half, as often as it takes to exceed the
        time it has run (prediction correction of Tsafrir, Etsion and Feitelson, TPDS 2007, in
        steps that grow with the estimate).
        """
        estimate = self.gang.estimated_seconds
        if self.is_leaving or estimate is None:
            return now
        end, elapsed = self.started + estimate, now - self.started
        # A gang that came later, whatever it states, must not push a reservation back by running
        # on. Those that ran before become ever fewer, so the start comes in the end.
        if not end <= now or self.started >= blocked_since or elapsed <= 0:
            return max(now, end)
        first = max(estimate, _MIN_SECONDS)
        steps = max(0, 1 + math.floor(math.log(elapsed / first, _RAISED_BY)))
        return max(now, self.started + first * _RAISED_BY**steps)


def stopping(running: RunningGang) -> RunningGang:
    """Return ``running`` as it is from the decision on that it stops for nobody else.

    It leaves, and owns the places where it goes (:mod:`bireme.core.returns`).
    """
    gang = replace(running.gang, interrupted=True, displaced=True)
    return replace(running, gang=gang, is_leaving=True)


_FACTS = 13


@dataclass(frozen=True, eq=False)
class RunningTable:
    """Running gangs as arrays, a row each, in order of uid.

    A decision looks at every running gang several times; here a look is a few array operations.

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
        used = [held.usage(axis) for held in gangs]
        none = (np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64))
        return cls(
            gangs,
            np.array([held.facts for held in gangs], dtype=np.float64).reshape(-1, _FACTS),
            np.array([len(rows) for rows, _ in used], dtype=np.int64),
            np.concatenate([none[0], *(rows for rows, _ in used)]),
            np.concatenate([none[1], *(usage for _, usage in used)]),
        )

    def row(self, uid: str) -> int | None:
        """Return the row of the gang ``uid``; None where it holds nothing."""
        at = bisect.bisect_left(self.gangs, uid, key=_uid)
        return at if at < len(self.gangs) and self.gangs[at].gang.uid == uid else None

    def plus(self, running: RunningGang, axis: ResourceAxis) -> "RunningTable":
        """Return the table with one more gang."""
        at = bisect.bisect_left(self.gangs, running.gang.uid, key=_uid)
        first = int(self.lengths[:at].sum())
        rows, usage = running.usage(axis)
        return RunningTable(
            (*self.gangs[:at], running, *self.gangs[at:]),
            np.concatenate([self.facts[:at], [running.facts], self.facts[at:]]),
            np.concatenate([self.lengths[:at], [len(rows)], self.lengths[at:]]),
            np.concatenate([self.rows[:first], rows, self.rows[first:]]),
            np.concatenate([self.usage[:first], usage, self.usage[first:]]),
        )

    def minus(self, uid: str) -> "RunningTable":
        """Return the table without the gang ``uid``, which is in it."""
        at = bisect.bisect_left(self.gangs, uid, key=_uid)
        first = int(self.lengths[:at].sum())
        entries = slice(first, first + int(self.lengths[at]))
        return RunningTable(
            (*self.gangs[:at], *self.gangs[at + 1 :]),
            np.delete(self.facts, at, axis=0),
            np.delete(self.lengths, at),
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
        """True for those being stopped, shape (gangs,)."""
        return self.facts[:, 5] > 0

    @cached_property
    def is_elastic(self) -> BoolArray:
        """True for those that can be resized while they run, shape (gangs,)."""
        return self.facts[:, 6] > 0

    @property
    def is_preemptible(self) -> BoolArray:
        """True for those that may be stopped for others, shape (gangs,)."""
        return self.facts[:, 7] > 0

    @property
    def is_kept_by_budget(self) -> BoolArray:
        """True for those of which a PodDisruptionBudget keeps a pod, shape (gangs,)."""
        return self.facts[:, 8] > 0

    @property
    def earlier_seconds(self) -> FloatArray:
        """Run time of earlier starts of each, shape (gangs,)."""
        return self.facts[:, 9]

    @property
    def is_opportunistic(self) -> BoolArray:
        """True for those that started in places reserved for another gang, shape (gangs,)."""
        return self.facts[:, 10] > 0

    @property
    def is_resumable(self) -> BoolArray:
        """True for those that go on from a checkpoint after a stop, shape (gangs,)."""
        return self.facts[:, 11] > 0

    @property
    def yields(self) -> FloatArray:
        """Number of times each has given back what it was lent, shape (gangs,)."""
        return self.facts[:, 12]

    @cached_property
    def owner(self) -> IntArray:
        """Row of each entry's gang, shape (entries,)."""
        return np.repeat(np.arange(len(self.gangs)), self.lengths)

    def usage_by_node(self, which: BoolArray, nodes: int) -> IntArray:
        """Return what the gangs of ``which``, (gangs,), use together, (nodes, resources)."""
        total = np.zeros((nodes, self.usage.shape[1]), dtype=np.int64)
        entries = which[self.owner]
        np.add.at(total, self.rows[entries], self.usage[entries])
        return total

    def expected_ends(self, now: float, blocked_since: float) -> FloatArray:
        """:meth:`RunningGang.expected_end` of each, POSIX seconds, shape (gangs,)."""
        due = self.facts[:, 1]
        ends = np.fmax(now, due)  # NaN, without an estimate or leaving, counts as now
        # Few have outrun their estimate: the rest of the rule costs a call for each.
        for at in np.flatnonzero((due <= now) & (self.started < blocked_since)).tolist():
            ends[at] = self.gangs[at].expected_end(now, blocked_since)
        return ends


def _uid(running: RunningGang) -> str:
    return running.gang.uid


def summed(rows: IntArray, usage: IntArray) -> tuple[IntArray, IntArray]:
    """Sum ``usage`` per row; rows ascending, each once."""
    unique, at = np.unique(rows, return_inverse=True)
    total = np.zeros((len(unique), usage.shape[1]), dtype=np.int64)
    np.add.at(total, at, usage)  # not +=, which counts a repeated row once
    return unique, total
