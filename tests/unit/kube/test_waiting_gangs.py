"""Waiting gangs of a ClusterState, and the changes it announces."""

from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import names, quantities, wire
from bireme.kube.changes import Change
from testbed.objects.cluster_state import PLAN, ClusterStateFeed, own_pod
from testbed.objects.facts import CREATED, gated_pod, through_the_wire
from testbed.scenario.manifests import Manifest, priority_class


def test_a_job_waits_while_it_has_no_plan() -> None:
    cluster = ClusterStateFeed()
    cluster.job()
    assert len(cluster.waiting()) == 1
    cluster.replan(PLAN)
    assert cluster.waiting() == []
    cluster.replan(None)
    assert len(cluster.waiting()) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_job_does_not_wait(phase: str) -> None:
    cluster = ClusterStateFeed()
    cluster.job(status={"phase": phase})
    assert cluster.waiting() == []


def test_a_suspended_job_does_not_wait() -> None:
    cluster = ClusterStateFeed()
    cluster.job(runPolicy={"suspend": True})
    assert cluster.waiting() == []


def test_a_job_waits_for_the_pods_of_its_last_start_to_end() -> None:
    cluster = ClusterStateFeed()
    cluster.job()
    cluster.member(own_pod(0, deletionTimestamp=quantities.format_timestamp(CREATED)))
    assert cluster.fault() == (Reason.STOPPING, "1 pods of the last start are still ending")
    cluster.gone(own_pod(0))
    (gang,) = cluster.waiting()
    assert gang.fault is None


def test_a_job_waits_for_a_pod_group_of_its_name_to_go() -> None:
    cluster = ClusterStateFeed()
    cluster.job()
    cluster.group(name="job")
    cluster.member(gated_pod("a", "job"))
    assert cluster.fault()[0] is Reason.SPEC_INVALID
    assert "a PodGroup 'job' exists" in cluster.fault()[1]
    assert [(g.kind, g.fault) for g in cluster.waiting()][1:] == [("PodGroup", None)]


@pytest.mark.parametrize("strength", ["required", "preferred"])
def test_a_pod_whose_affinity_cannot_be_read_keeps_its_group_waiting_and_ends_nothing(
    strength: str,
) -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["r0"]}]}
    given: Manifest = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
    }
    if strength == "preferred":
        wish = {"weight": 1, "preference": term}
        given = {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
    cluster = ClusterStateFeed()
    cluster.group()
    cluster.member(gated_pod("a"))
    cluster.member(gated_pod("b", affinity={"nodeAffinity": given}))
    (gang,) = cluster.waiting()
    assert gang.fault == (Reason.SPEC_INVALID, "pod b: 'Near' is not a valid SelectorOperator")
    cluster.gone(gated_pod("b"))
    (gang,) = cluster.waiting()
    assert gang.fault is None


def test_rules_of_a_pod_of_others_that_cannot_be_read_end_nothing() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}
    term = {"topologyKey": "rack", "labelSelector": selector}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    cluster = ClusterStateFeed()
    cluster.job()
    cluster.other("stranger", "n0", 1, affinity={"podAntiAffinity": rules})
    assert cluster.gpus() == [1, 0]
    assert [gang.fault for gang in cluster.waiting()] == [None]


def test_a_pod_group_waits_for_a_job_of_its_name_that_has_its_places() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.group(name="job")
    cluster.member(gated_pod("a", "job"))
    (group,) = cluster.waiting()
    assert group.kind == "PodGroup"
    assert group.fault is not None
    assert group.fault[0] is Reason.SPEC_INVALID
    assert "a TrainingJob 'job' runs here" in group.fault[1]
    (running,) = cluster.snapshot().running
    assert (running.gang.kind, running.gang.uid) == ("TrainingJob", "job-uid")
    cluster.job_gone()
    assert [(gang.kind, gang.fault) for gang in cluster.waiting()] == [("PodGroup", None)]


def test_what_only_the_shell_knows_becomes_the_gangs_fault() -> None:
    cluster = ClusterStateFeed()
    cluster.job(priorityClassName="missing")
    verdict = (Reason.TEMPLATE_INVALID, "no")
    (gang,) = cluster.state.waiting.gangs(faults={"job-uid": verdict})
    assert gang.fault == verdict
    assert cluster.fault()[0] is Reason.PRIORITY_CLASS_NOT_FOUND


