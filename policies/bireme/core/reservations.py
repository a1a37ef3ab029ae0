"""Reservations: the earliest moment at which the first blocked gang fits, and where (EASY).

Running gangs leave one after another, in a given order; the reservation is placed as soon as enough
have left. Every cycle computes it anew, so it follows the facts:

*   A gang without an estimate, or that came later than the blocked one and has outrun its own,
    counts as ending now. The start then moves with the clock, but no gang is backfilled into the
    places. The estimates of those that ran before are raised when they are outrun. As these become
    ever fewer, the start cannot be pushed back for ever.
*   For a gang past its wait bound the oldest gangs are counted on first and the reservation is
    closed: no gang that starts later takes one of these places. So the gang starts at the latest
    when all gangs have ended that ran when it became the first in line, and those that were being
    stopped then have left. That may be days away, where one of them runs for days; the gang starts
    wherever it fits first, so the expected start is worked out beside it.

Later gangs are backfilled beside the reservation (Lifka, JSSPP 1995, on nodes instead of a node
count): one that ends before the reserved start may take whatever is free now. One that runs longer,
or for an unknown time, may take only what is free now *and* will still be free beside the reserved
places.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.running import RunningGang, RunningTable, summed, usage_of
from bireme.core.snapshot import ClusterSnapshot


class CapacityLedger:
    """Free capacity of one cycle, now and at the moment the reservation begins.

    Attributes:
        now: What is free at this moment.
        lasting: What is free now and beside the reservation, for good; ``now`` itself without one.
        reservation: The places of the blocked gang; None while no gang is blocked.
        counted_on: Uids of gangs whose places the reservation expects to come free.
        changes: How often something was given away.
    """

    def __init__(self, nodes: NodeTable, used: IntArray, time: float) -> None:
        self.now = FreeCapacity(nodes, used)
        self.reservation: Reservation | None = None
        self.counted_on: frozenset[str] = frozenset()
        self.changes = 0
        self._time = time
        self._nodes = nodes
        self.lasting = self.now
        self._after = self.now.free

    def room_for(self, gang: Gang) -> FreeCapacity:
        """Return the capacity that ``gang`` may use without delaying the reserved gang."""
        return self.now if self.ends_in_time(gang) else self.lasting

    def ends_in_time(self, gang: Gang) -> bool:
        """Whether ``gang``, started now, is expected to end before the reservation begins."""
        reservation = self.reservation
        if reservation is None:
            return True
        if reservation.is_closed or gang.estimated_seconds is None:
            return False
        return self._time + gang.estimated_seconds <= reservation.start

    def take(self, gang: Gang, placement: Placement) -> None:
        """Start ``gang`` on ``placement``."""
        self.changes += 1
        self.now.take(gang, placement)
        if self.reservation is None:
            return
        rows, usage = usage_of(gang, placement, self._nodes.axis)
        if not self.ends_in_time(gang):
            np.subtract.at(self._after, rows, usage)
        self.lasting.lower(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def keep(self, gang: Gang, placement: Placement) -> None:
        """Keep ``placement`` from other gangs: what leaves there makes room for ``gang``."""
        self.changes += 1
        rows, usage = summed(*usage_of(gang, placement, self._nodes.axis))
        self.now.lower(rows, self.now.free[rows] - usage)
        if self.reservation is not None:
            self._after[rows] -= usage
            self.lasting.lower(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def reserve(
        self,
        gang: Gang,
        reservation: Reservation,
        given_back: Sequence[RunningGang],
        free_then: IntArray,
    ) -> None:
        """Keep ``reservation`` for ``gang``.

        ``free_then``, int64 of shape (nodes, resources), is what is free once ``given_back`` have
        left; it becomes the ledger's own.
        """
        rows, usage = usage_of(gang, reservation.placement, self._nodes.axis)
        np.subtract.at(free_then, rows, usage)
        self.reservation = reservation
        self._after = free_then
        self.counted_on = frozenset(running.gang.uid for running in given_back)
        lasting = np.minimum(self.now.free, free_then)
        self.lasting = FreeCapacity(self._nodes, self._nodes.allocatable - lasting)

    def room_after(self, rows: IntArray, usage: IntArray, is_counted_on: BoolArray) -> IntArray:
        """Return what is free for good once ``usage`` is freed, shape (nodes, resources); a copy.

        Args:
            rows, usage: Where and what, shapes (entries,) and (entries, resources).
            is_counted_on: Whether it is of a gang in ``counted_on``, shape (entries,): its places
                come free for the blocked gang.
        """
        free = self.now.free.copy()
        np.add.at(free, rows, usage)
        if self.reservation is None:
            return free
        after = self._after.copy()
        np.add.at(after, rows[~is_counted_on], usage[~is_counted_on])
        return np.minimum(free, after)


def reserve(
    gang: Gang,
    ledger: CapacityLedger,
    snapshot: ClusterSnapshot,
    placer: Placer,
    is_overdue: bool,
    explain: bool = True,
) -> Reservation | None:
    """Reserve places for ``gang``, which does not fit now; None when that cannot be foreseen.

    Pods that no gang owns are expected to stay, except for a gang past its wait bound: it may get
    their places reserved, which keeps others from taking them first. Its expected start is worked
    out only to ``explain``.
    """
    releases = (_Releases.by_age if is_overdue else _Releases.by_end)(snapshot, gang)
    free = ledger.now.free
    found = _earliest(gang, releases, free, snapshot, placer)
    if found is not None:
        count, placement = found
        start, sooner = _end(releases, count, snapshot), None
        if is_overdue and explain:
            by_end = _Releases.by_end(snapshot, gang)
            first = _earliest(gang, by_end, free, snapshot, placer)
            sooner = first and _end(by_end, first[0], snapshot)
        reservation = Reservation(start, placement, is_overdue, sooner)
        ledger.reserve(gang, reservation, releases.first(count), releases.free_after(free, count))
        return reservation
    if not is_overdue:
        return None
    emptied = snapshot.nodes.allocatable - snapshot.nodes.fixed
    table = snapshot.running_table
    if (own := table.row(gang.uid)) is not None:
        np.subtract.at(emptied, *table.gangs[own].usage(snapshot.nodes.axis))
    placement_anywhere = _placed(gang, emptied, snapshot, placer)
    if placement_anywhere is None:
        return None
    reservation = Reservation(snapshot.now, placement_anywhere, is_closed=True)
    ledger.reserve(gang, reservation, snapshot.running, emptied.copy())
    return reservation


def _end(releases: "_Releases", count: int, snapshot: ClusterSnapshot) -> float:
    """Return when the first ``count`` have left, POSIX seconds; never before ``now``."""
    return max(snapshot.now, float(releases.ends[count - 1])) if count else snapshot.now


def _earliest(
    gang: Gang, releases: "_Releases", free: IntArray, snapshot: ClusterSnapshot, placer: Placer
) -> tuple[int, Placement] | None:
    """Return how few gangs must leave before ``gang`` fits, and where; gallop, then bisect."""
    total = len(releases)
    asked = snapshot.nodes.axis.usage(gang.demand)
    low, step = releases.fewest(free, asked), 1
    best: tuple[int, Placement] | None = None
    probe = low
    while True:
        placement = _placed(gang, releases.free_after(free, probe), snapshot, placer)
        if placement is not None:
            best = (probe, placement)
            break
        if probe >= total:
            return None
        low, probe, step = probe + 1, min(total, probe + step), step * 2
    while low < best[0]:
        middle = (low + best[0]) // 2
        placement = _placed(gang, releases.free_after(free, middle), snapshot, placer)
        if placement is None:
            low = middle + 1
        else:
            best = (middle, placement)
    return best


def _placed(
    gang: Gang, free: IntArray, snapshot: ClusterSnapshot, placer: Placer
) -> Placement | None:
    nodes = snapshot.nodes
    return placer.place(gang, FreeCapacity(nodes, np.subtract(nodes.allocatable, free)))


# --- the order in which running gangs give their places back ---


@dataclass(frozen=True, slots=True, eq=False)
class _Releases:
    """Running gangs in the order in which they are expected to give their places back.

    Gangs that are being stopped come first. The others follow by expected end or, for a gang past
    its wait bound, by age: a gang that starts later then never comes into its way again.

    Attributes:
        table: The running gangs.
        order: Their rows in ``table``, first to leave first, shape (gangs,).
        ends: POSIX seconds, in that order, shape (gangs,).
        rows, usage: What they use, gang after gang: shapes (entries,) and (entries, resources).
        offsets: ``rows[: offsets[n]]`` belong to the first ``n`` gangs; shape (gangs + 1,).
    """

    table: RunningTable
    order: IntArray
    ends: FloatArray
    rows: IntArray
    usage: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.order)

    def first(self, count: int) -> list[RunningGang]:
        """The first ``count`` to leave."""
        return [self.table.gangs[at] for at in self.order[:count].tolist()]

    @classmethod
    def by_end(cls, snapshot: ClusterSnapshot, blocked: Gang) -> "_Releases":
        """By expected end, as far as ``blocked`` may count on it, the oldest first among equals.

        What ``blocked`` holds itself, where part of it runs, it keeps.
        """
        table = snapshot.running_table
        ends = table.expected_ends(snapshot.now, blocked.arrived)
        order = _of_others(table, np.lexsort((table.started, ends, ~table.is_leaving)), blocked)
        return cls._of(table, order, ends[order])

    @classmethod
    def by_age(cls, snapshot: ClusterSnapshot, blocked: Gang) -> "_Releases":
        """The oldest first, whatever was estimated."""
        table = snapshot.running_table
        order = _of_others(table, np.lexsort((table.started, ~table.is_leaving)), blocked)
        ends = table.expected_ends(snapshot.now, blocked.arrived)[order]
        return cls._of(table, order, np.maximum.accumulate(ends))

    @classmethod
    def _of(cls, table: RunningTable, order: IntArray, ends: FloatArray) -> "_Releases":
        turn = np.full(len(table.gangs), len(order))
        turn[order] = np.arange(len(order))
        offsets = np.concatenate(([0], np.cumsum(table.lengths[order])))
        entries = np.argsort(turn[table.owner], kind="stable")[: offsets[-1]]
        return cls(table, order, ends, table.rows[entries], table.usage[entries], offsets)

    def free_after(self, free: IntArray, count: int) -> IntArray:
        """``free`` once the first ``count`` gangs have left, shape (nodes, resources); a copy."""
        result = free.copy()
        end = self.offsets[count]
        np.add.at(result, self.rows[:end], self.usage[:end])
        return result

    def fewest(self, free: IntArray, asked: IntArray) -> int:
        """A lower bound on how many must leave before ``asked``, shape (resources,), is free."""
        missing = asked - np.maximum(free, 0).sum(axis=0)
        if not len(self.rows) or (missing <= 0).all():
            return 0
        given = np.cumsum(self.usage, axis=0)
        enough = (given >= missing).all(axis=1)
        if not enough.any():
            return len(self)
        return int(np.searchsorted(self.offsets, int(enough.argmax()) + 1))


def _of_others(table: RunningTable, order: IntArray, gang: Gang) -> IntArray:
    """``order`` without the row of ``gang``."""
    at = table.row(gang.uid)
    return order if at is None else order[order != at]
