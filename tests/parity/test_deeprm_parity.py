"""DeepRM's world and the one simulator give the same jobs the same starts.

The world has no reservations: all that fit may start. Under the guardrails a short job may not pass
a blocked one that it would delay, so the simulator decides here without them, by the two cycles
that the results on the guardrails are made with (benchmarks.simulations.plain): in order, and
passing a blocked job or not. A third test shows that this is the only difference: guardrails change
starts, the world does not.

The simulator offers every waiting job to the rule and the world only those of its queue. Shortest
first therefore meets a queue as long as the trace; strict arrival never looks behind the first.
"""

import numpy as np
import pytest

from benchmarks.simulations.plain import GREEDY, STRICT
from bireme.core.gangs import Task
from bireme.core.policy import Orderer, Policy
from bireme.core.resources import CPU, MEMORY, PODS, IntArray, request_of
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, ShortestJob
from bireme.testing import GIB, a_node
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.simulator.metrics import measure as measure_outcome
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import CYCLE, Decide, SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.training.deeprm.baselines import Rule, run_rule, shortest_first
from bireme_lab.training.deeprm.environment import (
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmJobs,
    DeepRmState,
    measure,
)

RATES = (0.5, 0.7, 0.9)
SEEDS = range(12)
MACHINE = a_node("machine", gpus=0, cpu_millis=10_000, memory_bytes=10 * GIB)


def end_of(rule: Rule, queue_slots: int) -> DeepRmState:
    """The last state of one world per seed, in which ``rule`` has chosen."""
    world = DeepRmEnv(len(SEEDS), DeepRmEnvConfig(rates=RATES, queue_slots=queue_slots))
    world.reset(SEEDS)
    return run_rule(world, rule)


def trace_of(jobs: DeepRmJobs, world: int) -> Trace:
    """The jobs of one world: a step is a second, a slot a core or a gibibyte."""
    came = np.flatnonzero(jobs.exists[world])
    return Trace("deeprm", tuple(_job(int(j), jobs, world) for j in came))


def _job(number: int, jobs: DeepRmJobs, world: int) -> TraceJob:
    cores, gibibytes = jobs.demands[world, number].tolist()
    asks = request_of({CPU: 1000 * cores, MEMORY: GIB * gibibytes, PODS: 1})
    seconds = float(jobs.durations[world, number])
    task = Task("main", 1, asks)
    return TraceJob(f"j{number:02}", float(number), (task,), seconds, estimated_seconds=seconds)


def in_order_of_arrival(state: DeepRmState) -> IntArray:
    """The job that came first, or nobody while it does not fit."""
    return np.where(state.fits[:, 0], 0, state.config.queue_slots)


def simulated(trace: Trace, orderer: Orderer, decide: Decide) -> Outcome:
    config = SimulationConfig(
        round_seconds=1.0, takes_shortcuts=False, verifies=True, decide=decide
    )
    return simulate(trace, [MACHINE], Policy(orderer, Packing()), config=config)


def starts(outcome: Outcome) -> list[float | None]:
    return [record.started for record in outcome.jobs]


def starts_in(end: DeepRmState, world: int) -> IntArray:
    return np.asarray(end.started[world][end.jobs.exists[world]])


@pytest.mark.parametrize(
    ("rule", "queue_slots", "orderer", "decide"),
    [
        (shortest_first, 50, ShortestJob(), GREEDY),
        (in_order_of_arrival, 10, Fifo(), STRICT),
    ],
    ids=["shortest first, any that fits", "strict arrival"],
)
def test_equal_arrivals_start_at_the_same_times(
    rule: Rule, queue_slots: int, orderer: Orderer, decide: Decide
) -> None:
    end = end_of(rule, queue_slots)
    for world in range(len(SEEDS)):
        outcome = simulated(trace_of(end.jobs, world), orderer, decide)
        assert starts(outcome) == starts_in(end, world).tolist()


def test_the_world_measures_what_the_simulator_measures() -> None:
    end = end_of(shortest_first, 50)
    found = measure(end)
    for world in range(len(SEEDS)):
        outcome = simulated(trace_of(end.jobs, world), ShortestJob(), GREEDY)
        metrics: SimulationMetrics = measure_outcome(outcome)
        assert metrics.slowdown.mean == pytest.approx(found["slowdown"][world])
        assert metrics.jct_seconds.mean == pytest.approx(found["completion_steps"][world])
        assert metrics.wait_seconds.mean == pytest.approx(found["waiting_steps"][world])


def test_rails_are_the_difference_between_the_world_and_the_operator() -> None:
    """With reservations some jobs start at other times, and none that waits is passed for ever."""
    end = end_of(shortest_first, 50)
    traces = [trace_of(end.jobs, world) for world in range(len(SEEDS))]
    railed = [starts(simulated(trace, ShortestJob(), CYCLE)) for trace in traces]
    assert any(found != starts_in(end, world).tolist() for world, found in enumerate(railed))
    assert all(None not in found for found in railed)
