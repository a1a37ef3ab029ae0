"""The capacity of one cycle, now and at the moment a reservation begins.

A gang that ends before the reserved start may take whatever is free now. One that runs longer, or
nobody knows how long, may take only what is free now *and* will still be free beside the reserved
places (EASY backfilling, Lifka, JSSPP 1995, on nodes instead of a node count).
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.resources import BoolArray, IntArray
from bireme.core.running import RunningGang, summed, usage_of


class Ledger:
    """What may be given away.

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
        """What ``gang`` may be placed on without delaying the reserved gang."""
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
        """``gang`` starts on ``placement``."""
        self.changes += 1
        self.now.take(gang, placement)
        if self.reservation is None:
            return
        rows, usage = usage_of(gang, placement, self._nodes.axis)
        if not self.ends_in_time(gang):
            np.subtract.at(self._after, rows, usage)
        self.lasting.lower(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def keep(self, gang: Gang, placement: Placement) -> None:
        """Nobody else may have ``placement``: what leaves there makes room for ``gang``."""
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
        """Free for good once ``usage`` is freed, int64 of shape (nodes, resources); a copy.

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
