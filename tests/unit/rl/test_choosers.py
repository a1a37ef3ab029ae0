"""Learned choices: one answer per snapshot says who starts, how large and in which pool."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, ShortestJob
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.onnx.sessions import Ask
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import Chooser, ChosenOrderer, ChosenPlacer, LearnedSizer
from bireme.rl.protocols import Choices
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.networks import checkpoints
from testbed.networks.encoders import CHOICE_FACTS, ChoiceFacts

BY_PRIORITY = (0, 0, 1)
LABEL = SchedulingSettings().node_pool_label
RULES = Policy(ShortestJob(), Packing())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Highest priority first, each as small as it may be, pools by turns."""
    return load(checkpoints.write(tmp_path, sizer=BY_PRIORITY, size_encoder=CHOICE_FACTS))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Uids of the gangs that networks were asked about, a list per answer."""
    found: list[list[str]] = []
    plain = ChoiceFacts.chooses

    def chooses(
        self: ChoiceFacts, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot
    ) -> Choices:
        found.append([gang.uid for gang in gangs])
        return plain(self, ask, gangs, snapshot)

    monkeypatch.setattr(ChoiceFacts, "chooses", chooses)
    return found


def pooled(*names: str) -> list[Node]:
    """A node of four GPUs in each of these pools; in none for an empty name."""
    return [
        a_node(f"n{at}", 4, labels={LABEL: name} if name else {}) for at, name in enumerate(names)
    ]


def elastic(name: str, priority: int = 0, arrived: float = 0.0) -> Gang:
    task = a_task(3, min_replicas=1, max_replicas=4)
    return a_gang(name, task, priority=priority, arrived=arrived, is_elastic=True)


def whole(checkpoint: Checkpoint) -> Policy:
    """Orderer, placer and sizer of one checkpoint."""
    orderer, placer = ChosenOrderer(checkpoint), ChosenPlacer(checkpoint)
    return Policy(orderer, placer, LearnedSizer(checkpoint), rules=RULES)


def started(decision: Decision, snapshot: ClusterSnapshot) -> dict[str, tuple[str, ...]]:
    nodes = snapshot.nodes
    return {admit.gang.uid: admit.placement.by_task(nodes)["worker"] for admit in decision.admitted}


def test_one_answer_decides_who_starts_how_large_and_where(
    checkpoint: Checkpoint, asked: list[list[str]]
) -> None:
    gangs = elastic("low", 1), elastic("high", 9, 5.0), elastic("middle", 5)
    snapshot = a_snapshot(pooled("a", "b"), *gangs, now=9.0)
    decision = run_cycle(snapshot, whole(checkpoint))
    assert decision.fallback == ""
    found = started(decision, snapshot)
    assert list(found.items()) == [("high", ("n0",)), ("middle", ("n1",)), ("low", ("n0",))]
    assert asked == [["low", "middle", "high"]], "by arrival, once"


def test_three_loads_of_one_folder_share_the_answer_too(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    checkpoints.write(tmp_path, sizer=BY_PRIORITY, size_encoder=CHOICE_FACTS)
    orderer, placer = ChosenOrderer(load(tmp_path)), ChosenPlacer(load(tmp_path))
    policy = Policy(orderer, placer, LearnedSizer(load(tmp_path)))
    asked.clear()  # of the smoke test
    run_cycle(a_snapshot(pooled("a"), elastic("g")), policy)
    assert asked == [["g"]]


def test_gangs_that_are_not_chosen_come_after_those_that_are_by_arrival(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChoiceFacts, "chooses", lambda *_: Choices(("c", "gone")))
    gangs = [a_gang("a", arrived=2.0), a_gang("b", arrived=1.0), a_gang("c", arrived=3.0)]
    ranked = ChosenOrderer(checkpoint).order(gangs, a_snapshot(pooled("a"), *gangs))
    assert [(entry.gang.uid, entry.score) for entry in ranked] == [("c", 2), ("b", 0), ("a", 0)]
    assert all(entry.preemption_priority is None for entry in ranked)


def test_running_gangs_are_not_chosen_and_not_stopped(
    checkpoint: Checkpoint, asked: list[list[str]]
) -> None:
    empty = a_snapshot(pooled("a"), a_gang("waits", a_task(2), priority=9), now=999.0)
    snapshot = with_running(empty, a_running(a_gang("runs", a_task(4)), empty.nodes, {"n0": 4}))
    (hold,) = run_cycle(snapshot, whole(checkpoint)).actions
    assert asked == [["waits"]]
    assert getattr(hold, "reason", None) is Reason.WAITING_FOR_CAPACITY


def test_where_the_chosen_pool_has_no_room_the_gang_is_packed_anywhere(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array([True, False])
    monkeypatch.setattr(ChoiceFacts, "chooses", lambda *_: Choices(pools={"g": first, "h": first}))
    gangs = a_gang("g", a_task(3)), a_gang("h", a_task(3), arrived=1.0)
    snapshot = a_snapshot(pooled("a", "b"), *gangs, now=9.0)
    found = started(run_cycle(snapshot, whole(checkpoint)), snapshot)
    assert found == {"g": ("n0",) * 3, "h": ("n1",) * 3}


def test_a_chooser_that_only_places_chooses_among_all_sound_gangs(
    checkpoint: Checkpoint, asked: list[list[str]]
) -> None:
    broken = a_gang("broken", fault=(Reason.SPEC_INVALID, "it has no template"))
    snapshot = a_snapshot(pooled("a", "b"), elastic("low"), elastic("high", 9), broken)
    decision = run_cycle(snapshot, Policy(Fifo(), ChosenPlacer(checkpoint)))
    assert started(decision, snapshot)["low"] == ("n1",) * 3
    assert asked == [["high", "low"]]


def test_without_a_snapshot_the_placer_packs(checkpoint: Checkpoint) -> None:
    snapshot = a_snapshot(pooled("a", "b"))
    placement = ChosenPlacer(checkpoint).place(
        a_gang("g", a_task(4)), FreeCapacity(snapshot.nodes, snapshot.used)
    )
    assert placement is not None
    assert placement.by_task(snapshot.nodes) == {"worker": ("n0",) * 4}


def test_an_answer_that_is_not_valid_is_asked_for_once_and_the_rules_decide_all(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def fails(self: ChoiceFacts, ask: Ask, *_: object) -> Choices:
        calls.append(self)
        ask({"facts": np.full((1, 3), np.nan, np.float32)}, 1)
        raise AssertionError("no answer is given")

    monkeypatch.setattr(ChoiceFacts, "chooses", fails)
    long, short = replace(elastic("long"), estimated_seconds=9.0), elastic("short", arrived=1.0)
    snapshot = a_snapshot(pooled("a", "b"), long, replace(short, estimated_seconds=1.0), now=9.0)
    decision = run_cycle(snapshot, whole(checkpoint))
    assert started(decision, snapshot) == started(run_cycle(snapshot, RULES), snapshot)
    assert len(calls) == 1
    assert [part.partition(" failed")[0] for part in decision.fallback.split("; ")] == [
        "the orderer",
        "the sizer",
        "the placer",
    ]
    with pytest.raises(AnswerError, match="1 of 1 answers are not finite"):
        Chooser(checkpoint).last_choices(snapshot)


def test_no_gangs_and_no_nodes_are_no_questions(
    checkpoint: Checkpoint, asked: list[list[str]]
) -> None:
    chooser = Chooser(checkpoint)
    assert chooser.choices([], a_snapshot(pooled("a"))) == Choices()
    assert chooser.choices([elastic("g")], a_snapshot([], elastic("g"))) == Choices()
    assert asked == []


def test_a_checkpoint_that_only_sizes_chooses_nothing(tmp_path: Path) -> None:
    sizes = load(checkpoints.write(tmp_path, sizer=BY_PRIORITY))
    with pytest.raises(CheckpointError, match="checkpoint 'small' chooses no gangs and no node"):
        ChosenOrderer(sizes)
    with pytest.raises(CheckpointError, match="checkpoint 'small' chooses no gangs and no node"):
        ChosenPlacer(sizes)


def test_node_pools_are_those_of_the_label_and_one_of_nodes_without_it() -> None:
    nodes = pooled("a", "b", "", "a", "")
    codes = a_snapshot(nodes).node_pools.tolist()
    assert codes[0] == codes[3] != codes[1]
    assert codes[2] == codes[4]
    assert sorted(set(codes)) == [0, 1, 2]
    other = SchedulingSettings(node_pool_label="kubernetes.io/arch")
    assert a_snapshot(nodes, settings=other).node_pools.tolist() == [0] * 5
    assert a_snapshot([]).node_pools.tolist() == []
