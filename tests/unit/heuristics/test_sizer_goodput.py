"""Goodput: fitness against exhaustive search and equal shares, restarts, efficiency."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role
from bireme.core.policy import Ranked, Sizer
from bireme.core.settings import SchedulingSettings
from bireme.core.speed import LinearSpeed, SpeedLaw
from bireme.heuristics.goodput import Goodput
from bireme.heuristics.simple_sizers import FairSharing
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.simulator.physics.laws import DL2_LAWS


def elastic(name: str, law: SpeedLaw | None, asked: int = 1, high: int = 8) -> Gang:
    """A gang of one-GPU workers, one at least."""
    gang = a_gang(name, a_task(asked, min_replicas=1, max_replicas=high))
    return replace(gang, is_elastic=True, speed=law)


def sized(sizer: Sizer, gpus: int, *gangs: Gang) -> dict[str, Mapping[str, int]]:
    order = [Ranked(gang, 0.0) for gang in gangs]
    return dict(sizer.sizes(order, a_snapshot([a_node("node", gpus)])))


def test_the_sum_of_speedups_favours_who_scales_better() -> None:
    gangs = elastic("poor", LinearSpeed(1.0, 0.5)), elastic("good", LinearSpeed(1.0))
    assert sized(Goodput(fairness_power=1.0), 6, *gangs) == {
        "poor": {"worker": 1},
        "good": {"worker": 5},
    }


def test_a_power_below_zero_lifts_the_slowest_instead() -> None:
    """-1/s: the poor one gains 1/4 by a second worker, 1/12 by a third; the good one 1/2, 1/6."""
    gangs = elastic("poor", LinearSpeed(1.0, 0.5)), elastic("good", LinearSpeed(1.0))
    assert sized(Goodput(fairness_power=-1.0), 5, *gangs) == {
        "poor": {"worker": 2},
        "good": {"worker": 3},
    }


@dataclass(frozen=True)
class Diluted:
    """Linear speed whose every step is worth less the more workers take part."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return float(sizes["worker"])

    def statistical_efficiency(self, sizes: Mapping[str, int]) -> float:
        return 1 / max(1, sizes["worker"] - 2)


def test_speed_that_is_worth_nothing_is_not_bought() -> None:
    """Goodput is w / (w - 2) from three workers on: 1, 2, 3, 2, 5/3 ... so three are best."""
    assert sized(Goodput(), 8, elastic("job", Diluted())) == {"job": {"worker": 3}}


def test_a_gang_of_unknown_speed_is_left_to_the_general_rule_and_counts_as_it_asks() -> None:
    gangs = elastic("unknown", None, asked=4), elastic("a", LinearSpeed(1.0))
    assert sized(Goodput(), 6, *gangs) == {"a": {"worker": 2}}


@dataclass(frozen=True)
class Stepped:
    """One step a second below ``enough`` workers, eight from there on."""

    enough: int = 4

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return 8.0 if sizes["worker"] >= self.enough else 1.0


def test_a_gain_that_needs_several_replicas_is_found_from_equal_shares() -> None:
    """From the minimum no single worker gains anything."""
    assert sized(Goodput(), 4, elastic("job", Stepped())) == {"job": {"worker": 4}}


def test_a_gain_that_needs_several_replicas_is_kept_where_a_gang_has_it() -> None:
    """Equal shares of eight are four each, two moves away from the six that are needed."""
    snapshot = a_snapshot([a_node("node", 8)], now=1000.0)
    gangs = elastic("a", Stepped(6)), elastic("b", Stepped(6))
    running = [
        a_running_gang(gang, snapshot.nodes, sizes={"worker": size})
        for gang, size in zip(gangs, (2, 6), strict=True)
    ]
    order = [Ranked(gang, 0.0) for gang in gangs]
    assert Goodput().sizes(order, with_running(snapshot, *running)) == {
        "a": {"worker": 2},
        "b": {"worker": 6},
    }


def test_a_replica_moves_to_the_gang_where_it_is_worth_more() -> None:
    """Equal shares of six are three each; the fourth makes a 8 times as fast, and costs b 1/3."""
    gangs = elastic("a", Stepped()), elastic("b", LinearSpeed(1.0))
    assert sized(Goodput(fairness_power=1.0), 6, *gangs) == {
        "a": {"worker": 4},
        "b": {"worker": 2},
    }


@dataclass(frozen=True)
class Listed:
    """Speed by (servers, workers); 0 where it is not listed."""

    speeds: Mapping[tuple[int, int], float]

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return self.speeds.get((sizes["ps"], sizes["worker"]), 0.0)


def test_a_gang_never_trades_a_server_for_a_worker_as_if_they_were_two_gangs() -> None:
    """A worker more would gain 2 and a server less cost 1, but both together do not run."""
    law = Listed({(1, 1): 1.0, (1, 2): 9.0, (2, 1): 5.0, (2, 2): 10.0, (2, 3): 12.0})
    ps = a_task(1, name="ps", role=Role.PS, max_replicas=4)
    gang = replace(a_gang("job", ps, a_task(1, max_replicas=4)), is_elastic=True, speed=law)
    assert sized(Goodput(fairness_power=1.0), 4, gang) == {"job": {"ps": 2, "worker": 2}}


@pytest.mark.parametrize(
    ("cost_seconds", "sizes"),
    [
        pytest.param(0.0, {"a": {"worker": 3}, "b": {"worker": 3}}, id="free"),
        pytest.param(1e5, {"a": {"worker": 4}, "b": {"worker": 2}}, id="dear"),
    ],
)
def test_running_gangs_change_size_only_where_it_is_worth_the_restart(
    cost_seconds: float, sizes: dict[str, dict[str, int]]
) -> None:
    snapshot = a_snapshot([a_node("node", 6)], now=1000.0)
    gangs = elastic("a", LinearSpeed(1.0), 3), elastic("b", LinearSpeed(1.0), 3)
    running = [
        a_running_gang(gang, snapshot.nodes, sizes={"worker": size})
        for gang, size in zip(gangs, (4, 2), strict=True)
    ]
    order = [Ranked(gang, 0.0) for gang in gangs]
    sizer = Goodput(restart_seconds=cost_seconds)
    assert sizer.sizes(order, with_running(snapshot, *running)) == sizes


