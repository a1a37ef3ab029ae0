"""The ground shifts between plan and bind, or later: the gang moves as a whole or not at all."""

from collections.abc import Callable, Iterator

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    pod,
    priority_class,
    task,
    torch_job,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of

pytestmark = pytest.mark.cluster

NODES = [node["metadata"]["name"] for node in fake_nodes(3, racks=2)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("nodes", folder, {"BIREME_NODE_LOST_SECONDS": "3"}, nodes=3) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
    restore_nodes(stack.cluster)


def restore_nodes(cluster: Cluster) -> None:
    there = {n["metadata"]["name"] for n in cluster.api.get("/api/v1/nodes")["items"]}
    cluster.add_nodes([n for n in fake_nodes(3, racks=2) if n["metadata"]["name"] not in there])
    for name in NODES:
        cluster.kubectl("uncordon", name)


def planned_nodes(tenant: Tenant, name: str) -> set[str]:
    return {p["node"] for p in (tenant.plan(name) or {"placements": []})["placements"]}


def deletes(tenant: Tenant, node: str) -> None:
    tenant.delete("Node", node)


def cordons(tenant: Tenant, node: str) -> None:
    tenant.cluster.kubectl("cordon", node)


def fills(tenant: Tenant, node: str) -> None:
    """A pod of somebody else, bound past every scheduler."""
    tenant.create(pod("squatter", gpus=8, nodeName=node))


def begins_to_fail(tenant: Tenant, node: str) -> None:
    tenant.cluster.kubectl("annotate", "node", node, "fake.bireme.dev/not-ready=1")


@pytest.mark.parametrize("something", [deletes, cordons, fills])
def test_gang_whose_planned_node_is_lost_before_it_is_bound_is_planned_again_whole(
    stack: BiremeStack, tenant: Tenant, something: Callable[[Tenant, str], None]
) -> None:
    stack.scheduler.pause()
    try:
        # Twelve GPUs: two nodes, of which only one is hit.
        tenant.create(torch_job("planned", workers=5, gpus=2))
        first = tenant.eventually(
            lambda: tenant.pods("planned"), lambda pods: len(pods) == 6 and pods
        )
        before = planned_nodes(tenant, "planned")
        assert len(before) == 2
        hit = min(before)
        something(tenant, hit)
        plan = tenant.eventually(
            lambda: tenant.plan("planned"), lambda plan: plan and plan["attempt"] == 1
        )
        assert hit not in {placement["node"] for placement in plan["placements"]}
    finally:
        stack.scheduler.resume()
    status = tenant.await_phase("planned", "Running")
    assert (status["interruptions"], status.get("restarts", 0)) == (1, 0)
    pods = tenant.pods("planned")
    assert len(nodes_of(pods)) == 6
    assert hit not in nodes_of(pods).values()
    assert set(uids_of(first).values()).isdisjoint(uids_of(pods).values()), "none of the old pods"
    why = "GangNotBoundInTime" if something is fills else "NodeLost"  # only a lost node is its hole
    assert why in [reason for _, reason, _ in tenant.events("planned")]


@pytest.mark.parametrize("something", [deletes, begins_to_fail])
def test_running_gang_that_loses_a_node_starts_again_whole_elsewhere(
    tenant: Tenant, something: Callable[[Tenant, str], None]
) -> None:
    tenant.create(torch_job("runs", workers=5, gpus=2))
    tenant.await_phase("runs", "Running")
    first = tenant.pods("runs")
    hit = min(set(nodes_of(first).values()))
    something(tenant, hit)
    try:
        status = tenant.eventually(
            lambda: tenant.status("runs"),
            lambda status: status.get("attempt") == 1 and status["phase"] == "Running",
        )
    finally:
        if something is begins_to_fail:
            tenant.cluster.kubectl("annotate", "node", hit, "fake.bireme.dev/not-ready-")
    assert (status["interruptions"], status.get("restarts", 0)) == (1, 0)
    pods = tenant.pods("runs")
    assert len(nodes_of(pods)) == 6
    assert hit not in nodes_of(pods).values()
    assert set(uids_of(first).values()).isdisjoint(uids_of(pods).values())


def test_running_gang_stays_on_a_node_that_is_only_cordoned(tenant: Tenant) -> None:
    fake = annotations(duration="6s")  # a slow machine must see it run
    tenant.create(torch_job("stays", workers=1, fake=fake))
    tenant.await_phase("stays", "Running")
    for node in set(nodes_of(tenant.pods("stays")).values()):
        cordons(tenant, node)
    assert tenant.await_phase("stays", "Succeeded")["attempt"] == 0


def test_running_gang_that_loses_one_pod_starts_again_whole(tenant: Tenant) -> None:
    tenant.create(torch_job("robbed", workers=3))
    tenant.await_phase("robbed", "Running")
    first = uids_of(tenant.pods("robbed"))
    tenant.delete("Pod", "robbed-worker-1")
    status = tenant.eventually(
        lambda: tenant.status("robbed"),
        lambda status: status.get("attempt") == 1 and status["phase"] == "Running",
    )
    assert (status["interruptions"], status.get("restarts", 0)) == (1, 0)
    assert "PodLost" in [reason for _, reason, _ in tenant.events("robbed")]
    assert set(first.values()).isdisjoint(uids_of(tenant.pods("robbed")).values())


def test_interrupted_gang_goes_before_jobs_that_came_after_it(tenant: Tenant) -> None:
    tenant.create(training_job("older", task(replicas=24)))
    tenant.await_phase("older", "Running")
    later: list[Manifest] = [training_job(f"later-{n}", task(replicas=8)) for n in range(3)]
    tenant.create(*later)
    for number in range(3):
        tenant.await_reason(f"later-{number}", "WaitingForCapacity")
    tenant.delete("Pod", "older-worker-7")
    status = tenant.eventually(
        lambda: tenant.status("older"),
        lambda status: status.get("attempt") == 1 and status["phase"] == "Running",
    )
    assert status["ready"] == "24/24"
    assert [tenant.status(f"later-{n}")["phase"] for n in range(3)] == ["Pending"] * 3


def test_gang_that_lost_a_node_owns_the_hole_whatever_else_waits_for_it(tenant: Tenant) -> None:
    tenant.create(priority_class("above-all", 1000))
    tenant.create(training_job("beside", task(replicas=8)), training_job("hit", task(replicas=16)))
    for name in ("beside", "hit"):
        tenant.await_phase(name, "Running")
    tenant.create(training_job("urgent", task(replicas=16), priorityClassName="above-all"))
    tenant.await_reason("urgent", "WaitingForCapacity")
    deletes(tenant, min(set(nodes_of(tenant.pods("hit")).values())))
    tenant.eventually(
        lambda: tenant.status("hit"),
        lambda status: status["phase"] == "Restarting" and status.get("queuePosition") == 1,
    )
    restore_nodes(tenant.cluster)
    tenant.eventually(
        lambda: tenant.status("hit"),
        lambda status: status.get("attempt") == 1 and status["phase"] == "Running",
    )
    assert tenant.status("urgent")["phase"] == "Pending"
