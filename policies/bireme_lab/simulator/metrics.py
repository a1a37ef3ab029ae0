"""Metrics of a simulation: numbers under stable, documented keys (:data:`KEYS`).

Waits are over the jobs that started. Completion times, slowdowns and fairness are over the jobs
that finished. The other jobs stay visible: ``unfinished`` and ``never_started`` count them.
``max_wait_seconds`` and ``wait_bound_violations`` include jobs that still wait at the end.
``gpu_utilisation`` includes the GPUs of unfinished jobs. Jobs with a configuration fault, such as
one that never fits, are in ``never_started`` only, because no policy can start them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, TypeAlias

import numpy as np

from bireme.core.accelerators import DEFAULT
from bireme.core.gpus import GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import Node
from bireme.core.reasons import Reason
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme_lab.simulator.outcome import JobRecord, Outcome, PoolSeries, RunSegment
from bireme_lab.simulator.workload import TraceJob

# --- Step functions of time ---------------------------------------------------------------------
#
# ``times`` and ``values`` have the shape (points,): value ``i`` holds from ``times[i]`` until
# ``times[i + 1]``, the last one for ever, and before the first it is 0.


def area_between(times: FloatArray, values: FloatArray, start: float, end: float) -> float:
    """Return the area under the function from ``start`` to ``end``."""
    return float(np.diff(integral(times, values, np.array([start, end])))[0])


def mean_between(times: FloatArray, values: FloatArray, start: float, end: float) -> float:
    """Return the mean from ``start`` to ``end``; ``end`` must be later."""
    return area_between(times, values, start, end) / (end - start)


def bin_means(times: FloatArray, values: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the means over the bins between ascending ``edges``, shape (edges - 1,)."""
    area = integral(times, values, edges)
    return np.asarray(np.diff(area) / np.diff(edges))


def integral(times: FloatArray, values: FloatArray, points: FloatArray) -> FloatArray:
    """Return the area from the first step to each of ``points``, in the shape of ``points``."""
    if not len(times):
        return np.zeros_like(points)
    areas = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times))))
    beyond = np.maximum(points - times[-1], 0.0) * values[-1]
    # Between two steps the area is linear in time, so interpolation is exact.
    return np.asarray(np.interp(points, times, areas) + beyond)


# --- Quantities of single jobs, in order of submission ------------------------------------------
#
# A job is *faulty* when it never started and no order of the jobs can change that: it never fits,
# or its queue does not exist.

MIN_SECONDS: Final = 1.0
"""Shorter jobs count as this long in slowdown and fairness; a job of 0 s would divide by zero."""

_EXACT: Final = 1e-9
"""Demand in nodes is a sum of fractions: a shortage up to this is rounding."""

_FAULTS: Final = frozenset(reason.value for reason in Reason if reason.is_configuration_fault)


def wait_seconds(outcome: Outcome) -> FloatArray:
    """Return the seconds from submission to the first start of every job that started."""
    starts = [r.started - r.job.submitted for r in outcome.jobs if r.started is not None]
    return np.array(starts, dtype=float)


def completion_seconds(outcome: Outcome) -> FloatArray:
    """Return the seconds from submission to the finish (JCT) of every finished job."""
    ends = [r.finished - r.job.submitted for r in outcome.jobs if r.finished is not None]
    return np.array(ends, dtype=float)


def slowdowns(outcome: Outcome) -> FloatArray:
    """Return completion time / own run time of every finished job."""
    return np.asarray(completion_seconds(outcome) / _own_seconds(select_finished(outcome)))


def fairness(outcome: Outcome) -> FloatArray:
    """Return the finish-time fairness of finished jobs; above 1 a job was worse off than alone.

    ``rho = T_shared / T_independent`` (Mahajan et al., Themis, NSDI 2020) divides the completion
    time by the run time on 1/n of the cluster. ``n`` is the mean number of jobs that waited or ran
    during the job's life, itself included. A job that requests ``k`` times its share of the GPUs
    runs ``max(k, 1)`` times as long there. Themis uses ``T_independent = T_alone * n`` for all.
    """
    records = select_finished(outcome)
    submitted = np.array([record.job.submitted for record in records], dtype=float)
    shared = completion_seconds(outcome)
    times, present = _presence(outcome)
    ends = integral(times, present, submitted + shared)
    area = ends - integral(times, present, submitted)
    # A job of 0 s shared the cluster with no other job.
    sharers = np.maximum(area / np.maximum(shared, np.finfo(float).tiny), 1.0)
    gpus = np.array([record.job.gpus for record in records], dtype=float)
    cluster_shares = gpus * sharers / max(outcome.total_gpus, 1)
    return np.asarray(shared / (_own_seconds(records) * np.maximum(cluster_shares, 1.0)))


def select_finished(outcome: Outcome) -> list[JobRecord]:
    """Return the jobs that finished."""
    return [record for record in outcome.jobs if record.finished is not None]


def is_faulty(record: JobRecord) -> bool:
    """Return whether a job never started for a reason that waiting cannot change."""
    return record.started is None and record.verdict in _FAULTS


