"""A cluster read from Kubernetes JSON is the cluster: same arrays, same gangs, same decisions.

Each world is built twice (:mod:`tests.parity.random_clusters`): summed up by hand as a snapshot,
and written
as the objects an API server would hold. Reading those through the wire types and ClusterState
must give the very same snapshot, whatever the order of events, and the cycle must decide alike.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize
from bireme.core.placement import Placement
from bireme.core.resources import Amounts
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans
from bireme.kube.cluster_state import ClusterState
from bireme.registry import make_policy
from testbed.examples import examples
from testbed.scenario.manifests import Manifest
from tests.parity.random_clusters import (
    LABELS,
    NOW,
    RandomCluster,
    contests,
    feed,
    with_plan,
    worlds,
)

EXAMPLES = 30


def state_of(world: RandomCluster) -> ClusterState:
    """A state that was fed every object of ``world`` once."""
    state = ClusterState(world.settings)
    for collection, manifest in world.objects:
        feed(state, collection, manifest)
    return state


def read(world: RandomCluster, state: ClusterState) -> ClusterSnapshot:
    return state.snapshot(NOW, world.reserved)


def without_zeros(usage: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    held = {queue: {n: u for n, u in amounts.items() if u} for queue, amounts in usage.items()}
    return {queue: amounts for queue, amounts in held.items() if amounts}


def assert_same(found: ClusterSnapshot, expected: ClusterSnapshot) -> None:
    """Every part of two snapshots is equal; arrays to the last element and type."""
    assert found.nodes.names == expected.nodes.names
    assert found.nodes.axis == expected.nodes.axis
    assert found.nodes.taint_sets == expected.nodes.taint_sets
    assert found.nodes.softly_tainted == expected.nodes.softly_tainted
    pairs = [
        (found.nodes.allocatable, expected.nodes.allocatable),
        (found.nodes.is_ready, expected.nodes.is_ready),
        (found.nodes.accepts, expected.nodes.accepts),
        (found.nodes.taint_codes, expected.nodes.taint_codes),
        (found.used, expected.used),
        *zip(found.nodes.domains, expected.nodes.domains, strict=True),
    ]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other, strict=True)
    for key in LABELS:
        one_column, other_column = found.nodes.label(key), expected.nodes.label(key)
        assert one_column.values == other_column.values
        np.testing.assert_array_equal(one_column.codes, other_column.codes, strict=True)
    gangs = {gang.uid: gang for gang in expected.waiting}
    assert {gang.uid: gang for gang in found.waiting} == gangs
    assert len(found.waiting) == len(gangs)
    assert dict(found.queues) == dict(expected.queues)
    assert without_zeros(found.queue_usage) == without_zeros(expected.queue_usage)
    assert holders(found) == holders(expected)
    assert len(found.running) == len(expected.running)


def holders(snapshot: ClusterSnapshot) -> dict[str, dict[str, Any]]:
    """The gangs that hold places, by uid, as plain values that can be compared."""
    return {running.gang.uid: holder(running, snapshot) for running in snapshot.running}


def holder(running: RunningGang, snapshot: ClusterSnapshot) -> dict[str, Any]:
    row = running.anchor_row
    return {
        "gang": running.gang,
        "places": places(running.placement, snapshot),
        "started": running.started,
        "resized": running.resized,
        "is_leaving": running.is_leaving,
        "anchor": snapshot.nodes.names[row] if row >= 0 else None,
    }


def places(placement: Placement, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    return placement.by_task(snapshot.nodes), placement.level, placement.domain


def as_values(decision: Decision, snapshot: ClusterSnapshot) -> list[dict[str, Any]]:
    """A decision as plain values that can be compared."""
    story = [_action_values(action, snapshot) for action in decision.actions]
    return [*story, {"fallback": decision.fallback}]


def _action_values(action: Action, snapshot: ClusterSnapshot) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": type(action).__name__,
        "reason": action.reason,
        "message": action.message,
    }
    match action:
        case Admit():
            where = places(action.placement, snapshot)
            entry |= {"gang": action.gang, "where": where, "passed": action.passed}
        case Hold():
            entry |= {"gang": action.gang, "position": action.position}
            if (kept := action.reservation) is not None:
                entry |= {
                    "start": kept.start,
                    "sooner": kept.sooner,
                    "where": places(kept.placement, snapshot),
                }
        case Resize():
            where = places(action.placement, snapshot)
            entry |= {"gang": action.running.gang, "where": where}
        case Preempt():
            entry |= {"gang": action.running.gang, "for": action.beneficiary}
    if isinstance(action, Admit | Hold) and action.ranked is not None:
        entry |= {"score": action.ranked.score, "factors": action.ranked.factors}
    return entry


@examples(EXAMPLES)
@given(worlds() | contests())
def test_what_is_read_from_the_api_server_is_what_is_there(world: RandomCluster) -> None:
    assert_same(read(world, state_of(world)), world.snapshot())


@examples(EXAMPLES)
@given(worlds() | contests())
def test_no_gang_holds_more_than_is_in_use(world: RandomCluster) -> None:
    snapshot = read(world, state_of(world))
    held = np.zeros_like(snapshot.used)
    for running in snapshot.running:
        np.add.at(held, *running.usage(snapshot.nodes.axis))
    assert (held <= snapshot.used).all()


@examples(EXAMPLES)
@given(worlds() | contests())
def test_the_operators_path_decides_as_the_core_does(world: RandomCluster) -> None:
    by_hand, as_read = world.snapshot(), read(world, state_of(world))
    policy = make_policy(world.settings)
    expected = as_values(run_cycle(by_hand, policy), by_hand)
    assert as_values(run_cycle(as_read, policy), as_read) == expected


@examples(EXAMPLES)
@given(st.data())
def test_neither_the_order_of_events_nor_their_repetition_matters(data: st.DataObject) -> None:
    world = data.draw(worlds())
    state = ClusterState(world.settings)
    strangers = data.draw(worlds(most=2)).objects
    for _, manifest in strangers:  # other specs of the same objects
        manifest["metadata"]["generation"] = 2
    for collection, manifest in data.draw(st.permutations([*world.objects, *strangers])):
        feed(state, collection, manifest)
        if data.draw(st.booleans()):
            state.snapshot(NOW)  # looking in between leaves nothing behind
    for collection, manifest in strangers:
        feed(state, collection, manifest, delete=True)
    for collection, manifest in data.draw(st.permutations(world.objects)):
        feed(state, collection, manifest)
    assert_same(read(world, state), world.snapshot())


@examples(EXAMPLES)
@given(worlds())
def test_a_cluster_that_was_emptied_is_empty(world: RandomCluster) -> None:
    state = state_of(world)
    state.snapshot(NOW)
    for collection, manifest in world.objects:
        if collection != "node":
            feed(state, collection, manifest, delete=True)
    bare = RandomCluster(world.nodes, world.settings, queues=())
    assert_same(state.snapshot(NOW), bare.snapshot())


@examples(EXAMPLES)
@given(worlds())
def test_a_plan_once_written_takes_exactly_what_the_cycle_took(world: RandomCluster) -> None:
    state = state_of(world)
    before = read(world, state)
    decision = run_cycle(before, make_policy(world.settings))
    expected = before.used.copy()
    for admit in decision.admitted:
        requests = {task.name: task.request for task in admit.gang.tasks}
        for part in admit.placement.tasks:
            request = before.nodes.axis.usage(requests[part.task])
            expected[part.rows] += part.counts[:, None] * request
        if admit.gang.kind == "TrainingJob":
            feed(state, "job", planned(world, admit, before))
    jobs = [a.gang for a in decision.admitted if a.gang.kind == "TrainingJob"]
    after = read(world, state)
    waiting = {gang.uid for gang in before.waiting} - {gang.uid for gang in jobs}
    assert {gang.uid for gang in after.waiting} == waiting
    if len(jobs) == len(decision.admitted):
        np.testing.assert_array_equal(after.used, expected)


def planned(world: RandomCluster, admit: Admit, snapshot: ClusterSnapshot) -> Manifest:
    """The TrainingJob with the plan of its admission, as the operator writes it."""
    gang = admit.gang
    plan = plans.make_plan(
        gang, admit.placement, snapshot.nodes, epoch=1, attempt=0, spec_hash="", now=NOW
    )
    (job,) = (made for _, made in world.objects if made["metadata"].get("uid") == gang.uid)
    return with_plan(job, plan)
