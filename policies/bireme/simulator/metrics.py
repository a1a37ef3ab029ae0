"""What a simulation achieved, as numbers under stable, documented keys (:data:`KEYS`).

How jobs count: waits are over the jobs that started; completion times, slowdowns and fairness over
those that finished. The others are never hidden: ``unfinished`` and ``never_started`` count them,
``max_wait_seconds`` and ``wait_bound_violations`` include jobs that still wait at the end, and what
unfinished jobs hold is part of ``gpu_utilisation``. Jobs with a configuration fault (one that never
fits, say) are in ``never_started`` only, because no policy can start them. Two policies can be
compared when both finished the same jobs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator import quantities, steps
from bireme.simulator.outcome import Outcome

Number: TypeAlias = int | float | None

_PUNCTUAL_SECONDS: Final = 1e-3
"""A job started when its wait bound passes is in time, whatever the last bits of the clock say."""

STATISTICS: Final = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "max": "maximum",
}
"""What is told of every distribution, by the beginning of its keys."""
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
        f"{statistic}_{name}": f"{words}: {meaning}"
        for name, meaning in _DISTRIBUTIONS.items()
        for statistic, words in STATISTICS.items()
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
    "resizes": "changes of size of running jobs",
    "wait_bound_violations": "jobs that waited longer than their wait bound for the first start",
    "reservations": "jobs for which places were kept",
    "reservations_honoured": "those that started no later than their first reservation promised",
    "backfills": "starts ahead of a blocked job that were not to delay it",
    "fallbacks": "cycles in which the policy gave no valid answer and the default rules decided",
    "decision_seconds": "processor seconds spent deciding",
}
"""Every key of :meth:`Metrics.to_json`, in its order, with its meaning and unit."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A quantity over jobs; percentiles interpolate linearly. All None when no job has it."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: FloatArray) -> "Distribution":
        """The statistics of ``values``, shape (jobs,)."""
        if not len(values):
            return cls()
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        return cls(float(values.mean()), float(p50), float(p90), float(p99), float(values.max()))


@dataclass(frozen=True, slots=True)
class Metrics:
    """One simulation in numbers; :data:`KEYS` says what each means."""

    policy: str
    trace: str
    seed: int
    jobs: int
    finished: int
    unfinished: int
    never_started: int
    wait_seconds: Distribution
    jct_seconds: Distribution
    slowdown: Distribution
    finish_time_fairness: Distribution
    makespan_seconds: float
    node_hours: float
    short_hours: float | None
    gpu_utilisation: float | None
    mean_fragmentation: float | None
    preemptions: int
    resizes: int
    wait_bound_violations: int
    reservations: int
    reservations_honoured: int
    backfills: int
    fallbacks: int
    decision_seconds: float

    def to_json(self) -> dict[str, str | Number]:
        """The numbers, flat, under the keys of :data:`KEYS`."""
        flat: dict[str, str | Number] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Distribution):
                flat |= {f"{name}_{field.name}": part for name, part in asdict(value).items()}
            else:
                flat[field.name] = value
        return flat


def measure(outcome: Outcome) -> Metrics:
    """The numbers of one simulation."""
    records, counts = outcome.jobs, outcome.counts
    finished = len(quantities.finished(outcome))
    started = sum(record.started is not None for record in records)
    began, ended = quantities.first_submission(outcome), quantities.last_end(outcome)
    return Metrics(
        policy=outcome.policy,
        trace=outcome.trace,
        seed=outcome.seed,
        jobs=len(records),
        finished=finished,
        unfinished=started - finished,
        never_started=len(records) - started,
        wait_seconds=_waits(outcome, ended),
        jct_seconds=Distribution.of(quantities.completion_seconds(outcome)),
        slowdown=Distribution.of(quantities.slowdowns(outcome)),
        finish_time_fairness=Distribution.of(quantities.fairness(outcome)),
        makespan_seconds=ended - began,
        node_hours=quantities.node_seconds(outcome, began, ended) / 3600,
        short_hours=_short_hours(outcome, began, ended),
        gpu_utilisation=_utilisation(outcome, began, ended),
        mean_fragmentation=_fragmentation(outcome, began, ended),
        preemptions=sum(record.preemptions for record in records),
        resizes=sum(record.resizes for record in records),
        wait_bound_violations=_violations(outcome, ended),
        reservations=counts.get("reservations", 0),
        reservations_honoured=counts.get("reservations_honoured", 0),
        backfills=counts.get("backfills", 0),
        fallbacks=counts.get("fallbacks", 0),
        decision_seconds=outcome.decision_seconds,
    )


def _waits(outcome: Outcome, ended: float) -> Distribution:
    over = Distribution.of(quantities.waited_seconds(outcome))
    lasting = [
        max(0.0, ended - record.job.submitted)
        for record in outcome.jobs
        if record.started is None and not quantities.is_faulty(record)
    ]
    return replace(over, max=max([*lasting, over.max or 0.0])) if lasting else over


def _violations(outcome: Outcome, ended: float) -> int:
    return sum(
        (ended if record.started is None else record.started) - record.job.submitted
        > record.wait_bound_seconds + _PUNCTUAL_SECONDS
        for record in outcome.jobs
        if not quantities.is_faulty(record)
    )


def _short_hours(outcome: Outcome, began: float, ended: float) -> float | None:
    return quantities.short_seconds(outcome, began, ended) / 3600 if outcome.pools else None


def _utilisation(outcome: Outcome, began: float, ended: float) -> float | None:
    # From the spans, which are exact; the series may have been thinned out.
    available = quantities.gpu_seconds_there(outcome, began, ended)
    return sum(map(quantities.gpu_seconds, outcome.jobs)) / available if available else None


def _fragmentation(outcome: Outcome, began: float, ended: float) -> float | None:
    if not outcome.total_gpus or ended <= began:
        return None
    series = outcome.series
    free = steps.mean_between(series.times, series.fragmented_gpus, began, ended)
    return free / outcome.total_gpus
