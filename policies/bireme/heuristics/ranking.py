"""Sorting gangs by a key; their size in devices, their service, and when they stop others.

Size is counted in accelerators (:mod:`bireme.core.accelerators`), service in device-seconds: size
times run time, the two-dimensional attained service of Tiresias (Gu et al., NSDI'19). A gang
without accelerators counts one per replica, so that jobs on CPUs have a size too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.service import devices_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import moment_at


class SortKey(NamedTuple):
    """Sort key of a gang (the smallest ``key`` goes first), and fields of :class:`Ranked`."""

    key: tuple[float, ...]
    score: float
    preemption_priority: float | None = None
    stop_priority: float | None = None
    stop_priority_until: float | None = None


class SortedOrderer(ABC):
    """Base of orderers with one sort key per gang."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs`` by :meth:`sort_key`."""
        return rank_by(gangs, lambda gang: self.sort_key(gang, snapshot))

    @abstractmethod
    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """Return the sort key of ``gang``."""


def rank_by(gangs: Iterable[Gang], sort_key: Callable[[Gang], SortKey]) -> list[Ranked]:
    """Return all ``gangs``, smallest key first; ties: interrupted first, then arrival, uid."""
    keyed_gangs = [(sort_key(gang), gang) for gang in gangs]
    keyed_gangs.sort(key=lambda pair: (pair[0].key, tie(pair[1])))
    return [
        Ranked(
            gang,
            place.score,
            preemption_priority=place.preemption_priority,
            stop_priority=place.stop_priority,
            stop_priority_until=place.stop_priority_until,
        )
        for place, gang in keyed_gangs
    ]


def tie(gang: Gang) -> tuple[bool, float, str]:
    """Return the key between gangs of equal sort key: interrupted, arrival, uid."""
    return (not gang.interrupted, gang.arrived, gang.uid)


def with_delay(
    place: SortKey, gang: Gang, snapshot: ClusterSnapshot, delay_seconds: int
) -> SortKey:
    """Return ``place`` of ``gang`` such that it stops no gang before :func:`stops_from`."""
    begins = stops_from(gang, snapshot, delay_seconds)
    if begins is None:
        return place
    return place._replace(stop_priority=-math.inf, stop_priority_until=begins)


def stops_from(gang: Gang, snapshot: ClusterSnapshot, delay_seconds: int) -> float | None:
    """Return when the delay of ``gang`` ends, POSIX seconds; None without one, or after its end.

    It ends when the gang has waited for ``delay_seconds`` in all, or for its wait bound, past which
    it precedes all others; infinite while it is parked. A gang that lost a node has no delay.
    """
    if not delay_seconds or gang.displaced or gang.uid in snapshot.running_by_uid:
        return None
    delay = min(delay_seconds, snapshot.overdue_after_seconds(gang))
    if snapshot.wait_seconds(gang) >= delay:
        return None
    # From the arrival, so that the moment is equal in every snapshot.
    return math.inf if gang.parked is not None else moment_at(gang.arrived, delay)


def devices(gang: Gang, snapshot: ClusterSnapshot) -> int | float:
    """Return the accelerators of all replicas, shares as fractions.

    The number of replicas if they request none.
    """
    return devices_of(gang.tasks, snapshot.nodes.accelerators)


def device_seconds(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the service so far: earlier starts at the requested size, the current one at its
    own.
    """
    served = gang.attained_seconds * devices(gang, snapshot)
    running = snapshot.running_by_uid.get(gang.uid)
    if running is not None:
        served += running.elapsed_seconds(snapshot.now) * devices(running.current, snapshot)
    return served
