"""The physics of a run by hand, and what is remembered of it."""

import numpy as np
import pytest

from bireme_lab.encoders.das_inputs import TRAINED_MODELS
from bireme_lab.training.das.environment import DasClusters, DasSample, Memory

V100 = 2
PRICE = TRAINED_MODELS[V100].dollars_per_hour


def a_sample(
    *, run_hours: tuple[float, ...], gpus: tuple[int, ...], machines: int = 1
) -> DasSample:
    """Jobs that arrive at 0 on healthy V100 machines of one rack."""
    jobs = len(gpus)
    seconds = np.array(run_hours) * 3600
    return DasSample(
        setting="small",
        submitted=np.zeros(jobs),
        gpus=np.array(gpus),
        run_seconds=seconds,
        estimated_seconds=seconds,
        user=np.zeros(jobs, dtype=np.int64),
        capacity=np.full(machines, 4),
        model=np.full(machines, V100),
        rack=np.zeros(machines, dtype=np.int64),
        health=np.ones(machines),
    )


def started(clusters: DasClusters, job: int, counts: list[int]) -> None:
    clusters.start(np.array([0]), np.array([job]), np.array([counts]))


def test_a_gang_on_two_machines_runs_slower_and_pays_for_both() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0,), gpus=(4,), machines=2)])
    clusters.advance(np.array([0]))
    started(clusters, 0, [2, 2])
    clusters.advance(np.array([0]))
    hours = 1 / 0.74
    assert clusters.finished[0, 0] == pytest.approx(3600 * hours)
    assert clusters.fees[0, 0] == pytest.approx(4 * PRICE * hours)


def test_memory_keeps_where_a_run_was_and_how_fast_for_what_was_stated() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0, 2.0), gpus=(4, 1), machines=2)])
    memory = Memory(clusters, 4)
    clusters.advance(np.array([0]))
    started(clusters, 0, [3, 1])
    clusters.advance(np.array([0]))
    memory.add(*clusters.ended)
    assert memory.shares[0].tolist() == [[0.75, 0.25], *[[0.0, 0.0]] * 3]
    assert memory.speeds[0, 0] == pytest.approx(np.log(0.74), abs=1e-6)


def test_memory_forgets_the_oldest_run() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0, 2.0, 3.0), gpus=(1, 1, 1), machines=3)])
    memory = Memory(clusters, 2)
    clusters.advance(np.array([0]))
    for job in range(3):
        counts = [0, 0, 0]
        counts[job] = 1
        started(clusters, job, counts)
    for _ in range(3):
        clusters.advance(np.array([0]))
        memory.add(*clusters.ended)
    assert sorted(memory.shares[0].argmax(axis=1).tolist()) == [1, 2]
