"""Gangs of pods that other controllers make: joined by label and gate, released as a whole."""

from collections.abc import Iterator

import pytest

from bireme.kube import names
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    POD_GROUP_LABEL,
    Manifest,
    annotations,
    batch_job,
    member_template,
    pod,
    pod_group,
    stateful_set,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

SEEN = annotations(duration="6s")
"""Long enough that a slow machine sees it run."""
QUICK = {"status_refresh_seconds": 1.0}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("foreign", tmp_path_factory.mktemp("stack"), internals=QUICK) as stack:
        yield stack


def gates(pods: list[Manifest]) -> list[bool]:
    return ["schedulingGates" in p["spec"] for p in pods]


def pinned_to(pod_: Manifest) -> list[str]:
    required = pod_["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (names,) = {
        tuple(field["values"])
        for term in required["nodeSelectorTerms"]
        for field in term["matchFields"]
    }
    return list(names)


def test_batch_job_runs_as_a_gang_and_completes(tenant: Tenant) -> None:
    tenant.create(pod_group("prep", 4), batch_job("prep", 4, member_template("prep", 2, fake=SEEN)))
    tenant.await_group("prep", phase="Running")
    pods = tenant.pods("prep")
    bound = nodes_of(pods)
    assert len(bound) == 4
    assert len(set(bound.values())) == 1, "eight GPUs fit one node, the smallest domain"
    assert not any(gates(pods))
    assert [pinned_to(p) for p in pods] == [[bound[p["metadata"]["name"]]] for p in pods]
    tenant.eventually(lambda: tenant.get("Job", "prep")["status"].get("succeeded") == 4)
    assert "plan" not in tenant.await_group("prep", phase="Completed")


def test_gang_waits_gated_until_min_member_pods_exist(tenant: Tenant) -> None:
    template = member_template("few")
    tenant.create(pod_group("few", 3), batch_job("few", 2, template))
    tenant.await_group(
        "few", reason="WaitingForPods", message="2 of minMember 3 pods exist with label "
    )
    always(lambda: gates(tenant.pods("few")), all, 1.0, what="all gated")
    tenant.create(batch_job("one-more", 1, template))
    tenant.await_group("few", phase="Running")
    assert len(nodes_of(tenant.pods("few"))) == 3


def test_a_pod_behind_a_gate_of_others_is_left_alone_until_it_is_gone(tenant: Tenant) -> None:
    template = member_template("kept")
    tenant.create(pod_group("kept", 2), batch_job("kept", 1, template))
    behind = member_template("kept")
    behind["spec"]["schedulingGates"].append({"name": "example.com/quota"})
    tenant.create(batch_job("behind", 1, behind))
    words = "1 of minMember 2 pods exist"
    found = tenant.await_group("kept", reason="WaitingForPods", message=words)
    tenant.eventually(
        lambda: (
            "remove scheduling gates: example.com/quota"
            in tenant.get("PodGroup", "kept")["status"]["message"]
        )
    )
    assert "plan" not in found
    (kept,) = [p for p in tenant.pods("kept") if len(p["spec"]["schedulingGates"]) == 2]
    gone = {"spec": {"schedulingGates": [{"name": "bireme.dev/plan"}]}}
    tenant.patch("Pod", kept["metadata"]["name"], gone)
    tenant.await_group("kept", phase="Running")
    there = nodes_of(tenant.pods("kept"))
    assert len(there) == 2
    assert kept["metadata"]["name"] in there, "nothing was made anew"


def test_pods_that_only_carry_the_label_do_not_count(tenant: Tenant) -> None:
    labelled = {POD_GROUP_LABEL: "picky"}
    without_gate = pod("without-gate", schedulerName="bireme")
    other_scheduler = pod("other-scheduler", schedulingGates=[{"name": "bireme.dev/plan"}])
    for impostor in (without_gate, other_scheduler):
        impostor["metadata"]["labels"] = labelled
    tenant.create(pod_group("picky", 3), without_gate, other_scheduler)
    tenant.create(batch_job("picky", 2, member_template("picky")))
    tenant.await_group("picky", reason="WaitingForPods", message="2 of minMember 3 pods exist")
    tenant.create(batch_job("third", 1, member_template("picky")))
    tenant.await_group("picky", phase="Running")
    bound = set(nodes_of(tenant.pods("picky")))
    assert len(bound) == 3
    assert bound.isdisjoint({"without-gate", "other-scheduler"}), "no plan, no node"
    assert gates([tenant.get("Pod", "other-scheduler")]) == [True]


