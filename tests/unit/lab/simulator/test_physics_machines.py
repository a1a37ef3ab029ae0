"""Machines that differ: the slowest one counts, by model, health and company."""

import pytest

from bireme.core.errors import SettingError
from bireme.core.policy import Policy
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.simple_placers import FirstFit
from bireme.testing import a_node
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import MachineLaw, Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import TraceJob
from testbed.simulations import a_job, a_trace, lifetimes

NODES = (a_node("n0", 4), a_node("n1", 4))


def run(law: MachineLaw, *jobs: TraceJob) -> Outcome:
    policy = Policy(Fifo(), FirstFit())
    physics = Physics(machines=law)
    return simulate(
        a_trace(*jobs), NODES, policy, physics=physics, config=SimulationConfig(verifies=True)
    )


def test_a_gang_goes_as_fast_as_the_slowest_of_its_machines() -> None:
    law = MachineLaw({"n0": 2.0, "n1": 0.5})
    assert law.rate({"n0": 0}) == 2.0
    assert law.rate({"n0": 0, "n1": 0}) == 0.5


def test_company_counts_on_the_machine_where_it_is() -> None:
    law = MachineLaw({"n0": 2.0, "n1": 1.0}, per_neighbour=0.5)
    assert law.rate({"n0": 1, "n1": 0}) == 1.0
    assert law.rate({"n0": 2, "n1": 0}) == 0.5


def test_a_fast_machine_ends_a_job_early_and_a_slow_one_late() -> None:
    jobs = (a_job("first", 100, gpus=4), a_job("second", 100, gpus=4))
    outcome = run(MachineLaw({"n0": 2.0, "n1": 0.5}), *jobs)
    assert lifetimes(outcome) == {"first": (0, 50), "second": (0, 200)}


def test_a_neighbour_slows_a_job_down_while_it_is_there() -> None:
    law = MachineLaw({"n0": 1.0, "n1": 1.0}, per_neighbour=0.5)
    outcome = run(law, a_job("long", 100, gpus=2), a_job("short", 10, at=20, gpus=2))
    # beside each other both go at half speed: the short one from 20 to 40
    assert lifetimes(outcome) == {"long": (0, 110), "short": (20, 40)}


def test_a_node_without_a_speed_is_named() -> None:
    with pytest.raises(SettingError, match="node n1 has no speed"):
        run(MachineLaw({"n0": 1.0}), a_job("wide", 10, gpus=4), a_job("next", 10, gpus=4))


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_speeds_are_numbers_above_zero(speed: float) -> None:
    with pytest.raises(SettingError, match="speed of node n0"):
        MachineLaw({"n0": speed})


def test_company_never_speeds_up() -> None:
    with pytest.raises(SettingError, match=r"per_neighbour is 1\.5"):
        MachineLaw({"n0": 1.0}, per_neighbour=1.5)
