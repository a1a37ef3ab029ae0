"""Hourly demand on a node pool: the input of its forecast.

The operator records an hour when it is over and keeps it in the status of the NodePoolScaler. The
nightly job and the simulator forecast from it. Hours are consecutive; NaN stands for an hour
without a record.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.core.times import DAY, HOUR

HISTORY_DAYS: Final = 56
"""The number of whole days that are kept, beside the current one."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolHistory:
    """Consecutive hours of one pool; values without a record are NaN.

    Attributes:
        start: When the first hour began, POSIX seconds; a whole hour.
        demand: Nodes' worth asked for, the mean of each hour, shape (hours,).
        tasks: Jobs that finished in each hour, shape (hours,).
        notes: Descriptions of unreadable parts.
    """

    start: float
    demand: FloatArray
    tasks: FloatArray
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> float:
        """End of the last hour, POSIX seconds."""
        return self.start + HOUR * len(self.demand)

    def with_hour(self, begin: float, demand: float, tasks: float) -> "PoolHistory":
        """Return the history up to the hour that began at ``begin``, with that hour recorded.

        The 56 days before its day are kept.

        Raises:
            ValueError: ``begin`` is no whole hour.
        """
        if begin % HOUR:
            raise ValueError(f"begin is {begin}; it must be a whole hour in POSIX seconds")
        first = max(self.start if len(self.demand) else begin, oldest_hour(begin))
        first = min(first, begin)
        first -= first % DAY  # whole days: rates of tasks are those of days
        hours = int((begin - first) // HOUR) + 1
        columns = [hours_at([(self.start, v)], first, hours) for v in (self.demand, self.tasks)]
        columns[0][-1], columns[1][-1] = demand, tasks
        return replace(self, start=first, demand=columns[0], tasks=columns[1])


NO_HISTORY: Final = PoolHistory(0.0, np.empty(0), np.empty(0))


def oldest_hour(begin: float) -> float:
    """Return the first hour that is kept once the hour of ``begin`` is recorded, POSIX seconds."""
    return begin - begin % DAY - DAY * HISTORY_DAYS


def hours_at(parts: Iterable[tuple[float, FloatArray]], first: float, hours: int) -> FloatArray:
    """Return ``hours`` values from ``first`` on, each part at its own start; NaN between them."""
    column = np.full(hours, np.nan)
    for begin, values in parts:
        positions = int((begin - first) // HOUR) + np.arange(len(values))
        inside = (positions >= 0) & (positions < hours)
        column[positions[inside]] = values[inside]
    return column
