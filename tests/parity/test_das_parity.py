"""The world that DAS is trained in is the simulator: equal starts, completion times and fees.

Both are run on equal arrivals under equal policies. Where nothing but the order of additions
differs, times agree to the last bit, fees to rounding.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer, Policy, Ranked
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import fill, place_by
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.simple_placers import FirstFit, LoadBalance
from bireme_lab.simulator.metrics import fee_dollars
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import simulate
from bireme_lab.training.das.environment import (
    SETTINGS,
    DasEnv,
    draw,
    nodes_of,
    physics_of,
    trace_of,
)
from bireme_lab.training.das.evaluation import START_NOW
from testbed.examples import examples

JOBS = 60


class TableOrder:
    """Jobs by a fixed score each, highest first."""

    def __init__(self, scores: FloatArray) -> None:
        self.scores = scores

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        entries = [Ranked(gang, float(self.scores[_number(gang)])) for gang in gangs]
        return sorted(entries, key=lambda entry: -entry.score)


class TablePlacement:
    """Machines by a fixed affinity for each job."""

    def __init__(self, affinities: FloatArray) -> None:
        self.affinities = affinities

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        order = np.argsort(-self.affinities[_number(gang)], kind="stable")
        return place_by(gang, capacity, lambda task, room, _: fill(room, task.replicas, order))


def _number(gang: Gang) -> int:
    return int(gang.name.removeprefix("job-"))


def simulated(setting: str, seed: int, policy: Policy) -> tuple[Outcome, FloatArray]:
    """The outcome in the simulator, and the fee of every job."""
    sample = draw(setting, JOBS, seed)
    nodes = nodes_of(sample)
    outcome = simulate(
        trace_of(sample), nodes, policy, physics=physics_of(sample), config=START_NOW
    )
    return outcome, fee_dollars(outcome, nodes)


def played(
    setting: str, seed: int, placement: str, scores: FloatArray, affinities: FloatArray
) -> DasEnv:
    """The world after an episode, one world of the seed beside one of another."""
    world = DasEnv(2, (setting,), jobs=JOBS, slots=JOBS)
    world.reset([seed, seed + 1])
    for _ in range(JOBS):
        ordering = scores[world.slot_jobs]
        chosen = world.best_slots(ordering)
        both = {"ordering": ordering, "placement": affinities[world.slot_jobs[[0, 1], chosen]]}
        step = world.step(chosen if placement == "load-balance" else both)
    assert step.is_over.all()
    return world


def assert_equal(world: DasEnv, outcome: Outcome, fees: FloatArray) -> None:
    clusters = world.clusters
    assert [record.started for record in outcome.jobs] == clusters.started[0].tolist()
    assert [record.finished for record in outcome.jobs] == clusters.finished[0].tolist()
    np.testing.assert_allclose(clusters.fees[0], fees, rtol=1e-12)


@pytest.mark.parametrize("setting", ["small", "medium", "large"])
@pytest.mark.parametrize("name", ["first-fit", "load-balance"])
def test_first_in_first_out_gives_equal_times_and_fees(setting: str, name: str) -> None:
    placer: Placer = LoadBalance() if name == "load-balance" else FirstFit()
    by_arrival = -np.arange(float(JOBS))
    world = played(setting, 7, name, by_arrival, np.zeros((JOBS, SETTINGS[setting].machines)))
    assert_equal(world, *simulated(setting, 7, Policy(Fifo(), placer)))


@examples(15)
@given(st.sampled_from(sorted(SETTINGS)), st.integers(0, 1000))
def test_a_table_of_scores_and_affinities_gives_equal_times_and_fees(
    setting: str, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=JOBS)
    affinities = generator.normal(size=(JOBS, SETTINGS[setting].machines))
    world = played(setting, seed, "affinity", scores, affinities)
    policy = Policy(TableOrder(scores), TablePlacement(affinities))
    assert_equal(world, *simulated(setting, seed, policy))
