"""Outcomes made by hand, for tests of what is reported about them."""

from collections.abc import Mapping, Sequence

import numpy as np

from bireme_lab.simulator.outcome import JobRecord, Outcome, RunSegment, UsageSeries
from bireme_lab.simulator.workload import TraceJob
from testbed.simulations import a_job


def a_run(
    job: TraceJob, began: float, ended: float, node: str = "n0", *, end: str = "finished"
) -> RunSegment:
    """A stretch of ``job`` with all its replicas on one node."""
    return RunSegment(
        began, ended, tuple((task.name, node, task.replicas) for task in job.tasks), end
    )


def a_record(
    job: TraceJob,
    *segments: RunSegment,
    verdict: str = "",
    wait_bound_seconds: float = 86_400.0,
) -> JobRecord:
    """Return the record of a job that starts with its first segment and ends with its last."""
    return JobRecord(
        job,
        started=segments[0].began if segments else None,
        finished=segments[-1].ended if segments and segments[-1].ended_by == "finished" else None,
        segments=segments,
        verdict=verdict,
        preemptions=sum(segment.ended_by == "preempted" for segment in segments),
        resizes=sum(segment.ended_by == "resized" for segment in segments),
        wait_bound_seconds=wait_bound_seconds,
    )


def a_series(*points: tuple[float, float, float, float]) -> UsageSeries:
    """Points of (time, used GPUs, waiting gangs, fragmented GPUs)."""
    columns = np.array(points, dtype=float).reshape(-1, 4)
    return UsageSeries(*(columns[:, column].copy() for column in range(4)))


def an_outcome(
    *records: JobRecord,
    gpus: int = 4,
    series: UsageSeries | None = None,
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
