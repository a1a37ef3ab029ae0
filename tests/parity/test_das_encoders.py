"""In service the agents of DAS see what they saw in training: the same arrays for the same state.

The simulator and the world run equal arrivals, first in first out, each job on the machines that
the rule likes best by what its own side shows it. Every array shown on the way is compared.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bireme.core.finished_runs import NO_RUNS, FinishedRuns, RunsOnNodes
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer, Policy, Ranked
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import fill, place_by
from bireme.heuristics.simple_orderers import Fifo
from bireme.onnx.sessions import Array
from bireme_lab.encoders.das import DasJobs, DasMachines
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.training.das import baselines
from bireme_lab.training.das.environment import (
    ORDERING,
    PLACEMENT,
    DasTurnEnv,
    draw,
    nodes_of,
    physics_of,
    trace_of,
)
from bireme_lab.training.das.evaluation import start_now

JOBS, SEED = 60, 8
Shown = dict[tuple[str, float], dict[str, Array]]
"""By who is shown it and when: the queue at a time, or the place of a job."""


class Unbiased(FinishedRuns):
    """Runs whose estimates are right on average, which training takes for granted."""

    def on(self, nodes: NodeTable) -> RunsOnNodes:
        """Without offsets of groups."""
        runs = FinishedRuns.on(self, nodes)
        return replace(runs, group=np.full_like(runs.group, -1))


class Watched:
    """First in first out on the best site, and a note of all that encoders gave."""

    def __init__(self) -> None:
        self.shown: Shown = {}
        self._machines = DasMachines()
        self._finished: FinishedRuns = NO_RUNS

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """Look at the runs that have ended."""
        self._finished = Unbiased(snapshot.finished_runs.runs)
        return self

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By arrival."""
        by_uid = sorted(gangs, key=lambda gang: gang.uid)
        found = dict(DasJobs().encode(by_uid, snapshot))
        line = np.argsort(found["places"])
        assert found["places"][line].tolist() == list(range(len(gangs)))
        self.shown["queue", snapshot.now] = found | {"jobs": found["jobs"][line]}
        return Fifo().order(gangs, snapshot)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """By the rule's affinities."""

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            seen = dict(self._machines.encode(gang, task, capacity, {}, self._finished))
            self.shown["job", float(gang.name.removeprefix("job-"))] = seen
            order = np.argsort(-baselines.affinities(seen["machines"]), kind="stable")
            return fill(room, task.replicas, order)

        return place_by(gang, capacity, divide)


def in_service(setting: str) -> Shown:
    sample, watched = draw(setting, JOBS, SEED), Watched()
    config = SimulationConfig(decide=start_now, takes_shortcuts=False)
    policy = Policy(watched, watched)
    physics = physics_of(sample)
    simulate(trace_of(sample), nodes_of(sample), policy, physics=physics, config=config)
    return watched.shown


def in_training(setting: str) -> Shown:
    turns = DasTurnEnv(1, (setting,), jobs=JOBS, slots=JOBS, reports=True)
    seen, shown, by_arrival = turns.reset([SEED]), Shown(), -np.arange(float(JOBS))[None]
    for _ in range(JOBS):
        waiting = int(seen["job_mask"].sum())
        queue = {"jobs": seen["jobs"][0, :waiting], "machines": seen["machines"][0]}
        shown.setdefault(("queue", float(turns.clusters.now[0])), queue)
        first = float(np.flatnonzero(turns.clusters.waiting[0])[turns.best_slots(by_arrival)[0]])
        seen = turns.step({ORDERING: by_arrival}).observation
        shown["job", first] = {"job": seen["placed"][0], "machines": seen["places"][0]}
        affinities = baselines.affinities(seen["places"])
        seen = turns.step({PLACEMENT: affinities}).observation
    return shown


@pytest.mark.parametrize("setting", ["small", "medium"])
def test_arrays_in_service_are_those_of_training(setting: str) -> None:
    service, training = in_service(setting), in_training(setting)
    assert len([who for who, _ in training if who == "job"]) == JOBS
    for key, arrays in training.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(service[key][name], array, atol=2e-5, err_msg=str(key))


def test_past_runs_are_among_what_is_shown() -> None:
    believed = in_training("small")["job", float(JOBS - 1)]["machines"][:, -1]
    assert np.ptp(believed) > 0.01
