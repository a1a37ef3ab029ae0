"""Parts of the system taken away and given back while jobs come: nothing is lost, nothing stays."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.faultproxy import FaultProxy
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import annotations, pod, task, torch_job, training_job
from testbed.scenario.tenant import Tenant, nodes_of, uids_of
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

OUTAGE_SECONDS = 20.0
RECOVERY_SECONDS = 90.0
"""kube-scheduler tries to watch again only every 30 s after a long outage."""
# A kube-scheduler that was killed leads again when its Lease has run out: 15 s from its new start.
SETTINGS = {"BIREME_BIND_TIMEOUT_SECONDS": "40"}
SHORT_LEASE = {"lease_duration_seconds": 3}
LONG_LEASE = {"lease_duration_seconds": 60}


@dataclass(frozen=True)
class Site:
    """The stack, kept running as a kubelet would, its operator behind a proxy."""

    stack: BiremeStack
    proxy: FaultProxy
    keeper: Keeper


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        cluster = enter(gpu_cluster("outages", nodes=3))
        folder = tmp_path_factory.mktemp("stack")
        proxy = enter(FaultProxy(cluster.kubeconfig))
        kubeconfigs = {"operator-a": proxy.kubeconfig}
        stack = BiremeStack(cluster, folder, SETTINGS, kubeconfigs, internals=SHORT_LEASE)
        enter(stack).start()
        yield Site(stack, proxy, enter(Keeper(stack.processes)))


@pytest.fixture
def tenant(site: Site) -> Iterator[Tenant]:
    with Tenant.staying(site.stack.cluster, site.stack.log_tails) as tenant:
        yield tenant


def test_planned_gangs_are_bound_while_the_extender_is_away(site: Site, tenant: Tenant) -> None:
    with site.keeper.leaves_alone(site.stack.extender):
        site.stack.extender.kill()
        tenant.create(torch_job("without"))
        tenant.await_phase("without", "Running")
        planned = {p["node"] for p in (tenant.plan("without") or {})["placements"]}
        assert set(nodes_of(tenant.pods("without")).values()) == planned
    site.stack.extender.wait_ready()
    tenant.create(torch_job("with"))
    tenant.await_phase("with", "Running")


def test_extender_killed_again_and_again_while_gangs_come(site: Site, tenant: Tenant) -> None:
    names = [f"job-{n}" for n in range(6)]
    for number, name in enumerate(names):
        tenant.create(torch_job(name, workers=1, fake=annotations(duration="3s")))
        if number % 2:
            site.stack.extender.kill()
            eventually(lambda: site.stack.extender.running, explain=site.stack.log_tails)
    for name in names:
        done = tenant.await_phase(name, "Succeeded", RECOVERY_SECONDS)
        assert (done["attempt"], done.get("restarts", 0)) == (0, 0)


def test_gang_waits_for_a_killed_scheduler_and_is_not_replanned(site: Site, tenant: Tenant) -> None:
    scheduler = site.stack.scheduler
    with site.keeper.leaves_alone(scheduler):
        scheduler.kill()
        tenant.create(torch_job("unbound"))
        tenant.eventually(lambda: tenant.pods("unbound"), lambda pods: len(pods) == 4)
        first = uids_of(tenant.pods("unbound"))
        assert tenant.await_phase("unbound", "Starting")["reason"] == "Admitted"
    assert tenant.await_phase("unbound", "Running")["attempt"] == 0
    assert uids_of(tenant.pods("unbound")) == first


def test_what_was_planned_starts_and_ends_while_the_operator_is_away(
    site: Site, tenant: Tenant
) -> None:
    operator, scheduler = site.stack.operator(), site.stack.scheduler
    with site.keeper.leaves_alone(operator):
        with site.keeper.leaves_alone(scheduler):
            scheduler.kill()
            tenant.create(torch_job("planned", workers=1, fake=annotations(duration="2s")))
            tenant.eventually(lambda: tenant.pods("planned"), lambda pods: len(pods) == 2)
            operator.kill()
        tenant.create(torch_job("new", workers=1))
        tenant.eventually(
            lambda: {pod["status"]["phase"] for pod in tenant.pods("planned")},
            lambda phases: phases == {"Succeeded"},
            RECOVERY_SECONDS,
        )
        assert "status" not in tenant.get("TrainingJob", "new")
    assert tenant.await_phase("planned", "Succeeded")["attempt"] == 0
    tenant.await_phase("new", "Running")


def test_jobs_submitted_right_after_an_outage_of_the_api_server_run(
    site: Site, tenant: Tenant
) -> None:
    tenant.create(torch_job("before"), training_job("ends", task(fake=annotations("5s"))))
    tenant.await_phase("before", "Running")
    kept = uids_of(tenant.pods("before"))
    server = tenant.cluster.component("kube-apiserver")
    server.stop()
    time.sleep(OUTAGE_SECONDS)  # what is tested is an outage of this length
    server.start()
    tenant.create(*(torch_job(f"after-{n}", workers=1) for n in range(3)))
    for number in range(3):
        tenant.await_phase(f"after-{number}", "Running", RECOVERY_SECONDS)
    assert tenant.await_phase("ends", "Succeeded").get("restarts", 0) == 0
    assert tenant.status("before")["phase"] == "Running"
    assert uids_of(tenant.pods("before")) == kept
    assert tenant.status("before").get("interruptions", 0) == 0


@pytest.fixture
def blind(site: Site) -> Iterator[Site]:
    """A site whose operator has a lease long enough to be cut off for a while and still lead."""
    operator = site.stack.operator()

    def restart_with(lease: dict[str, int]) -> None:
        with site.keeper.leaves_alone(operator):
            operator.terminate()
            site.stack.operator(internals=lease)
        operator.wait_ready()

    restart_with(LONG_LEASE)
    yield site
    site.proxy.release()
    restart_with(SHORT_LEASE)


def test_what_changed_while_the_watches_expired_leaves_no_ghosts(
    blind: Site, tenant: Tenant
) -> None:
    fillers = [pod(f"filler-{n}", gpus=8) for n in range(2)]
    tenant.create(*fillers)
    tenant.eventually(lambda: len(nodes_of(tenant.pods())) == 2)
    with blind.keeper.leaves_alone(blind.stack.scheduler):
        blind.stack.scheduler.kill()
        tenant.create(torch_job("planned", workers=3))
        tenant.eventually(lambda: tenant.pods("planned"), lambda pods: len(pods) == 4)
        (node,) = {p["node"] for p in (tenant.plan("planned") or {})["placements"]}
        tenant.create(training_job("waiting", task(replicas=8)))
        tenant.await_reason("waiting", "WaitingForCapacity")
        pid = blind.stack.operator().pid
        blind.proxy.hold()
        tenant.delete("Node", node)
        for name in ("filler-0", "filler-1"):
            tenant.delete("Pod", name, grace_seconds=0)
            tenant.await_gone("Pod", name)
        tenant.cluster.expire_watches()
        blind.proxy.cut_watches()
        blind.proxy.release()
        tenant.eventually(
            lambda: tenant.plan("planned"), lambda plan: plan and plan["attempt"] == 1
        )
    for name in ("planned", "waiting"):
        tenant.await_phase(name, "Running", RECOVERY_SECONDS)
        assert node not in nodes_of(tenant.pods(name)).values()
    assert len(nodes_of(tenant.pods())) == 12
    assert tenant.status("planned").get("restarts", 0) == 0
    assert blind.stack.operator().pid == pid, "it relisted; it was not started again"
