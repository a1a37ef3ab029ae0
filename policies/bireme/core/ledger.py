"""The capacity of one cycle, now and at the moment a reservation begins.

A gang that ends before the reserved start may take whatever is free now. One that runs longer, or
nobody knows how long, may take only what is free now *and* will still be free beside the reserved
places (EASY backfilling, Lifka, JSSPP 1995, on nodes instead of a node count).
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang, usage_of

Freed: TypeAlias = tuple[str, IntArray, IntArray]
"""A gang's uid, rows of shape (entries,), and what comes free there, (entries, resources)."""


class Ledger:
    """What may be given away. ``now`` is what is free at this moment."""

    def __init__(self, nodes: NodeTable, used: IntArray, time: float) -> None:
        self.now = FreeCapacity(nodes, used)
        self.reservation: Reservation | None = None
        self._time = time
        self._nodes = nodes
        self._lasting = self.now
        self._after = self.now.free
        self._given_back: frozenset[str] = frozenset()

    def room_for(self, gang: Gang) -> FreeCapacity:
        """What ``gang`` may be placed on without delaying the reserved gang."""
        return self.now if self._ends_in_time(gang) else self._lasting

    def _ends_in_time(self, gang: Gang) -> bool:
        reservation = self.reservation
        if reservation is None:
            return True
        if reservation.is_closed or gang.estimated_seconds is None:
            return False
        return self._time + gang.estimated_seconds <= reservation.start

    def take(self, gang: Gang, placement: Placement) -> None:
        """``gang`` starts on ``placement``."""
        self.now.take(gang, placement)
        if self.reservation is None:
            return
        rows, usage = usage_of(gang, placement, self._nodes.axis)
        if not self._ends_in_time(gang):
            np.subtract.at(self._after, rows, usage)
        self._lasting.lower(rows, np.minimum(self.now.free[rows], self._after[rows]))

    def keep(self, gang: Gang, placement: Placement) -> None:
        """Nobody else may have ``placement``: what leaves there makes room for ``gang``."""
        rows, usage = usage_of(gang, placement, self._nodes.axis)
        rows, usage = _summed(rows, usage)
        self.now.lower(rows, self.now.free[rows] - usage)
        if self.reservation is not None:
            self._after[rows] -= usage
            self._lasting.lower(rows, np.minimum(self.now.free[rows], self._after[rows]))

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
        self._given_back = frozenset(running.gang.uid for running in given_back)
        lasting = np.minimum(self.now.free, free_then)
        self._lasting = FreeCapacity(self._nodes, self._nodes.allocatable - lasting)

    def room_after(self, freed: Iterable[Freed]) -> IntArray:
        """Free for good once ``freed`` is, int64 of shape (nodes, resources); a copy.

        What the reserved gang counts on comes free for the reserved gang.
        """
        now, later = self.now.free.copy(), None
        if self.reservation is not None:
            later = self._after.copy()
        for uid, rows, usage in freed:
            np.add.at(now, rows, usage)
            if later is not None and uid not in self._given_back:
                np.add.at(later, rows, usage)
        return now if later is None else np.minimum(now, later)


def _summed(rows: IntArray, usage: IntArray) -> tuple[IntArray, IntArray]:
    """Every row once, with all that is used there."""
    unique, at = np.unique(rows, return_inverse=True)
    total = np.zeros((len(unique), usage.shape[1]), dtype=np.int64)
    np.add.at(total, at, usage)
    return unique, total
