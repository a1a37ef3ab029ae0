"""Gangs that the real kube-scheduler refuses: their places go back, and an equal one starts."""

import time
from collections.abc import Iterator

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("failed-starts", tmp_path_factory.mktemp("stack"), nodes=1) as stack:
        yield stack


def with_host_port() -> Manifest:
    spec = pod_spec(gpus=4)
    spec["containers"][0]["ports"] = [{"containerPort": 8888, "hostPort": 8888}]
    return spec


def apart(job: str) -> Manifest:
    """Return a spec whose replicas need two nodes, by a rule that Bireme does not plan."""
    has_index = {"key": "bireme.dev/index", "operator": "Exists"}
    own = {"matchLabels": {"bireme.dev/training-job": job}, "matchExpressions": [has_index]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod_spec(4) | {"affinity": {"podAntiAffinity": rules}}


def test_a_port_of_the_only_node_goes_to_one_pod_at_a_time(tenant: Tenant) -> None:
    tenant.create(training_job("twice", task(replicas=2, spec=with_host_port())))
    assert "holds at most 1" in tenant.await_reason("twice", "NeverFits")["message"]
    tenant.create(training_job("first", task(spec=with_host_port())))
    tenant.await_phase("first", "Running")
    tenant.create(training_job("second", task(spec=with_host_port())))
    message = tenant.await_reason("second", "WaitingForCapacity")["message"]
    assert "host port 8888" in message
    tenant.delete("TrainingJob", "first")
    tenant.await_phase("second", "Running")
    assert tenant.status("second").get("interruptions", 0) == 0
    tenant.delete("TrainingJob", "second")


def test_a_gang_that_cannot_be_apart_on_one_node_holds_nothing(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(training_job("apart", task(replicas=2, spec=apart("apart"))))
    tenant.eventually(lambda: tenant.plan("apart"))
    began = time.monotonic()
    tenant.create(training_job("equal", task(replicas=2, gpus=4)))
    tenant.await_phase("equal", "Running")
    assert time.monotonic() - began < 10.0
    paused = tenant.status("apart")
    assert (paused["phase"], paused["reason"]) == ("Restarting", "Unschedulable")
    assert "didn't match pod anti-affinity rules" in paused["message"]
    assert (paused["startFailures"], paused["interruptions"]) == (1, 1)
    assert (tenant.plan("apart"), tenant.pods("apart")) == (None, [])

    # The next operator knows the pause by the status alone.
    stack.operator().terminate()
    stack.operator().start().wait_ready()
    tenant.delete("TrainingJob", "equal")
    tenant.create(training_job("next", task(replicas=2, gpus=4)))
    tenant.await_phase("next", "Running")
    still = tenant.status("apart")
    assert (still["retryTime"], still["attempt"]) == (paused["retryTime"], paused["attempt"])

    # What is edited so that it fits is tried at once.
    tenant.delete("TrainingJob", "next")
    began = time.monotonic()
    fixed = training_job("apart", task(replicas=2, gpus=4))["spec"]
    tenant.patch("TrainingJob", "apart", {"spec": fixed})
    assert "startFailures" not in tenant.await_phase("apart", "Running")
    assert time.monotonic() - began < 10.0
