"""Traces that start with gangs already running, and gangs that an operator has seen."""

from dataclasses import replace

import pytest

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_node, a_task
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import RunningAtStart, Trace
from testbed.simulations import a_job, a_trace, lifetimes, record_of

NODES = [a_node("n0"), a_node("n1")]
EAGER = SchedulingSettings(min_runtime_seconds=0)


def run(trace: Trace, policy: Policy | None = None) -> Outcome:
    policy = policy or Policy(Fifo(), Packing())
    return simulate(trace, NODES, policy, EAGER, config=SimulationConfig(verifies=True))


def with_one_underway(*places: tuple[str, int], priority: int = 0) -> Trace:
    """``old`` runs 30 s more on ``places``; ``new`` comes at 1 and needs all of two nodes."""
    old = a_job("old", 30.0, a_task(sum(n for _, n in places)), priority=priority)
    new = a_job("new", 10.0, a_task(16), at=1.0, priority=1000)
    return replace(
        a_trace(old, new), underway=(RunningAtStart("old", {"worker": dict(places)}, -500.0),)
    )


def test_gang_underway_holds_its_places_until_its_rest_is_done() -> None:
    outcome = run(with_one_underway(("n1", 8)))
    assert lifetimes(outcome) == {"old": (0.0, 30.0), "new": (30.0, 40.0)}
    assert record_of(outcome, "old").segments[0].places == (("worker", "n1", 8),)


def test_gang_underway_can_be_stopped_for_others_and_does_its_rest_later() -> None:
    outcome = run(with_one_underway(("n0", 8)), Policy(CombinedPriority(), Packing()))
    assert lifetimes(outcome) == {"old": (0.0, 40.0), "new": (1.0, 11.0)}
    assert record_of(outcome, "old").preemptions == 1


@pytest.mark.parametrize(("is_lent", "starts"), [(True, 20.0), (False, 100.0)])
def test_gang_underway_in_places_reserved_for_another_yields_them(
    is_lent: bool, starts: float
) -> None:
    trace = a_trace(
        a_job("holder", 20.0, a_task(8)),
        a_job("lent", 100.0, a_task(8)),
        a_job("wide", 10.0, a_task(16), at=1.0),
    )
    there = (
        RunningAtStart("holder", {"worker": {"n1": 8}}, -500.0),
        RunningAtStart("lent", {"worker": {"n0": 8}}, -5.0, is_opportunistic=is_lent),
    )
    settled = SchedulingSettings(min_runtime_seconds=3600, service_threshold=0)
    policy = Policy(CombinedPriority(), Packing())
    outcome = simulate(replace(trace, underway=there), NODES, policy, settled)
    assert lifetimes(outcome)["wide"] == (starts, starts + 10.0)


def test_gang_underway_beyond_what_its_node_offers_is_left_there() -> None:
    """A node may have lost devices since; gangs that run there run on."""
    assert lifetimes(run(with_one_underway(("n0", 9))))["old"] == (0.0, 30.0)


def test_seen_gang_waits_as_it_was_seen() -> None:
    closed = a_gang("late", queue="nowhere", namespace="team", arrived=-50.0)
    job = replace(a_job("late"), gang=closed)
    assert record_of(run(a_trace(job)), "late").verdict == "QueueNotFound"


def test_wait_before_the_trace_counts_for_the_order() -> None:
    """Both come at 0 and need all there is; one has waited before."""
    first, second = a_job("a", 10.0, a_task(16)), a_job("b", 10.0, a_task(16))
    seen = a_gang("b", a_task(16), arrived=-5.0)
    outcome = run(a_trace(first, replace(second, gang=seen)))
    assert lifetimes(outcome) == {"a": (10.0, 20.0), "b": (0.0, 10.0)}


@pytest.mark.parametrize("waited", [0.0, 100.0])
def test_wait_bound_counts_from_the_arrival_that_was_seen(waited: float) -> None:
    """One past its bound goes first although the policy would have it last."""
    urgent = a_job("urgent", 10.0, a_task(16), priority=1000)
    seen = a_gang("meek", a_task(16), arrived=-waited)
    trace = a_trace(urgent, replace(a_job("meek", 10.0, a_task(16)), gang=seen))
    settings = replace(EAGER, wait_bound_seconds=60)
    outcome = simulate(trace, NODES, Policy(CombinedPriority(), Packing()), settings)
    assert (record_of(outcome, "meek").started == 0.0) is (waited > 60)
