"""Queues, and which gangs are in them, are changed by kubectl while gangs run: the real thing."""

import json
from collections.abc import Iterator

import pytest

from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    GPU,
    Manifest,
    pod,
    pod_group,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, uids_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]
ENV = {"BIREME_MIN_RUNTIME_SECONDS": "0"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("queues", tmp_path_factory.mktemp("stack"), ENV) as stack:
        yield stack


@pytest.fixture
def queues(tenant: Tenant) -> Iterator[str]:
    """A prefix of queues, which are gone after the test."""
    prefix = tenant.namespace
    yield prefix
    tenant.clear()
    every = tenant.cluster.api.get(tenant.path("Queue"))["items"]
    for name in (q["metadata"]["name"] for q in every):
        if name.startswith(prefix):
            tenant.delete("Queue", name)


def apply(tenant: Tenant, *manifests: Manifest) -> None:
    for manifest in manifests:
        tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(manifest))


def condition(tenant: Tenant, name: str) -> tuple[str, str]:
    """Return reason and message of the condition Admitting of a queue."""
    given = (tenant.find("Queue", name) or {}).get("status", {}).get("conditions") or [{}]
    return given[0].get("reason", ""), given[0].get("message", "")


def usage(tenant: Tenant, name: str) -> str:
    found: str = tenant.get("Queue", name).get("status", {}).get("usage", {}).get(GPU, "0")
    return found


def refusal_of_move(tenant: Tenant, kind: str, name: str, to: str) -> str:
    with pytest.raises(ControlPlaneError) as refused:
        tenant.patch(kind, name, {"spec": {"queue": to}})
    return str(refused.value)


def test_what_waits_is_moved_by_an_edit_and_what_runs_is_refused_in_words(
    tenant: Tenant, queues: str
) -> None:
    full, free = f"{queues}-full", f"{queues}-free"
    apply(tenant, queue(full, limit={GPU: "0"}), queue(free))
    member = pod("member")
    member["metadata"]["labels"] = {"bireme.dev/pod-group": "group"}
    member["spec"] |= {"schedulerName": "bireme", "schedulingGates": [{"name": "bireme.dev/plan"}]}
    tenant.create(training_job("job", task(replicas=2), queue=full))
    tenant.create(pod_group("group", 1, queue=full))
    tenant.create(member)
    tenant.await_reason("job", "NeverFits")
    tenant.await_group("group", reason="NeverFits")

    tenant.patch("TrainingJob", "job", {"spec": {"queue": free}})
    tenant.patch("PodGroup", "group", {"spec": {"queue": free}})
    assert tenant.await_phase("job", "Running")["queue"] == free
    assert tenant.await_group("group", phase="Running")["queue"] == free
    tenant.eventually(lambda: usage(tenant, free), lambda used: used == "3")
    assert {p["metadata"]["labels"]["bireme.dev/queue"] for p in tenant.pods()} == {free}

    words = refusal_of_move(tenant, "TrainingJob", "job", full)
    assert f"spec.queue cannot change from {free} to {full} while the job is Running" in words
    assert "suspend it first (spec.runPolicy.suspend: true)" in words
    words = refusal_of_move(tenant, "PodGroup", "group", full)
    assert f"spec.queue cannot change from {free} to {full} while the gang has its places" in words

    tenant.patch("TrainingJob", "job", {"spec": {"runPolicy": {"suspend": True}}})
    tenant.await_phase("job", "Suspended")
    tenant.patch("TrainingJob", "job", {"spec": {"queue": "default"}})
    tenant.patch("TrainingJob", "job", {"spec": {"runPolicy": {"suspend": False}}})
    assert tenant.await_phase("job", "Running")["queue"] == "default"
    tenant.eventually(lambda: usage(tenant, free), lambda used: used == "1")


