"""Sizers that look at no speed: the smallest, the largest, and equal shares.

They are the references that measured sizers have to beat.
"""

import heapq
from collections.abc import Mapping, Sequence

from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import Allotment, CapacityPool


class Minimum:
    """Every gang at its minimum.

    Source: baseline "Min" of TapFinger (Li et al., 2023).
    """

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """The fewest replicas a start may have, for all that fit."""
        return CapacityPool(ranked, snapshot).proposal()


class Maximum:
    """Every gang at its maximum while there is room, first in order first.

    Source: the opposite end of the range whose lower end is the baseline "Min".
    """

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """After all minima, each gang takes what it can before the next one is asked."""
        pool = CapacityPool(ranked, snapshot)
        for allotment in pool.allotments:
            pool.fill(allotment, allotment.high)
        return pool.proposal()


class FairSharing:
    """Equal dominant shares: the gang with the least gets the next replica.

    Source: baseline "FS" of RLPTO; progressive filling, Ghodsi et al., NSDI'11, algorithm 1.
    """

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Shares as equal as whole replicas, minima and maxima allow."""
        pool = CapacityPool(ranked, snapshot)
        share_equally(pool, pool.allotments)
        return pool.proposal()


def share_equally(pool: CapacityPool, allotments: Sequence[Allotment]) -> None:
    """Raise the lowest dominant share, replica by replica, until nothing fits.

    Within a gang the task goes first that is furthest behind the proportions it asked for. Ties
    go to the higher rank.
    """
    heap = [(pool.share_of(entry), rank) for rank, entry in enumerate(allotments)]
    heapq.heapify(heap)
    while heap:
        _, rank = heapq.heappop(heap)
        allotment = allotments[rank]
        growing = [task for task in allotment.growable if pool.fits(task.request)]
        if growing:
            pool.grow(allotment, allotment.furthest_behind(growing))
            heapq.heappush(heap, (pool.share_of(allotment), rank))