def test_gated_pods_wait_under_their_group_and_are_followed_as_they_change() -> None:
    cluster = ClusterStateFeed()
    cluster.group()
    cluster.member(gated_pod("a"))
    cluster.member(gated_pod("stranger", schedulerName="default-scheduler"))
    (gang,) = cluster.waiting()
    assert gang.tasks[0].members == ("a-uid",)
    narrowed = gated_pod("a", nodeSelector={"disk": "ssd"})
    cluster.member(narrowed)
    (gang,) = cluster.waiting()
    assert gang.tasks[0].constraints.node_selector == (("disk", "ssd"),)
    wish: Manifest = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    cluster.member(gated_pod("a", affinity=wish))
    assert cluster.state.objects.gated.manifests["default", "a"].spec.affinity is not None, (
        "what the pin goes into"
    )
    released = gated_pod("a", schedulingGates=[])
    cluster.member(released)
    assert ("default", "a") not in cluster.state.objects.gated.manifests


def test_a_job_pod_made_anew_is_not_held_back_for_those_that_have_succeeded() -> None:
    """Its controller never makes them again, so that minMember gated pods will never exist."""

    def made(name: str, job: str, **spec: Any) -> Manifest:
        pod = gated_pod(name, **spec)
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": job, "uid": job}]
        return pod

    cluster = ClusterStateFeed()
    cluster.group(minMember=2)
    released = made("a", "first", schedulingGates=[], nodeName="n0")
    cluster.member({**released, "status": {"phase": "Succeeded"}})
    cluster.member(made("b", "first"))
    (gang,) = cluster.waiting()
    assert (gang.fault, gang.replicas) == (None, 1)
    cluster.gone(made("b", "first"))
    cluster.member(made("c", "second"))
    (gang,) = cluster.waiting()
    assert gang.fault is not None, "what an earlier Job left behind stands for no pod of another"


def test_a_pod_that_changes_its_group_leaves_the_old_one() -> None:
    cluster = ClusterStateFeed()
    for name in ("one", "two"):
        cluster.group(name=name)
    cluster.member(gated_pod("a", "one"))
    changed = cluster.state.changes.follow(Change.OBJECT)
    cluster.member(gated_pod("a", "two"))
    assert cluster.state.objects.members_of(("default", "one")) == []
    assert {("default", "one"), ("default", "two")} <= changed


def test_changes_name_the_gang_they_are_about() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    changed, changes = cluster.state.changes.follow(Change.OBJECT), cluster.changes
    cluster.member(own_pod(0))
    assert changed == {("default", "job")}
    changed.clear()
    cluster.member(own_pod(0))
    assert (changed, cluster.changes) == (set(), changes + 1)


def test_a_job_that_is_gone_takes_its_plan_along() -> None:
    cluster = ClusterStateFeed()
    cluster.job(plan=PLAN)
    cluster.job_gone()
    assert cluster.state.objects.jobs == {}
    assert cluster.state.objects.plan_of(("default", "job")) is None
    assert cluster.gpus() == [0, 0]


def test_a_class_that_never_preempts_stops_nobody_for_its_gangs() -> None:
    cluster = ClusterStateFeed()
    for name, policy in (("bold", "PreemptLowerPriority"), ("meek", "Never")):
        manifest = {**priority_class(name, 5), "preemptionPolicy": policy}
        kind = through_the_wire(manifest, wire.V1PriorityClass)
        cluster.state.tenancy.put_priority_class(("", name), kind)
    cluster.group(priorityClassName="meek")
    cluster.member(gated_pod("a"))
    cluster.job(priorityClassName="bold")
    assert {gang.name: gang.may_preempt for gang in cluster.waiting()} == {
        "group": False,
        "job": True,
    }


@pytest.mark.parametrize(
    ("owner", "labels", "remedy"),
    [
        ("StatefulSet", {}, "podManagementPolicy: Parallel"),
        ("StatefulSet", {"leaderworkerset.sigs.k8s.io/name": "serve"}, "LeaderCreated"),
        ("Job", {"jobset.sigs.k8s.io/jobset-name": "set"}, "startupPolicyOrder: AnyOrder"),
        ("MPIJob", {}, "give it AtStartup"),
        ("Job", {}, None),
    ],
)
def test_a_group_whose_controller_creates_pods_one_by_one_says_how_it_creates_all(
    owner: str, labels: dict[str, str], remedy: str | None
) -> None:
    cluster = ClusterStateFeed()
    pod = gated_pod("ring-0", labels=labels)
    pod["metadata"]["ownerReferences"] = [{"kind": owner, "name": "ring", "uid": "u"}]
    cluster.member(pod)
    cluster.group(minMember=4)
    (gang,) = cluster.waiting()
    assert gang.fault is not None
    reason, message = gang.fault
    assert reason is Reason.WAITING_FOR_PODS
    assert message.startswith("1 of minMember 4 pods exist")
    assert remedy in message if remedy else message.endswith(names.PLAN_GATE)
