"""What happens when: a heap of events in exact time, ties in one documented order.

At one instant: gangs that finish give their places back, then nodes fail and recover, then jobs
arrive, then wake-ups, then node pools change, each kind by name. The cycle runs once all of them
have been heard, so no decision depends on the order in which equal-time events were put in.
"""

import heapq
import math
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """Kinds of events, first at one instant to last."""

    FINISH = 0
    NODE = 1
    ARRIVAL = 2
    WAKE = 3
    POOL = 4


class Event(NamedTuple):
    """``name`` is a job or a node; ``version`` tells an event that still counts from a stale one.

    For a wake-up, the version is the start it belongs to. For a node, it says whether it is up.
    For node pools, :mod:`bireme.simulator.node_pools` says what both are.
    """

    time: float
    kind: Kind
    name: str
    version: int = 0


class EventQueue:
    """Events to come."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._heap = list(events)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_time(self) -> float:
        """When the next event happens; infinity when none is left."""
        return self._heap[0].time if self._heap else math.inf

    def push(self, event: Event) -> None:
        """Add an event; one that never happens (infinite time) is dropped."""
        if event.time < math.inf:
            heapq.heappush(self._heap, event)

    def pop(self) -> Event:
        """The next event."""
        return heapq.heappop(self._heap)


def moment_at(begin: float, seconds: float) -> float:
    """``begin + seconds``, late enough that a reader of the clock sees so many seconds passed.

    The sum alone may be rounded down, and whoever subtracts then hears "not yet".
    """
    moment = begin + seconds
    while moment - begin < seconds:
        moment = math.nextafter(moment, math.inf)
    return moment


def moment_past(begin: float, seconds: float) -> float:
    """``begin + seconds``, late enough that a reader of the clock sees more seconds passed."""
    moment = moment_at(begin, seconds)
    while moment - begin <= seconds:
        moment = math.nextafter(moment, math.inf)
    return moment