def gpus_by_node(record: JobRecord, segment: RunSegment) -> dict[str, int]:
    """Return the GPUs that a job held in ``segment``, by node name."""
    gpus = _gpus_by_task(record.job)
    by_node: dict[str, int] = {}
    for task, node, count in segment.places:
        by_node[node] = by_node.get(node, 0) + gpus[task] * count
    return by_node


def _gpus_by_task(job: TraceJob) -> dict[str, int]:
    """Return the GPUs of one replica, by task name."""
    return {task.name: DEFAULT.count(task.request) for task in job.tasks}


def gpu_seconds(record: JobRecord) -> float:
    """Return the GPU-seconds of a job over all its segments."""
    return sum(
        (segment.ended - segment.began) * sum(gpus_by_node(record, segment).values())
        for segment in record.segments
    )


def node_seconds(outcome: Outcome, start: float, end: float) -> float:
    """Return the node-seconds of all nodes that were present or requested."""
    fixed = outcome.nodes - sum(pool.maximum for pool in outcome.pools)
    changing = (
        area_between(pool.times, pool.requested_nodes, start, end) for pool in outcome.pools
    )
    return fixed * (end - start) + sum(changing)


def gpu_seconds_there(outcome: Outcome, start: float, end: float) -> float:
    """Return the GPU-seconds of all present nodes."""
    fixed = outcome.total_gpus - sum(pool.maximum * pool.gpus_per_node for pool in outcome.pools)
    changing = (
        pool.gpus_per_node * area_between(pool.times, pool.ready_nodes, start, end)
        for pool in outcome.pools
    )
    return fixed * (end - start) + sum(changing)


def short_seconds(pool: PoolSeries, start: float, end: float) -> float:
    """Return the seconds during which the demand for a node pool exceeded its nodes."""
    is_short = (pool.demand > pool.ready_nodes + _EXACT).astype(float)
    return area_between(pool.times, is_short, start, end)


def first_submission(outcome: Outcome) -> float:
    """Return the first submission, seconds after the start of the trace; 0 without jobs."""
    return min((record.job.submitted for record in outcome.jobs), default=0.0)


def last_end(outcome: Outcome) -> float:
    """Return the end of the last run, else the last submission, seconds after the start."""
    submitted = max((record.job.submitted for record in outcome.jobs), default=0.0)
    ends = (record.segments[-1].ended for record in outcome.jobs if record.segments)
    return max(ends, default=submitted)


def _own_seconds(records: Sequence[JobRecord]) -> FloatArray:
    return np.array([max(r.job.duration_seconds, MIN_SECONDS) for r in records], dtype=float)


def _presence(outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """Return the number of jobs that waited or ran, without faulty ones, as a step function."""
    end = last_end(outcome)
    records = [record for record in outcome.jobs if not is_faulty(record)]
    arrivals = [record.job.submitted for record in records]
    departures = [max(end, r.job.submitted) if r.finished is None else r.finished for r in records]
    times = np.array(arrivals + departures, dtype=float)
    changes = np.repeat([1.0, -1.0], len(records))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(changes[order])


Number: TypeAlias = int | float | None

_PUNCTUAL_SECONDS: Final = 1e-3
"""A job that starts at its wait bound is in time: this much is rounding."""

STATISTICS: Final = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "max": "maximum",
}
"""The statistics of every quantity, by the prefix of their keys."""
_DISTRIBUTIONS: Final = {
    "wait_seconds": "seconds from submission to the first start",
    "jct_seconds": "seconds from submission to the finish (job completion time)",
    "slowdown": "completion time / the job's own run time, of which at least 1 s is taken",
    "finish_time_fairness": "completion time / that on 1/n of the cluster to itself, n being the "
    "jobs present (rho of Themis, NSDI 2020); above 1 the job was worse off than alone",
}

