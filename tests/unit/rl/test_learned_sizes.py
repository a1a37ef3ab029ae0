"""Learned sizes: the network's moves decide how large gangs are, the rules decide whether."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.onnx.sessions import Ask, Session
from bireme.rl import components
from bireme.rl.checkpoint import OUTPUTS, Checkpoint, load
from bireme.rl.components import LearnedSizer
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.networks import checkpoints, graphs
from testbed.networks.encoders import SizeFacts

LARGE = (1, 0, 0)
SMALL = (-1, 0, 0)
NODES = [a_node(f"n{number}", 4) for number in range(3)]


@pytest.fixture
def large(tmp_path: Path) -> Checkpoint:
    return load(checkpoints.write(tmp_path / "large", sizer=LARGE))


@pytest.fixture
def small(tmp_path: Path) -> Checkpoint:
    return load(checkpoints.write(tmp_path / "small", sizer=SMALL))


def elastic(name: str, arrived: float = 0.0) -> Gang:
    task = a_task(3, min_replicas=2, max_replicas=6)
    return a_gang(name, task, arrived=arrived, is_elastic=True)


def decided(snapshot: ClusterSnapshot, checkpoint: Checkpoint) -> Decision:
    return run_cycle(snapshot, Policy(Fifo(), Packing(), LearnedSizer(checkpoint)))


def started(decision: Decision) -> dict[str, int]:
    return {admit.gang.uid: admit.gang.replicas for admit in decision.admitted}


def test_a_network_sizes_gangs_that_wait_within_their_bounds(
    large: Checkpoint, small: Checkpoint
) -> None:
    rigid = a_gang("rigid", a_task(1), arrived=2.0)
    snapshot = a_snapshot(NODES, elastic("a"), elastic("b", 1.0), rigid, now=9.0)
    assert started(decided(snapshot, small)) == {"a": 2, "b": 2, "rigid": 1}
    assert started(decided(snapshot, large)) == {"a": 6, "b": 6}
    assert decided(snapshot, large).fallback == ""


def test_a_network_resizes_gangs_that_run(large: Checkpoint, small: Checkpoint) -> None:
    empty = a_snapshot(NODES, now=999.0)
    snapshot = with_running(empty, a_running(elastic("runs"), empty.nodes, {"n0": 3}))
    sizes = [
        [int(resize.placement.tasks[0].counts.sum()) for resize in decided(snapshot, each).resized]
        for each in (large, small)
    ]
    assert sizes == [[6], [2]]


def test_a_cluster_without_nodes_and_a_queue_without_gangs_are_no_questions(
    large: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SizeFacts, "sizes", None)
    sizer = LearnedSizer(large)
    assert sizer.sizes([Ranked(elastic("a"), 0.0)], a_snapshot([], elastic("a"))) == {}
    assert sizer.sizes([], a_snapshot(NODES)) == {}


def test_a_checkpoint_without_sizer_sizes_nothing(tmp_path: Path) -> None:
    checkpoint = load(checkpoints.write(tmp_path, orderer=(1, 0, 0)))
    with pytest.raises(CheckpointError, match="checkpoint 'small' has no sizer; name one that"):
        LearnedSizer(checkpoint)


# --- answers that are not valid -----------------------------------------------------------------


def not_a_number(
    self: SizeFacts, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
) -> Mapping[str, Mapping[str, int]]:
    ask({"facts": np.full((7, 3), np.nan, np.float32)}, 7)
    raise AssertionError("no answer is given")


def half(
    self: SizeFacts, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
) -> Mapping[str, Mapping[str, float]]:
    return {entry.gang.uid: {"worker": 2.5} for entry in ranked}


def miscounted(
    self: SizeFacts, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
) -> Mapping[str, Mapping[str, int]]:
    ask({"facts": np.ones((7, 3), np.float32)}, 6)
    raise AssertionError("no answer is given")


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (not_a_number, "small/sizer.onnx: 7 of 7 answers are not finite"),
        (miscounted, "small/sizer.onnx: axis 'moves' of input 'facts' is 7, not 6"),
        (
            half,
            "it wants 2.5 replicas of a task of the gang with uid a, which is not a whole number",
        ),
    ],
)
def test_without_a_valid_answer_the_general_rule_sizes_in_the_same_cycle(
    large: Checkpoint, monkeypatch: pytest.MonkeyPatch, sizes: object, words: str
) -> None:
    monkeypatch.setattr(SizeFacts, "sizes", sizes)
    decision = decided(a_snapshot(NODES, elastic("a")), large)
    assert started(decision) == {"a": 3}
    assert decision.fallback.startswith("the sizer failed: ")
    assert words in decision.fallback


def test_all_questions_of_a_cycle_share_one_time_limit(
    large: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(self: SizeFacts, ask: Ask, *_: object) -> Mapping[str, Mapping[str, int]]:
        while True:
            ask({"facts": np.ones((1, 3), np.float32)}, 1)

    monkeypatch.setattr(SizeFacts, "sizes", endless)
    monkeypatch.setattr(components, "CHOOSER_LIMIT_SECONDS", 0.2)
    sizer = LearnedSizer(large)
    with pytest.raises(AnswerError, match=r"small/sizer\.onnx.* took longer than"):
        sizer.sizes([Ranked(elastic("a"), 0.0)], a_snapshot(NODES))


def test_a_question_that_is_too_slow_ends_within_the_limit_of_all(
    large: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert large.sizer is not None
    model = graphs.slow(SizeFacts.inputs, OUTPUTS["sizer"]).SerializeToString()
    session = Session(model, SizeFacts.inputs, OUTPUTS["sizer"], "small/sizer.onnx")
    monkeypatch.setattr(components, "CHOOSER_LIMIT_SECONDS", 0.2)
    sizer = LearnedSizer(replace(large, sizer=replace(large.sizer, session=session)))
    began = time.monotonic()
    with pytest.raises(AnswerError, match="took longer than"):
        sizer.sizes([Ranked(elastic("a"), 0.0)], a_snapshot(NODES))
    assert time.monotonic() - began < 20  # without a limit it takes minutes


def test_a_network_that_cannot_size_fails_its_trial_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"smoke test failed: small/sizer\.onnx: .* not"):
        load(checkpoints.write(tmp_path, sizer=(3e38, 3e38, 3e38)))
