"""Reservations: the earliest moment at which the first blocked gang fits, and its places (EASY).

Running gangs end one after another, in a given order. The reservation is placed as soon as enough
have ended. Every cycle computes it anew:

*   A gang without an estimate counts as ending now. The start then moves with the clock, but no
    gang is backfilled into the places.
*   For a gang past its wait bound, the oldest gangs are counted on first and the reservation is
    closed: no gang that starts later takes one of these places. So the gang starts at the latest
    when all gangs have ended that ran when it became the first in the queue.

Later gangs are backfilled beside the reservation (Lifka, JSSPP 1995, on nodes instead of a node
count). A gang that ends before the reserved start may take any capacity that is free now. A gang
that runs longer, or for an unknown time, may take only capacity that is free now *and* beside the
reserved places.

A gang that can be stopped may start there nevertheless, opportunistically: it yields to the blocked
gang once that fits, so the reservation counts its places as free. Without such starts, a wide gang
behind one that runs for days would keep all its reserved capacity idle for days.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement, pods_at
from bireme.core.pod_rules import NOBODY, Occupants, PodsOf
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.running import RunningGang, RunningTable, sum_by_row
from bireme.core.snapshot import ClusterSnapshot

_FAIR_SHARE = 0.5
"""Part of its estimate that must fit before the reservation. Nine in ten jobs stay within their
estimates; a third (Philly) to seven in ten (openb) of all jobs end within half of them. Chosen by
completion times on training worlds, among a quarter, a half, three quarters and all."""


class CapacityLedger:
    """Free capacity of one cycle, now and at the moment the reservation begins.

    Attributes:
        now: Free capacity at this moment.
        lasting: Capacity that is free now and beside the reservation; ``now`` itself without one.
        reservation: The places of the blocked gang; None while no gang is blocked.
        counted_on: Uids of gangs whose places the reservation expects to become free.
        changes: The number of changes of the free capacity.
    """

    def __init__(
        self, nodes: NodeTable, used: IntArray, time: float, occupants: Occupants = NOBODY
    ) -> None:
        self.now = FreeCapacity(nodes, used, occupants)
        self.reservation: Reservation | None = None
        self.counted_on: frozenset[str] = frozenset()
        self.changes = 0
        self._time = time
        self._nodes = nodes
        self.lasting = self.now
        self._after = self.now.free
        self._reserved_pods: tuple[PodsOf, ...] = ()
        self._opportunistic: set[str] = set()

    def room_for(self, gang: Gang) -> FreeCapacity:
        """Return the capacity that ``gang`` may use without delaying the reserved gang."""
        return self.now if self.ends_in_time(gang) else self.lasting

    def ends_in_time(self, gang: Gang) -> bool:
        """Return whether ``gang``, started now, should end before the reservation begins."""
        reservation = self.reservation
        if reservation is None or gang.uid in self._opportunistic:
            return True
        if reservation.is_closed or gang.estimated_seconds is None:
            return False
        return self._time + gang.estimated_seconds <= reservation.start

    def may_end_in_time(self, gang: Gang) -> bool:
        """Return whether ``gang``, started now, has a fair chance to end before it must yield."""
        if self.reservation is None or gang.estimated_seconds is None:
            return True
        seconds = self.reservation.start - self._time
        # If an estimate was outrun, nobody knows when the reservation begins.
        return seconds <= 0 or seconds >= _FAIR_SHARE * gang.estimated_seconds

    def take(self, gang: Gang, placement: Placement, is_opportunistic: bool = False) -> None:
        """Start ``gang`` on ``placement``, where it may yield to the blocked gang."""
        if is_opportunistic:
            self._opportunistic.add(gang.uid)
        self.changes += 1
        if self.reservation is None:
            self.now.take(gang, placement)
            return
        rows, usage = self.lasting.usage(gang, placement)
        self.now.take(gang, placement)
        self.lasting.add_pods(gang, placement)
        if not self.ends_in_time(gang):
            np.subtract.at(self._after, rows, usage)  # a row may come once per task
        self.lasting.correct(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def give_back(self, gang: Gang, placement: Placement) -> None:
        """Undo :meth:`take`, whether or not a reservation was made since."""
        self.changes += 1
        self.now.remove_pods(gang, placement)
        rows, usage = sum_by_row(*self.now.usage(gang, placement))
        self.now.correct(rows, self.now.free[rows] + usage)
        if self.reservation is None:
            return
        self.lasting.remove_pods(gang, placement)
        rows, usage = sum_by_row(*self.lasting.usage(gang, placement))
        if not self.ends_in_time(gang):
            self._after[rows] += usage
        self.lasting.correct(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def keep(self, gang: Gang, placement: Placement) -> None:
        """Keep other gangs off ``placement``: gangs that end there make room for ``gang``."""
        self.changes += 1
        rows, usage = sum_by_row(*self.now.usage(gang, placement))
        self.now.correct(rows, self.now.free[rows] - usage)
        self.now.add_pods(gang, placement, are_coming=True)
        if self.reservation is not None:
            np.subtract.at(self._after, *self.lasting.usage(gang, placement))
            self.lasting.add_pods(gang, placement, are_coming=True)
            self.lasting.correct(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def reserve(
        self,
        gang: Gang,
        reservation: Reservation,
        given_back: Sequence[RunningGang],
        free_then: IntArray,
    ) -> None:
        """Keep ``reservation`` for ``gang``.

        ``free_then``, int64 of shape (nodes, resources), is free once ``given_back`` have ended;
        the ledger takes ownership of the array.
        """
        np.subtract.at(free_then, *self.now.usage(gang, reservation.placement))
        self.reservation = reservation
        self._after = free_then
        self.counted_on = frozenset(running.gang.uid for running in given_back)
        self._reserved_pods = pods_at(gang, reservation.placement, are_coming=True)
        lasting = np.minimum(self.now.free, free_then)
        occupants = self.now.occupants
        if self._reserved_pods:
            occupants = occupants.plus(self._reserved_pods)
        self.lasting = FreeCapacity(self._nodes, self._nodes.allocatable - lasting, occupants)

    def room_after(self, rows: IntArray, usage: IntArray, is_counted_on: BoolArray) -> IntArray:
        """Return the lasting free capacity after a release, shape (nodes, resources); a copy.

        Args:
            rows, usage: Freed resources and their nodes, shapes (entries,), (entries, resources).
            is_counted_on: True for a gang in ``counted_on``, shape (entries,).
        """
        free = self.now.free.copy()
        np.add.at(free, rows, usage)
        if self.reservation is None:
            return free
        # Places of gangs that are counted on become free for the blocked gang; _after has them
        # already.
        later_free = self._after.copy()
        np.add.at(later_free, rows[~is_counted_on], usage[~is_counted_on])
        return np.minimum(free, later_free)

    def occupants_after(self, gang: Gang, removed_uids: Iterable[str]) -> Occupants:
        """Return the pods that ``gang`` meets for good once the gangs ``removed_uids`` have
        ended.
        """
        if not gang.has_rules:
            return NOBODY
        occupants = self.now.occupants.without(set(removed_uids))
        return occupants.plus(self._reserved_pods) if self._reserved_pods else occupants


def reserve(
    gang: Gang,
    ledger: CapacityLedger,
    snapshot: ClusterSnapshot,
    placer: Placer,
    is_overdue: bool,
    yielding: BoolArray,
    explain: bool = True,
) -> Reservation | None:
    """Reserve places for ``gang``, which does not fit now; None if no end can be foreseen.

    ``yielding`` tells which running gangs stop as soon as it fits, shape (gangs,).
    """
    releases = _releases(snapshot, gang, yielding, by_age=is_overdue)
    free = ledger.now
    earliest = _earliest(gang, releases, free, snapshot, placer)
    if earliest is not None:
        count, placement = earliest
        start, sooner = _end(releases, count, snapshot), None
        if is_overdue and explain:
            # The gang starts wherever it fits first, possibly days before the oldest gangs have
            # ended.
            by_end = _releases(snapshot, gang, yielding, by_age=False)
            first = _earliest(gang, by_end, free, snapshot, placer)
            sooner = first and _end(by_end, first[0], snapshot)
        reservation = Reservation(start, placement, is_overdue, sooner)
        then = releases.free_after(free.free, count)
        ledger.reserve(gang, reservation, releases.first(count), then)
        return reservation
    if not is_overdue:
        return None
    # Only pods outside all gangs block it, and their end is unknown. A reservation of their places
    # keeps others from taking them first.
    emptied = snapshot.nodes.allocatable - snapshot.nodes.fixed
    table = snapshot.running_table
    if (own_row := table.row(gang.uid)) is not None and not table.is_leaving[own_row]:
        np.subtract.at(emptied, *table.gangs[own_row].usage(snapshot.nodes.axis))
    room = FreeCapacity(
        snapshot.nodes, snapshot.nodes.allocatable - emptied, snapshot.occupants.permanent
    )
    placement_anywhere = placer.place(gang, room)
    if placement_anywhere is None:
        return None
    reservation = Reservation(snapshot.now, placement_anywhere, is_closed=True)
    ledger.reserve(gang, reservation, snapshot.running, emptied.copy())
    return reservation


def _end(releases: "_Releases", count: int, snapshot: ClusterSnapshot) -> float:
    """Return when the first ``count`` gangs have ended, POSIX seconds."""
    return max(snapshot.now, float(releases.ends[count - 1])) if count else snapshot.now


def _earliest(
    gang: Gang, releases: "_Releases", now: FreeCapacity, snapshot: ClusterSnapshot, placer: Placer
) -> tuple[int, Placement] | None:
    """Return the smallest number of gangs that must end before ``gang`` fits, and its places."""

    def place_after(count: int) -> Placement | None:
        return placer.place(gang, releases.room_after(now, count, gang))

    total = len(releases.order)
    low, step = releases.fewest(now.free, snapshot.nodes.axis.usage(gang.demand)), 1
    high = low
    # Gallop, then bisect: mostly few must end, and every probe calls the placer.
    while (best := place_after(high)) is None:
        if high >= total:
            return None
        low, high, step = high + 1, min(total, high + step), step * 2
    while low < high:
        middle = (low + high) // 2
        placement = place_after(middle)
        if placement is None:
            low = middle + 1
        else:
            high, best = middle, placement
    return high, best


# --- the order in which running gangs return their places ---


@dataclass(frozen=True, slots=True, eq=False)
class _Releases:
    """Running gangs in the order in which they should return their places.

    Attributes:
        table: The running gangs.
        order: Their rows in ``table``, first to end first, shape (gangs,).
        ends: POSIX seconds, in that order, shape (gangs,).
        rows, usage: Freed resources and their nodes, gang after gang: shapes (entries,) and
            (entries, resources).
        offsets: ``rows[: offsets[n]]`` belong to the first ``n`` gangs; shape (gangs + 1,).
    """

    table: RunningTable
    order: IntArray
    ends: FloatArray
    rows: IntArray
    usage: IntArray
    offsets: IntArray

    def first(self, count: int) -> list[RunningGang]:
        return [self.table.gangs[index] for index in self.order[:count].tolist()]

    def free_after(self, free: IntArray, count: int) -> IntArray:
        """Return ``free`` once the first ``count`` gangs have ended; a copy."""
        result = free.copy()
        end = self.offsets[count]
        np.add.at(result, self.rows[:end], self.usage[:end])
        return result

    def room_after(self, now: FreeCapacity, count: int, gang: Gang) -> FreeCapacity:
        """Return the capacity for ``gang`` once the first ``count`` gangs have ended."""
        nodes, occupants = now.nodes, NOBODY
        if gang.has_rules:
            occupants = now.occupants.without({released.gang.uid for released in self.first(count)})
        used = np.subtract(nodes.allocatable, self.free_after(now.free, count))
        return FreeCapacity(nodes, used, occupants)

    def fewest(self, free: IntArray, demand: IntArray) -> int:
        """Return a lower bound on how many must end before ``demand``, (resources,), is free."""
        missing = demand - np.maximum(free, 0).sum(axis=0)
        if not len(self.rows) or (missing <= 0).all():
            return 0
        enough = (np.cumsum(self.usage, axis=0) >= missing).all(axis=1)
        if not enough.any():
            return len(self.order)
        return int(np.searchsorted(self.offsets, int(enough.argmax()) + 1))


def _releases(
    snapshot: ClusterSnapshot, blocked: Gang, yielding: BoolArray, by_age: bool
) -> _Releases:
    """Return the releases by expected end, as far as ``blocked`` may count on it, or by age."""
    table = snapshot.running_table
    ends = table.expected_ends(snapshot.now, blocked.arrived)
    # Yielding gangs stop as soon as the others have ended, so the gang waits only for the others.
    ends = np.where(yielding, snapshot.now, ends)
    # Stopping gangs end first. By age, no gang that starts later can block the places again.
    keys = (table.started,) if by_age else (table.started, ends)
    order = np.lexsort((*keys, ~(table.is_leaving | yielding)))
    if (own_row := table.row(blocked.uid)) is not None and not table.is_leaving[own_row]:
        order = order[order != own_row]  # a part of the blocked gang that runs keeps its places
    ends = ends[order]
    if by_age:
        ends = np.maximum.accumulate(ends)
    turn = np.full(len(table.gangs), len(order))
    turn[order] = np.arange(len(order))
    offsets = np.concatenate(([0], np.cumsum(table.lengths[order])))
    entries = np.argsort(turn[table.owner], kind="stable")[: offsets[-1]]
    return _Releases(table, order, ends, table.rows[entries], table.usage[entries], offsets)
