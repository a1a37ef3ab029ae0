"""A job's work and what is kept of it, where a size changes before the work has begun."""

import math

import pytest

from bireme.core.nodes import NodeTable
from bireme.core.settings import SchedulingSettings
from bireme.testing import a_node, a_running_gang
from bireme_lab.simulator.job_state import SimulatedJob
from bireme_lab.simulator.workload import gang_of
from testbed.simulations import a_job

NODES = NodeTable([a_node("n0", 8)], SchedulingSettings().topology_levels)
RUNS, START_UP = 100.0, 30.0


def started() -> SimulatedJob:
    """A job that holds places from 0 and works from 30 s on, and is known to run 100 s."""
    job = a_job("job", RUNS, estimated_seconds=RUNS)
    life = SimulatedJob(job, gang_of(job, None), 1e6)
    life.start(a_running_gang(life.gang, NODES), 0.0, START_UP)
    life.finish_at(1.0)
    return life


def resized(
    life: SimulatedJob, now: float, restart_seconds: float, checkpoint_seconds: float
) -> None:
    life.advance(now, checkpoint_seconds)
    life.resize(life.running_now, now, NODES, restart_seconds)


@pytest.mark.parametrize(
    ("restart_seconds", "works_from"), [(0.0, START_UP), (5.0, START_UP), (50.0, 60.0)]
)
def test_a_start_takes_as_long_though_the_size_changes_meanwhile(
    restart_seconds: float, works_from: float
) -> None:
    life = started()
    resized(life, 10.0, restart_seconds, 0.0)
    assert life.finish_at(1.0) == works_from + RUNS


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 600.0, math.inf])
def test_who_is_stopped_before_the_work_began_has_kept_nothing_and_owes_nothing(
    checkpoint_seconds: float,
) -> None:
    life = started()
    resized(life, 10.0, 5.0, checkpoint_seconds)
    life.advance(20.0, checkpoint_seconds)
    life.stop(20.0, "preempted", NODES, 0.0)
    assert life.kept_seconds == 0.0
    assert life.work_seconds == RUNS
    assert life.known_seconds == RUNS


def test_a_change_of_size_is_a_checkpoint() -> None:
    life = started()
    resized(life, START_UP + 40.0, 5.0, math.inf)
    life.advance(START_UP + 60.0, math.inf)
    life.stop(START_UP + 60.0, "preempted", NODES, 0.0)
    assert life.kept_seconds == 40.0
    assert life.work_seconds == RUNS - 40.0
