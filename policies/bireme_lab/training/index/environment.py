"""The cases of the learned index: days of a trace on small clusters, under all guardrails.

The split is that of :mod:`bireme_lab.contest.families`: the index learns from Philly's first six
weeks, and the seventh week decides when training stops. This module has no evaluation data. A case
is one day of every n-th job, on a cluster with a given load (:mod:`bireme_lab.simulator.loads`). A
virtual cluster stands for its users, as a namespace does in a real cluster. Jobs before the case
are the history of run times.

Preemption is free, as in most published comparisons, or has a cost.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from bireme import registry
from bireme.core.gpus import GPU
from bireme.core.policy import Orderer, Policy
from bireme.core.settings import SchedulingSettings
from bireme_lab.contest.families import PHILLY_DAYS, history_before, philly_jobs
from bireme_lab.contest.worlds import Part, World, world_of
from bireme_lab.simulator.loads import DAY, Window, make_window, stretch
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.workload import Trace


def play(world: World, orderer: Orderer, knows_run_times: bool = False) -> SimulationMetrics:
    """Return the metrics of ``orderer`` in ``world``, with the default placement."""
    return world.play(replace(_rules(), orderer=orderer), knows_run_times=knows_run_times)


@cache
def _rules() -> Policy:
    return registry.make_policy(SchedulingSettings())


def philly_days(data: Path, part: Part, min_jobs: float, max_jobs: float = np.inf) -> list[float]:
    """Return the days of ``part`` with ``min_jobs`` to ``max_jobs`` jobs in Philly.

    Raises:
        SettingError: ``part`` is the test, or ``data`` has no such trace.
    """
    return days_with(philly_jobs(data, part), PHILLY_DAYS[part], min_jobs, max_jobs)


def days_with(trace: Trace, days: range, min_jobs: float, max_jobs: float = np.inf) -> list[float]:
    """Return the ``days`` with ``min_jobs`` to ``max_jobs`` jobs in ``trace``."""
    counts = np.bincount([int(job.submitted // DAY) for job in trace.jobs], minlength=days.stop)
    return [float(day) for day in days if min_jobs <= counts[day] <= max_jobs]


def case(
    data: Path, part: Part, begin_days: float, take: slice, load: float, physics: Physics
) -> World:
    """Return the day of Philly from ``begin_days`` on; ``take`` selects the jobs.

    Raises:
        SettingError: ``part`` is the test, or ``data`` has no such trace.
        TraceError: the day is after ``part``.
    """
    trace = philly_jobs(data, part)
    return thin(trace, begin_days, 1.0, take, load, physics=physics, part=part)


def thin(
    trace: Trace,
    begin_days: float,
    days: float,
    take: slice,
    load: float,
    *,
    physics: Physics,
    part: Part,
) -> World:
    """Return the jobs that ``take`` selects in ``days`` days, on a cluster of that load.

    Jobs wider than the whole cluster are left out, because they would never end.
    """
    block = f"{trace.name}, day {begin_days:g}"
    return world_of(
        _fitting(stretch(trace, 0, begin_days, days, take), load),
        load,
        name=f"{block}, jobs {take.start}::{take.step}, load {load}",
        block=block,
        part=part,
        physics=physics,
        # thin the history like the jobs
        history=history_before(trace, begin_days, take.step),
    )


def _fitting(window: Window, load: float) -> Window:
    """Return ``window`` without the jobs that do not fit its cluster."""
    max_gpus = sum(node.allocatable.get(GPU, 0) for node in window.nodes(load))
    jobs = tuple(job for job in window.trace.jobs if job.gpus <= max_gpus)
    if len(jobs) == len(window.trace.jobs):
        return window
    # Without them the cluster of this load is smaller.
    return _fitting(make_window(window.number, replace(window.trace, jobs=jobs)), load)
