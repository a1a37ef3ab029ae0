"""Learned places and scores: the network's affinities decide where, the rules decide whether."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.finished_runs import FinishedRuns
from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Policy, ScoreQuestion, fault_of
from bireme.core.resources import IntArray
from bireme.heuristics.packing import Packing
from bireme.heuristics.scoring import BestFitScorer
from bireme.heuristics.simple_orderers import Fifo
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.onnx.sessions import Array
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import LearnedPlacer, LearnedScorer
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_extender.scoring import FeasibleNodes, NamedNodes, scores_for
from testbed.networks import checkpoints
from testbed.networks.encoders import NodeFacts

LAST_BY_NAME = (0, 1, 0)
NODES = [a_node(f"n{number}", 4) for number in range(5)]


@pytest.fixture
def last_first(tmp_path: Path) -> Checkpoint:
    return load(checkpoints.write(tmp_path, placer=LAST_BY_NAME))


def free() -> FreeCapacity:
    snapshot = a_snapshot(NODES)
    return FreeCapacity(snapshot.nodes, snapshot.used)


def places(checkpoint: Checkpoint, gang: Gang) -> Mapping[str, tuple[str, ...]] | None:
    capacity = free()
    placement = LearnedPlacer(checkpoint).place(gang, capacity)
    return None if placement is None else placement.by_task(capacity.nodes)


def test_nodes_of_highest_affinity_are_filled_one_after_the_other(last_first: Checkpoint) -> None:
    assert places(last_first, a_gang("g", a_task(6))) == {
        "worker": ("n3", "n3", "n4", "n4", "n4", "n4")
    }


def test_a_gang_that_does_not_fit_whole_is_not_placed(last_first: Checkpoint) -> None:
    assert places(last_first, a_gang("g", a_task(21))) is None
    assert places(last_first, a_gang("g", a_task(1, 5))) is None


def test_equal_affinities_go_to_the_tightest_node_then_by_name(tmp_path: Path) -> None:
    indifferent = load(checkpoints.write(tmp_path, placer=(0, 0, 0)))
    snapshot = a_snapshot(NODES)
    used = snapshot.used.copy()
    used[3, -1] = 2
    placement = LearnedPlacer(indifferent).place(
        a_gang("g", a_task(3)), FreeCapacity(snapshot.nodes, used)
    )
    assert placement is not None
    assert placement.by_task(snapshot.nodes) == {"worker": ("n0", "n3", "n3")}


def test_required_affinity_of_roles_stays_the_rules_matter(last_first: Checkpoint) -> None:
    beside = RoleAffinity(AffinityMode.REQUIRED)
    tasks = a_task(3), a_task(1, role=Role.PS)
    found = places(last_first, a_gang("g", *tasks, role_affinity=beside))
    assert found is not None
    assert set(found["worker"]) <= set(found["ps"])


def test_later_tasks_are_judged_with_the_places_of_earlier_ones(
    last_first: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[Role, list[int]]] = []
    plain = NodeFacts.encode

    def encode(
        self: NodeFacts,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        finished: FinishedRuns,
    ) -> dict[str, Array]:
        seen.append({role: rows.tolist() for role, rows in peers.items()})
        return plain(self, gang, task, capacity, peers, finished)

    monkeypatch.setattr(NodeFacts, "encode", encode)
    none = RoleAffinity(AffinityMode.NONE)
    tasks = a_task(2, 2), a_task(1, 1, role=Role.PS), a_task(1, 0, role=Role.EVALUATOR)
    assert places(last_first, a_gang("g", *tasks, role_affinity=none)) is not None
    assert seen == [{}, {Role.WORKER: [4, 4]}, {Role.WORKER: [4, 4], Role.PS: [3]}]


def test_a_checkpoint_without_placer_places_and_scores_nothing(tmp_path: Path) -> None:
    checkpoint = load(checkpoints.write(tmp_path, orderer=(1, 0, 0)))
    with pytest.raises(CheckpointError, match="checkpoint 'small' has no placer"):
        LearnedPlacer(checkpoint)
    with pytest.raises(CheckpointError, match="checkpoint 'small' has no placer"):
        LearnedScorer(checkpoint)


def not_a_number(
    self: NodeFacts,
    gang: Gang,
    task: Task,
    capacity: FreeCapacity,
    peers: object,
    finished: FinishedRuns,
) -> dict[str, Array]:
    return {"facts": np.full((len(capacity.nodes), 3), np.nan, np.float32)}


def test_a_gang_without_valid_judgement_is_placed_by_the_rules_in_the_same_cycle(
    last_first: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeFacts, "encode", not_a_number)
    snapshot = a_snapshot(NODES, a_gang("g", a_task(2)))
    rules = Policy(Fifo(), Packing())
    decision = run_cycle(snapshot, Policy(Fifo(), LearnedPlacer(last_first), rules=rules))
    expected = run_cycle(snapshot, rules)
    assert decision.admitted[0].placement.by_task(snapshot.nodes) == expected.admitted[
        0
    ].placement.by_task(snapshot.nodes)
    assert "small/placer.onnx: 5 of 5 answers are not finite" in decision.fallback


# --- scores -----------------------------------------------------------------------------------


def question(rows: list[int]) -> ScoreQuestion:
    return ScoreQuestion(a_task(), free(), np.array(rows, dtype=np.int64), {})


def test_scores_are_ranks_a_tenth_apart_so_that_the_best_node_is_alone(
    last_first: Checkpoint,
) -> None:
    scores = LearnedScorer(last_first).score(question([0, 4, 2]))
    assert scores.tolist() == [0.8, 1.0, 0.9]


def test_nodes_judged_alike_score_alike(tmp_path: Path) -> None:
    indifferent = LearnedScorer(load(checkpoints.write(tmp_path, placer=(0, 0, 0))))
    assert indifferent.score(question([0, 4, 2])).tolist() == [1, 1, 1]


def test_the_eleventh_best_node_and_all_after_it_score_nothing(last_first: Checkpoint) -> None:
    snapshot = a_snapshot([a_node(f"n{number:02d}") for number in range(30)])
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)
    scores = LearnedScorer(last_first).score(ScoreQuestion(a_task(), capacity, np.arange(30), {}))
    assert fault_of(scores, 30) is None
    assert np.flatnonzero(scores).tolist() == list(range(20, 30))


def test_a_question_about_no_node_has_an_empty_answer(last_first: Checkpoint) -> None:
    assert LearnedScorer(last_first).score(question([])).shape == (0,)


def test_the_placer_and_the_scorer_prefer_the_same_node(last_first: Checkpoint) -> None:
    capacity = free()
    placement = LearnedPlacer(last_first).place(a_gang("g"), capacity)
    scores = LearnedScorer(last_first).score(question([0, 1, 2, 3, 4]))
    assert placement is not None
    assert placement.node_rows().tolist() == [int(scores.argmax())]


def test_without_valid_judgement_the_rules_score_in_the_same_call(
    last_first: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeFacts, "encode", not_a_number)
    asked = question([0, 1, 2])
    with pytest.raises(AnswerError, match="5 of 5 answers are not finite"):
        LearnedScorer(last_first).score(asked)
    feasible = FeasibleNodes(np.ones(5, dtype=np.bool_), question([]))
    nodes = NamedNodes(["n0", "n1", "n2"], np.arange(3))
    scores, fault = scores_for(feasible, nodes, LearnedScorer(last_first))
    assert scores.tolist() == BestFitScorer().score(asked).tolist()
    assert fault.startswith("small/placer.onnx")
