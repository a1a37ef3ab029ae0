"""TRADL: time to the first target, and best effort after it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.speed import LinearSpeed, LossCurve
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.heuristics.tradl import TradlOrder, TradlSizer, steps_to_target


@dataclass(frozen=True)
class Halving:
    """A loss that halves every 100 steps."""

    def loss(self, steps: float) -> float:
        return math.pow(0.5, steps / 100)


@dataclass(frozen=True)
class Flat:
    def loss(self, steps: float) -> float:
        return 1.0


EMPTY = a_snapshot([a_node("node", 8)])


def elastic(
    name: str, left: float | None = 1000.0, *, done: float = 0.0, curve: LossCurve | None = None
) -> Gang:
    """A gang of one-GPU workers, each making one step a second; its loss halves unless stated."""
    gang = replace(a_gang(name, a_task(1, max_replicas=8)), is_elastic=True)
    return replace(
        gang,
        speed=LinearSpeed(1.0),
        loss=curve or Halving(),
        remaining_steps=left,
        done_steps=done,
    )


def test_the_target_is_where_its_share_of_the_whole_fall_has_happened() -> None:
    """Half of a fall from 1 to 1/1024: at a loss of 1025/2048, a little before step 100."""
    exact = -100 * math.log2(1025 / 2048)
    assert steps_to_target(elastic("job"), 0.5, EMPTY) == pytest.approx(exact)
    assert steps_to_target(elastic("job", 960.0, done=40.0), 0.5, EMPTY) == pytest.approx(
        exact - 40
    )


def test_a_loss_that_does_not_fall_is_at_its_target() -> None:
    assert steps_to_target(elastic("job", curve=Flat()), 0.5, EMPTY) == 0.0


def test_steps_of_the_present_run_bring_the_target_nearer() -> None:
    later = a_snapshot([a_node("node", 8)], now=60.0)
    gang = elastic("job")
    running = with_running(later, a_running_gang(gang, later.nodes, started=0.0))
    waiting_steps = steps_to_target(gang, 0.9, later)
    assert waiting_steps is not None
    assert steps_to_target(gang, 0.9, running) == pytest.approx(waiting_steps - 60.0)


def test_the_nearest_target_goes_first_then_the_unknown_then_those_past_it() -> None:
    gangs = [
        replace(elastic("past", 100.0, done=900.0), arrived=-9.0),
        replace(elastic("unknown", None), arrived=-8.0),
        elastic("far", 1000.0),
        elastic("near", 700.0, done=300.0),
        replace(elastic("past-later", 50.0, done=950.0), arrived=-7.0),
    ]
    ranked = TradlOrder().order(gangs, EMPTY)
    order = ["near", "far", "unknown", "past", "past-later"]
    assert [entry.gang.uid for entry in ranked] == order
    near, far, *others = [entry.score for entry in ranked]
    assert far < near < 0
    assert others == [0, 0, 0]


def test_gangs_before_their_first_target_are_served_first() -> None:
    """The one before it takes all it can use; the one past it gets the rest, however long."""
    gangs = elastic("past", 10_000.0, done=90_000.0), elastic("before")
    assert sized(9, *gangs) == {"past": {"worker": 1}, "before": {"worker": 8}}
    assert sized(12, *gangs) == {"past": {"worker": 4}, "before": {"worker": 8}}


def test_a_gang_without_a_target_gets_what_it_asks_for() -> None:
    asked = a_gang("unknown", a_task(3, min_replicas=1))
    assert sized(6, asked, elastic("a")) == {"unknown": {"worker": 3}, "a": {"worker": 3}}


def sized(cluster_gpus: int, *gangs: Gang) -> Mapping[str, Mapping[str, int]]:
    order = [Ranked(gang, 0.0) for gang in gangs]
    return TradlSizer().sizes(order, a_snapshot([a_node("node", cluster_gpus)]))