def test_a_preempted_job_that_waits_to_start_again_is_moved_too(
    tenant: Tenant, queues: str
) -> None:
    apply(tenant, queue(queues), priority_class(f"{queues}-high", 1000))
    tenant.create(training_job("low", task(replicas=16)))
    tenant.await_phase("low", "Running")
    high = training_job("high", task(replicas=16), priorityClassName=f"{queues}-high")
    tenant.create(high)
    tenant.await_phase("high", "Running")
    tenant.await_reason("low", "WaitingForCapacity")
    assert tenant.status("low")["phase"] == "Restarting"
    tenant.patch("TrainingJob", "low", {"spec": {"queue": queues}})
    tenant.eventually(lambda: tenant.status("low"), lambda s: s["queue"] == queues)
    tenant.delete("TrainingJob", "high")
    assert tenant.await_phase("low", "Running")["plan"]["queue"] == queues


def test_a_limit_below_what_runs_lets_it_run_and_nothing_start(tenant: Tenant, queues: str) -> None:
    apply(tenant, queue(queues, limit={GPU: "8"}))
    tenant.create(training_job("runs", task(replicas=4), queue=queues))
    tenant.await_phase("runs", "Running")
    before = uids_of(tenant.pods("runs"))
    tenant.patch("Queue", queues, {"spec": {"limit": {GPU: "2"}}})
    tenant.create(training_job("waits", task(), queue=queues))
    tenant.await_reason("waits", "OverQueueLimit")
    left = "no gang starts until it uses less, and running gangs continue"
    words = f"uses 4 {GPU} of limit 2 {GPU}: {left}"
    tenant.eventually(lambda: condition(tenant, queues), lambda c: c == ("OverQueueLimit", words))
    tenant.create(training_job("beside", task(replicas=8)))
    tenant.await_phase("beside", "Running")
    running = "the pods that ran before"
    always(lambda: uids_of(tenant.pods("runs")), lambda pods: pods == before, 3.0, what=running)
    assert tenant.status("runs")["phase"] == "Running"
    tenant.delete("TrainingJob", "runs")
    tenant.await_phase("waits", "Running")
    tenant.eventually(lambda: condition(tenant, queues)[0], lambda reason: reason == "Admitting")


def test_a_deleted_queue_stops_nothing_and_takes_its_jobs_back_when_it_is_made_anew(
    tenant: Tenant, queues: str, stack: BiremeStack
) -> None:
    parent, child = f"{queues}-org", f"{queues}-lab"
    apply(tenant, queue(parent), queue(child, parent=parent, limit={GPU: "4"}))
    tenant.create(training_job("runs", task(replicas=4), queue=child))
    tenant.await_phase("runs", "Running")
    tenant.create(training_job("waits", task(replicas=4), queue=child))
    tenant.await_reason("waits", "OverQueueLimit")
    before = uids_of(tenant.pods("runs"))

    tenant.delete("Queue", child)
    found = tenant.await_reason("waits", "QueueNotFound")
    assert found["message"].startswith(
        f"queue '{child}' does not exist; create it or set spec.queue to one of: "
    )
    tenant.create(training_job("beside", task(replicas=12)))
    tenant.await_phase("beside", "Running")
    assert uids_of(tenant.pods("runs")) == before
    # A new leader knows as much of what runs in a queue that is gone.
    operator = stack.operator()
    operator.terminate()
    operator.start()
    operator.wait_ready(90.0)
    tenant.create(training_job("full"))
    tenant.await_reason("full", "WaitingForCapacity")
    tenant.delete("TrainingJob", "full")

    apply(tenant, queue(child, parent=parent, limit={GPU: "4"}))
    tenant.await_reason("waits", "OverQueueLimit")
    tenant.eventually(lambda: usage(tenant, child), lambda used: used == "4")
    tenant.delete("Queue", parent)
    found = tenant.await_reason("waits", "QueueInvalid")
    assert f"parent of queue '{child}' is '{parent}', which does not exist" in found["message"]
    assert uids_of(tenant.pods("runs")) == before
    tenant.delete("TrainingJob", "runs")
    apply(tenant, queue(parent))
    tenant.await_phase("waits", "Running")