def test_stateful_set_runs_as_a_gang_and_its_replaced_pod_is_planned_again(
    tenant: Tenant,
) -> None:
    tenant.create(pod_group("ring", 3), stateful_set("ring", 3, member_template("ring", 2)))
    tenant.await_group("ring", phase="Running")
    first = uids_of(tenant.pods("ring"))
    assert set(first) == set(nodes_of(tenant.pods("ring"))) == {"ring-0", "ring-1", "ring-2"}
    kept = [p["metadata"]["annotations"] for p in tenant.pods("ring")]
    assert all(names.KEPT_IN_PLACE.items() <= given.items() for given in kept)
    tenant.delete("Pod", "ring-1")
    bound = tenant.eventually(
        lambda: tenant.pods("ring"),
        lambda pods: len(nodes_of(pods)) == 3 and uids_of(pods)["ring-1"] != first["ring-1"],
    )
    replaced = uids_of(bound)
    assert (replaced["ring-0"], replaced["ring-2"]) == (first["ring-0"], first["ring-2"])
    planned = [uid for p in (tenant.plan("ring") or {})["placements"] for uid in p["pods"]]
    assert sorted(planned) == sorted(replaced.values())


def test_pods_keep_the_node_affinity_of_their_template(tenant: Tenant) -> None:
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-01"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    preferred = [
        {"weight": 5, "preference": {"matchExpressions": [{**wanted, "values": ["gpu-00"]}]}}
    ]
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": terms,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    template = member_template("choosy", affinity={"nodeAffinity": node_affinity})
    tenant.create(pod_group("choosy", 2), batch_job("choosy", 2, template))
    tenant.await_group("choosy", phase="Running")
    for member in tenant.pods("choosy"):
        assert member["spec"]["nodeName"] == "gpu-01"
        kept = member["spec"]["affinity"]["nodeAffinity"]
        assert kept["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
        (term,) = kept["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [wanted]
        assert pinned_to(member) == ["gpu-01"]


def test_gang_larger_than_what_is_free_waits_whole(tenant: Tenant) -> None:
    tenant.create(training_job("holder", task(replicas=2, gpus=6)))
    tenant.await_phase("holder", "Running")
    template = member_template("patient", 2, fake=SEEN)
    tenant.create(pod_group("patient", 4), batch_job("patient", 4, template))
    words = "asks 8 nvidia.com/gpu as 4 pod; 4 nvidia.com/gpu free"
    status = tenant.await_group("patient", reason="WaitingForCapacity", message=words)
    assert (status["queuePosition"], status["phase"]) == (1, "Pending")
    always(lambda: gates(tenant.pods("patient")), all, 1.0, what="all gated")
    assert tenant.plan("patient") is None
    tenant.delete("TrainingJob", "holder")
    tenant.await_group("patient", phase="Running")
    tenant.eventually(lambda: tenant.get("Job", "patient")["status"].get("succeeded") == 4)


def test_gang_whose_node_is_cordoned_before_it_is_bound_is_planned_elsewhere(
    stack: BiremeStack, tenant: Tenant
) -> None:
    stack.scheduler.pause()
    try:
        tenant.create(pod_group("early", 3), stateful_set("early", 3, member_template("early")))
        plan = tenant.eventually(lambda: tenant.plan("early"))
        (node,) = {placement["node"] for placement in plan["placements"]}
        tenant.eventually(lambda: tenant.pods("early"), lambda pods: not any(gates(pods)))
        tenant.cluster.kubectl("cordon", node)
        other = "gpu-00" if node == "gpu-01" else "gpu-01"

        def planned_nodes() -> set[str]:
            placements = (tenant.plan("early") or {"placements": []})["placements"]
            return {placement["node"] for placement in placements}

        tenant.eventually(planned_nodes, lambda nodes: nodes == {other})
    finally:
        tenant.cluster.kubectl("uncordon", node)
        stack.scheduler.resume()
    tenant.await_group("early", phase="Running")
    assert list(nodes_of(tenant.pods("early")).values()) == [other] * 3


def test_foreign_gang_obeys_queue_and_priority_class_like_any_job(tenant: Tenant) -> None:
    tenant.create(pod_group("who", 1, queue="nobody"), batch_job("who", 1, member_template("who")))
    assert "queue 'nobody'" in tenant.await_group("who", reason="QueueNotFound")["message"]
    tenant.create(pod_group("vip", 1, priorityClassName="nobody"))
    tenant.create(batch_job("vip", 1, member_template("vip")))
    tenant.await_group("vip", reason="PriorityClassNotFound")
    assert all(gates(tenant.pods()))
