"""From a plan and its pods to a running gang: who holds which places, and who is on the way out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bireme.core.gangs import Key, Role
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang
from bireme.kube import names, quantities, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.plans import Member, PlanFacts
from testbed.objects.cluster_state import PLAN, WORKERS, ClusterStateFeed, own_pod
from testbed.objects.facts import CREATED, a_job, a_plan, gated_pod, through_the_wire
from testbed.scenario.manifests import (
    API_VERSION,
    GPU,
    Manifest,
    priority_class,
    queue,
    task,
)

GROUP = replace(
    PLAN,
    requests={"t": PLAN.requests["worker"]},
    members=(Member("t", "n0", uid="a-uid"), Member("t", "n1", uid="b-uid")),
    queue="q",
)
"""A plan for pods of another controller."""


def planned(plan: PlanFacts = PLAN, **job: Any) -> ClusterStateFeed:
    """Two nodes, and a job of two workers with ``plan`` in its status."""
    cluster = ClusterStateFeed()
    cluster.job(plan=plan, **job)
    return cluster


def only(cluster: ClusterStateFeed, **options: Any) -> RunningGang:
    (running,) = cluster.snapshot(**options).running
    return running


def places(cluster: ClusterStateFeed, **options: Any) -> dict[str, tuple[str, ...]]:
    """The nodes that the only gang holds places on, by task."""
    snapshot = cluster.snapshot(**options)
    (running,) = snapshot.running
    return running.placement.by_task(snapshot.nodes)


def promise(plan: PlanFacts = PLAN) -> dict[Key, AssumedPlan]:
    return {("default", "job"): AssumedPlan("job-uid", plan)}


# --- places -----------------------------------------------------------------------------------


def test_a_planned_gang_holds_its_places_before_any_pod_exists() -> None:
    cluster = planned(replace(PLAN, planned=CREATED - 100))
    assert places(cluster) == {"worker": ("n0", "n1")}
    running = only(cluster)
    assert (running.gang.uid, running.started, running.is_leaving) == ("job-uid", 999_900.0, False)


def test_a_promise_holds_places_before_its_plan_is_written_in_the_queue_it_was_made_in() -> None:
    cluster = ClusterStateFeed()
    cluster.job(queue="moved-since")
    reserved = promise(replace(PLAN, queue="q"))
    assert places(cluster, reserved=reserved) == {"worker": ("n0", "n1")}
    assert only(cluster, reserved=reserved).gang.queue == "q"
    cluster.replan(replace(PLAN, queue="q"))
    assert only(cluster).gang.queue == "q"


def test_a_replica_bound_elsewhere_holds_its_place_where_it_is() -> None:
    cluster = planned()
    cluster.member(own_pod(0, node="n1"))
    assert places(cluster) == {"worker": ("n1", "n1")}


def test_a_replica_that_succeeded_gives_its_place_back_and_one_that_failed_keeps_it() -> None:
    cluster = planned()
    cluster.member(own_pod(0, "Failed"))
    cluster.member(own_pod(1, "Succeeded"))
    assert places(cluster) == {"worker": ("n0",)}
    cluster.member(own_pod(0, "Succeeded"))
    assert cluster.snapshot().running == ()


def test_a_lost_node_holds_nobody_and_a_gang_on_none_but_lost_nodes_is_no_gang() -> None:
    cluster = planned()
    cluster.state.nodes.delete(("", "n0"))
    assert places(cluster) == {"worker": ("n1",)}
    assert only(cluster).anchor_row == -1  # where replica 0 was
    cluster.replan(a_plan(a_job(WORKERS), ("n0",)))
    assert cluster.snapshot().running == ()


def test_the_others_meet_at_replica_0_wherever_it_is() -> None:
    cluster = planned()
    assert only(cluster).anchor_row == 0
    cluster.member(own_pod(0, node="n1"))
    assert only(cluster).anchor_row == 1


def test_an_impostor_holds_no_place_of_the_gang() -> None:
    cluster = planned()
    owners = [{"kind": "TrainingJob", "name": "job", "uid": "somebody"}]
    cluster.member(own_pod(0, node="n1", ownerReferences=owners))
    snapshot = cluster.snapshot()
    held = {r.gang.uid: r.placement.node_rows().tolist() for r in snapshot.running}
    assert held == {"job-uid": [0, 1], "default/job/orphans/default": [1]}


def test_a_gang_holds_what_the_snapshot_says_is_used() -> None:
    cluster = planned()
    cluster.member(own_pod(0))
    snapshot = cluster.snapshot()
    used = np.zeros_like(snapshot.used)
    np.add.at(used, *only(cluster).usage(snapshot.nodes.axis))
    np.testing.assert_array_equal(used, snapshot.used)


# --- the gang ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [{"waitSeconds": 70, "admittedTime": "now"}, {}])
def test_its_run_time_counts_as_no_wait(recorded: dict[str, Any]) -> None:
    """It was planned 70 s after it was made; until that is recorded, it is worked out."""
    cluster = ClusterStateFeed()
    plan = a_plan(a_job(WORKERS), planned=CREATED + 70)
    cluster.job(WORKERS, plan=plan, status={"phase": "Running", **recorded})
    snapshot = replace(cluster.snapshot(), now=CREATED + 5000)
    (running,) = snapshot.running
    assert snapshot.wait_seconds(running.gang) == 70


def test_it_uses_what_was_planned_for_it_whatever_its_job_says_by_now() -> None:
    cluster = ClusterStateFeed()
    cluster.job(task("worker", 3, gpus=7), plan=PLAN)
    (worker,) = only(cluster).gang.tasks
    assert (worker.replicas, worker.request) == (3, PLAN.requests["worker"])
    assert cluster.gpus() == [2, 2]


def test_tasks_that_its_job_no_longer_has_still_hold_their_places() -> None:
    job = a_job(task("ps", 1), task("worker", 1))
    cluster = ClusterStateFeed()
    cluster.job(task("worker", 1), plan=a_plan(job, ("n0", "n1")))
    assert places(cluster) == {"worker": ("n1",), "ps": ("n0",)}
    roles = {t.name: (t.role, t.replicas) for t in only(cluster).gang.tasks}
    assert roles == {"worker": (Role.WORKER, 1), "ps": (Role.PS, 1)}


@pytest.mark.parametrize(
    ("phase", "second", "is_elastic"),
    [
        ("Running", "Running", True),
        ("Starting", "Running", False),
        ("Running", "Succeeded", False),
    ],
)
def test_a_gang_is_resized_only_while_all_of_it_runs(
    phase: str, second: str, is_elastic: bool
) -> None:
    cluster = ClusterStateFeed()
    worker = {**WORKERS, "minReplicas": 1}
    plan = replace(PLAN, spec_hash=a_job(worker).spec_hash)
    cluster.job(worker, plan=plan, rendezvous="torch", status={"phase": phase})
    cluster.member(own_pod(0))
    cluster.member(own_pod(1, second))
    assert only(cluster).gang.is_elastic is is_elastic


@pytest.mark.parametrize(
    ("status", "is_starting"),
    [
        ({}, True),
        ({"phase": "Starting"}, True),
        ({"phase": "Running"}, False),
        ({"phase": "Restarting", "attempt": 1}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_a_gang_starts_until_it_runs_or_is_stopped(
    status: dict[str, Any], is_starting: bool
) -> None:
    assert only(planned(status=status)).is_starting is is_starting


# --- on the way out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        pytest.param({"phase": "Restarting", "attempt": 1}, {}, id="starts-again"),
        pytest.param({"phase": "Failed"}, {}, id="finished"),
        pytest.param({"phase": "Running"}, {"runPolicy": {"suspend": True}}, id="suspended"),
    ],
)
def test_a_gang_that_is_being_stopped_holds_its_places_until_its_plan_is_cleared(
    status: dict[str, Any], spec: dict[str, Any]
) -> None:
    cluster = planned(status=status, **spec)
    assert only(cluster).is_leaving
    assert places(cluster) == {"worker": ("n0", "n1")}
    cluster.replan(None)
    assert cluster.snapshot().running == ()


def test_a_job_that_is_being_deleted_leaves() -> None:
    stamp = quantities.format_timestamp(CREATED)
    cluster = planned(metadata={"deletionTimestamp": stamp})
    assert only(cluster).is_leaving


def test_the_pods_of_a_job_that_is_gone_leave_from_where_they_are() -> None:
    """Its plan is gone with it, so nobody holds places but pods on nodes."""
    cluster = planned()
    cluster.member(own_pod(0))
    cluster.member(own_pod(1, "Pending", node=""))
    assert cluster.gpus() == [2, 2]
    cluster.job_gone()
    running = only(cluster)
    assert (running.gang.uid, running.gang.queue) == ("job-uid/leaving", "default")
    assert (running.gang.kind, running.is_leaving) == ("TrainingJob", True)
    assert places(cluster) == {"worker": ("n0",)}
    assert cluster.gpus() == [2, 0]
    assert cluster.snapshot().queue_usage["default"][GPU] == 2
    cluster.member(own_pod(0, "Succeeded"))
    assert cluster.snapshot().running == ()


def raised(index: int, cpu: str, phase: str = "Running") -> Manifest:
    """A replica of which more, or less, cpu is asked by now than was planned."""
    made = own_pod(index, phase)
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, GPU: "2"}
    return made


def test_what_a_pod_was_raised_to_in_place_counts_in_its_queue_at_once() -> None:
    cluster = planned()

    def usage() -> dict[str, int]:
        used = cluster.snapshot().queue_usage["default"]
        return {name: used.get(name, 0) for name in ("cpu", GPU, "pods")}

    cluster.member(own_pod(0))
    assert usage() == {"cpu": 2000, GPU: 4, "pods": 2}
    cluster.member(raised(0, "60"))
    assert usage() == {"cpu": 61_000, GPU: 4, "pods": 2}
    cluster.member(raised(1, "2"))
    assert usage() == {"cpu": 62_000, GPU: 4, "pods": 2}
    cluster.member(raised(0, "60", "Succeeded"))
    assert usage() == {"cpu": 2000, GPU: 2, "pods": 1}


def test_what_a_pod_was_lowered_to_in_place_frees_nothing_in_its_queue() -> None:
    """Its gang starts again with what was planned."""
    cluster = planned(replace(PLAN, requests={"worker": (("cpu", 4000), (GPU, 2), ("pods", 1))}))
    cluster.member(raised(0, "1"))
    assert cluster.snapshot().queue_usage["default"]["cpu"] == 8000


def test_pods_that_a_deletion_left_behind_on_purpose_do_not_leave() -> None:
    """``kubectl delete --cascade=orphan`` takes their owner away before the job goes."""
    cluster = planned()
    cluster.member(own_pod(0, ownerReferences=[]))
    cluster.job_gone()
    running = only(cluster)
    assert (running.is_leaving, running.gang.queue) == (False, "default")
    assert (running.gang.is_preemptible, running.gang.is_resumable) == (True, False)
    assert cluster.gpus() == [2, 0]


def owner(uid: str, kind: str = "TrainingJob", api_version: str = API_VERSION) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "name": "job", "uid": uid}


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([owner("x", "ReplicaSet", "apps/v1")], id="of-a-replica-set"),
        pytest.param([owner("x", api_version="kubeflow.org/v1")], id="of-anothers-training-job"),
        pytest.param([owner("x"), owner("y", "ReplicaSet", "apps/v1")], id="of-two"),
        pytest.param([owner("job-uid")], id="of-a-job-of-another-name"),
    ],
)
def test_a_pod_that_nobody_takes_away_does_not_leave_whatever_its_labels_say(
    owners: list[Manifest],
) -> None:
    """A gang that leaves is waited for: who could feign one would keep others from preempting."""
    cluster = ClusterStateFeed()
    cluster.job()
    gone = own_pod(0, ownerReferences=[owner("gone-uid")])
    gone["metadata"]["labels"][names.POD_GROUP_LABEL] = "gone"
    cluster.member(gone)
    assert [running.is_leaving for running in cluster.snapshot().running] == [True]
    gone["metadata"]["ownerReferences"] = owners
    cluster.member(gone)
    # A pod that a job of another name owns goes with that job.
    remains = [] if owners == [owner("job-uid")] else [False]
    assert [running.is_leaving for running in cluster.snapshot().running] == remains
    assert cluster.gpus() == [2, 0]


def test_a_pod_that_was_never_admitted_is_nobodys_to_stop() -> None:
    cluster = ClusterStateFeed()
    free = own_pod(0, ownerReferences=[])
    del free["metadata"]["labels"][names.QUEUE_LABEL]
    cluster.member(free)
    assert cluster.snapshot().running == ()
    assert cluster.gpus() == [2, 0]


def test_the_places_of_an_earlier_job_are_not_those_of_the_next_of_its_name() -> None:
    cluster = planned(uid="earlier-uid")
    cluster.member(own_pod(0, ownerReferences=[owner("earlier-uid")]))
    assert places(cluster) == {"worker": ("n0", "n1")}
    cluster.job_gone()
    cluster.job()
    assert (only(cluster).gang.uid, only(cluster).is_leaving) == ("earlier-uid/leaving", True)
    assert places(cluster) == {"worker": ("n0",)}
    assert [gang.uid for gang in cluster.waiting()] == ["job-uid"]
    assert cluster.fault()[0] is Reason.STOPPING


def test_pods_that_a_gang_has_given_up_leave_beside_it() -> None:
    cluster = planned(replace(PLAN, members=PLAN.members[:1]))
    cluster.member(own_pod(0))
    cluster.member(own_pod(1))
    snapshot = cluster.snapshot()
    held = {r.gang.uid: (r.is_leaving, r.placement.node_rows().tolist()) for r in snapshot.running}
    assert held == {"job-uid": (False, [0]), "job-uid/leaving": (True, [1])}


# --- pods of other controllers ----------------------------------------------------------------


def test_of_pods_of_others_those_that_exist_hold_the_places_planned_for_their_uid() -> None:
    cluster = ClusterStateFeed()
    cluster.group(GROUP)
    assert cluster.snapshot().running == ()
    cluster.member(gated_pod("b"))
    cluster.member(gated_pod("c"))
    running = only(cluster)
    assert places(cluster) == {"t": ("n1",)}
    assert (running.gang.kind, running.gang.uid) == ("PodGroup", "group-group")
    assert running.gang.queue == "q"
    assert [t.replicas for t in running.gang.tasks] == [1]


def test_pods_of_others_are_starting_until_their_group_runs() -> None:
    cluster = ClusterStateFeed()
    cluster.group(GROUP)
    cluster.member(gated_pod("a"))
    assert not only(cluster).is_leaving
    assert only(cluster).is_starting


def test_a_pod_group_runs_with_the_priority_of_its_class_whatever_came_first() -> None:
    cluster = ClusterStateFeed()
    tenancy = cluster.state.tenancy
    cluster.group(GROUP, priorityClassName="high")
    cluster.member(gated_pod("a"))
    assert only(cluster).gang.priority == 0
    for value in (2, 1000):
        made = through_the_wire(priority_class("high", value), wire.V1PriorityClass)
        tenancy.put_priority_class(("", "high"), made)
        assert only(cluster).gang.priority == value
    tenancy.delete_priority_class(("", "high"))
    assert only(cluster).gang.priority == 0


def test_a_queue_and_those_below_it_exempt_their_pod_groups_from_being_stopped() -> None:
    cluster = ClusterStateFeed()
    cluster.group(GROUP)
    cluster.member(gated_pod("a"))
    assert only(cluster).gang.is_preemptible
    for name, spec in (("q", {"parent": "top"}), ("top", {"preemptPodGroups": False})):
        made = through_the_wire(queue(name, **spec), wire.CustomObject)
        cluster.state.tenancy.put_queue(("", name), made)
    assert not only(cluster).gang.is_preemptible
    cluster.state.tenancy.delete_queue(("", "top"))
    assert only(cluster).gang.is_preemptible
