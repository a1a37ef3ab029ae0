"""A node-maintenance window on a real control plane, from its announcement to its end."""

from collections.abc import Iterator

import pytest

from bireme.cli import main
from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import task, training_job
from tests.support.scenario.tenant import Tenant, nodes_of
from tests.support.scenario.waiting import always
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Sixteen GPUs on two nodes."""
    with gpu_stack("maintenance", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def maintenance(tenant: Tenant, *arguments: str) -> None:
    kubeconfig = f"--kubeconfig={tenant.cluster.kubeconfig}"
    assert main(["maintenance", *arguments, kubeconfig]) == 0


def test_what_would_outlast_the_start_keeps_off_and_what_is_there_then_moves_once(
    tenant: Tenant,
) -> None:
    tenant.create(training_job("there", task("worker", 8)))
    tenant.await_phase("there", "Running")
    (node,) = set(nodes_of(tenant.pods("there")).values())
    (other,) = {"gpu-00", "gpu-01"} - {node}
    # Every node is announced: nothing of unknown length starts, nothing is moved yet.
    maintenance(tenant, node, other, "--from=1h", "--until=3h")
    tenant.create(
        training_job("long", task("worker", 2)),
        training_job("short", task("worker", 2), estimatedDuration="5m"),
    )
    tenant.await_phase("short", "Running")
    assert set(nodes_of(tenant.pods("short")).values()) == {other}
    tenant.await_reason("long", "MaintenanceAhead")
    maintenance(tenant, other, "--cancel")
    tenant.await_phase("long", "Running")
    for name in ("short", "long"):
        tenant.delete("TrainingJob", name)
    # It begins where the job is: that one moves, and stays where it went.
    maintenance(tenant, node, "--until=2h")
    tenant.eventually(
        lambda: set(nodes_of(tenant.pods("there")).values()), lambda nodes: nodes == {other}
    )
    moved = tenant.await_phase("there", "Running")
    assert (moved["attempt"], moved["interruptions"]) == (1, 1)
    maintenance(tenant, node, "--cancel")
    always(lambda: tenant.status("there")["attempt"], lambda n: n == 1, 3.0, what="moved once")
