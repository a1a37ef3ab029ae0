"""Reserving places for the first blocked gang: the earliest moment at which it fits, and where.

Gangs leave one after another in a given order (:mod:`bireme.core.releases`); the reservation is
placed as soon as enough have left. Every cycle computes it anew, so it follows the facts:

*   A gang without an estimate, or that came later than the blocked one and has outrun its own,
    counts as ending now. The start then moves with the clock, but nobody is backfilled into the
    places. The estimates of those that ran before are raised when they are outrun. As these become
    ever fewer, the start cannot be pushed back for ever.
*   For a gang past its wait bound the oldest gangs are counted on first and the reservation is
    closed. Whoever starts later takes none of these places, so the gang starts at the latest when
    all gangs have ended that ran when it became the first in line, and those that are being
    stopped just then have left. That is a promise, and days away where one of them runs for days;
    it starts wherever it fits first, so when that should be is worked out beside it.
"""

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Reservation
from bireme.core.gangs import Gang
from bireme.core.ledger import Ledger
from bireme.core.placement import Placement
from bireme.core.policy import Placer
from bireme.core.releases import Releases
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot


def reserve(
    gang: Gang,
    ledger: Ledger,
    snapshot: ClusterSnapshot,
    placer: Placer,
    is_overdue: bool,
    explain: bool = True,
) -> Reservation | None:
    """Reserve places for ``gang``, which does not fit now; None when that cannot be foreseen.

    Pods that no gang owns are expected to stay, except for a gang past its wait bound: its places
    may be theirs, which keeps others from taking them first. When it should start sooner than
    that is worked out to ``explain`` alone.
    """
    releases = (Releases.by_age if is_overdue else Releases.by_end)(snapshot, gang)
    free = ledger.now.free
    found = _earliest(gang, releases, free, snapshot, placer)
    if found is not None:
        count, placement = found
        start, sooner = _end(releases, count, snapshot), None
        if is_overdue and explain:
            by_end = Releases.by_end(snapshot, gang)
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


def _end(releases: Releases, count: int, snapshot: ClusterSnapshot) -> float:
    """When the first ``count`` have left, POSIX seconds; never before ``now``."""
    return max(snapshot.now, float(releases.ends[count - 1])) if count else snapshot.now


def _earliest(
    gang: Gang, releases: Releases, free: IntArray, snapshot: ClusterSnapshot, placer: Placer
) -> tuple[int, Placement] | None:
    """How few gangs must leave before ``gang`` fits, and where; by galloping and bisection."""
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
