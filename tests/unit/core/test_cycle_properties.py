"""Promises of the cycle on random clusters: nothing over-committed, gangs whole, order stable."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold
from bireme.core.gangs import Task
from bireme.core.nodes import Node
from bireme.core.placement import usage_of
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.registry import make_orderer, make_policy
from bireme.testing import a_gang, a_snapshot
from testbed import random_snapshots
from testbed.examples import examples
from testbed.model import oracles
from testbed.random_snapshots import SnapshotCase

thorough = examples(25)


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, make_policy(snapshot.settings))


def story(decision: Decision, snapshot: ClusterSnapshot) -> list[object]:
    """A decision as plain values, to compare."""
    return [
        (
            action.gang.uid,
            action.reason,
            action.message,
            (action.placement.by_task(snapshot.nodes), action.ranked.score)
            if isinstance(action, Admit)
            else action.position
            if isinstance(action, Hold)
            else None,
        )
        for action in decision.actions
    ]


@thorough
@given(random_snapshots.cases())
def test_no_promise_of_the_cycle_is_broken(case: SnapshotCase) -> None:
    decision = decide(case.snapshot)
    assert list(oracles.broken_promises(case.snapshot, decision)) == []
    assert decision.fallback == ""


@thorough
@given(random_snapshots.cases())
def test_nobody_takes_places_or_limits_kept_for_an_overdue_gang(case: SnapshotCase) -> None:
    nodes = case.snapshot.nodes
    left = nodes.allocatable - nodes.fixed
    blocked_queues: set[str] = set()
    is_reserved = False
    decision = decide(case.snapshot)
    for action in decision.actions:
        if isinstance(action, Admit):
            assert action.gang.queue not in blocked_queues
            if is_reserved:
                rows, usage = usage_of(action.gang, action.placement, nodes.axis)
                np.subtract.at(left, rows, usage)
                assert (left[rows] >= 0)[usage > 0].all()
        elif isinstance(action, Hold) and action.gang.uid in decision.overdue:
            if action.reservation is not None:
                assert not is_reserved, "one gang at a time"
                is_reserved = action.reservation.is_closed
                rows, usage = usage_of(action.gang, action.reservation.placement, nodes.axis)
                np.subtract.at(left, rows, usage)
            if action.reason is Reason.OVER_QUEUE_LIMIT:
                blocked_queues.add(action.gang.queue)


@thorough
@given(random_snapshots.cases(), st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order_of_the_input(
    case: SnapshotCase, shuffle: random.Random
) -> None:
    nodes, gangs = list(case.nodes), list(case.snapshot.waiting)
    shuffle.shuffle(nodes)
    shuffle.shuffle(gangs)
    other = a_snapshot(
        nodes,
        *gangs,
        queues=random_snapshots.QUEUES[::-1],
        queue_usage=case.snapshot.queue_usage,
        used=case.snapshot.used,
        now=case.snapshot.now,
        settings=case.snapshot.settings,
        quotas=random_snapshots.QUOTAS[::-1] if case.snapshot.quotas else (),
    )
    rows = [other.nodes.row[name] for name in case.snapshot.nodes.names]
    there = case.snapshot.occupants.remap(np.array(rows, dtype=np.int64))
    other = replace(other, occupants=there)
    assert story(decide(other), other) == story(decide(case.snapshot), case.snapshot)


@thorough
@given(random_snapshots.cases())
def test_equal_snapshots_give_equal_decisions_and_are_left_as_they_were(case: SnapshotCase) -> None:
    used, usage = case.snapshot.used.copy(), repr(case.snapshot.queue_usage)
    first = story(decide(case.snapshot), case.snapshot)
    assert np.array_equal(case.snapshot.used, used)
    assert repr(case.snapshot.queue_usage) == usage
    # Once more with all verdicts remembered, and once on a table that remembers none.
    assert story(decide(case.snapshot), case.snapshot) == first
    fresh = a_snapshot(case.nodes, settings=case.snapshot.settings).nodes
    assert story(decide(replace(case.snapshot, nodes=fresh)), case.snapshot) == first


@thorough
@given(random_snapshots.cases(), st.integers(0, 5))
def test_adding_a_gang_never_reorders_the_others(case: SnapshotCase, index: int) -> None:
    fewer = tuple(gang for gang in case.snapshot.waiting if gang.uid != f"g{index}")
    without = replace(case.snapshot, waiting=fewer)
    order = [action.gang.uid for action in decide(case.snapshot).actions]
    assert [uid for uid in order if uid != f"g{index}"] == [
        action.gang.uid for action in decide(without).actions
    ]


@thorough
@given(random_snapshots.cases())
def test_positions_are_consecutive_and_only_of_those_who_wait(case: SnapshotCase) -> None:
    decision = decide(case.snapshot)
    positions = [hold.position for hold in decision.held if hold.position is not None]
    assert positions == list(range(1, len(positions) + 1))
    for hold in decision.held:
        is_passed = hold.reason is Reason.NODES_NOT_READY  # nobody waits for it either
        assert (hold.position is None) == (hold.reason.is_configuration_fault or is_passed)
        assert hold.message


@thorough
@given(
    random_snapshots.clusters(),
    random_snapshots.tasks(most=12),
    st.sampled_from(random_snapshots.LEVELS),
)
def test_a_gang_of_one_task_is_placed_exactly_when_the_nodes_have_room(
    nodes: tuple[Node, ...], task: Task, levels: tuple[str, ...]
) -> None:
    gang = a_gang("g", task)
    settings_here = SchedulingSettings(topology_levels=levels)
    snapshot = a_snapshot(nodes, gang, settings=settings_here)
    room = sum(oracles.room(node, node.allocatable, task) for node in nodes)
    policy = Policy(make_orderer("fifo"), Packing())
    (action,) = run_cycle(snapshot, policy).actions
    absurd = dict(task.request).get("memory", 0) > 2**46
    fewest = task.min_replicas or task.replicas
    assert isinstance(action, Admit) == (not absurd and room >= fewest)
    if isinstance(action, Admit):
        assert action.gang.replicas == (task.replicas if room >= task.replicas else fewest)
