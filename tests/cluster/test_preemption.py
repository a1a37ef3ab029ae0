"""Preemption on the real control plane: whole gangs stop, budgets hold, and all run in the end."""

import json
import time
from collections.abc import Iterator

import pytest

from bireme.core.settings import SchedulingSettings
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    GPU,
    POD_GROUP_LABEL,
    Manifest,
    disruption_budget,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder = tmp_path_factory.mktemp("stack")
    eager = {"BIREME_MIN_RUNTIME_SECONDS": "0", "BIREME_BUDGET_OVERRIDE_PRIORITY": "5000"}
    with gpu_stack("preemption", folder, eager) as stack:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        stack.cluster.api.post(classes, priority_class("high", 1000))
        stack.cluster.api.post(classes, priority_class("highest", 5000))
        yield stack


def urgent(workers: int) -> Manifest:
    return training_job("urgent", task("worker", workers), priorityClassName="high")


def guard(tenant: Tenant, gang: str, pods: int) -> None:
    """Return once a budget lets none of the pods of a gang go."""
    tenant.create(disruption_budget("guard", pods, **{POD_GROUP_LABEL: gang}))
    tenant.eventually(
        lambda: tenant.status("guard", "PodDisruptionBudget"),
        lambda status: status.get("currentHealthy") == pods,
    )


def test_lower_gang_stops_whole_for_a_higher_one_and_runs_again_by_itself(
    tenant: Tenant,
) -> None:
    tenant.create(training_job("low", task("worker", 16)))
    tenant.await_phase("low", "Running")
    first = uids_of(tenant.pods("low"))
    tenant.create(urgent(12))
    stopped = tenant.eventually(
        lambda: tenant.status("low"), lambda status: status.get("preemptions") == 1
    )
    assert stopped["phase"] == "Restarting"
    tenant.create(training_job("small", task("worker", 8)))
    tenant.await_phase("small", "Pending")
    tenant.await_phase("urgent", "Running")
    assert tenant.pods("low") == []
    status = tenant.eventually(lambda: tenant.status("low"), lambda seen: "queuePosition" in seen)
    counters = ("attempt", "preemptions", "restarts", "interruptions")
    assert [status.get(name, 0) for name in counters] == [1, 1, 0, 0]
    message = (
        f"stopped to make room for {tenant.namespace}/urgent, which has a higher priority class"
    )
    tenant.eventually(
        lambda: tenant.events("low"), lambda events: ("Normal", "Preempted", message) in events
    )
    assert len(nodes_of(tenant.pods("urgent"))) == 12
    assert tenant.status("small")["phase"] == "Pending", "it came between, and got nothing"
    assert tenant.pods("small") == []

    tenant.delete("TrainingJob", "small")
    tenant.delete("TrainingJob", "urgent")
    again = tenant.await_phase("low", "Running")
    assert (again["ready"], again["attempt"]) == ("16/16", 1)
    assert set(first.values()).isdisjoint(uids_of(tenant.pods("low")).values())


DELAY_SECONDS = 8.0


@pytest.fixture
def by_service(stack: BiremeStack) -> Iterator[None]:
    """An operator for which a second of 16 GPUs is much service."""

    def restart(threshold: int, delay_seconds: float) -> None:
        stack.operator().terminate()
        env = {
            "BIREME_SERVICE_THRESHOLD": f"{threshold}",
            "BIREME_ORDERER": (
                f"combined-priority?service_preemption_delay_seconds={delay_seconds:.0f}"
            ),
        }
        stack.operator(env=env).start().wait_ready()

    restart(16, DELAY_SECONDS)
    yield
    usual = SchedulingSettings()
    restart(usual.service_threshold, usual.service_preemption_delay_seconds)


@pytest.mark.usefixtures("by_service")
def test_who_has_had_less_service_stops_an_equal_one_after_the_delay(tenant: Tenant) -> None:
    tenant.create(training_job("long", task("worker", 16), runPolicy={"resumable": True}))
    tenant.await_phase("long", "Running")
    before = uids_of(tenant.pods("long"))
    began = time.monotonic()
    tenant.create(training_job("new", task("worker", 8)))
    tenant.await_reason("new", "WaitingForCapacity")
    assert uids_of(tenant.pods("long")) == before
    assert "; may preempt more gangs from 20" in tenant.status("new")["message"]
    message = f"stopped to make room for {tenant.namespace}/new, which has had less service"
    tenant.eventually(
        lambda: tenant.events("long"), lambda events: ("Normal", "Preempted", message) in events
    )
    assert time.monotonic() - began >= DELAY_SECONDS - 1, "times of the API are of whole seconds"
    tenant.await_phase("new", "Running")


