"""Effects of physics on a schedule: lost nodes, lost work, restarts, neighbours, chance."""

import math
from dataclasses import dataclass

import pytest

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_node, a_task, racks
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.physics.model import MEASURED, NodeChange, Physics
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from testbed.simulations import a_job, a_trace, broken_promises, lifetimes, record_of, story

FIFO = Policy(Fifo(), Packing())
COMBINED = Policy(CombinedPriority(), Packing())
TWO_NODES = (a_node("n0", 4), a_node("n1", 4))
VERIFIED = SimulationConfig(verifies=True)


@dataclass(frozen=True, slots=True)
class Fated(Physics):
    """Physics in which exactly these nodes go and come."""

    fate: tuple[NodeChange, ...] = ()

    def failures(self, nodes: object, horizon: float, seed: int) -> list[NodeChange]:
        return list(self.fate)


def ended(outcome: Outcome, name: str) -> list[tuple[float, float, str]]:
    return [(s.began, s.ended, s.ended_by) for s in record_of(outcome, name).segments]


def preempted(physics: Physics) -> Outcome:
    """A job of 1000 s is stopped at 400 for one of 50 s."""
    jobs = (a_job("low", 1000, gpus=4), a_job("high", 50, at=400, gpus=4, priority=1000))
    nodes = (a_node("n0", 4),)
    return simulate(a_trace(*jobs), nodes, COMBINED, physics=physics, config=VERIFIED)


def test_gang_on_a_lost_node_starts_again_elsewhere() -> None:
    fate = (NodeChange(5, "n0", is_up=False),)
    jobs = (a_job("a", 20, gpus=4), a_job("b", 30, gpus=4), a_job("c", 10, at=1, gpus=4))
    outcome = simulate(a_trace(*jobs), TWO_NODES, FIFO, physics=Fated(fate=fate), config=VERIFIED)
    assert ended(outcome, "a") == [(0, 5, "node lost"), (30, 45, "finished")]
    assert lifetimes(outcome)["c"] == (45, 55)
    assert record_of(outcome, "a").preemptions == 0


def test_lost_node_is_used_again_once_it_is_back() -> None:
    fate = (NodeChange(5, "n0", is_up=False), NodeChange(8, "n0", is_up=True))
    outcome = simulate(
        a_trace(a_job("a", 20, a_task(2, 4))), TWO_NODES, FIFO, physics=Fated(fate=fate)
    )
    assert ended(outcome, "a") == [(0, 5, "node lost"), (8, 23, "finished")]


def test_gang_that_no_longer_fits_what_is_left_waits_to_the_end_of_the_simulation() -> None:
    fate = (NodeChange(5, "n0", is_up=False),)
    outcome = simulate(
        a_trace(a_job("a", 20, a_task(2, 4)), a_job("b", 9, at=3)),
        TWO_NODES,
        FIFO,
        physics=Fated(fate=fate),
    )
    assert ended(outcome, "a") == [(0, 5, "node lost")]
    assert lifetimes(outcome)["b"] == (5, 14)


def test_time_in_which_a_gang_fits_no_node_that_is_there_is_no_waiting() -> None:
    """Two of them need the large node, which is away; one in line may have either."""
    fate = (NodeChange(0, "n1", is_up=False), NodeChange(1000, "n1", is_up=True))
    jobs = (
        a_job("hog", 1100, gpus=4),
        a_job("large", 10, at=1, gpus=8),
        a_job("late", 10, at=2, gpus=8),
        a_job("line", 10, at=900, gpus=4),
    )
    nodes = (a_node("n0", 4), a_node("n1", 8))
    outcome = simulate(a_trace(*jobs), nodes, FIFO, physics=Fated(fate=fate), config=VERIFIED)
    assert lifetimes(outcome) == {
        "hog": (0, 1100),
        "line": (1000, 1010),
        "large": (1010, 1020),
        "late": (1020, 1030),
    }


def test_a_gang_ages_on_in_line_from_what_it_had_waited_before_it_was_parked() -> None:
    """The large node is away from 100 to 1000; large waited 99 s for it, the other one 50."""
    fate = (NodeChange(100, "n1", is_up=False), NodeChange(1000, "n1", is_up=True))
    jobs = (
        a_job("hog", 1100, gpus=4),
        a_job("lost", 110, gpus=8),
        a_job("large", 10, at=1, gpus=8),
        a_job("line", 10, at=950, gpus=4),
    )
    nodes = (a_node("n0", 4), a_node("n1", 8))
    outcome = simulate(a_trace(*jobs), nodes, FIFO, physics=Fated(fate=fate), config=VERIFIED)
    assert ended(outcome, "lost")[-1] == (1000, 1010, "finished")
    assert lifetimes(outcome)["large"] == (1010, 1020)
    assert lifetimes(outcome)["line"] == (1020, 1030)


def test_stopped_gang_goes_on_where_it_was_when_every_moment_is_a_checkpoint() -> None:
    assert ended(preempted(Physics()), "low") == [(0, 400, "preempted"), (450, 1050, "finished")]


def test_restart_costs_its_seconds_before_work_goes_on() -> None:
    outcome = preempted(Physics(restart_seconds=7))
    assert ended(outcome, "low") == [(0, 400, "preempted"), (450, 1057, "finished")]


def test_work_since_the_last_checkpoint_is_done_again() -> None:
    outcome = preempted(Physics(checkpoint_interval_seconds=150))
    assert ended(outcome, "low")[-1] == (450, 450 + 1000 - 300, "finished")


