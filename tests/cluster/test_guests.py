"""What a stop costs pods of other controllers: nothing to a Job, and no more than budgets allow."""

from collections.abc import Iterator

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    POD_GROUP_LABEL,
    Manifest,
    batch_job,
    disruption_budget,
    member_template,
    pod_group,
    stateful_set,
)
from testbed.scenario.promises import history_of
from testbed.scenario.tenant import Tenant, nodes_of, uids_of
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster

HURRIED = {
    "BIREME_BIND_TIMEOUT_SECONDS": "3",
    "BIREME_NODE_LOST_SECONDS": "3",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder, often = tmp_path_factory.mktemp("stack"), {"status_refresh_seconds": 1.0}
    with gpu_stack("guests", folder, HURRIED, internals=often) as stack:
        yield stack


def unforgiving(pods: int, gpus: int, failures: int = 0) -> Manifest:
    """A Job that fails once more than so many of its pods have."""
    job = batch_job("train", pods, member_template("train", gpus))
    job["spec"]["backoffLimit"] = failures
    return job


def is_free(job: Manifest) -> bool:
    labels = job["metadata"].get("labels") or {}
    return job["spec"]["suspend"] is False and "bireme.dev/suspended-for" not in labels


RESUMED = ("Normal", "Resumed", "Job resumed")


def test_a_job_with_no_retries_outlives_a_start_that_failed(
    stack: BiremeStack, tenant: Tenant
) -> None:
    stack.scheduler.pause()
    try:
        tenant.create(pod_group("train", 2), unforgiving(2, gpus=4))
        plan = tenant.eventually(lambda: tenant.plan("train"))
        (node,) = {placement["node"] for placement in plan["placements"]}
        first = uids_of(tenant.pods("train"))
        tenant.cluster.kubectl("cordon", node)
        tenant.eventually(lambda: RESUMED in tenant.events("train"))
    finally:
        tenant.cluster.kubectl("uncordon", node)
        stack.scheduler.resume()
    tenant.await_group("train", phase="Running")
    job = tenant.eventually(lambda: tenant.get("Job", "train"), is_free)
    assert job["status"].get("failed") is None
    assert len(nodes_of(tenant.pods("train"))) == 2
    assert first.keys().isdisjoint(uids_of(tenant.pods("train")))


@pytest.mark.parametrize("ignores", [True, False])
def test_a_pod_that_is_evicted_alone_counts_unless_its_job_ignores_disruptions(
    stack: BiremeStack, tenant: Tenant, ignores: bool
) -> None:
    job = unforgiving(2, gpus=4)
    job["spec"]["completions"] = 3
    if ignores:
        conditions = [{"type": "DisruptionTarget"}]
        rules = [{"action": "Ignore", "onPodConditions": conditions}]
        job["spec"]["podFailurePolicy"] = {"rules": rules}
    tenant.create(pod_group("train", 2), job)
    tenant.await_group("train", phase="Running")
    first = nodes_of(tenant.pods("train"))
    stack.scheduler.pause()
    try:
        tenant.patch("Job", "train", {"spec": {"parallelism": 3}})
        tenant.eventually(lambda: len(tenant.pods("train")) == 3)
        (late,) = uids_of(tenant.pods("train")).keys() - first.keys()
        free = tenant.eventually(lambda: planned_node(tenant, late))
        tenant.cluster.kubectl("cordon", free)
        tenant.eventually(lambda: "GangNotBoundInTime" in {e[1] for e in tenant.events("train")})
    finally:
        tenant.cluster.kubectl("uncordon", free)
        stack.scheduler.resume()
    if ignores:
        tenant.eventually(lambda: len(nodes_of(tenant.pods("train"))) == 3)
        assert first.items() <= nodes_of(tenant.pods("train")).items()
        assert tenant.get("Job", "train")["status"].get("failed") is None
    else:
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        tenant.eventually(
            lambda: any(
                failed.items() <= condition.items()
                for condition in tenant.get("Job", "train")["status"].get("conditions") or ()
            )
        )


def planned_node(tenant: Tenant, pod: str) -> str:
    """The node to which a pod that is not bound is pinned; empty while it is gated."""
    found = tenant.find("Pod", pod) or {"spec": {"schedulingGates": True}}
    if found["spec"].get("schedulingGates"):
        return ""
    uid = found["metadata"]["uid"]
    placements = (tenant.plan("train") or {"placements": []})["placements"]
    return next((p["node"] for p in placements if uid in (p.get("pods") or ())), "")


def lose_a_pod(tenant: Tenant, group: str) -> tuple[str, dict[str, str]]:
    """Delete a pod of a gang that fills the cluster, and cordon its node.

    Return the node, and the nodes of the other pods.
    """
    rest = nodes_of(tenant.pods(group))
    name, node = rest.popitem()
    tenant.cluster.kubectl("cordon", node)
    tenant.delete("Pod", name)
    return node, rest


def test_the_rest_of_a_broken_job_is_stopped_without_a_failure(tenant: Tenant) -> None:
    tenant.create(pod_group("train", 4), unforgiving(4, gpus=4, failures=1))
    tenant.await_group("train", phase="Running")
    first = uids_of(tenant.pods("train"))
    node, _ = lose_a_pod(tenant, "train")
    try:
        tenant.await_group("train", phase="Interrupted")
    finally:
        tenant.cluster.kubectl("uncordon", node)
    tenant.await_group("train", phase="Running")
    job = tenant.eventually(lambda: tenant.get("Job", "train"), is_free)
    assert job["status"]["failed"] == 1, "the pod that was deleted"
    assert RESUMED in tenant.events("train")
    told = [words for _, reason, words in tenant.events("train") if reason == "GangNotBoundInTime"]
    assert told[0].startswith(
        "3 of minMember 4 pods have places, and no places for others were found in"
    )
    assert first.keys().isdisjoint(nodes_of(tenant.pods("train")))


def test_pods_that_a_budget_keeps_are_waited_for(tenant: Tenant) -> None:
    tenant.create(disruption_budget("keep", 4, **{POD_GROUP_LABEL: "ring"}))
    tenant.create(pod_group("ring", 4), stateful_set("ring", 4, member_template("ring", 4)))
    tenant.await_group("ring", phase="Running")
    tenant.eventually(
        lambda: tenant.status("keep", "PodDisruptionBudget").get("currentHealthy") == 4
    )
    node, rest = lose_a_pod(tenant, "ring")
    try:
        words = (
            "budget keep allows 0 evictions, 3 are needed; the eviction is tried again for "
            "at most 300 s"
        )
        tenant.await_group("ring", phase="Running", reason="Stopping", message=words)
        always(lambda: nodes_of(tenant.pods("ring")), lambda there: there == rest, 4.0, what="kept")
        tenant.delete("PodDisruptionBudget", "keep")
        tenant.await_group("ring", phase="Interrupted")
    finally:
        tenant.cluster.kubectl("uncordon", node)
    tenant.await_group("ring", phase="Running")
    assert len(nodes_of(tenant.pods("ring"))) == 4


def test_a_pod_whose_budget_is_not_asked_is_marked_as_disrupted_before_it_is_deleted(
    tenant: Tenant,
) -> None:
    """That of a lost node: the budget keeps it, and no kubelet ends it."""
    tenant.create(disruption_budget("keep", 2, **{POD_GROUP_LABEL: "pair"}))
    tenant.create(pod_group("pair", 2), stateful_set("pair", 2, member_template("pair", 8)))
    tenant.await_group("pair", phase="Running")
    first = uids_of(tenant.pods("pair"))
    node, rest = lose_a_pod(tenant, "pair")
    ((left, lost),) = rest.items()
    tenant.cluster.kubectl("annotate", "node", lost, "fake.bireme.dev/not-ready=1")
    try:
        tenant.eventually(lambda: uids_of(tenant.pods("pair")).get(left) != first[left])
    finally:
        tenant.cluster.kubectl("annotate", "node", lost, "fake.bireme.dev/not-ready-")
        tenant.cluster.kubectl("uncordon", node)
    tenant.await_group("pair", phase="Running")
    history = history_of(tenant.cluster)
    assert history is not None
    seen = [
        r for r in history.records() if r.manifest.get("metadata", {}).get("uid") == first[left]
    ]
    last = max(seen, key=lambda record: record.revision).manifest
    marks = [c for c in last["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [mark["reason"] for mark in marks] == ["NodeLost"]
