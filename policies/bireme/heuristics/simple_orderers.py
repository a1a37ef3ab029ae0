"""Simple orders: by arrival, by run time or size, and by lot.

Some gangs have no estimate. In orders by run time, they come after all others, least service first,
and with the lowest preemption priority: any gang with an estimate may stop them, and they stop
none.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

from bireme.core.bounds import Within
from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortedOrderer, SortKey, device_seconds, devices

_TICKET_BYTES = 8


class Fifo:
    """First to arrive first, ties by uid; running gangs are never stopped.

    The score is the wait in seconds.
    Source: the plain queue; FIFO in the paper on DAS, FCFS in that on RLPTO.
    """

    keeps_equal_gangs_in_order = True

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """First to arrive first."""
        return [
            Ranked(gang, snapshot.wait_seconds(gang))
            for gang in sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
        ]


class ShortestJob(SortedOrderer):
    """Shortest estimated run time first; running gangs are never stopped.

    The score is minus the estimate at submission, in seconds.
    Source: Conway, Maxwell and Miller, Theory of Scheduling, 1967.
    """

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By estimate, whatever part of it has run; without one, by service."""
        return _by_time(gang, gang.estimated_seconds, snapshot)._replace(preemption_priority=None)


class ShortestRemainingTime(SortedOrderer):
    """Least remaining run time first, also among running gangs (SRTF).

    The score is minus the remaining seconds.
    Source: Schrage, Operations Research 16(3), 1968.
    """

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By remaining time; without an estimate, by service."""
        return _by_time(gang, snapshot.remaining_seconds(gang), snapshot)


class ShortestRemainingService(SortedOrderer):
    """Least remaining run time times devices first, also among running gangs (SRSF).

    The score is minus the remaining device-seconds.
    Source: Gu et al., Tiresias, NSDI'19, section 3.2.
    """

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By remaining service; without an estimate, by service so far."""
        seconds = snapshot.remaining_seconds(gang)
        return _by_time(
            gang, None if seconds is None else seconds * devices(gang, snapshot), snapshot
        )


class SmallestFirst(SortedOrderer):
    """Fewest devices first; running gangs are never stopped.

    The score is minus the number of devices.
    Source: Gu et al., Tiresias, NSDI'19, whose simulator calls it "smallest job first".
    """

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By devices."""
        size = devices(gang, snapshot)
        return SortKey((size,), -size)


class RandomOrder(SortedOrderer):
    """In an order drawn by lot, the same in every cycle; running gangs are never stopped.

    The score is one minus the ticket, from 0 to 1.
    Source: the usual lower baseline, as in the evaluation of A2cScheduler.
    """

    def __init__(self, seed: Annotated[int, Within(0), "another seed is another draw"] = 0) -> None:
        """Another ``seed`` is another draw."""
        self._seed = seed

    def sort_key(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        """By ticket."""
        place = ticket(gang.uid, self._seed) / 2 ** (8 * _TICKET_BYTES)
        return SortKey((place,), 1.0 - place)


def ticket(uid: str, seed: int) -> int:
    """Return a number from 0 to 2**64 - 1, evenly spread over uids."""
    digest = blake2b(f"{seed}/{uid}".encode(), digest_size=_TICKET_BYTES)
    return int.from_bytes(digest.digest())


def _by_time(gang: Gang, cost: float | None, snapshot: ClusterSnapshot) -> SortKey:
    """Return the key for least ``cost`` first; if unknown, after all others by service."""
    if cost is None:
        served = device_seconds(gang, snapshot)
        return SortKey((1, served), -served, -math.inf)
    return SortKey((0, cost), -cost, -cost)