def test_a_gang_that_has_just_changed_keeps_its_size() -> None:
    rules = SchedulingSettings(resize_settle_seconds=60)
    snapshot = a_snapshot([a_node("node", 6)], now=1000.0, settings=rules)
    gang = elastic("a", LinearSpeed(1.0))

    def sizes(resized: float) -> Mapping[str, Mapping[str, int]]:
        held = a_running_gang(gang, snapshot.nodes, sizes={"worker": 2}, resized=resized)
        return Goodput().sizes([Ranked(gang, 0.0)], with_running(snapshot, held))

    assert sizes(941.0) == {}
    assert sizes(940.0) == {"a": {"worker": 6}}


def test_what_was_asked_for_says_nothing_about_what_a_gang_is_worth() -> None:
    """Its speedup is over an equal share, so that nobody gains by asking for more or for less."""
    modest, greedy = elastic("modest", LinearSpeed(1.0, 0.1)), LinearSpeed(1.0, 0.1)
    for asked in (1, 8):
        gangs = modest, elastic("greedy", greedy, asked)
        assert sized(Goodput(), 6, *gangs) == {"modest": {"worker": 3}, "greedy": {"worker": 3}}


def test_a_gang_that_cannot_run_at_an_equal_share_is_judged_by_the_size_it_asks_for() -> None:
    law = Listed({(1, 1): 1.0, (1, 2): 3.0, (2, 3): 4.0})
    ps = a_task(1, name="ps", role=Role.PS, max_replicas=4)
    asks = replace(a_gang("ps", ps, a_task(2, min_replicas=1, max_replicas=4)), is_elastic=True)
    gangs = replace(asks, speed=law), elastic("other", LinearSpeed(1.0))
    found = sized(Goodput(), 8, *gangs)
    assert found == {"ps": {"ps": 1, "worker": 2}, "other": {"worker": 5}}


def test_a_gang_that_has_just_started_may_grow_at_once() -> None:
    """It has no work behind it that a restart would put at risk."""
    rules = SchedulingSettings(resize_settle_seconds=0)
    snapshot = a_snapshot([a_node("node", 6)], now=1000.0, settings=rules)
    gang = replace(elastic("a", LinearSpeed(1.0)), arrived=990.0)
    sizer = Goodput(restart_seconds=100.0)

    def size(started: float) -> Mapping[str, int]:
        held = a_running_gang(gang, snapshot.nodes, sizes={"worker": 2}, started=started)
        return sizer.sizes([Ranked(gang, 0.0)], with_running(snapshot, held))["a"]

    assert size(started=1000.0) == {"worker": 6}
    assert size(started=990.0) == {"worker": 2}


def fitness(
    power: float, gangs: Sequence[Gang], sizes: Sequence[Mapping[str, int]], gpus: int
) -> float:
    """Against the least size that is an equal share of ``gpus`` replicas."""
    total = 0.0
    for gang, size in zip(gangs, sizes, strict=True):
        assert gang.speed is not None
        fair = {task.name: 1 for task in gang.tasks}
        while sum(fair.values()) < gpus / len(gangs) and any(
            fair[task.name] < task.maximum for task in gang.tasks
        ):
            behind = [task for task in gang.tasks if fair[task.name] < task.maximum]
            fair[min(behind, key=lambda task: fair[task.name] / task.replicas).name] += 1
        speedup = gang.speed.steps_per_second(size, 1) / gang.speed.steps_per_second(fair, 1)
        total += speedup if power == 1 else -1 / speedup
    return total


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3)), min_size=1, max_size=3),
    st.integers(3, 9),
    st.sampled_from([1.0, -1.0]),
)
def test_no_division_is_fitter_where_gains_only_diminish(
    jobs: list[tuple[float, int]], gpus: int, power: float
) -> None:
    gangs = [
        elastic(f"g{n}", LinearSpeed(1.0, serial), asked, 6)
        for n, (serial, asked) in enumerate(jobs)
    ]
    every = itertools.product(range(1, 7), repeat=len(jobs))
    best = max(
        fitness(power, gangs, [{"worker": size} for size in sizes], gpus)
        for sizes in every
        if sum(sizes) <= gpus
    )
    found = sized(Goodput(fairness_power=power), gpus, *gangs)
    reached = fitness(power, gangs, [found[gang.uid] for gang in gangs], gpus)
    assert reached == pytest.approx(best)


@given(
    st.lists(st.sampled_from(sorted(DL2_LAWS)), min_size=1, max_size=4),
    st.integers(8, 30),
    st.sampled_from([1.0, -1.0]),
)
def test_it_is_never_less_fit_than_equal_shares(models: list[str], gpus: int, power: float) -> None:
    gangs = []
    for number, model in enumerate(models):
        ps = a_task(1, name="ps", role=Role.PS, max_replicas=8)
        gang = a_gang(f"g{number}", ps, a_task(1, max_replicas=8))
        gangs.append(replace(gang, is_elastic=True, speed=DL2_LAWS[model]))
    fit, fair = (
        fitness(power, gangs, [found[gang.uid] for gang in gangs], gpus)
        for found in (
            sized(Goodput(fairness_power=power), gpus, *gangs),
            sized(FairSharing(), gpus, *gangs),
        )
    )
    assert fit >= fair - 1e-9
