"""Quantities of single jobs in an outcome, one number per job, in order of submission.

A job counts as *faulty* when it never started for a reason that no order of the others can change:
it never fits, its queue does not exist. What is measured over jobs names which jobs.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bireme.core.reasons import Reason
from bireme.core.resources import FloatArray
from bireme.kube.names import GPU
from bireme.simulator import loads, steps
from bireme.simulator.outcome import JobRecord, Outcome, PoolSeries
from bireme.simulator.workload import TraceJob

SHORTEST_SECONDS: Final = 1.0
"""Shorter jobs count as this long in slowdown and fairness, lest a job of 0 s divide by zero."""

_EXACT: Final = 1e-9
"""Demand in nodes is a sum of fractions: so much is no lack."""

_FAULTS: Final = frozenset(reason.value for reason in Reason if reason.is_configuration_fault)


def waited_seconds(outcome: Outcome) -> FloatArray:
    """From submission to the first start, of the jobs that started."""
    starts = [r.started - r.job.submitted for r in outcome.jobs if r.started is not None]
    return np.array(starts, dtype=float)


def completion_seconds(outcome: Outcome) -> FloatArray:
    """From submission to the finish (job completion time), of the jobs that finished."""
    ends = [r.finished - r.job.submitted for r in outcome.jobs if r.finished is not None]
    return np.array(ends, dtype=float)


def slowdowns(outcome: Outcome) -> FloatArray:
    """Completion time over the job's own run time, of the jobs that finished."""
    return np.asarray(completion_seconds(outcome) / _own_seconds(finished(outcome)))


def fairness(outcome: Outcome) -> FloatArray:
    """Finish-time fairness of the jobs that finished; above 1 a job was worse off than alone.

    ``rho = T_shared / T_independent`` (Mahajan et al., Themis, NSDI 2020): the completion time
    over the run time on 1/n of the cluster, all its own. ``n`` is the mean number of jobs that
    waited or ran during the job's life, itself included. A job that asks for no more than its
    share of the GPUs runs there as long as it ever does; one that asks for ``k`` times its share
    runs ``k`` times as long, as Themis has it for all (``T_independent = T_alone * n``).
    """
    done = finished(outcome)
    submitted = np.array([record.job.submitted for record in done], dtype=float)
    shared = completion_seconds(outcome)
    times, present = _presence(outcome)
    ends = steps.integral(times, present, submitted + shared)
    area = ends - steps.integral(times, present, submitted)
    sharers = np.maximum(area / np.maximum(shared, np.finfo(float).tiny), 1.0)
    asked = np.array([loads.gpus(record.job) for record in done], dtype=float)
    shares_asked = asked * sharers / max(outcome.total_gpus, 1)
    return np.asarray(shared / (_own_seconds(done) * np.maximum(shares_asked, 1.0)))


def finished(outcome: Outcome) -> list[JobRecord]:
    """The jobs that finished."""
    return [record for record in outcome.jobs if record.finished is not None]


def is_faulty(record: JobRecord) -> bool:
    """Whether it never started for a reason that waiting cannot change."""
    return record.started is None and record.verdict in _FAULTS


def gpus_by_task(job: TraceJob) -> dict[str, int]:
    """GPUs of one replica, by task name."""
    return {task.name: dict(task.request).get(GPU, 0) for task in job.tasks}


def gpu_seconds(record: JobRecord) -> float:
    """GPUs held, times how long, over all spans of a job."""
    gpus = gpus_by_task(record.job)
    return sum(
        (span.ended - span.began) * sum(gpus[task] * count for task, _, count in span.places)
        for span in record.spans
    )


def node_seconds(outcome: Outcome, began: float, ended: float) -> float:
    """Nodes that were there or on their way, times how long, between two moments."""
    fixed = outcome.nodes - sum(pool.maximum for pool in outcome.pools)
    span = np.array([began, ended])
    changing = (np.diff(steps.integral(pool.times, pool.asked, span)) for pool in outcome.pools)
    return fixed * (ended - began) + float(sum(area[0] for area in changing))


def gpu_seconds_there(outcome: Outcome, began: float, ended: float) -> float:
    """GPUs of nodes that were there, times how long, between two moments."""
    span = np.array([began, ended])
    fixed = outcome.total_gpus - sum(pool.maximum * pool.gpus_per_node for pool in outcome.pools)
    changing = (
        pool.gpus_per_node * np.diff(steps.integral(pool.times, pool.there, span))
        for pool in outcome.pools
    )
    return fixed * (ended - began) + float(sum(area[0] for area in changing))


def short_seconds(outcome: Outcome, began: float, ended: float) -> float:
    """For how long a node pool was asked for more nodes than it had; pools are added up."""
    return sum(
        float(np.diff(steps.integral(pool.times, is_short(pool), np.array([began, ended])))[0])
        for pool in outcome.pools
    )


def is_short(pool: PoolSeries) -> FloatArray:
    """1 from each of its times on at which more was asked than there was, else 0."""
    return (pool.demand > pool.there + _EXACT).astype(float)


def first_submission(outcome: Outcome) -> float:
    """Seconds after the start of the trace; 0 without jobs."""
    return min((record.job.submitted for record in outcome.jobs), default=0.0)


def last_end(outcome: Outcome) -> float:
    """When the last run ended, seconds after the start of the trace; or the last submission."""
    submitted = max((record.job.submitted for record in outcome.jobs), default=0.0)
    ends = (record.spans[-1].ended for record in outcome.jobs if record.spans)
    return max(ends, default=submitted)


def _own_seconds(records: Sequence[JobRecord]) -> FloatArray:
    return np.array([max(r.job.duration_seconds, SHORTEST_SECONDS) for r in records], dtype=float)


def _presence(outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """How many jobs waited or ran, as a step function; faulty ones ask for no share."""
    ended = last_end(outcome)
    records = [record for record in outcome.jobs if not is_faulty(record)]
    came = [record.job.submitted for record in records]
    left = [
        record.finished if record.finished is not None else max(ended, record.job.submitted)
        for record in records
    ]
    times = np.array(came + left, dtype=float)
    changes = np.repeat([1.0, -1.0], len(records))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(changes[order])
