"""Outcomes made by hand, for tests of what is reported about them."""

from collections.abc import Mapping, Sequence

import numpy as np

from bireme.simulator.outcome import JobRecord, Outcome, Series, Span
from bireme.simulator.workload import TraceJob
from tests.support.model.simulations import a_job


def a_run(
    job: TraceJob, began: float, ended: float, node: str = "n0", *, end: str = "finished"
) -> Span:
    """A stretch of ``job`` with all its replicas on one node."""
    return Span(began, ended, tuple((task.name, node, task.replicas) for task in job.tasks), end)


def a_record(
    job: TraceJob,
    *spans: Span,
    verdict: str = "",
    wait_bound_seconds: float = 86_400.0,
) -> JobRecord:
    """What became of ``job``: it started with its first span and finished as its last one says."""
    return JobRecord(
        job,
        started=spans[0].began if spans else None,
        finished=spans[-1].ended if spans and spans[-1].ended_by == "finished" else None,
        spans=spans,
        verdict=verdict,
        preemptions=sum(span.ended_by == "preempted" for span in spans),
        resizes=sum(span.ended_by == "resized" for span in spans),
        wait_bound_seconds=wait_bound_seconds,
    )


def a_series(*points: tuple[float, float, float, float]) -> Series:
    """Points of (time, used GPUs, waiting gangs, fragmented GPUs)."""
    columns = np.array(points, dtype=float).reshape(-1, 4)
    return Series(*(columns[:, column].copy() for column in range(4)))


def an_outcome(
    *records: JobRecord,
    gpus: int = 4,
    series: Series | None = None,
    policy: str = "fifo/packing",
    seed: int = 0,
    counts: Mapping[str, int] | None = None,
) -> Outcome:
    """One simulation of ``records`` on ``gpus`` GPUs."""
    return Outcome(
        policy=policy,
        trace="test",
        seed=seed,
        nodes=1,
        total_gpus=gpus,
        jobs=records,
        series=a_series() if series is None else series,
        counts=counts or {},
        decision_seconds=0.5,
    )


def one_after_another(*seconds: float, policy: str = "fifo/packing", seed: int = 0) -> Outcome:
    """Jobs of all 4 GPUs, submitted together, that run one after another for ``seconds`` each."""
    records, points = _in_turn(seconds)
    return an_outcome(*records, series=a_series(*points), policy=policy, seed=seed)


def _in_turn(
    seconds: Sequence[float],
) -> tuple[list[JobRecord], list[tuple[float, float, float, float]]]:
    records, points, now = [], [], 0.0
    for index, lasted in enumerate(seconds):
        job = a_job(f"j{index}", lasted, gpus=4)
        records.append(a_record(job, a_run(job, now, now + lasted)))
        points.append((now, 4.0, len(seconds) - index - 1.0, 0.0))
        now += lasted
    return records, [*points, (now, 0.0, 0.0, 0.0)]
