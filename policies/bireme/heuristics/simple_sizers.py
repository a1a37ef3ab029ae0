"""Sizers that ignore speeds: the general rule, the smallest, the largest, and equal shares.

They are the references that measured sizers have to beat.
"""

from collections.abc import Sequence

from bireme.core.policy import GangSizes, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import CapacityPool, share_equally


class GeneralRule:
    """As asked for, or at the minimum, and grown where nobody waits.

    Source: the decision cycle, :mod:`bireme.core.cycle`.
    """

    sizes_measured_only = True

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return no sizes."""
        del ranked, snapshot
        return {}


class Minimum:
    """Every gang at its minimum.

    Source: baseline "Min" of TapFinger (Li et al., 2023).
    """

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return the fewest replicas with which a gang may start, for all that fit."""
        return CapacityPool(ranked, snapshot).proposal()


class Maximum:
    """Every gang at its maximum while there is room, first in order first.

    Source: the opposite end of the range whose lower end is the baseline "Min".
    """

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes that fit."""
        # After all minima, each gang takes as much as possible before the next one.
        pool = CapacityPool(ranked, snapshot)
        for allotment in pool.allotments:
            pool.fill(allotment, allotment.high)
        return pool.proposal()


class FairSharing:
    """Equal dominant shares: the gang with the least gets the next replica.

    Source: baseline "FS" of RLPTO; progressive filling, Ghodsi et al., NSDI'11, algorithm 1.
    """

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes with shares as equal as whole replicas, minima and maxima allow."""
        pool = CapacityPool(ranked, snapshot)
        share_equally(pool, pool.allotments)
        return pool.proposal()
