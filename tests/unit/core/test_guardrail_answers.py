"""Answers of placers and sizers are checked: nothing wrong of them reaches a gang."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement, TaskPlacement
from bireme.core.pod_constraints import NodeConstraints
from bireme.core.policy import Orderer, Placer, Policy, Ranked, Sizer
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running
from tests.unit.core.wrong_orderers import NODES, RULES, Wrong, admitted, fails


class Places:
    """A placer that gives every gang the answer of a function."""

    def __init__(self, answer: Callable[[Gang, NodeTable], Any]) -> None:
        self.answer = answer

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        return self.answer(gang, capacity.nodes)  # type: ignore[no-any-return]


def on(rows: Sequence[int], counts: Sequence[int], task: str = "worker") -> TaskPlacement:
    return TaskPlacement(task, np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))


def answers(*tasks: TaskPlacement) -> Placer:
    return Places(lambda *_: Placement(tasks, "", ""))


def two_workers(placer: Placer, rules: Policy | None) -> Decision:
    """Two workers of six GPUs, which must sit on two nodes."""
    return run_cycle(
        a_snapshot(NODES, a_gang("job", a_task(2, 6))), Policy(Fifo(), placer, rules=rules)
    )


@pytest.mark.parametrize(
    ("placer", "text"),
    [
        pytest.param(Places(lambda *_: fails(_)), "ZeroDivisionError", id="raises"),
        pytest.param(Places(lambda *_: "n0"), "AttributeError", id="returns-a-name"),
        pytest.param(answers(on([0], [2])), "over-commits", id="over-commits"),
        pytest.param(answers(on([0], [1])), "it placed {'worker': 1}", id="places-a-part"),
        pytest.param(answers(on([0, 1], [2, 2])), "it placed {'worker': 4}", id="places-too-many"),
        pytest.param(answers(), "it placed {}", id="places-nothing"),
        pytest.param(answers(on([0, 1], [1, 1], "ps")), "it placed {'ps': 2}", id="another-task"),
        pytest.param(
            answers(on([0], [2]), on([0, 1], [1, 1])), "it placed", id="places-the-task-twice"
        ),
        pytest.param(answers(on([0, 0], [1, 1])), "is on rows", id="a-row-twice"),
        pytest.param(answers(on([1, 0], [1, 1])), "is on rows", id="rows-descending"),
        pytest.param(answers(on([0, 1], [3, -1])), "is on rows", id="less-than-no-replica"),
        pytest.param(answers(on([0, 1], [2, 0])), "is on rows", id="no-replica-on-a-row"),
        pytest.param(answers(on([-1, 0], [1, 1])), "is on rows", id="a-row-before-the-first"),
        pytest.param(answers(on([0, 2], [1, 1])), "is on rows", id="a-row-past-the-last"),
        pytest.param(
            answers(TaskPlacement("worker", np.array([0.0, 1.0]), np.array([1, 1]))),
            "is on rows",
            id="half-a-row",
        ),
    ],
)
def test_where_a_placer_goes_wrong_the_rules_place_the_gang(placer: Placer, text: str) -> None:
    decision = two_workers(placer, RULES)
    (admit,) = decision.admitted
    assert [task.rows.tolist() for task in admit.placement.tasks] == [[0, 1]]
    # It stands on the SchedulingPolicy, which more may read than the gang's own users.
    assert "the placer failed for the gang with uid job: " in decision.fallback
    assert text in decision.fallback


def test_without_rules_a_gang_whose_placer_fails_has_no_places() -> None:
    decision = two_workers(answers(on([0], [2])), None)
    assert decision.admitted == ()
    assert decision.fallback.startswith("the placer failed for the gang with uid job: ")


def test_a_node_that_the_gang_may_not_use_is_refused() -> None:
    task = a_task(1, constraints=NodeConstraints(node_selector=(("disk", "ssd"),)))
    snapshot = a_snapshot(NODES, a_gang("job", task))
    decision = run_cycle(snapshot, Policy(Fifo(), answers(on([0], [1])), rules=RULES))
    (admit,) = decision.admitted
    assert admit.placement.by_task(snapshot.nodes) == {"worker": ("n1",)}
    assert "cannot take one of its replicas" in decision.fallback


def test_two_tasks_that_over_commit_a_node_only_together_are_refused() -> None:
    gang = a_gang("job", a_task(1, 6, name="a"), a_task(1, 6, name="b"))
    placer = answers(on([0], [1], "a"), on([0], [1], "b"))
    decision = run_cycle(a_snapshot(NODES, gang), Policy(Fifo(), placer, rules=RULES))
    assert [len(admit.placement.node_rows()) for admit in decision.admitted] == [2]
    assert "over-commits" in decision.fallback


@pytest.mark.parametrize(("mode", "is_refused"), [("Required", True), ("Preferred", False)])
def test_a_worker_far_from_its_server_is_refused_where_it_must_be_near(
    mode: str, is_refused: bool
) -> None:
    gang = a_gang(
        "job",
        a_task(1, 0, role=Role.PS),
        a_task(1),
        role_affinity=RoleAffinity(AffinityMode(mode)),
    )
    placer = answers(on([0], [1], "ps"), on([1], [1]))
    decision = run_cycle(a_snapshot(NODES, gang), Policy(Fifo(), placer, rules=RULES))
    assert admitted(decision) == ["job"]
    assert ("no parameter server" in decision.fallback) is is_refused


def test_a_rack_mate_is_near_enough_where_the_rack_is_asked_for() -> None:
    rack = "topology.bireme.dev/rack"
    gang = a_gang(
        "job",
        a_task(1, 0, role=Role.PS),
        a_task(1),
        role_affinity=RoleAffinity(AffinityMode.REQUIRED, rack),
    )
    placer = answers(on([0], [1], "ps"), on([1], [1]))
    near = [a_node("n0", rack="r0"), a_node("n1", rack="r0")]
    far = [a_node("n0", rack="r0"), a_node("n1", rack="r1")]
    none = [a_node("n0"), a_node("n1")]
    faults = [
        bool(run_cycle(a_snapshot(nodes, gang), Policy(Fifo(), placer, rules=RULES)).fallback)
        for nodes in (near, far, none)
    ]
    assert faults == [False, True, True]


# --- sizers ---------------------------------------------------------------------------------------


class Wants:
    """A sizer that wants what a function says of the uids it is given."""

    def __init__(self, answer: Callable[[list[str]], Any]) -> None:
        self.answer = answer

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        return self.answer([e.gang.uid for e in ranked])  # type: ignore[no-any-return]


def starts_with(sizer: Sizer, gang: Gang) -> tuple[int, str]:
    """With how many replicas, and what was wrong."""
    decision = run_cycle(a_snapshot(NODES, gang), Policy(Fifo(), Packing(), sizer))
    (admit,) = decision.admitted
    return admit.gang.replicas, decision.fallback


def elastic(replicas: int, least: int, most: int, min_available: int = 0) -> Gang:
    task = replace(a_task(replicas, min_replicas=least), max_replicas=most)
    return a_gang("job", task, min_available=min_available, is_elastic=True)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(fails, id="raises"),
        pytest.param(lambda _: None, id="returns-nothing"),
        pytest.param(lambda _: {"job": None}, id="no-sizes"),
        pytest.param(lambda _: {"job": {"worker": math.nan}}, id="not-a-number"),
        pytest.param(lambda _: {"job": {"worker": "many"}}, id="a-word"),
        pytest.param(lambda _: {"job": {"worker": 2.5}}, id="half-a-replica"),
    ],
)
def test_where_a_sizer_goes_wrong_the_general_rule_sizes_all(
    answer: Callable[[list[str]], Any],
) -> None:
    replicas, fault = starts_with(Wants(answer), elastic(4, 1, 8))
    assert replicas == 4
    assert fault.startswith("the sizer failed: ")


@pytest.mark.parametrize(
    ("wanted", "started"),
    [(-5, 2), (0, 2), (2, 2), (np.int64(3), 3), (8, 8), (9, 8), (10**9, 8)],
)
def test_what_a_sizer_wants_is_kept_between_minimum_and_maximum(wanted: int, started: int) -> None:
    sizer = Wants(lambda _: {"job": {"worker": wanted}})
    assert starts_with(sizer, elastic(4, 2, 8)) == (started, "")


def test_a_size_that_is_no_whole_number_is_reported_with_the_uid_of_its_gang() -> None:
    _, fault = starts_with(Wants(lambda _: {"job": {"worker": 2.5}}), elastic(4, 1, 8))
    assert fault.endswith(
        "it wants 2.5 replicas of a task of the gang with uid job, which is not a whole number"
    )


class PerSnapshot:
    """A placer that has another asked for each snapshot, or fails to find one."""

    def __init__(self, on: Callable[[ClusterSnapshot], Placer]) -> None:
        self.on = on

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        raise AssertionError("there is a snapshot")


def test_a_placer_may_have_another_asked_for_a_snapshot() -> None:
    decision = two_workers(PerSnapshot(lambda _: answers(on([0, 1], [1, 1]))), None)
    assert (admitted(decision), decision.fallback) == (["job"], "")


def test_where_no_placer_is_found_for_a_snapshot_the_rules_place_the_gang() -> None:
    decision = two_workers(PerSnapshot(fails), RULES)
    assert admitted(decision) == ["job"]
    assert "ZeroDivisionError" in decision.fallback


def test_what_a_sizer_wants_is_never_less_than_may_start() -> None:
    sizer = Wants(lambda _: {"job": {"worker": 1}})
    assert starts_with(sizer, elastic(4, 1, 8, min_available=3)) == (3, "")


def test_a_gang_that_cannot_be_resized_gets_no_more_than_it_asks_for() -> None:
    sizer = Wants(lambda _: {"job": {"worker": 8}})
    assert starts_with(sizer, replace(elastic(4, 2, 8), is_elastic=False)) == (4, "")


def test_a_sizer_receives_all_gangs_in_their_order_waiting_or_running() -> None:
    received: list[str] = []

    def listen(uids: list[str]) -> dict[str, dict[str, int]]:
        received.extend(uids)
        return {}

    gangs = a_gang("young", arrived=5.0), a_gang("old", arrived=1.0)
    snapshot = a_snapshot(NODES, *gangs, now=10.0)
    runs = a_running(a_gang("runs", arrived=3.0), snapshot.nodes, {"n0": 1})
    run_cycle(with_running(snapshot, runs), Policy(Fifo(), Packing(), Wants(listen)))
    assert received == ["old", "runs", "young"]


def test_all_that_went_wrong_is_reported() -> None:
    policy = Policy(Wrong(fails), answers(), Wants(fails), rules=RULES)
    decision = run_cycle(a_snapshot(NODES, a_gang("job")), policy)
    assert admitted(decision) == ["job"]
    assert [part.split(" failed")[0] for part in decision.fallback.split("; ")] == [
        "the orderer",
        "the sizer",
        "the placer",
    ]


def test_a_gang_that_a_failing_placer_cannot_place_now_gets_the_reason_of_the_rules() -> None:
    gang = a_gang("huge", a_task(3, 8))
    (hold,) = run_cycle(a_snapshot(NODES, gang), Policy(Fifo(), answers(), rules=RULES)).held
    assert hold.reason is Reason.NEVER_FITS
    assert hold.message.endswith("lower replicas to 2 or add nodes")


def test_a_placer_that_keeps_failing_is_asked_no_more_in_that_cycle() -> None:
    asked: list[str] = []

    def slow(gang: Gang, _: NodeTable) -> Placement:
        asked.append(gang.name)
        raise TimeoutError("it took too long")

    gangs = [a_gang(f"g{index}", arrived=float(index)) for index in range(8)]
    snapshot = a_snapshot(NODES, *gangs)
    decision = run_cycle(snapshot, Policy(Fifo(), Places(slow), rules=RULES))
    assert asked == ["g0", "g1", "g2"]
    assert admitted(decision) == [gang.name for gang in gangs]
    assert "failed for the gang with uid g2: TimeoutError" in decision.fallback


def test_orderers_see_the_gangs_themselves() -> None:
    """An orderer may compare by identity; so do the checks."""
    seen: list[Gang] = []

    class Sees:
        def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
            seen.extend(gangs)
            return Fifo().order(gangs, snapshot)

    orderer: Orderer = Sees()
    gang = a_gang("job")
    run_cycle(a_snapshot(NODES, gang), Policy(orderer, Packing()))
    assert seen
    assert all(one is gang for one in seen)
