"""RLPTO's world and the one simulator give the same tasks the same starts, stops and ends.

Both train by the same speed law; every task has three workers and one server throughout, so that
three run at a time. What the engine's physics cannot express is left out here: a task that ends
because of its accuracy (jobs of the engine end by their steps), a gain that shrinks with the number
of workers, and looks at fixed periods (the engine looks at every event), by which sizes change
later in the world. Owners ask for no other priorities: in the world they may also ask for lower
ones, in a cluster waiting asks for them, and only for higher ones.
"""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.gangs import Role, Task
from bireme.core.nodes import Node
from bireme.core.policy import Orderer, Policy
from bireme.core.resources import PODS, FloatArray, request_of
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU
from bireme_lab.heuristics.rlpto_queues import RlptoQueues
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.training.rlpto.environment import (
    LAW,
    NextTask,
    RlptoClusters,
    RlptoEnvConfig,
    by_arrival,
)

WORKERS = 3
ITERATIONS = 40.0
PLAIN = RlptoEnvConfig(servers=3, nodes=3 * WORKERS)
MIXED = replace(PLAIN, priorities=(1, 4, 4, 3, 1, 2, 1, 3, 5, 4, 4, 1), spread_seconds=4000.0)
"""One urgent task: of two that are interrupted the world goes on with the first submitted, the
simulator with the one that waited longest."""
SEEDS = range(6)
NEVER_ASKS = RlptoQueues(request_seconds=1e9)
AT_ONCE = SchedulingSettings(min_runtime_seconds=0)
MACHINE = Node("machine", {GPU: 3 * WORKERS, "server": 100, PODS: 100})


def end_of(setting: RlptoEnvConfig, turn: NextTask | None = None) -> RlptoClusters:
    """One world per seed, run to its end with three workers for every task."""
    cluster = RlptoClusters([setting] * len(SEEDS), SEEDS, ITERATIONS, turn)
    while not cluster.is_over.all():
        cluster.nodes = np.where(cluster.running, WORKERS, 0)
        cluster.advance(~cluster.is_over)
        cluster.start()
    return cluster


def trace_of(cluster: RlptoClusters, world: int) -> Trace:
    """The tasks of one world; a priority of 5 is the class value from which a gang is urgent."""
    return Trace("rlpto", tuple(_job(cluster, world, task) for task in range(12)))


def _job(cluster: RlptoClusters, world: int, task: int) -> TraceJob:
    server = Task("ps", 1, request_of({"server": 1, PODS: 1}), Role.PS)
    workers = Task("worker", WORKERS, request_of({GPU: 1, PODS: 1}))
    steps = float(ITERATIONS * cluster.steps[world, task])
    speed = LAW.steps_per_second({"worker": WORKERS, "ps": 1}, 1)
    return TraceJob(
        f"task-{task:02}",
        float(cluster.tasks.arrived[world, task]),
        (server, workers),
        steps / speed,
        priority=int(125 * (cluster.tasks.priority[world, task] - 1)),
        speed=LAW,
        steps=steps,
    )


def simulated(trace: Trace, orderer: Orderer) -> Outcome:
    config = SimulationConfig(takes_shortcuts=False, verifies=True)
    policy = Policy(orderer, Packing())
    return simulate(trace, [MACHINE], policy, AT_ONCE, config=config)


def seconds(found: list[float | None]) -> FloatArray:
    return np.array([np.nan if each is None else each for each in found])


@pytest.mark.parametrize("spread_seconds", [0.0, 4000.0])
def test_equal_arrivals_start_and_end_at_the_same_times(spread_seconds: float) -> None:
    end = end_of(replace(PLAIN, spread_seconds=spread_seconds), by_arrival)
    for world in range(len(SEEDS)):
        jobs = simulated(trace_of(end, world), Fifo()).jobs
        assert seconds([job.started for job in jobs]) == pytest.approx(end.started[world])
        assert seconds([job.finished for job in jobs]) == pytest.approx(end.finished[world])


def test_urgent_tasks_interrupt_the_same_ones_which_then_end_at_the_same_times() -> None:
    end = end_of(MIXED)
    assert end.interrupted.any()
    for world in range(len(SEEDS)):
        jobs = simulated(trace_of(end, world), NEVER_ASKS).jobs
        assert [job.preemptions > 0 for job in jobs] == end.interrupted[world].tolist()
        last_starts = seconds([job.segments[-1].began for job in jobs])
        assert last_starts == pytest.approx(end.started[world])
        assert seconds([job.finished for job in jobs]) == pytest.approx(end.finished[world])
