"""Sixty days of Philly-like demand for a node pool, by seed, and eight weeks of history before.

Weeks are drawn with replacement from the eight in which Philly's trace is busy, as wholes: hour of
the day, sizes, run times and bursts stay together. A random tenth of the jobs is kept, so that a
pool of nodes with 4 GPUs has a dozen of them in use.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.simulations.windows import PHILLY
from bireme.core.pool_history import PoolHistory
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme.forecasting.networks import DataRange
from bireme_lab.simulator import metrics
from bireme_lab.simulator.loads import DAY
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace, TraceJob

DAYS: Final = 60
GPUS_PER_NODE: Final = 4
BEFORE: Final = "before"
"""Prefix of the names of jobs that came before the first moment."""
_WEEK: Final = 7 * DAY
_HISTORY_WEEKS: Final = 8
_BUSY_WEEKS: Final = range(2, 10)
_KEPT: Final = 0.1
_FIRST: Final = 37_841.0
"""The trace's first job came at 10:30:41 on a Monday."""
_MONDAY: Final = 1_504_483_200.0
"""The Monday of that week, POSIX seconds: 2017-09-04."""
DRAWN_FROM: Final = DataRange(
    "Philly", _MONDAY + _BUSY_WEEKS.start * _WEEK, _MONDAY + _BUSY_WEEKS.stop * _WEEK
)
"""The days from which all demand is drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Jobs of the sixty days, and the demand recorded before."""

    trace: Trace
    history: PoolHistory


@cache
def philly(data: Path) -> Trace:
    """Read Philly's trace, in replicas that fit the nodes."""
    return read_trace(f"philly:{data / PHILLY}", gpus_per_node=GPUS_PER_NODE)


def draw(whole: Trace, seed: int) -> Demand:
    """Draw the demand of ``seed`` from Philly's ``whole`` trace."""
    generator = np.random.default_rng(seed)
    weeks = _HISTORY_WEEKS + -(-DAYS // 7)
    drawn = [
        _moved(job, at, week)
        for at, week in enumerate(generator.choice(_BUSY_WEEKS, weeks).tolist())
        for jobs in [_of_week(whole, week)]
        for job in compress(jobs, generator.random(len(jobs)) < _KEPT)
    ]
    begin = -_HISTORY_WEEKS * _WEEK
    demand = offered_gpus(drawn, begin, 0.0) / GPUS_PER_NODE
    history = PoolHistory(begin, demand, np.full(len(demand), np.nan))
    # What began before and still runs is there at the first moment, as long as it has left.
    jobs = [_from_start(job) for job in drawn if _ends(job) > 0 and job.submitted < DAYS * DAY]
    jobs.sort(key=lambda job: (job.submitted, job.name))
    return Demand(replace(whole, name=f"Philly's weeks, seed {seed}", jobs=tuple(jobs)), history)


def offered_gpus(jobs: Sequence[TraceJob], began: float, ended: float) -> FloatArray:
    """Return mean GPUs in use by hour, were every job started at once; shape (hours,)."""
    starts = np.array([job.submitted for job in jobs])
    times = np.concatenate([starts, [_ends(job) for job in jobs]])
    asked = np.array([job.gpus for job in jobs], dtype=float)
    order = np.argsort(times, kind="stable")
    in_use = np.cumsum(np.concatenate([asked, -asked])[order])
    return metrics.bin_means(times[order], in_use, np.arange(began, ended + 1, HOUR))


def _of_week(whole: Trace, week: int) -> tuple[TraceJob, ...]:
    first, last = (
        bisect_left(whole.jobs, at * _WEEK - _FIRST, key=lambda job: job.submitted)
        for at in (week, week + 1)
    )
    return whole.jobs[first:last]


def _moved(job: TraceJob, at: int, week: int) -> TraceJob:
    """Move a job of ``week`` to place ``at``; 0 is where the sixty days begin."""
    submitted = job.submitted + _FIRST + (at - _HISTORY_WEEKS - week) * _WEEK
    return replace(job, name=f"{at}-{job.name}", submitted=submitted)


def _from_start(job: TraceJob) -> TraceJob:
    if job.submitted >= 0:
        return job
    return replace(job, name=f"{BEFORE}-{job.name}", submitted=0.0, duration_seconds=_ends(job))


def _ends(job: TraceJob) -> float:
    return job.submitted + job.duration_seconds
