"""What a node pool was asked for in the hour that runs, and in those over but not written yet.

The mean of an hour weighs every value by how long it held. An hour of which less than half was
seen, because an operator began or ended in it, says nothing and stays a gap.
"""

from dataclasses import dataclass, field
from typing import Final

from bireme.core.times import HOUR

_LONGEST_SECONDS: Final = 120.0
"""After a longer time without a look, nobody knows what was between."""
_MOST_HOURS: Final = 48
"""Hours kept while they cannot be written."""


@dataclass(slots=True)
class HourMeter:
    """Gathers one pool's hours. All times are POSIX seconds.

    Attributes:
        over: Hours to be written, by when they began: mean demand in nodes, jobs finished.
    """

    over: dict[float, tuple[float, float]] = field(default_factory=dict)
    _begin: float = 0.0
    _seen_at: float = float("-inf")
    _demand: float = 0.0
    _sum: float = 0.0
    _seconds: float = 0.0
    _finished: int = 0

    def look(self, now: float, demand: float, finished: int) -> None:
        """``demand`` holds from now on, and so many jobs have finished since the last look."""
        known_until = now if 0 <= now - self._seen_at <= _LONGEST_SECONDS else self._seen_at
        end = self._begin + HOUR
        self._add(min(known_until, end) - self._seen_at)
        if not self._begin <= now < end:
            self._end_hour()
            self._begin = now - now % HOUR
            self._add(known_until - max(self._begin, self._seen_at))
        self._seen_at, self._demand = now, demand
        self._finished += finished

    def _add(self, seconds: float) -> None:
        """The last value held for so long."""
        if seconds > 0:
            self._sum += self._demand * seconds
            self._seconds += seconds

    def _end_hour(self) -> None:
        if self._seconds >= HOUR / 2:
            rate = HOUR / self._seconds
            self.over[self._begin] = (self._sum / self._seconds, self._finished * rate)
            while len(self.over) > _MOST_HOURS:
                del self.over[min(self.over)]
        self._sum = self._seconds = 0.0
        self._finished = 0
