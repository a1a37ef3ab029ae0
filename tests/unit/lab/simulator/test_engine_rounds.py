"""Decisions in rounds, as schedulers make them that look at the cluster once a minute."""

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.tiresias import TiresiasLas
from bireme.testing import a_node
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from testbed.simulations import a_job, a_trace, lifetimes

FIFO = Policy(Fifo(), Packing())
NODES = (a_node("n0", 4),)
MINUTES = SimulationConfig(round_seconds=60.0, verifies=True)


def test_a_job_starts_at_the_first_round_after_it_came() -> None:
    outcome = simulate(
        a_trace(a_job("a", 10, at=1), a_job("b", 10, at=120)), NODES, FIFO, config=MINUTES
    )
    assert lifetimes(outcome) == {"a": (60, 70), "b": (120, 130)}


def test_what_a_finish_frees_is_given_away_at_the_next_round() -> None:
    """Nothing else happens after 70, so that the round is all there is to come."""
    outcome = simulate(
        a_trace(a_job("a", 10, at=1, gpus=4), a_job("b", 5, at=2, gpus=4)),
        NODES,
        FIFO,
        config=MINUTES,
    )
    assert lifetimes(outcome) == {"a": (60, 70), "b": (120, 125)}


def test_every_round_looks_while_time_alone_may_change_the_decision() -> None:
    """low comes into the second queue at 1000 s, which only a round can notice, at 1020."""
    settings = SchedulingSettings(min_runtime_seconds=0)
    outcome = simulate(
        a_trace(a_job("low", 5000, gpus=4), a_job("high", 50, at=1, gpus=4)),
        NODES,
        Policy(TiresiasLas(4000.0), Packing()),
        settings,
        config=MINUTES,
    )
    assert lifetimes(outcome)["high"] == (1020, 1070)


def test_the_first_start_costs_its_own_seconds() -> None:
    physics = Physics(start_seconds=30.0, restart_seconds=7.0)
    outcome = simulate(a_trace(a_job("a", 10)), NODES, FIFO, physics=physics)
    assert lifetimes(outcome) == {"a": (0, 40)}
