"""When the places of running gangs come free: the order in which a blocked gang may count on them.

Places of gangs that are being stopped come first. The others follow by expected end or, for a
gang past its wait bound, by age: whoever started later then never comes into its way again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray, ResourceAxis
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """Running gangs in the order in which they are expected to give their places back.

    Attributes:
        gangs: First to leave first.
        ends: POSIX seconds, shape (gangs,).
        rows, usage: What they use, gang after gang: shapes (entries,) and (entries, resources).
        offsets: ``rows[: offsets[n]]`` belong to the first ``n`` gangs; shape (gangs + 1,).
    """

    gangs: tuple[RunningGang, ...]
    ends: FloatArray
    rows: IntArray
    usage: IntArray
    offsets: IntArray

    @classmethod
    def by_end(cls, snapshot: ClusterSnapshot) -> "Releases":
        """By expected end, the oldest first among equals."""
        now = snapshot.now
        keyed = sorted(
            (not g.is_leaving, g.expected_end(now), g.started, g.gang.uid, at)
            for at, g in enumerate(snapshot.running)
        )
        gangs = tuple(snapshot.running[key[4]] for key in keyed)
        return cls._of(gangs, np.array([key[1] for key in keyed]), snapshot.nodes.axis)

    @classmethod
    def by_age(cls, snapshot: ClusterSnapshot) -> "Releases":
        """The oldest first, whatever was estimated."""
        gangs = sorted(snapshot.running, key=lambda g: (not g.is_leaving, g.started, g.gang.uid))
        ends = np.array([gang.expected_end(snapshot.now) for gang in gangs])
        return cls._of(tuple(gangs), np.maximum.accumulate(ends), snapshot.nodes.axis)

    @classmethod
    def _of(
        cls, gangs: tuple[RunningGang, ...], ends: FloatArray, axis: ResourceAxis
    ) -> "Releases":
        rows, usage = usage_of_all(gangs, axis)
        lengths = [len(gang.usage(axis)[0]) for gang in gangs]
        return cls(gangs, ends, rows, usage, np.cumsum([0, *lengths]))

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
            return len(self.gangs)
        return int(np.searchsorted(self.offsets, int(enough.argmax()) + 1))


def usage_of_all(gangs: Sequence[RunningGang], axis: ResourceAxis) -> tuple[IntArray, IntArray]:
    """Rows and usage of several gangs, one after another."""
    if not gangs:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64)
    rows, usage = zip(*(gang.usage(axis) for gang in gangs), strict=True)
    return np.concatenate(rows), np.concatenate(usage)
