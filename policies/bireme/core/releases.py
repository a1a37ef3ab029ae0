"""When the places of running gangs come free: the order in which a blocked gang may count on them.

Places of gangs that are being stopped come first. The others follow by expected end or, for a
gang past its wait bound, by age: whoever started later then never comes into its way again.
"""

from dataclasses import dataclass

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray, IntArray
from bireme.core.running import RunningGang, RunningTable
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """Running gangs in the order in which they are expected to give their places back.

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
    def by_end(cls, snapshot: ClusterSnapshot, blocked: Gang) -> "Releases":
        """By expected end, as far as ``blocked`` may count on it, the oldest first among equals.

        What ``blocked`` holds itself, where part of it runs, it keeps.
        """
        table = snapshot.running_table
        ends = table.expected_ends(snapshot.now, blocked.arrived)
        order = _of_others(table, np.lexsort((table.started, ends, ~table.is_leaving)), blocked)
        return cls._of(table, order, ends[order])

    @classmethod
    def by_age(cls, snapshot: ClusterSnapshot, blocked: Gang) -> "Releases":
        """The oldest first, whatever was estimated."""
        table = snapshot.running_table
        order = _of_others(table, np.lexsort((table.started, ~table.is_leaving)), blocked)
        ends = table.expected_ends(snapshot.now, blocked.arrived)[order]
        return cls._of(table, order, np.maximum.accumulate(ends))

    @classmethod
    def _of(cls, table: RunningTable, order: IntArray, ends: FloatArray) -> "Releases":
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
