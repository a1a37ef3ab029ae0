"""Gangs that the real kube-scheduler refuses: their places go back, and an equal one starts."""

import time
from collections.abc import Iterator

import pytest

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import Manifest, pod_spec, task, training_job
from tests.support.scenario.tenant import Tenant
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("failed-starts", tmp_path_factory.mktemp("stack"), nodes=1) as stack:
        yield stack


def with_host_port() -> Manifest:
    spec = pod_spec(gpus=4)
    spec["containers"][0]["ports"] = [{"containerPort": 8888, "hostPort": 8888}]
    return spec


def test_a_gang_that_needs_one_port_twice_on_one_node_holds_nothing(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(training_job("ports", task(replicas=2, spec=with_host_port())))
    tenant.eventually(lambda: tenant.plan("ports"))
    began = time.monotonic()
    tenant.create(training_job("equal", task(replicas=2, gpus=4)))
    tenant.await_phase("equal", "Running")
    assert time.monotonic() - began < 10.0
    paused = tenant.status("ports")
    assert (paused["phase"], paused["reason"]) == ("Restarting", "Unschedulable")
    assert "didn't have free ports for the requested pod ports" in paused["message"]
    assert (paused["startFailures"], paused["interruptions"]) == (1, 1)
    assert (tenant.plan("ports"), tenant.pods("ports")) == (None, [])

    # The next operator knows the pause by the status alone.
    stack.operator().terminate()
    stack.operator().start().wait_ready()
    tenant.delete("TrainingJob", "equal")
    tenant.create(training_job("next", task(replicas=2, gpus=4)))
    tenant.await_phase("next", "Running")
    still = tenant.status("ports")
    assert (still["retryTime"], still["attempt"]) == (paused["retryTime"], paused["attempt"])

    # What is edited so that it fits is tried at once.
    tenant.delete("TrainingJob", "next")
    began = time.monotonic()
    fixed = training_job("ports", task(replicas=2, gpus=4))["spec"]
    tenant.patch("TrainingJob", "ports", {"spec": fixed})
    assert "startFailures" not in tenant.await_phase("ports", "Running")
    assert time.monotonic() - began < 10.0
