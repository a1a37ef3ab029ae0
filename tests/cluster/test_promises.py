"""Promises broken by hand on the real control plane: the judge of every module sees them."""

from pathlib import Path

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import task, training_job
from testbed.scenario.promises import BrokenPromisesError
from testbed.scenario.tenant import Tenant, nodes_of

pytestmark = pytest.mark.cluster


def bind_elsewhere(stack: BiremeStack, tenant: Tenant) -> None:
    """Bind a planned pod by hand onto the other of two nodes."""
    stack.scheduler.pause()
    tenant.create(training_job("moved", task(replicas=2)))
    tenant.eventually(lambda: len(tenant.pods("moved")) == 2)
    (planned,) = (tenant.plan("moved") or {})["placements"]
    other = {"gpu-00": "gpu-01", "gpu-01": "gpu-00"}[planned["node"]]
    path = f"{tenant.path('Pod', 'moved-worker-0')}/binding"
    target = {"apiVersion": "v1", "kind": "Node", "name": other}
    tenant.cluster.api.post(path, {"metadata": {"name": "moved-worker-0"}, "target": target})
    stack.scheduler.resume()


def keep_a_part(stack: BiremeStack, tenant: Tenant) -> None:
    """Take a pod of a running gang away while nobody sees to the rest."""
    tenant.create(training_job("torn", task(replicas=3)))
    tenant.await_phase("torn", "Running")
    stack.operator().kill()
    tenant.delete("Pod", "torn-worker-1", grace_seconds=0)
    tenant.eventually(lambda: len(nodes_of(tenant.pods("torn"))) == 2)


def break_both(folder: Path) -> None:
    with gpu_stack("planted", folder, grace_seconds=8.0) as stack:
        with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
            bind_elsewhere(stack, tenant)
            tenant.await_phase("moved", "Running")
        with pytest.raises(BrokenPromisesError, match=r"not come to rest.*gang-partial: .*/torn"):
            end_torn(stack)


def end_torn(stack: BiremeStack) -> None:
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        keep_a_part(stack, tenant)


def test_a_pod_bound_elsewhere_and_a_gang_left_in_part_are_reported_with_their_test(
    tmp_path: Path,
) -> None:
    with pytest.raises(BrokenPromisesError) as judged:
        break_both(tmp_path)
    here = "during tests/cluster/test_promises.py::test_a_pod_bound_elsewhere"
    found = [line for line in str(judged.value).splitlines() if here in line]
    for start, words in (
        ("off-plan: ", "/moved: moved-worker-0 is"),
        ("gang-partial: ", "/torn: "),
    ):
        assert any(line.startswith(start) and words in line for line in found), judged.value
