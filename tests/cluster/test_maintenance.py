"""Gangs that stop for nobody, on a real control plane: maintenance of a node, faster GPUs."""

import datetime
from collections.abc import Iterator

import pytest

from bireme.cli import main
from bireme.core.gpus import GPU_MODEL_LABEL
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import task, training_job
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]


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
    maintenance(tenant, "announce", node, other, "--from=1h", "--until=3h")
    tenant.create(
        training_job("long", task("worker", 2)),
        training_job("short", task("worker", 2), estimatedDuration="5m"),
    )
    tenant.await_phase("short", "Running")
    assert set(nodes_of(tenant.pods("short")).values()) == {other}
    tenant.await_reason("long", "MaintenanceAhead")
    maintenance(tenant, "cancel", other)
    tenant.await_phase("long", "Running")
    for name in ("short", "long"):
        tenant.delete("TrainingJob", name)
    # It begins where the job is: that one moves, and stays where it went.
    maintenance(tenant, "announce", node, "--until=2h")
    tenant.eventually(
        lambda: set(nodes_of(tenant.pods("there")).values()), lambda nodes: nodes == {other}
    )
    moved = tenant.await_phase("there", "Running")
    assert (moved["attempt"], moved["interruptions"]) == (1, 1)
    maintenance(tenant, "cancel", node)
    always(lambda: tenant.status("there")["attempt"], lambda n: n == 1, 3.0, what="moved once")


def test_who_has_run_long_on_slow_gpus_moves_once_to_faster_ones_that_come_free(
    tenant: Tenant,
) -> None:
    slow, fast = "gpu-00", "gpu-01"
    label = f"{GPU_MODEL_LABEL}=Tesla-V100-SXM2-32GB"
    tenant.cluster.kubectl("label", "--overwrite", "node", slow, label)
    tenant.create(training_job("first", task("worker", 8)))
    tenant.await_phase("first", "Running")
    tenant.create(training_job("job", task("worker", 8), runPolicy={"resumable": True}))
    tenant.await_phase("job", "Running")
    assert set(nodes_of(tenant.pods("first")).values()) == {fast}
    # As if it had run there for an hour.
    planned = datetime.datetime.fromisoformat(tenant.status("job")["plan"]["plannedTime"])
    earlier = (planned - datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    change = {"status": {"plan": {"plannedTime": earlier}}}
    tenant.patch("TrainingJob", "job", change, subresource="status")
    always(lambda: tenant.status("job")["phase"], lambda p: p == "Running", 3.0, what="no room")
    tenant.delete("TrainingJob", "first")
    tenant.eventually(
        lambda: set(nodes_of(tenant.pods("job")).values()), lambda nodes: nodes == {fast}
    )
    moved = tenant.await_phase("job", "Running")
    assert (moved["attempt"], moved["interruptions"], moved.get("preemptions", 0)) == (1, 1, 0)
    told = [message for _, reason, message in tenant.events("job") if reason == "FasterGpus"]
    assert len(told) == 1
    assert "on NVIDIA-H100-80GB-HBM3, 3.7 times as fast as Tesla-V100-SXM2-32GB" in told[0]
