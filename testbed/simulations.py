"""Traces, outcomes and records for tests of the simulator, and checks of any outcome."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from bireme.core.gangs import Task
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.speed import LinearSpeed
from bireme.testing import GPU, a_node, a_task
from bireme_lab.simulator.outcome import JobRecord, Outcome
from bireme_lab.simulator.workload import Trace, TraceJob
from testbed.model.rules import overcommitted, wrong_sizes

URGENT = Queue("urgent", user_priority=100)


def a_job(
    name: str, seconds: float = 10.0, *tasks: Task, at: float = 0.0, gpus: int = 1, **fields: Any
) -> TraceJob:
    """Return a job, by default of one worker that arrives at 0 and runs for ten seconds."""
    return TraceJob(name, at, tasks or (a_task(1, gpus),), seconds, **fields)


def a_trace(*jobs: TraceJob, queues: Sequence[Queue] = ()) -> Trace:
    return Trace("test", jobs, queues=(Queue("default"), URGENT, *queues))


def record_of(outcome: Outcome, name: str) -> JobRecord:
    return next(record for record in outcome.jobs if record.job.name == name)


def lifetimes(outcome: Outcome) -> dict[str, tuple[float | None, float | None]]:
    """Return first start and finish of every job, by name."""
    return {record.job.name: (record.started, record.finished) for record in outcome.jobs}


def story(outcome: Outcome) -> dict[str, object]:
    """Return everything about an outcome but how long deciding took, by job name."""
    return {
        **{
            record.job.name: (
                record.started,
                record.finished,
                record.segments,
                record.verdict,
                record.preemptions,
                record.resizes,
                record.reserved_start,
            )
            for record in outcome.jobs
        },
        "counts": {name: n for name, n in outcome.counts.items() if name != "cycles"},
    }


def broken_promises(outcome: Outcome, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield what must not happen in any simulation."""
    changes: list[tuple[float, bool, tuple[str, str], int]] = []
    for record in outcome.jobs:
        yield from _broken_life(record)
        requests = {task.name: task.request for task in record.job.tasks}
        bounds = {task.name: (task.minimum, task.maximum) for task in record.job.tasks}
        for segment in record.segments:
            placed: Counter[str] = Counter()
            for task, node, replicas in segment.places:
                placed[task] += replicas
                for resource, amount in requests[task]:
                    used = replicas * amount
                    changes.append((segment.began, True, (node, resource), used))
                    changes.append((segment.ended, False, (node, resource), -used))
            yield from (f"{record.job.name} {words}" for words in wrong_sizes(bounds, placed))
    offered = {node.name: node.allocatable for node in nodes}
    held: Counter[tuple[str, str]] = Counter()
    # Places are given back (False) before others are taken at the same moment.
    for time, _, place, used in sorted(changes):
        held[place] += used
        yield from (f"at {time}: {words}" for words in overcommitted(offered, held, [place]))


def _broken_life(record: JobRecord) -> Iterator[str]:
    name, segments = record.job.name, record.segments
    if (record.started is None) is not (not segments):
        yield f"{name} started at {record.started} and has {len(segments)} segments"
    if (record.finished is not None) is not (
        bool(segments) and segments[-1].ended_by == "finished"
    ):
        yield f"{name} finished at {record.finished}, but its segments end otherwise"
    ends = [record.job.submitted, *(segment.ended for segment in segments)]
    for end, segment in zip(ends, segments, strict=False):
        if not end <= segment.began <= segment.ended:
            yield f"{name} has a segment from {segment.began} to {segment.ended} after {end}"


def used_gpu_seconds(jobs: Iterable[JobRecord]) -> float:
    return sum(
        (segment.ended - segment.began) * replicas * dict(task.request).get(GPU, 0)
        for record in jobs
        for segment in record.segments
        for name, _, replicas in segment.places
        for task in record.job.tasks
        if task.name == name
    )


@st.composite
def small_clusters(draw: st.DrawFn) -> tuple[Node, ...]:
    """One to three nodes of two or four GPUs, in up to two racks."""
    racks = st.sampled_from(("r0", "r1"))
    return tuple(
        a_node(f"n{index}", draw(st.sampled_from((2, 4, 4))), rack=draw(racks))
        for index in range(draw(st.integers(1, 3)))
    )


@st.composite
def small_traces(draw: st.DrawFn, most: int = 6) -> Trace:
    """A few jobs, many of them alike, in whole seconds, so that much happens at one moment."""
    queues = (Queue("small", limit={GPU: 2}, wait_bound_seconds=8),)
    jobs = [draw(_jobs(f"j{index}")) for index in range(draw(st.integers(1, most)))]
    kin = draw(st.lists(st.sampled_from(jobs[:2]), min_size=1, max_size=2 * most))
    times = st.sampled_from((*range(0, 20, 5), 1, 2, 3))
    alike = [
        replace(job, name=f"k{index}", submitted=float(draw(times)))
        for index, job in enumerate(kin)
    ]
    return a_trace(*jobs, *alike, queues=queues)


@st.composite
def _jobs(draw: st.DrawFn, name: str) -> TraceJob:
    replicas, seconds = draw(st.sampled_from((1, 1, 2, 3))), float(draw(st.integers(0, 12)))
    is_elastic = draw(st.sampled_from((False, False, False, True)))
    task = a_task(replicas, draw(st.sampled_from((1, 1, 1, 2))), min_replicas=int(is_elastic))
    estimates = st.sampled_from((None, seconds, seconds / 2, seconds * 3))
    return a_job(
        name,
        seconds,
        task,
        at=float(draw(st.integers(0, 20))),
        priority=draw(st.sampled_from((0, 0, 1000))),
        queue=draw(st.sampled_from(("default", "default", "urgent", "small"))),
        estimated_seconds=draw(estimates),
        is_elastic=is_elastic,
        speed=LinearSpeed(1.0 / replicas) if is_elastic else None,
        steps=max(seconds, 1.0) if is_elastic else None,
    )
