"""Schedulers without guardrails, worked out by hand on one node of 4 GPUs."""

from benchmarks.simulations.plain import GREEDY, STRICT, LasByArrival, decide_anew
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_node
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import Decide, SimulationConfig, simulate
from bireme_lab.simulator.workload import TraceJob
from testbed.simulations import a_job, a_trace, lifetimes, record_of

FIFO = Policy(Fifo(), Packing())
BLOCKED = (
    a_job("holder", 100, gpus=2),
    a_job("wide", 10, at=1, gpus=4),
    *(a_job(f"small-{at}", 100, at=at, gpus=2) for at in (2, 60)),
)
"""``wide`` waits for ``holder``; two small ones fit beside it, one after the other."""


def run(decide: Decide, *jobs: TraceJob, policy: Policy = FIFO, seconds: float = 0.0) -> Outcome:
    config = SimulationConfig(
        decide=decide, takes_shortcuts=False, verifies=True, round_seconds=seconds
    )
    return simulate(a_trace(*jobs), (a_node("n0", 4),), policy, config=config)


def test_strictly_nobody_passes_a_blocked_gang() -> None:
    lives = lifetimes(run(STRICT, *BLOCKED))
    assert lives["wide"] == (100, 110)
    assert lives["small-2"] == lives["small-60"] == (110, 210)


def test_greedily_small_gangs_pass_again_and_again() -> None:
    lives = lifetimes(run(GREEDY, *BLOCKED))
    assert (lives["small-2"], lives["small-60"]) == ((2, 102), (100, 200))
    assert lives["wide"] == (200, 210)


def test_anew_the_first_to_come_stops_those_who_came_later() -> None:
    outcome = run(decide_anew, *BLOCKED)
    assert lifetimes(outcome)["wide"] == (100, 110)
    assert record_of(outcome, "small-2").preemptions == 1


def test_least_service_puts_a_gang_behind_once_it_has_had_enough() -> None:
    """Four GPUs for 30 s reach the threshold of 120, which the round at 60 notices."""
    jobs = (a_job("old", 100, gpus=4), a_job("new", 10, at=1, gpus=4))
    policy = Policy(LasByArrival(120.0), Packing())
    outcome = run(decide_anew, *jobs, policy=policy, seconds=60.0)
    assert lifetimes(outcome)["new"] == (60, 70)
    assert record_of(outcome, "old").preemptions == 1
