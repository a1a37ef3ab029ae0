"""Events of a simulation: a heap in exact time, with one order for events of one moment.

Events sort by :class:`EventKind`, then by name. The cycle runs after all events of a moment, so no
decision depends on the order in which they were queued.
"""

import heapq
import math
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class EventKind(IntEnum):
    """Kinds of events, in the order in which those of one moment happen."""

    FINISH = 0
    NODE = 1
    ARRIVAL = 2
    WAKE = 3
    POOL = 4
    MAINTENANCE = 5


class Event(NamedTuple):
    """One event.

    Attributes:
        time: Seconds after the start of the trace.
        name: The job or node. For node pools see :mod:`bireme_lab.simulator.node_pools`.
        version: Distinguishes a current event from a stale one. A wake-up carries the number of
            its start. A node event is 1 when the node comes up and 0 when it fails.
    """

    time: float
    kind: EventKind
    name: str
    version: int = 0


class EventQueue:
    """Future events, earliest first."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._heap = list(events)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_time(self) -> float:
        """Time of the next event; infinity without one."""
        return self._heap[0].time if self._heap else math.inf

    def push(self, event: Event) -> None:
        """Add an event, unless its time is infinite."""
        if event.time < math.inf:
            heapq.heappush(self._heap, event)

    def pop(self) -> Event:
        """Remove and return the next event."""
        return heapq.heappop(self._heap)
