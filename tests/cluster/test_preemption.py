"""Preemption on the real control plane: whole gangs stop, budgets hold, and all run in the end."""

from collections.abc import Iterator

import pytest

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import (
    POD_GROUP_LABEL,
    Manifest,
    disruption_budget,
    priority_class,
    task,
    training_job,
)
from tests.support.scenario.tenant import Tenant, nodes_of, uids_of
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("preemption", folder, {"BIREME_MIN_RUNTIME_SECONDS": "0"}) as stack:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        stack.cluster.api.post(classes, priority_class("high", 1000))
        yield stack


def urgent(workers: int) -> Manifest:
    return training_job("urgent", task("worker", workers), priorityClassName="high")


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
    message = f"stopped to make room for {tenant.namespace}/urgent"
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


def test_tenants_who_compete_learn_no_name_of_each_other(
    stack: BiremeStack, tenant: Tenant
) -> None:
    """Their texts are judged with the history; here is that there was something to tell."""
    with Tenant.staying(stack.cluster, stack.log_tails) as rival:
        tenant.create(training_job("holder-1", task("worker", 16)))
        tenant.await_phase("holder-1", "Running")
        first, second = (
            training_job(name, task("worker", 12), priorityClassName="high")
            for name in ("rival-1", "rival-2")
        )
        rival.create(first)
        rival.await_phase("rival-1", "Running")
        message = "stopped to make room for a job of another namespace"
        tenant.eventually(
            lambda: tenant.events("holder-1"),
            lambda events: ("Normal", "Preempted", message) in events,
        )
        rival.create(second)
        tenant.create(training_job("small-1", task("worker", 4)))
        rival.await_reason("rival-2", "WaitingForCapacity")
        tenant.eventually(
            lambda: tenant.status("small-1"),
            lambda status: "kept for a job of another namespace" in status.get("message", ""),
        )


def test_gang_that_its_budget_protects_runs_on_and_another_one_stops(tenant: Tenant) -> None:
    for name in ("open", "guarded"):
        tenant.create(training_job(name, task("worker", 8)))
        tenant.await_phase(name, "Running")
    before = uids_of(tenant.pods("guarded"))
    tenant.create(disruption_budget("guard", 8, **{POD_GROUP_LABEL: "guarded"}))
    tenant.eventually(
        lambda: tenant.status("guard", "PodDisruptionBudget"),
        lambda status: status.get("currentHealthy") == 8,
    )
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
