"""Short or small gangs first, by what is known of them: run time, remaining time, devices.

Nobody knows how long some gangs run. Where run time decides, they go after all others, in order of
the service they have had, least first, and have the lowest claim: any gang with an estimate may
stop them, and they stop nobody.
"""

import math
from collections.abc import Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import Standing, device_seconds, devices, ranked


class ShortestJob:
    """Shortest estimated run time first; running gangs are never stopped.

    The score is minus the estimate at submission, in seconds.
    Source: Conway, Maxwell and Miller, Theory of Scheduling, 1967.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By estimate, whatever part of it has run; without one, by service."""
        return ranked(gangs, lambda gang: self._standing(gang, snapshot))

    def _standing(self, gang: Gang, snapshot: ClusterSnapshot) -> Standing:
        return _by_time(gang, gang.estimated_seconds, snapshot)._replace(claim=None)


class ShortestRemainingTime:
    """Least remaining run time first, also among running gangs (SRTF).

    The score is minus the remaining seconds.
    Source: Schrage, Operations Research 16(3), 1968.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By remaining time; without an estimate, by service."""
        return ranked(gangs, lambda g: _by_time(g, snapshot.remaining_seconds(g), snapshot))


class ShortestRemainingService:
    """Least remaining run time times devices first, also among running gangs (SRSF).

    The score is minus the remaining device-seconds.
    Source: Gu et al., Tiresias, NSDI'19, section 3.2.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By remaining service; without an estimate, by service so far."""
        return ranked(gangs, lambda gang: self._standing(gang, snapshot))

    def _standing(self, gang: Gang, snapshot: ClusterSnapshot) -> Standing:
        seconds = snapshot.remaining_seconds(gang)
        return _by_time(gang, None if seconds is None else seconds * devices(gang), snapshot)


class SmallestFirst:
    """Fewest devices first; running gangs are never stopped.

    The score is minus the number of devices.
    Source: Gu et al., Tiresias, NSDI'19, whose simulator calls it "smallest job first".
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By devices, ties by arrival."""
        return ranked(gangs, lambda gang: Standing((devices(gang),), -devices(gang)))


def _by_time(gang: Gang, cost: float | None, snapshot: ClusterSnapshot) -> Standing:
    """Least ``cost`` first; where it is unknown, after all others by service so far."""
    if cost is None:
        served = device_seconds(gang, snapshot)
        return Standing((1, served), -served, -math.inf)
    return Standing((0, cost), -cost, -cost)
