"""Every reason a job can wait or stop for, in its own words on the object, and how it ends."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    pod_spec,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("reasons", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def test_job_of_an_unknown_queue_runs_once_the_queue_exists(tenant: Tenant) -> None:
    tenant.create(training_job("lost", queue="research"))
    status = tenant.await_reason("lost", "QueueNotFound")
    assert status["message"] == (
        "queue 'research' does not exist; create it or set spec.queue to one of: default"
    )
    assert "queuePosition" not in status
    tenant.create(queue("research"))
    tenant.await_phase("lost", "Running")


def test_job_of_a_closed_queue_waits_and_what_runs_there_goes_on(tenant: Tenant) -> None:
    tenant.create(queue("night"), training_job("early", queue="night"))
    tenant.await_phase("early", "Running")
    tenant.patch("Queue", "night", {"spec": {"state": "Closed"}})
    tenant.eventually(lambda: tenant.get("Queue", "night")["spec"]["state"] == "Closed")
    tenant.create(training_job("late", queue="night"))
    assert "'night' is closed" in tenant.await_reason("late", "QueueClosed")["message"]
    assert tenant.status("early")["phase"] == "Running"
    tenant.patch("Queue", "night", {"spec": {"state": "Open"}})
    tenant.await_phase("late", "Running")


def test_queue_that_selects_other_namespaces_is_forbidden(tenant: Tenant) -> None:
    selector = {"matchLabels": {"team": "vision"}}
    tenant.create(
        queue("vision", namespaceSelector=selector), training_job("guest", queue="vision")
    )
    status = tenant.await_reason("guest", "QueueForbidden")
    assert f"does not admit namespace '{tenant.namespace}'" in status["message"]
    tenant.cluster.kubectl("label", "namespace", tenant.namespace, "team=vision")
    tenant.await_phase("guest", "Running")


def test_job_of_a_missing_priority_class_runs_once_the_class_exists(tenant: Tenant) -> None:
    tenant.create(training_job("vip", priorityClassName="board"))
    status = tenant.await_reason("vip", "PriorityClassNotFound")
    assert "PriorityClass 'board' does not exist" in status["message"]
    tenant.create(priority_class("board", 1000))
    tenant.await_phase("vip", "Running")


def test_gang_larger_than_the_cluster_is_shown_the_largest_that_fits(tenant: Tenant) -> None:
    tenant.create(training_job("vast", task(replicas=17)))
    status = tenant.await_reason("vast", "NeverFits")
    assert "at most 16" in status["message"]
    assert "lower replicas to 16 or add nodes" in status["message"]
    tenant.create(training_job("heavy", task(gpus=9)))
    heavy = tenant.await_reason("heavy", "NeverFits")["message"]
    assert "asks 9 nvidia.com/gpu; the largest node it may use offers 8" in heavy
    tenant.cluster.add_nodes(fake_nodes(1, racks=1, prefix="extra"))
    try:
        tenant.await_phase("vast", "Running")
    finally:
        tenant.clear()
        tenant.delete("Node", "extra-00")


def test_waiting_job_says_what_it_asks_what_is_free_and_what_is_missing(tenant: Tenant) -> None:
    tenant.create(training_job("first", task(replicas=12), runPolicy={"resumable": True}))
    tenant.await_phase("first", "Running")
    tenant.create(training_job("second", task(replicas=6), task("ps")))
    status = tenant.await_reason("second", "WaitingForCapacity")
    text, _, moment = status["message"].rpartition("; may preempt more gangs from ")
    assert text == (
        "asks 7 nvidia.com/gpu as 6 worker + 1 ps; 4 nvidia.com/gpu free on nodes it may use; 3 "
        "nvidia.com/gpu missing; 0 ahead; kept for it: node gpu-00, free when the gangs there end"
    )
    assert moment.endswith("Z on")
    assert (status["queuePosition"], status["ready"], status["gpus"]) == (1, "0/7", 7)
    assert tenant.pods("second") == []
    tenant.delete("TrainingJob", "first")
    tenant.await_phase("second", "Running")


NOT_THERE = 'spec.containers[0].volumeMounts[0].name: Not found: "data"'


def mounts_what_is_not_there() -> Manifest:
    spec = pod_spec()
    spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return spec


def test_template_the_api_server_refuses_is_shown_and_its_correction_runs(tenant: Tenant) -> None:
    tenant.create(training_job("wrong", task(spec=mounts_what_is_not_there())))
    status = tenant.await_reason("wrong", "TemplateInvalid")
    assert NOT_THERE in status["message"]
    assert tenant.pods("wrong") == []
    tenant.eventually(lambda: tenant.plan("wrong"), lambda plan: plan is None)
    spec = mounts_what_is_not_there() | {"volumes": [{"name": "data", "emptyDir": {}}]}
    fixed = training_job("wrong", task(spec=spec))["spec"]
    tenant.patch("TrainingJob", "wrong", {"spec": fixed})
    tenant.await_phase("wrong", "Running")


def test_template_of_a_job_that_waits_is_judged_while_it_waits(tenant: Tenant) -> None:
    tenant.create(training_job("full", task(replicas=16)))
    tenant.await_phase("full", "Running")
    tenant.create(training_job("behind", task(spec=mounts_what_is_not_there())))
    assert NOT_THERE in tenant.await_reason("behind", "TemplateInvalid")["message"]


@pytest.fixture
def hasty(stack: BiremeStack) -> Iterator[None]:
    """An operator that waits for the scheduler so short that a slow one would not do elsewhere."""
    hasty = {"BIREME_BIND_TIMEOUT_SECONDS": "6"}
    usual = dict(stack.operator().env)
    stack.operator().terminate()
    stack.operator(env=hasty).start().wait_ready()
    yield
    stack.operator().terminate()
    stack.operator().env.clear()
    stack.operator(env=usual).start().wait_ready()


@pytest.mark.usefixtures("hasty")
def test_gang_of_which_the_scheduler_says_nothing_is_planned_again_and_has_not_failed(
    stack: BiremeStack, tenant: Tenant
) -> None:
    stack.scheduler.pause()
    try:
        tenant.create(training_job("stuck", task(replicas=2)))
        tenant.eventually(
            lambda: [e[1] for e in tenant.events("stuck")],
            lambda reasons: "GangNotBoundInTime" in reasons,
        )
        before = uids_of(tenant.pods("stuck"))
        plan = tenant.eventually(
            lambda: tenant.plan("stuck"), lambda plan: plan and plan["attempt"] == 2
        )
        assert plan["mode"] == "Pinned"
        status = tenant.status("stuck")
        assert (status["interruptions"], status.get("restarts", 0)) == (2, 0), "no fault of its own"
        assert "startFailures" not in status
    finally:
        stack.scheduler.resume()
    tenant.await_phase("stuck", "Running")
    assert set(before.values()).isdisjoint(uids_of(tenant.pods("stuck")).values())


def test_running_gang_whose_node_is_deleted_starts_again_as_a_whole(tenant: Tenant) -> None:
    tenant.cluster.add_nodes(fake_nodes(1, gpus=8, racks=1, prefix="spare"))
    tenant.create(training_job("moved", task(replicas=3)))
    tenant.await_phase("moved", "Running")
    before = tenant.pods("moved")
    (node,) = set(nodes_of(before).values())
    tenant.delete("Node", node)
    status = tenant.eventually(
        lambda: tenant.status("moved"), lambda s: s.get("attempt") == 1 and s["phase"] == "Running"
    )
    assert (status["interruptions"], status.get("restarts", 0)) == (1, 0)
    assert "NodeLost" in [reason for _, reason, _ in tenant.events("moved")]
    after = tenant.pods("moved")
    assert len(after) == 3
    assert set(uids_of(before).values()).isdisjoint(uids_of(after).values())
    assert node not in nodes_of(after).values()


def test_messages_repeat_as_one_event_with_a_count(tenant: Tenant) -> None:
    fake = annotations(duration="300ms", fail_attempts="0,1,2,3,4,5,6,7,8,9")
    tenant.create(training_job("loops", task(fake=fake), runPolicy={"backoffLimit": 4}))
    assert tenant.await_phase("loops", "Failed")["restarts"] == 4
    reasons = [reason for _, reason, _ in tenant.events("loops")]
    assert reasons.count("PodFailed") == 1


def test_a_script_waits_for_the_end_as_the_page_of_reasons_says(tenant: Tenant) -> None:
    tenant.create(training_job("short", task(fake=annotations(duration="1s"))))
    (command,) = re.findall(r"^kubectl (wait .*)$", PAGE.read_text(), re.MULTILINE)
    words = command.replace("NAME", "short").replace("24h", "60s").split()
    for condition in ("Finished", "Succeeded"):
        asked = [word.replace("Finished", condition) for word in words]
        printed = tenant.cluster.kubectl(*asked, f"--namespace={tenant.namespace}")
        assert printed == "trainingjob.bireme.dev/short condition met\n"
