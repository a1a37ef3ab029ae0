"""SLAQ: predicted falls of the loss, worked out by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.speed import LinearSpeed, LossCurve
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.heuristics.measured_sizers import Slaq


@dataclass(frozen=True)
class Sublinear:
    """``scale / (k + 1)``, the simplest member of SLAQ's first family."""

    scale: float = 1.0

    def loss(self, steps: float) -> float:
        return self.scale / (steps + 1)


@dataclass(frozen=True)
class Flat:
    def loss(self, steps: float) -> float:
        return 1.0


def elastic(name: str, curve: LossCurve | None, done: float = 0.0) -> Gang:
    """A gang of one-GPU workers, each making one step a second."""
    gang = replace(a_gang(name, a_task(1, max_replicas=8)), is_elastic=True)
    return replace(gang, speed=LinearSpeed(1.0), loss=curve, done_steps=done)


def sized(cluster_gpus: int, *gangs: Gang) -> Mapping[str, Mapping[str, int]]:
    order = [Ranked(gang, 0.0) for gang in gangs]
    return Slaq(epoch_seconds=1.0).sizes(order, a_snapshot([a_node("node", cluster_gpus)]))


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_replicas_go_where_the_normalised_loss_falls_most(scale: float) -> None:
    """In one second a young job gains 1/3, 1/6, 1/10 by further workers; one 3 steps on 1/15.

    The largest fall in one step is half the scale, so the scale of a loss does not matter.
    """
    gangs = elastic("old", Sublinear(scale), 3.0), elastic("young", Sublinear())
    assert sized(5, *gangs) == {"old": {"worker": 1}, "young": {"worker": 4}}


def test_steps_of_the_present_run_count_as_done() -> None:
    snapshot = a_snapshot([a_node("node", 3)], now=3.0)
    old, young = elastic("old", Sublinear()), elastic("young", Sublinear())
    running = with_running(snapshot, a_running_gang(old, snapshot.nodes, started=0.0))
    order = [Ranked(old, 0.0), Ranked(young, 0.0)]
    sizes = Slaq(epoch_seconds=1.0).sizes(order, running)
    assert sizes == {"old": {"worker": 1}, "young": {"worker": 2}}


def test_a_job_whose_loss_no_longer_falls_gets_nothing_more() -> None:
    assert sized(4, elastic("flat", Flat())) == {"flat": {"worker": 1}}


def test_a_job_without_a_loss_curve_gets_what_it_asks_for() -> None:
    asked = a_gang("unknown", a_task(3, min_replicas=1))
    sizes = sized(5, elastic("a", Sublinear()), asked)
    assert sizes == {"a": {"worker": 2}, "unknown": {"worker": 3}}
