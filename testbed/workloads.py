"""Random workloads for the guardrails: small gangs of all kinds, three nodes, four queues."""

from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import strategies as st

from bireme.core.gangs import Gang, Task
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import GPU, a_gang, a_node, a_task

PATIENT = SchedulingSettings(
    min_runtime_seconds=0, eviction_budget=2, eviction_backoff_seconds=0, resize_settle_seconds=5
)
COMBINED = Policy(CombinedPriority(), Packing())
NODES = (a_node("n0", 8), a_node("n1", 4), a_node("n2", 2))
QUEUES = (
    Queue("default"),
    Queue("first", user_priority=90),
    Queue("small", limit={GPU: 6}),
    Queue("mine", guaranteed={GPU: 4}),
)
Arrival: TypeAlias = tuple[int, Gang, float]
"""Moment of arrival, gang, and its run time."""


def timed(name: str, seconds: float | None, gpus: int = 1, arrived: float = 0.0) -> Gang:
    """Return one-GPU workers with this estimate."""
    return a_gang(name, a_task(gpus), arrived=arrived, estimated_seconds=seconds)


def growing(replicas: int, least: int, most: int) -> Task:
    return a_task(replicas, min_replicas=least, max_replicas=most)


def _of_one_task(*sizes: tuple[int, int]) -> tuple[tuple[Task, ...], ...]:
    return tuple((a_task(replicas, gpus),) for replicas, gpus in sizes)


KINDS = _of_one_task((1, 1), (3, 1), (1, 4), (1, 8), (2, 4), (12, 1))
SMALL = _of_one_task((1, 1), (2, 1), (1, 3), (1, 6), (2, 4))
ELASTIC = ((growing(2, 1, 8),), (growing(4, 2, 14),), (growing(3, 3, 4),))


@st.composite
def arrivals(
    draw: st.DrawFn,
    kinds: Sequence[tuple[Task, ...]] = KINDS,
    queues: Sequence[str] = ("default",),
    estimates: Sequence[float | None] = (1.0,),
) -> list[Arrival]:
    """Up to 25 gangs within 30 seconds; an estimate is a multiple of the run time, or nothing."""
    found = []
    for index in range(draw(st.integers(3, 25))):
        tasks, seconds = draw(st.sampled_from(kinds)), float(draw(st.integers(1, 30)))
        times = draw(st.sampled_from(estimates))
        gang = a_gang(
            f"g{index:02}",
            *tasks,
            queue=draw(st.sampled_from(queues)),
            priority=draw(st.sampled_from((0, 0, 10, 1000))),
            estimated_seconds=None if times is None else times * seconds,
            is_elastic=any(task.max_replicas for task in tasks),
        )
        found.append((draw(st.integers(0, 30)), gang, seconds))
    return sorted(found, key=lambda arrival: (arrival[0], arrival[1].uid))
