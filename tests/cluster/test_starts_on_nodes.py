"""Starts that fail on their nodes: room taken by others, kubelets that refuse, images that hang."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    batch_job,
    member_template,
    pod,
    pod_group,
    pod_spec,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

WITHIN_SECONDS = 10.0
REFUSAL = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
    "unhealthy devices nvidia.com/gpu, which is unexpected"
)
PULL = 'Back-off pulling image "trainer": ErrImagePull: not found'


@pytest.fixture(scope="module")
def cluster_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder, often = tmp_path_factory.mktemp("stack"), {"status_refresh_seconds": 1.0}
    with gpu_stack("starts", folder, nodes=10, internals=often) as stack:
        post = stack.cluster.api.post
        high = {**priority_class("high", 1000), "preemptionPolicy": "Never"}
        for each in (high, priority_class("urgent", 2000)):
            post("/apis/scheduling.k8s.io/v1/priorityclasses", each)
        post("/apis/bireme.dev/v1alpha1/queues", queue("hasty", startTimeoutSeconds=2))
        yield stack


@pytest.fixture
def stack(cluster_stack: BiremeStack) -> BiremeStack:
    """A new leader, which knows nothing of the nodes that other tests had trouble with."""
    cluster_stack.operator().terminate()
    cluster_stack.operator().start().wait_ready()
    return cluster_stack


def on(*nodes: str) -> Manifest:
    """The required affinity of a pod that may only go to these nodes."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def job(
    name: str,
    *nodes: str,
    replicas: int = 2,
    gpus: int = 4,
    fake: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """A job of two workers of 4 GPUs that may only go to ``nodes``."""
    workers = task(replicas=replicas, spec=pod_spec(gpus, affinity=on(*nodes)), fake=fake)
    return training_job(name, workers, **spec)


def group_of(name: str, node: str, fake: Manifest | None = None) -> tuple[Manifest, Manifest]:
    """A PodGroup and its Job of two pods of 4 GPUs that may only go to ``node``."""
    template = member_template(name, 4, fake, affinity=on(node))
    made = batch_job(name, 2, template)
    made["spec"]["backoffLimit"] = 0
    return pod_group(name, 2, queue="hasty"), made


def reasons(tenant: Tenant, name: str) -> set[str]:
    return {reason for _, reason, _ in tenant.events(name)}


def runs_in_time(tenant: Tenant, name: str, began: float) -> Manifest:
    status = tenant.await_phase(name, "Running")
    assert time.monotonic() - began < WITHIN_SECONDS
    return status


# --- room taken by others ---------------------------------------------------------------------


def planned_nodes(tenant: Tenant, name: str) -> set[str]:
    return {
        placement["node"] for placement in (tenant.plan(name) or {"placements": ()})["placements"]
    }


def take_planned_room(stack: BiremeStack, tenant: Tenant, planned: Manifest) -> tuple[str, float]:
    """Have a pod of the default scheduler take the planned node of a job before it is bound.

    Return the node, and when it was taken.
    """
    stack.scheduler.pause()
    try:
        tenant.create(planned)
        name = planned["metadata"]["name"]
        (node,) = tenant.eventually(lambda: planned_nodes(tenant, name))
        tenant.eventually(lambda: len(tenant.pods(name)) == 2)
        began = time.monotonic()
        tenant.create(pod("thief", 8, nodeSelector={"kubernetes.io/hostname": node}))
        # Let go before, the scheduler might bind them beside it, as it would not know of it yet.
        tenant.eventually(lambda: node not in planned_nodes(tenant, name))
    finally:
        stack.scheduler.resume()
    return node, began


def test_a_gang_whose_room_another_scheduler_takes_starts_elsewhere(
    stack: BiremeStack, tenant: Tenant
) -> None:
    node, began = take_planned_room(stack, tenant, job("late", "gpu-00", "gpu-01"))
    status = runs_in_time(tenant, "late", began)
    assert set(nodes_of(tenant.pods("late")).values()) == {"gpu-00", "gpu-01"} - {node}
    assert (status["restarts"], status["interruptions"]) == (0, 1)
    assert "startFailures" not in status
    assert reasons(tenant, "late") & {"NodeLost", "Unschedulable"} == set()


