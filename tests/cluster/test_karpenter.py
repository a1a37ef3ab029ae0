"""Karpenter's static node pools as Bireme finds them: what a change of ``replicas`` does to nodes.

The last two tests are why the operator never lowers a pool below what it needs: Karpenter takes
empty nodes first, and busy ones when those do not suffice.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme_lab.embedded.fake_nodes import GPU
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.karpenter import karpenter, static_pool
from testbed.scenario.clusters import bare_cluster
from testbed.scenario.manifests import pod_spec
from testbed.scenario.pools import await_nodes, nodes_of_pool
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("karpenter")
    with bare_cluster("karpenter") as cluster, karpenter(cluster, folder):
        yield cluster


@pytest.fixture
def tenant(pools: Cluster) -> Iterator[Tenant]:
    with Tenant.staying(pools) as tenant:
        yield tenant


def pool(tenant: Tenant, name: str, replicas: int) -> None:
    tenant.create(*static_pool(name, replicas))


def scale(tenant: Tenant, name: str, replicas: int) -> None:
    tenant.cluster.kubectl("scale", "nodepool", name, f"--replicas={replicas}")


def run_on(tenant: Tenant, node: str, name: str) -> None:
    """A running pod that was put there by hand."""
    spec = pod_spec(nodeName=node)
    tenant.create({"kind": "Pod", "metadata": {"name": name}, "spec": spec})
    tenant.eventually(lambda: tenant.status(name, "Pod")["phase"] == "Running")


def test_scaled_pool_makes_nodes_of_eight_gpus_and_removes_them(tenant: Tenant) -> None:
    pool(tenant, "scaled", 0)
    scale(tenant, "scaled", 3)
    made = await_nodes(tenant, "scaled", 3)
    offered = [node["status"]["allocatable"] for node in nodes_of_pool(tenant, "scaled")]
    assert [resources[GPU] for resources in offered] == ["8"] * 3
    tenant.eventually(lambda: tenant.status("scaled", "NodePool")["nodes"] == 3)  # seconds later
    scale(tenant, "scaled", 1)
    assert await_nodes(tenant, "scaled", 1) < made


def test_pool_that_shrinks_gives_up_its_empty_nodes_first(tenant: Tenant) -> None:
    pool(tenant, "partly", 4)
    busy = sorted(await_nodes(tenant, "partly", 4))[2]
    run_on(tenant, busy, "runs")
    scale(tenant, "partly", 1)
    assert await_nodes(tenant, "partly", 1) == {busy}
    assert tenant.status("runs", "Pod")["phase"] == "Running"


def test_pool_below_its_busy_nodes_stops_what_runs_there(tenant: Tenant) -> None:
    pool(tenant, "busy", 2)
    for number, node in enumerate(await_nodes(tenant, "busy", 2)):
        run_on(tenant, node, f"pod-{number}")
    scale(tenant, "busy", 1)
    await_nodes(tenant, "busy", 1)
    assert len(tenant.pods()) == 1
