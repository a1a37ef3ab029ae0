"""TapFinger's world and the one simulator give the same jobs the same completion times.

A pool is one node; a job is a host, which asks the CPUs, and as many workers as it has GPUs. The
rules that decide in the simulator are written here once more, gang by gang in plain Python, on
what a snapshot has. What the engine does not know is given to them: which pools a job reaches.
Sequences are short enough that nobody ever falls out of observer of a pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from bireme.core.decision import Action, Admit, Decision
from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, make_placement
from bireme.core.policy import Policy, Ranked
from bireme.core.resources import CPU, PODS, BoolArray, IntArray, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_node
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.training.tapfinger.baselines import Greedy
from bireme_lab.training.tapfinger.environment import (
    WINDOW,
    TapFingerEnvConfig,
    TapFingerPools,
    make_config,
)
from bireme_lab.training.tapfinger.evaluation import follow

SETTING = make_config("multi-3", jobs=40)
UNEVEN = make_config("hetero-6", jobs=60)
SEEDS = range(6)
WORK = 420.0
"""A common multiple of all numbers of steps, so that times are exact."""


@dataclass(frozen=True)
class StepsBySize:
    """The speed law of one kind of job: a step is a second."""

    steps: tuple[int, ...]

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return WORK / self.steps[sizes["worker"]]


@dataclass(frozen=True)
class PlainGreedy:
    """Greedy, gang by gang; each pool starts one gang a round until nobody starts."""

    most: int
    fewest: int
    reaches: BoolArray
    sensitive: BoolArray

    def __call__(self, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
        capacity = FreeCapacity(snapshot.nodes, snapshot.used)
        waiting = sorted(snapshot.waiting, key=lambda gang: gang.name)
        actions: list[Action] = []
        while started := self._round(waiting, capacity):
            actions += started
            waiting = [g for g in waiting if g.uid not in {a.gang.uid for a in started}]
        return Decision(tuple(actions))

    def _round(self, waiting: list[Gang], capacity: FreeCapacity) -> list[Admit]:
        done: set[int] = set()
        started = []
        for gang in waiting:
            pool = self._best_pool(gang, capacity, done)
            if pool is not None:
                done.add(pool)
                started.append(self._start(gang, pool, capacity))
        return started

    def _best_pool(self, gang: Gang, capacity: FreeCapacity, done: set[int]) -> int | None:
        number = int(gang.name)
        fewest = self.fewest if self.sensitive[number] else 1
        gpus, cpus = (capacity.free[:, _column(capacity, name)] for name in (GPU, CPU))
        pools = [
            pool
            for pool in np.flatnonzero(self.reaches[:, number]).tolist()
            if pool not in done and gpus[pool] >= fewest and cpus[pool] >= 2000
        ]
        sign = -1 if self.sensitive[number] else 1
        return min(pools, key=lambda pool: (sign * gpus[pool], pool), default=None)

    def _start(self, gang: Gang, pool: int, capacity: FreeCapacity) -> Admit:
        free = int(capacity.free[pool, _column(capacity, GPU)])
        size = min(self.most, free) if self.sensitive[int(gang.name)] else 1
        sized = gang.with_sizes({"host": 1, "worker": size})
        there = np.arange(len(capacity.free)) == pool
        counts: dict[str, IntArray] = {"host": there * 1, "worker": there * size}
        placement = make_placement(sized, capacity.nodes, counts)
        capacity.take(sized, placement)
        return Admit(sized, placement, Ranked(gang, 0.0), message="")


def _column(capacity: FreeCapacity, name: str) -> int:
    return capacity.nodes.axis.names.index(name)


def trace_of(end: TapFingerPools, world: int) -> Trace:
    """The jobs of one world, called so that the order of names is that of arrival."""
    steps, arrivals = end.config.law.steps, end.jobs.arrival[world].tolist()
    host = Task("host", 1, request_of({CPU: 2000, PODS: 1}))
    worker = Task("worker", 16, request_of({GPU: 1, PODS: 1}), min_replicas=1)
    laws = [StepsBySize(tuple(table[2].tolist())) for table in steps]
    return Trace(
        "tapfinger",
        tuple(
            TraceJob(
                f"{number:03}",
                float(arrival),
                (host, worker),
                duration_seconds=1.0,
                is_elastic=True,
                speed=laws[end.jobs.kind[world, number]],
                steps=WORK,
            )
            for number, arrival in enumerate(arrivals)
        ),
    )


def simulated(end: TapFingerPools, world: int, most: int, fewest: int) -> list[float | None]:
    """The time at which every job finished."""
    decide = PlainGreedy(most, fewest, end.jobs.reaches[world], end.jobs.kind[world] == 1)
    nodes = [
        a_node(f"pool-{number}", gpus, cpu_millis=1000 * cpus)
        for number, (cpus, gpus) in enumerate(end.config.capacity)
    ]
    config = SimulationConfig(
        round_seconds=1.0, takes_shortcuts=False, verifies=True, decide=decide
    )
    outcome = simulate(trace_of(end, world), nodes, Policy(Fifo(), Packing()), config=config)
    return [record.finished for record in outcome.jobs]


@pytest.mark.parametrize("setting", [SETTING, UNEVEN], ids=["equal pools", "uneven pools"])
@pytest.mark.parametrize(("most", "fewest"), [(1, 1), (10, 4)], ids=["least", "tuned"])
def test_equal_arrivals_under_the_same_rule_end_at_the_same_times(
    setting: TapFingerEnvConfig, most: int, fewest: int
) -> None:
    rule = Greedy(setting.law, most, fewest, is_frugal=False)
    end = follow(rule, setting, SEEDS)
    for world in range(len(SEEDS)):
        assert most_in_line(end, world) <= WINDOW
        assert simulated(end, world, most, fewest) == end.ended[world].tolist()


def most_in_line(end: TapFingerPools, world: int) -> int:
    """The most jobs that ever waited at one pool."""
    arrival, started = end.jobs.arrival[world], end.started[world]
    steps = np.arange(int(end.ended[world].max()))[:, None]
    waits = (arrival <= steps) & (steps < started)
    return int((waits.astype(np.int64) @ end.jobs.reaches[world].T.astype(np.int64)).max())
