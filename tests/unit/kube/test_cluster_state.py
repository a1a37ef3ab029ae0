"""Watched objects to snapshots: everything counted once, nothing trusted that is only claimed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bireme.kube import wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.plans import Member, PlanFacts
from testbed.objects.cluster_state import PLAN, ClusterStateFeed, gpus, own_pod
from testbed.objects.facts import CREATED, gated_pod, through_the_wire
from testbed.scenario.manifests import GPU, pod

# --- nodes and pods ---------------------------------------------------------------------------


def test_a_heartbeat_that_changes_no_fact_keeps_the_arrays_and_wakes_nobody() -> None:
    cluster = ClusterStateFeed()
    table, changes = cluster.state.nodes.table, cluster.changes
    cluster.node("n0")
    assert cluster.state.nodes.table is table
    assert cluster.changes == changes
    cluster.node("n0", is_cordoned=True)
    assert cluster.state.nodes.table is not table


def test_a_pod_takes_room_from_the_moment_it_is_bound_until_it_ends() -> None:
    cluster = ClusterStateFeed()
    cluster.other("a", "n0", 3)
    cluster.other("b", "", 5)
    assert cluster.gpus() == [3, 0]
    cluster.other("a", "n0", 3, phase="Succeeded")
    assert cluster.gpus() == [0, 0]
    cluster.other("b", "n1", 5, phase="Pending")
    assert cluster.gpus() == [0, 5]


def test_room_that_another_scheduler_has_made_is_taken_unless_its_pod_goes() -> None:
    cluster = ClusterStateFeed()
    key, nominated = ("default", "a"), pod("a", 3)
    nominated["status"] = {"phase": "Pending", "nominatedNodeName": "n0"}
    put = cluster.state.objects.put_nominated_pod
    put(key, through_the_wire(nominated, wire.V1Pod))
    assert cluster.gpus() == [3, 0]
    assert cluster.state.objects.node_of_other(key) == "", "it is not bound"
    nominated["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    put(key, through_the_wire(nominated, wire.V1Pod))
    assert cluster.gpus() == [0, 0]
    nominated["metadata"].pop("deletionTimestamp")
    put(key, through_the_wire(nominated, wire.V1Pod))
    cluster.other("a", "n0", 3)
    cluster.state.objects.delete_nominated_pod(key)
    assert cluster.gpus() == [3, 0]


def test_a_node_that_is_replaced_keeps_what_runs_on_it() -> None:
    cluster = ClusterStateFeed()
    cluster.other("a", "n0", 3)
    cluster.state.nodes.delete(("", "n0"))
    assert cluster.gpus() == [0]
    cluster.node("n0", gpus=4)
    assert cluster.gpus() == [3, 0]
    assert cluster.snapshot().nodes.allocatable[0].tolist()[-1] == 4


def test_a_pod_that_becomes_a_member_is_counted_once() -> None:
    cluster = ClusterStateFeed()
    labelled = own_pod(0)
    name = labelled["metadata"]["name"]
    cluster.other(name, "n0", 2)
    cluster.state.objects.delete_other_pod(("default", name))
    cluster.member(labelled)
    assert cluster.gpus() == [2, 0]


def test_deleting_what_was_never_there_changes_nothing() -> None:
    cluster = ClusterStateFeed()
    changes = cluster.changes
    cluster.gone(own_pod(0))
    assert cluster.changes == changes
    assert cluster.gpus() == [0, 0]


# --- plans ------------------------------------------------------------------------------------


def test_a_planned_gang_takes_its_room_before_any_pod_exists() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=replace(PLAN, queue="q"))
    assert cluster.gpus() == [2, 2]
    assert cluster.snapshot().queue_usage == {"q": PLAN.demand}


@pytest.mark.parametrize("bound", [{0}, {1}, {0, 1}])
def test_every_replica_counts_once_planned_or_bound(bound: set[int]) -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    for index in (0, 1):
        cluster.member(own_pod(index, node=None if index in bound else ""))
    assert cluster.gpus() == [2, 2]
    assert cluster.snapshot().queue_usage == {"default": PLAN.demand}


def test_a_replica_bound_elsewhere_counts_where_it_is() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.member(own_pod(0, node="n1"))
    assert cluster.gpus() == [0, 4]


def test_a_replica_that_has_ended_frees_its_node_and_its_queue() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.member(own_pod(0, "Succeeded"))
    cluster.member(own_pod(1))
    assert cluster.gpus() == [0, 2]
    assert cluster.snapshot().queue_usage["default"][GPU] == 2


def test_an_impostor_takes_room_but_no_place_in_the_gang() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.member(own_pod(0, ownerReferences=[{"uid": "somebody"}]))
    view = cluster.state.views.get(("default", "job"))
    assert view is not None
    assert len(view.missing) == 2
    assert cluster.gpus() == [4, 2]


def test_what_a_pod_was_deleted_for_is_known_until_another_takes_its_place() -> None:
    """It may be gone before its job is reconciled."""
    words = {"reason": "PreemptionByScheduler", "message": "room for a thief"}
    target = {"type": "DisruptionTarget", "status": "True", **words}

    def disruptions() -> list[str]:
        view = cluster.state.views.get(("default", "job"))
        return [] if view is None else list(view.disruptions.values())

    def lose(**status: Any) -> None:
        cluster.member(own_pod(0, status=status))
        cluster.gone(own_pod(0))

    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    lose()
    assert disruptions() == []
    lose(conditions=[target])
    cluster.job(plan=PLAN, status={"phase": "Running"})
    assert disruptions() == ["PreemptionByScheduler: room for a thief"]
    lose()
    assert disruptions() == []
    lose(conditions=[target])
    cluster.replan(replace(PLAN, planned=CREATED + 1))
    assert disruptions() == []


def test_usage_without_one_gang_leaves_out_its_promise_and_not_its_pods() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.member(own_pod(0))
    used = cluster.state.usage.without(("default", "job"))
    assert gpus(cluster.snapshot(), used) == [2, 0]
    assert gpus(cluster.snapshot(), cluster.state.usage.without(("default", "x"))) == [2, 2]


def promised() -> dict[tuple[str, str], AssumedPlan]:
    return {("default", "job"): AssumedPlan("job-uid", PLAN)}


def test_a_promise_counts_before_its_plan_is_written_and_never_twice() -> None:
    cluster = ClusterStateFeed()
    usage = {"default": PLAN.demand}
    steps: list[Callable[[], None]] = [
        lambda: None,
        cluster.job,
        lambda: cluster.job(plan=PLAN),
        lambda: cluster.member(own_pod(0, "Pending", node="")),
        lambda: cluster.member(own_pod(0)),
        lambda: cluster.member(own_pod(1)),
    ]
    for step in steps:
        step()
        snapshot = cluster.snapshot(reserved=promised())
        assert gpus(snapshot) == [2, 2]
        assert snapshot.queue_usage == usage
    assert cluster.gpus() == [2, 2]


def test_a_promise_to_pods_of_others_counts_each_of_them_once() -> None:
    cluster = ClusterStateFeed()
    request = (("cpu", 1000), (GPU, 2), ("pods", 1))
    plan = PlanFacts(
        1,
        0,
        "",
        "Pinned",
        CREATED,
        {"pod": request},
        {},
        (Member("pod", "n0", uid="a-uid"), Member("pod", "n1", uid="b-uid")),
        queue="q",
    )
    container = {"name": "c", "resources": {"limits": {GPU: "2"}, "requests": {"cpu": "1"}}}
    first = gated_pod("a", containers=[container], schedulingGates=[], nodeName="n0")
    cluster.member({**first, "status": {"phase": "Running"}})
    cluster.member(gated_pod("b", containers=[container]))
    cluster.group(replace(plan, members=plan.members[:1]))
    snapshot = cluster.snapshot(reserved={("default", "group"): AssumedPlan("", plan)})
    assert gpus(snapshot) == [2, 2]
    assert snapshot.queue_usage["q"][GPU] == 4


def test_a_gang_that_was_promised_its_places_does_not_wait() -> None:
    cluster = ClusterStateFeed()
    cluster.job()
    assert [gang.name for gang in cluster.waiting()] == ["job"]
    assert cluster.snapshot(reserved=promised()).waiting == ()
    assert cluster.state.waiting.gangs(excluded=[("default", "job")]) == []
    assert cluster.snapshot(waiting=[]).waiting == ()