def test_tenants_who_compete_learn_no_name_of_each_other(
    stack: BiremeStack, tenant: Tenant
) -> None:
    """Their texts are judged with the history; here is that there was something to tell."""
    with Tenant.staying(stack.cluster, stack.log_tails) as rival:
        tenant.create(training_job("holder-1", task("worker", 16)))
        tenant.await_phase("holder-1", "Running")
        first, second = (
            training_job(name, task("worker", workers), priorityClassName="high")
            for name, workers in (("rival-1", 12), ("rival-2", 16))
        )
        rival.create(first)
        rival.await_phase("rival-1", "Running")
        message = (
            "stopped to make room for a job of another namespace, which has a higher priority class"
        )
        tenant.eventually(
            lambda: tenant.events("holder-1"),
            lambda events: ("Normal", "Preempted", message) in events,
        )
        rival.create(second)
        rival.await_reason("rival-2", "WaitingForCapacity")
        stays = {"minRuntimeSeconds": 600}  # who says so never runs in places that are reserved
        tenant.create(training_job("small-1", task("worker", 4), runPolicy=stays))
        tenant.eventually(
            lambda: tenant.status("small-1"),
            lambda status: "kept for a job of another namespace" in status.get("message", ""),
        )
        returns = {"resumable": True}
        tenant.create(training_job("small-2", task("worker", 4), runPolicy=returns))
        lent = "in places reserved for a job of another namespace; stops when that gang fits"
        tenant.eventually(
            lambda: tenant.status("small-2").get("conditions", []),
            lambda conditions: any(lent in each["message"] for each in conditions),
        )


def test_gang_that_its_budget_protects_runs_on_and_another_one_stops(tenant: Tenant) -> None:
    for name in ("open", "guarded"):
        tenant.create(training_job(name, task("worker", 8)))
        tenant.await_phase(name, "Running")
    before = uids_of(tenant.pods("guarded"))
    guard(tenant, "guarded", 8)
    tenant.create(urgent(8))
    tenant.await_phase("urgent", "Running")
    assert uids_of(tenant.pods("guarded")) == before
    assert tenant.status("guarded")["phase"] == "Running"
    assert tenant.status("open")["preemptions"] == 1


def test_budget_with_enough_to_spare_lets_a_gang_be_evicted_pod_by_pod(tenant: Tenant) -> None:
    tenant.create(training_job("low", task("worker", 16)))
    tenant.await_phase("low", "Running")
    tenant.create(disruption_budget("loose", 0, **{POD_GROUP_LABEL: "low"}))
    tenant.eventually(
        lambda: tenant.status("loose", "PodDisruptionBudget"),
        lambda status: status.get("disruptionsAllowed") == 16,
    )
    tenant.create(urgent(16))
    tenant.await_phase("urgent", "Running")
    assert tenant.status("low")["preemptions"] == 1
    assert tenant.pods("low") == []


@pytest.mark.parametrize("claims", ["its-guarantee", "by-priority"])
def test_budget_that_keeps_all_of_a_gang_is_overridden_for_who_it_does_not_hold_against(
    tenant: Tenant, claims: str
) -> None:
    """The API server itself would refuse each eviction, for as long as the gang runs."""
    name = f"q-{tenant.namespace}"
    made = queue(name, guaranteed={GPU: "16"} if claims == "its-guarantee" else {})
    tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(made))
    try:
        tenant.create(training_job("low", task("worker", 16)))
        tenant.await_phase("low", "Running")
        guard(tenant, "low", 16)
        tenant.create(urgent(16))
        tenant.eventually(
            lambda: tenant.status("urgent"), lambda s: s.get("reason") == "WaitingForCapacity"
        )
        assert tenant.status("low")["phase"] == "Running", "it holds against who only ranks above"
        tenant.delete("TrainingJob", "urgent")
        more = {"queue": name} if claims == "its-guarantee" else {"priorityClassName": "highest"}
        tenant.create(training_job("claims", task("worker", 16), **more))
        tenant.await_phase("claims", "Running")
        status = tenant.status("low")
        assert (status["preemptions"], status["attempt"]) == (1, 1)
        words = [text for _, reason, text in tenant.events("low") if reason == "BudgetOverridden"]
        assert len(words) == 1
        assert words[0].startswith(f"stopped to make room for {tenant.namespace}/claims, ")
        assert (
            "budget guard allows 0 evictions, 16 are needed, which does not protect it" in words[0]
        )
    finally:
        for job in ("claims", "low", "urgent"):
            if tenant.find("TrainingJob", job):
                tenant.delete("TrainingJob", job)
        tenant.cluster.kubectl("delete", "queue.bireme.dev", name, "--wait=false")