KEYS: Final[Mapping[str, str]] = {
    "policy": "the policy, as it was asked for",
    "trace": "the workload",
    "seed": "seed of everything that chance decides",
    "jobs": "jobs submitted",
    "finished": "jobs that finished",
    "unfinished": "jobs that started and had not finished at the end of the simulation",
    "never_started": "jobs that never started, those that never fit included",
    **{
        f"{statistic}_{name}": f"{label}: {meaning}"
        for name, meaning in _DISTRIBUTIONS.items()
        for statistic, label in STATISTICS.items()
    },
    "max_wait_seconds": "maximum: seconds from submission to the first start, or to the end for "
    "jobs that still wait then",
    "makespan_seconds": "seconds from the first submission to the end of the last run",
    "node_hours": "hours that nodes were there or on their way, of all nodes, in the makespan",
    "short_hours": "hours during which jobs asked for more nodes of a pool than were there; only "
    "with node pools",
    "gpu_utilisation": "GPU-seconds held by jobs / GPU-seconds there were in the makespan",
    "mean_fragmentation": "free GPUs on partly used nodes / all GPUs, mean over the makespan",
    "preemptions": "runs stopped to make room for others",
    "moves": "runs stopped to start again on faster GPUs",
    "resizes": "changes of size of running jobs",
    "wait_bound_violations": "jobs that waited longer than their wait bound for the first start",
    "reservations": "jobs for which places were kept",
    "reservations_honoured": "those that started no later than their first reservation promised",
    "backfills": "starts ahead of a blocked job that were not to delay it, opportunistic ones too",
    "fallbacks": "cycles in which the policy gave no valid answer and the default rules decided",
    "decision_seconds": "processor seconds spent deciding",
}
"""Every key of :meth:`SimulationMetrics.to_json`, in its order, with its meaning and unit."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A quantity over jobs; percentiles interpolate linearly. All None when no job has it."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: FloatArray) -> "Statistics":
        """Return the statistics of ``values``, shape (jobs,)."""
        if not len(values):
            return cls()
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        return cls(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True, slots=True)
class SimulationMetrics:
    """One simulation in numbers; :data:`KEYS` explains each."""

    policy: str
    trace: str
    seed: int
    jobs: int
    finished: int
    unfinished: int
    never_started: int
    wait_seconds: Statistics
    jct_seconds: Statistics
    slowdown: Statistics
    finish_time_fairness: Statistics
    makespan_seconds: float
    node_hours: float
    short_hours: float | None
    gpu_utilisation: float | None
    mean_fragmentation: float | None
    preemptions: int
    moves: int
    resizes: int
    wait_bound_violations: int
    reservations: int
    reservations_honoured: int
    backfills: int
    fallbacks: int
    decision_seconds: float

    def to_json(self) -> dict[str, str | Number]:
        """Return the numbers, flat, under the keys of :data:`KEYS`."""
        flat: dict[str, str | Number] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Statistics):
                flat |= {f"{name}_{field.name}": part for name, part in asdict(value).items()}
            else:
                flat[field.name] = value
        return flat


def measure(outcome: Outcome) -> SimulationMetrics:
    """Return the metrics of one simulation."""
    records, counts = outcome.jobs, outcome.counts
    finished_count = len(select_finished(outcome))
    started = sum(record.started is not None for record in records)
    start, end = first_submission(outcome), last_end(outcome)
    available = gpu_seconds_there(outcome, start, end)
    short = sum(short_seconds(pool, start, end) for pool in outcome.pools)
    return SimulationMetrics(
        policy=outcome.policy,
        trace=outcome.trace,
        seed=outcome.seed,
        jobs=len(records),
        finished=finished_count,
        unfinished=started - finished_count,
        never_started=len(records) - started,
        wait_seconds=_waits(outcome, end),
        jct_seconds=Statistics.of(completion_seconds(outcome)),
        slowdown=Statistics.of(slowdowns(outcome)),
        finish_time_fairness=Statistics.of(fairness(outcome)),
        makespan_seconds=end - start,
        node_hours=node_seconds(outcome, start, end) / 3600,
        short_hours=short / 3600 if outcome.pools else None,
        # From the segments, which are exact; the series may have been thinned out.
        gpu_utilisation=sum(map(gpu_seconds, records)) / available if available else None,
        mean_fragmentation=_fragmentation(outcome, start, end),
        preemptions=sum(record.preemptions for record in records),
        moves=counts.get("moves", 0),
        resizes=sum(record.resizes for record in records),
        wait_bound_violations=_violations(outcome, end),
        reservations=counts.get("reservations", 0),
        reservations_honoured=counts.get("reservations_honoured", 0),
        backfills=counts.get("backfills", 0),
        fallbacks=counts.get("fallbacks", 0),
        decision_seconds=outcome.decision_seconds,
    )


def _waits(outcome: Outcome, end: float) -> Statistics:
    over = Statistics.of(wait_seconds(outcome))
    lasting = [
        max(0.0, end - record.job.submitted)
        for record in outcome.jobs
        if record.started is None and not is_faulty(record)
    ]
    return replace(over, max=max([*lasting, over.max or 0.0])) if lasting else over


def _violations(outcome: Outcome, end: float) -> int:
    return sum(
        (end if record.started is None else record.started) - record.job.submitted
        > record.wait_bound_seconds + _PUNCTUAL_SECONDS
        for record in outcome.jobs
        if not is_faulty(record)
    )


def _fragmentation(outcome: Outcome, start: float, end: float) -> float | None:
    if not outcome.total_gpus or end <= start:
        return None
    series = outcome.series
    free = mean_between(series.times, series.fragmented_gpus, start, end)
    return free / outcome.total_gpus


def fee_dollars(outcome: Outcome, nodes: Sequence[Node]) -> FloatArray:
    """Return the fee of every job in dollars, shape (jobs,).

    The fee sums rent * GPUs * hours over its runs and machines (Xing et al., DAS).
    """
    prices = {
        node.name: gpu_model(node.labels.get(GPU_MODEL_LABEL, "")).dollars_per_hour
        for node in nodes
    }
    return np.array([_fee(record, prices) for record in outcome.jobs], dtype=float)


def _fee(record: JobRecord, prices: dict[str, float]) -> float:
    gpus = _gpus_by_task(record.job)
    return sum(
        (span.ended - span.began) / HOUR * prices[node] * gpus[task] * replicas
        for span in record.segments
        for task, node, replicas in span.places
    )