def test_a_gang_whose_room_is_taken_says_what_it_lacks_and_jumps_no_line(
    stack: BiremeStack, tenant: Tenant
) -> None:
    _, began = take_planned_room(stack, tenant, job("late", "gpu-00"))
    words = tenant.await_reason("late", "WaitingForCapacity")["message"]
    assert time.monotonic() - began < WITHIN_SECONDS
    assert words.startswith("asks 8 nvidia.com/gpu as 2 worker; 0 nvidia.com/gpu free")
    assert (tenant.plan("late"), tenant.pods("late")) == (None, [])
    assert "NodeLost" not in reasons(tenant, "late")
    tenant.create(job("higher", "gpu-00", priorityClassName="high"))
    tenant.await_reason("higher", "WaitingForCapacity")
    tenant.delete("Pod", "thief")
    tenant.await_phase("higher", "Running")
    assert tenant.status("late")["phase"] != "Running"
    tenant.delete("TrainingJob", "higher")
    tenant.await_phase("late", "Running")


def test_a_replica_that_another_scheduler_preempts_is_an_interruption_that_names_it(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(job("ring", "gpu-02", "gpu-03", gpus=8, runPolicy={"backoffLimit": 0}))
    tenant.await_phase("ring", "Running")
    there = {"kubernetes.io/hostname": "gpu-02"}
    # An operator that is busy sees the pod only when it has gone.
    stack.operator().pause()
    try:
        tenant.create(pod("thief", 8, nodeSelector=there, priorityClassName="urgent"))
        eventually(lambda: len(tenant.pods("ring")), lambda left: left == 1, WITHIN_SECONDS)
    finally:
        stack.operator().resume()
    tenant.await_reason("ring", "WaitingForCapacity")
    status = tenant.status("ring")
    assert (status["phase"], status["restarts"]) == ("Restarting", 0)
    said = [words for _, reason, words in tenant.events("ring") if reason == "PodLost"]
    assert len(said) == 1
    assert "PreemptionByScheduler: default-scheduler: preempting to accommodate" in said[0]


def test_a_node_that_another_scheduler_has_freed_for_a_pod_is_not_planned(
    stack: BiremeStack, tenant: Tenant
) -> None:
    """Without this the gang comes back at once, and is preempted again, for ever."""
    tenant.create(pod("slow", 8, schedulerName="nobody"))
    tenant.patch("Pod", "slow", {"status": {"nominatedNodeName": "gpu-02"}}, "status")
    # The watch of nominations must have it before the gang comes.
    stack.operator().terminate()
    stack.operator().start().wait_ready()
    tenant.create(job("ring", "gpu-02", "gpu-03", gpus=8))
    tenant.await_reason("ring", "WaitingForCapacity")
    assert tenant.plan("ring") is None
    tenant.delete("Pod", "slow")
    tenant.await_phase("ring", "Running")


# --- kubelets that refuse pods ----------------------------------------------------------------


@pytest.mark.usefixtures("stack")
def test_a_pod_that_its_kubelet_refuses_is_an_interruption_and_goes_elsewhere(
    tenant: Tenant,
) -> None:
    began = time.monotonic()
    refused = annotations(refused_by="gpu-02")
    tenant.create(job("odd", "gpu-02", "gpu-03", fake=refused, runPolicy={"backoffLimit": 0}))
    status = runs_in_time(tenant, "odd", began)
    assert (status["restarts"], status["interruptions"]) == (0, 1)
    assert set(nodes_of(tenant.pods("odd")).values()) == {"gpu-03"}
    said = [words for _, reason, words in tenant.events("odd") if reason == "PodRejected"]
    assert len(said) == 1
    assert said[0].startswith("node gpu-02 refused replica ")
    assert said[0].endswith(REFUSAL)


@pytest.mark.usefixtures("stack")
def test_a_job_that_five_nodes_refuse_pauses_with_the_kubelets_words(tenant: Tenant) -> None:
    nodes = [f"gpu-{number:02}" for number in range(4, 10)]
    refused = annotations(refused_by=", ".join(nodes))
    tenant.create(job("odd", *nodes, fake=refused, runPolicy={"backoffLimit": 0}))
    paused = tenant.eventually(
        lambda: tenant.status("odd"), lambda seen: seen.get("startFailures") == 1
    )
    assert (paused["phase"], paused["reason"]) == ("Restarting", "PodRejected")
    assert f"{REFUSAL}; 4 other nodes refused it before" in paused["message"]
    assert paused.get("restarts", 0) == 0
    assert len(set(paused["rejectedBy"])) == 5
    began = time.monotonic()
    tenant.create(job("equal", *nodes))
    runs_in_time(tenant, "equal", began)


def test_a_node_that_refuses_gangs_of_two_namespaces_is_named_and_avoided_by_others(
    stack: BiremeStack, tenant: Tenant
) -> None:
    nodes, refused = ("gpu-07", "gpu-08", "gpu-09"), annotations(refused_by="gpu-07")
    with (
        Tenant.staying(stack.cluster, stack.log_tails) as second,
        Tenant.staying(stack.cluster, stack.log_tails) as third,
    ):
        for each in (tenant, second):
            each.create(job("odd", *nodes, fake=refused))
            assert each.await_phase("odd", "Running")["interruptions"] == 1
        third.create(job("sound", *nodes))
        words = (
            "; it avoids room on gpu-07 for some minutes, because pods were refused or failed there"
        )
        third.eventually(lambda: words in third.status("sound").get("message", ""))
        # One that can be nowhere else is not kept from it.
        third.create(job("there", "gpu-07", priorityClassName="high"))
        third.await_phase("there", "Running")
        second.delete("TrainingJob", "odd")
        third.await_phase("sound", "Running")
        assert set(nodes_of(third.pods("sound")).values()) == {"gpu-09"}
    described = stack.cluster.kubectl("describe", "node", "gpu-07")
    assert "NodeSuspected" in described
    assert "gangs of 2 namespaces had trouble with this node: its kubelet refused" in described


# --- images that never come -------------------------------------------------------------------


@pytest.mark.usefixtures("stack")
def test_a_job_whose_image_never_comes_gives_its_places_to_an_equal_one(tenant: Tenant) -> None:
    hurried = {"startTimeoutSeconds": 2}
    tenant.create(job("odd", "gpu-00", fake=annotations(pull_error=PULL), runPolicy=hurried))
    tenant.eventually(lambda: len(nodes_of(tenant.pods("odd"))) == 2)
    began = time.monotonic()
    tenant.create(job("equal", "gpu-00"))
    runs_in_time(tenant, "equal", began)
    paused = tenant.status("odd")
    assert (paused["phase"], paused["reason"]) == ("Restarting", "StartTimedOut")
    words = f"replica 0 of worker on node gpu-00: container train is in ImagePullBackOff: {PULL}"
    assert words in paused["message"]
    assert (paused["startFailures"], paused["restarts"]) == (1, 0)
    assert (tenant.plan("odd"), tenant.pods("odd")) == (None, [])


@pytest.mark.usefixtures("stack")
def test_pods_of_others_whose_image_never_comes_give_their_places_to_equal_ones(
    tenant: Tenant,
) -> None:
    tenant.create(*group_of("odd", "gpu-01", annotations(pull_error=PULL)))
    tenant.eventually(lambda: len(nodes_of(tenant.pods("odd"))) == 2)
    assert tenant.status("odd", "PodGroup")["phase"] == "Inqueue"
    began = time.monotonic()
    tenant.create(*group_of("equal", "gpu-01"))
    tenant.await_group("equal", phase="Running")
    assert time.monotonic() - began < WITHIN_SECONDS
    paused = tenant.status("odd", "PodGroup")
    assert (paused["phase"], paused["reason"]) == ("Interrupted", "StartTimedOut")
    assert f"container train is in ImagePullBackOff: {PULL}" in paused["message"]
    assert (paused["startFailures"], paused.get("plan")) == (1, None)
    # Its controller makes them anew, behind the gate, and has counted no failure.
    made = tenant.eventually(lambda: tenant.pods("odd"), lambda pods: len(pods) == 2)
    assert all(each["spec"].get("schedulingGates") for each in made)
    assert tenant.get("Job", "odd")["status"].get("failed") is None