def test_without_checkpoints_everything_is_done_again() -> None:
    outcome = preempted(Physics(checkpoint_interval_seconds=float("inf")))
    assert ended(outcome, "low")[-1] == (450, 1450, "finished")


def test_a_long_job_that_made_room_often_gives_way_again_to_one_that_needs_the_whole_node() -> None:
    """Left alone for good, it would keep three GPUs idle, reserved for the wide one, for a day."""
    early = [a_job(f"early{n}", 60, at=n * 2000.0, gpus=4, priority=1000) for n in (1, 2, 3)]
    wide = a_job("wide", 600, at=20_000, gpus=4)
    outcome = simulate(a_trace(a_job("long", 90_000), *early, wide), TWO_NODES[:1], COMBINED)
    assert record_of(outcome, "long").preemptions == 4
    # after the delay of stops by service alone
    assert lifetimes(outcome)["wide"] == (20_300, 20_900)


def test_a_job_without_checkpoints_ends_however_many_it_makes_room_for() -> None:
    """Its starts grow; were it stopped once an hour, it would begin anew for ever."""
    urgent = [a_job(f"u{n}", 60, at=n * 400.0, gpus=4, priority=1000) for n in range(1, 200)]
    long = a_job("long", 14_000, gpus=4)
    physics = Physics(checkpoint_interval_seconds=math.inf)
    settings = SchedulingSettings(min_runtime_seconds=0)
    outcome = simulate(
        a_trace(long, *urgent), TWO_NODES[:1], COMBINED, settings, physics=physics, config=VERIFIED
    )
    record = record_of(outcome, "long")
    lasted = [round(segment.ended - segment.began) for segment in record.segments]
    assert lasted == [400, 340, 340, 2520, 3800, 7000, 14_000]
    assert record.preemptions == 6


def test_start_that_is_stopped_while_it_restores_loses_nothing_more() -> None:
    fate = (
        NodeChange(10, "n0", is_up=False),
        NodeChange(11, "n0", is_up=True),
        NodeChange(14, "n0", is_up=False),
        NodeChange(15, "n0", is_up=True),
    )
    physics = Fated(fate=fate, restart_seconds=5)
    outcome = simulate(a_trace(a_job("a", 20)), (a_node("n0"),), FIFO, physics=physics)
    assert ended(outcome, "a")[-1] == (15, 15 + 5 + 10, "finished")


def test_estimate_of_a_restart_is_what_is_left_of_the_first() -> None:
    """low kept 400 of 1000 s, so the reservation behind it is 600 s and a restore away."""
    jobs = (
        a_job("low", 1000, gpus=4, estimated_seconds=1000),
        a_job("high", 50, at=400, gpus=4, priority=1000, estimated_seconds=50),
        a_job("last", 50, at=500, gpus=4, estimated_seconds=50),
    )
    outcome = simulate(
        a_trace(*jobs), (a_node("n0", 4),), COMBINED, physics=Physics(restart_seconds=7)
    )
    assert record_of(outcome, "last").reserved_start == 450 + 600 + 7
    assert lifetimes(outcome)["last"] == (1057, 1107)


def test_gang_runs_slower_while_it_has_a_neighbour() -> None:
    """Alone until 10 and from 30 on; in between two seconds for every second of work."""
    jobs = (a_job("a", 40, gpus=2), a_job("b", 10, at=10, gpus=2))
    outcome = simulate(
        a_trace(*jobs),
        (a_node("n0", 4),),
        FIFO,
        physics=Physics(per_neighbour=0.5),
        config=VERIFIED,
    )
    assert lifetimes(outcome) == {"a": (0, 50), "b": (10, 30)}


def test_gang_on_two_racks_is_slowed_more_than_on_two_nodes() -> None:
    physics = Physics(over_nodes=0.5, over_racks=0.25)
    one_rack = simulate(a_trace(a_job("a", 8, a_task(2, 8))), racks(1, 2), FIFO, physics=physics)
    two_racks = simulate(a_trace(a_job("a", 8, a_task(2, 8))), racks(2, 1), FIFO, physics=physics)
    assert (lifetimes(one_rack)["a"], lifetimes(two_racks)["a"]) == ((0, 16), (0, 32))


def test_chance_follows_the_seed_and_the_names_and_nothing_else() -> None:
    physics = Physics(
        **{name: getattr(MEASURED, name) for name in MEASURED.__slots__}
        | {"node_mtbf_seconds": 400.0, "node_repair_seconds": 50.0}
    )
    jobs = [a_job(f"j{n}", 100 + n, a_task(1 + n % 3, 2), at=n * 7) for n in range(12)]
    nodes = racks(2, 2, gpus=4)

    def outcome_of(seed: int, backwards: bool = False) -> dict[str, object]:
        trace = a_trace(*(reversed(jobs) if backwards else jobs))
        machines = nodes[::-1] if backwards else nodes
        outcome = simulate(trace, machines, FIFO, physics=physics, seed=seed, config=VERIFIED)
        assert list(broken_promises(outcome, nodes)) == []
        return story(outcome)

    assert outcome_of(1) == outcome_of(1, backwards=True)
    assert outcome_of(1) != outcome_of(2)


def test_job_that_can_never_move_does_not_keep_the_simulation_going() -> None:
    class Stuck:
        def steps_per_second(self, sizes: object, nodes: int) -> float:
            return 0.0

    outcome = simulate(
        a_trace(a_job("a", 5, speed=Stuck(), steps=5.0), a_job("b", 5)), TWO_NODES, FIFO
    )
    assert record_of(outcome, "a").finished is None
    assert ended(outcome, "a")[-1][2] == "still running"
    assert lifetimes(outcome)["b"] == pytest.approx((0, 5))
