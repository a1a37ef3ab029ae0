"""Learned orders: the network's scores decide, ties do not, and a wrong answer costs no cycle."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bireme.core.cycle import run_cycle
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.onnx.sessions import Session
from bireme.rl import components
from bireme.rl.checkpoint import OUTPUTS, Checkpoint, OrderPart, load
from bireme.rl.components import LearnedOrderer
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from testbed.examples import examples
from testbed.networks import checkpoints, graphs
from testbed.networks.encoders import GangFacts

BY_PRIORITY = (0, 0, 1)


@pytest.fixture
def by_priority(tmp_path: Path) -> Checkpoint:
    return load(checkpoints.write(tmp_path / "waits", orderer=BY_PRIORITY))


@pytest.fixture
def by_claim(tmp_path: Path) -> Checkpoint:
    return load(checkpoints.write(tmp_path / "stops", orderer=BY_PRIORITY, stops_others=True))


def test_highest_score_goes_first_then_interrupted_then_arrival_then_uid(
    by_priority: Checkpoint,
) -> None:
    gangs = [
        a_gang("late", arrived=9.0),
        a_gang("high", priority=5, arrived=9.0),
        a_gang("twin-b", arrived=1.0),
        a_gang("twin-a", arrived=1.0),
        a_gang("stopped", arrived=9.0, interrupted=True),
    ]
    snapshot = a_snapshot([a_node("n")], *gangs)
    ranked = LearnedOrderer(by_priority).order(gangs, snapshot)
    assert [e.gang.uid for e in ranked] == ["high", "stopped", "twin-a", "twin-b", "late"]
    assert [e.score for e in ranked] == [5, 0, 0, 0, 0]


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_an_order_does_not_depend_on_how_the_gangs_are_listed(
    by_priority: Checkpoint, priorities: list[int], shuffle: random.Random
) -> None:
    gangs = [a_gang(f"g{at}", priority=p) for at, p in enumerate(priorities)]
    mixed = list(gangs)
    shuffle.shuffle(mixed)
    snapshot, orderer = a_snapshot([a_node("n")], *gangs), LearnedOrderer(by_priority)
    assert orderer.order(mixed, snapshot) == orderer.order(gangs, snapshot)


def test_a_gang_that_runs_and_waits_at_once_has_a_score_for_each_of_the_two(
    by_priority: Checkpoint,
) -> None:
    runs, waits = a_gang("g", priority=1), a_gang("g", priority=2, arrived=5.0)
    snapshot = a_snapshot([a_node("n")], waits)
    ranked = LearnedOrderer(by_priority).order([runs, waits], snapshot)
    assert [(id(e.gang), e.score) for e in ranked] == [(id(waits), 2), (id(runs), 1)]


def test_in_a_cluster_without_nodes_the_network_is_not_asked_and_arrival_decides(
    by_priority: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(GangFacts, "encode")
    gangs = [a_gang("late", priority=5, arrived=9.0), a_gang("early")]
    ranked = LearnedOrderer(by_priority).order(gangs, a_snapshot([], *gangs))
    assert [(e.gang.uid, e.score) for e in ranked] == [("early", 0), ("late", 0)]


def test_a_score_is_a_claim_only_where_the_card_says_so(
    by_priority: Checkpoint, by_claim: Checkpoint
) -> None:
    gangs = [a_gang("high", priority=5), a_gang("low", priority=2)]
    snapshot = a_snapshot([a_node("n")], *gangs)
    waits, stops = LearnedOrderer(by_priority), LearnedOrderer(by_claim)
    assert [e.preemption_priority for e in waits.order(gangs, snapshot)] == [None, None]
    assert [e.preemption_priority for e in stops.order(gangs, snapshot)] == [5, 2]
    assert stops.lowest_preemption_priority(gangs, snapshot) == 2
    assert waits.lowest_preemption_priority(gangs, snapshot) == math.inf


@pytest.mark.parametrize(
    ("stops", "arrived", "stopped"),
    [(False, 0.0, []), (True, 9100.0, ["low"]), (True, 9101.0, [])],
)
def test_only_an_orderer_with_claims_stops_what_runs_and_after_the_delay(
    tmp_path: Path, stops: bool, arrived: float, stopped: list[str]
) -> None:
    folder = checkpoints.write(tmp_path, orderer=BY_PRIORITY, stops_others=stops)
    high = a_gang("high", a_task(8), priority=5, arrived=arrived)
    low = a_gang("low", a_task(8))
    snapshot = a_snapshot([a_node("n")], high, now=10_000.0)
    snapshot = with_running(snapshot, a_running_gang(low, snapshot.nodes))
    decision = run_cycle(snapshot, Policy(LearnedOrderer(load(folder)), Packing()))
    assert decision.fallback == ""
    assert [action.gang.uid for action in decision.preempted] == stopped


def test_an_encoder_that_shows_each_gang_alone_lets_simulations_skip_the_line(
    by_priority: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LearnedOrderer(by_priority).keeps_equal_gangs_in_order
    monkeypatch.delattr(GangFacts, "keeps_equal_gangs_in_order")
    assert not LearnedOrderer(by_priority).keeps_equal_gangs_in_order


def test_a_checkpoint_without_orderer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint 'small' has no orderer"):
        LearnedOrderer(load(checkpoints.write(tmp_path, placer=(1, 0, 0))))


# --- answers that are none --------------------------------------------------------------------

FAULTS: dict[str, tuple[Callable[[int], NDArray[Any]], str]] = {
    "not a number": (lambda n: np.full((n, 3), np.nan, np.float32), "2 of 2 answers are not fin"),
    "too few": (lambda n: np.zeros((n - 1, 3), np.float32), "axis 'gangs' .* is 1, not 2"),
    "other features": (lambda n: np.zeros((n, 5), np.float32), "axis 3 .* is 5, not 3"),
    "other numbers": (lambda n: np.zeros((n, 3)), "'facts' is float64"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_after_a_wrong_answer_the_rules_decide_the_same_cycle_and_say_why(
    by_priority: Checkpoint, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    make, words = FAULTS[fault]
    monkeypatch.setattr(GangFacts, "encode", lambda _, gangs, __: {"facts": make(len(gangs))})
    gangs = [a_gang("second", a_task(8), priority=9, arrived=2.0), a_gang("first", a_task(8))]
    snapshot = a_snapshot([a_node("n")], *gangs, now=10.0)
    with pytest.raises(AnswerError, match=words):
        LearnedOrderer(by_priority).order(gangs, snapshot)
    rules = Policy(Fifo(), Packing())
    decision = run_cycle(snapshot, replace(rules, orderer=LearnedOrderer(by_priority), rules=rules))
    assert [admit.gang.uid for admit in decision.admitted] == ["first"]
    assert decision.fallback.startswith("the orderer failed: small/orderer.onnx")


def test_an_order_that_takes_too_long_is_left_to_the_rules(
    by_priority: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_priority.orderer is not None
    model = graphs.slow(GangFacts.inputs, OUTPUTS["orderer"]).SerializeToString()
    session = Session(model, GangFacts.inputs, OUTPUTS["orderer"], "slow/orderer.onnx")
    part = OrderPart(by_priority.orderer.card, GangFacts(), session)
    slow = LearnedOrderer(replace(by_priority, orderer=part))
    monkeypatch.setattr(components, "ORDERER_LIMIT_SECONDS", 0.1)
    rules = Policy(Fifo(), Packing())
    snapshot = a_snapshot([a_node("n")], a_gang("job"))
    decision = run_cycle(snapshot, Policy(slow, Packing(), rules=rules))
    assert [admit.gang.uid for admit in decision.admitted] == ["job"]
    assert "slow/orderer.onnx took longer than 0.1 s for 1 gangs" in decision.fallback
