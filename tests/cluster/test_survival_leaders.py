"""Two operators, one leader: who acts, who takes over, and a leader that slept through its term."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.stack import BiremeStack
from testbed.faultproxy import FaultProxy, Write
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import annotations, task, torch_job, training_job
from testbed.scenario.operators import answer_of
from testbed.scenario.tenant import Tenant, uids_of
from testbed.scenario.waiting import always, eventually

pytestmark = pytest.mark.cluster

# One write at a time: what a leader has not sent yet when it is stopped, it must not send later.
INTERNALS = {"lease_duration_seconds": 3, "write_concurrency": 1}


@dataclass(frozen=True)
class Rivals:
    """Operators ``a`` and ``b``, each behind a proxy that counts its writes."""

    stack: BiremeStack
    proxies: dict[str, FaultProxy]

    def holder(self) -> str:
        """The one of the two that holds the lease; empty when neither does."""
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/bireme-operator"
        reply = self.stack.cluster.api.request("GET", path)
        identity = reply.json().get("spec", {}).get("holderIdentity")
        if not identity:
            return ""
        leads = [n for n in "ab" if identity in self.stack.operator(n).log_path.read_text()]
        return leads[0] if leads else ""

    def await_holder(self) -> str:
        return eventually(self.holder)

    def writes(self, name: str) -> list[Write]:
        return self.proxies[name].writes

    def standby(self, leader: str) -> str:
        return "b" if leader == "a" else "a"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with gpu_cluster("leaders", nodes=2) as started:
        yield started


@pytest.fixture
def rivals(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rivals]:
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        folder = tmp_path_factory.mktemp("stack")
        proxies = {name: enter(FaultProxy(cluster.kubeconfig)) for name in "ab"}
        kubeconfigs = {f"operator-{name}": proxy.kubeconfig for name, proxy in proxies.items()}
        stack = enter(BiremeStack(cluster, folder, kubeconfigs=kubeconfigs, internals=INTERNALS))
        stack.operator("a")
        stack.operator("b")
        yield Rivals(stack.start(), proxies)


@pytest.fixture
def tenant(rivals: Rivals) -> Iterator[Tenant]:
    logs = [rivals.stack.operator(name).log_tail for name in "ab"]
    with Tenant.staying(rivals.stack.cluster, lambda: "\n".join(log() for log in logs)) as tenant:
        yield tenant


def epoch(tenant: Tenant, name: str) -> int:
    return int((tenant.plan(name) or {})["epoch"])


def test_of_two_operators_one_acts_and_the_other_writes_nothing(
    rivals: Rivals, tenant: Tenant
) -> None:
    leader = rivals.await_holder()
    tenant.create(*(torch_job(f"job-{n}", workers=1) for n in range(4)))
    for number in range(4):
        tenant.await_phase(f"job-{number}", "Running")
    assert {epoch(tenant, f"job-{n}") for n in range(4)} == {epoch(tenant, "job-0")}
    assert rivals.writes(leader)
    assert rivals.writes(rivals.standby(leader)) == []
    assert rivals.stack.operator(rivals.standby(leader)).running


def test_standby_takes_over_from_a_killed_leader_without_touching_what_runs(
    rivals: Rivals, tenant: Tenant
) -> None:
    leader = rivals.await_holder()
    tenant.create(torch_job("before"))
    tenant.await_phase("before", "Running")
    kept, first = uids_of(tenant.pods("before")), epoch(tenant, "before")
    rivals.stack.operator(leader).kill()
    tenant.create(torch_job("after"))
    tenant.await_phase("after", "Running")
    assert epoch(tenant, "after") > first
    assert uids_of(tenant.pods("before")) == kept
    assert tenant.status("before").get("interruptions", 0) == 0


def test_leader_asked_to_stop_hands_over_at_once(rivals: Rivals, tenant: Tenant) -> None:
    leader = rivals.await_holder()
    assert rivals.stack.operator(leader).terminate() == 0
    tenant.create(training_job("next"))
    tenant.await_phase("next", "Running")


def test_paused_leader_that_wakes_up_late_writes_nothing_and_ends(
    rivals: Rivals, tenant: Tenant
) -> None:
    leader = rivals.await_holder()
    sleeper = rivals.stack.operator(leader)
    tenant.create(training_job("quick", task(fake=annotations(duration="6s"))))
    tenant.await_phase("quick", "Running")
    sleeper.pause()
    tenant.create(training_job("meanwhile"))
    tenant.await_phase("meanwhile", "Running")
    tenant.await_phase("quick", "Succeeded")
    tenant.create(training_job("for-both"))  # seen by the sleeper only when it wakes up
    written = len(rivals.writes(leader))
    sleeper.resume()
    eventually(lambda: sleeper.running, lambda running: not running, explain=sleeper.log_tail)
    assert sleeper.returncode == 1
    assert rivals.writes(leader)[written:] == []
    tenant.await_phase("for-both", "Running")


@pytest.mark.parametrize("number", [2, 3, 4, 6])
def test_leader_paused_in_the_middle_of_an_admission_leaves_the_rest_to_the_next(
    rivals: Rivals, tenant: Tenant, number: int
) -> None:
    leader = rivals.await_holder()
    sleeper, proxy = rivals.stack.operator(leader), rivals.proxies[leader]
    proxy.on_write(len(proxy.writes) + number, lambda _: sleeper.pause(), when="before")
    tenant.create(torch_job("halved", workers=3))
    status = tenant.await_phase("halved", "Running")
    assert status["ready"] == "4/4"
    kept, written = uids_of(tenant.pods("halved")), len(proxy.writes)
    sleeper.resume()
    eventually(lambda: sleeper.running, lambda running: not running, explain=sleeper.log_tail)
    assert proxy.writes[written:] == []
    always(lambda: uids_of(tenant.pods()), lambda uids: uids == kept, 1.0, what="the same pods")
    assert tenant.status("halved")["phase"] == "Running"


def test_operator_of_a_second_release_waits_says_so_and_takes_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    with (
        BiremeStack(cluster, tmp_path / "stack", internals=INTERNALS) as stack,
        Tenant.staying(cluster, stack.log_tails) as tenant,
    ):
        stack.start()
        second = stack.operator("second", {"BIREME_LEASE_NAMESPACE": tenant.namespace})
        second.start()
        words = "of the release in namespace default leads in this cluster: uninstall one"
        eventually(lambda: words in answer_of(second.ready_url), explain=stack.log_tails)
        tenant.create(torch_job("first"))
        tenant.await_phase("first", "Running")
        kept, before = uids_of(tenant.pods("first")), epoch(tenant, "first")
        stack.operator().kill()
        second.wait_ready()
        tenant.create(torch_job("second"))
        tenant.await_phase("second", "Running")
        assert epoch(tenant, "second") > before
        assert uids_of(tenant.pods("first")) == kept
