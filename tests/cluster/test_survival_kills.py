"""The operator killed at every API write of a gang's life, and started again each time.

The fault proxy counts the operator's writes and kills it at the n-th: before the API server sees
the write, or after it was done but before its author learns of it. Whatever n, the next operator
finishes the job: no gang stays partial, no replica runs twice, and nothing that runs is touched.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.stack import BiremeStack
from testbed.faultproxy import FaultProxy, Write, not_lease_nor_event
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import Manifest, annotations, torch_job
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster

NAMES = {"gang-master-0", "gang-worker-0", "gang-worker-1", "gang-worker-2"}
MAX_WRITES = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with gpu_cluster("kills", nodes=2, grace_seconds=10.0) as started:
        yield started


def is_about_a_gang(method: str, path: str) -> bool:
    """Usage of queues is written by the clock, and would take the place of an admission's write."""
    return not_lease_nor_event(method, path) and "/queues/" not in path


def kind_of(write: Write) -> str:
    """``POST pods`` or ``PUT trainingjobs/status``: what a write did, without names."""
    parts = write.path.partition("?")[0].split("/")
    at = parts.index("namespaces") + 2 if "namespaces" in parts else 4
    name_and_rest = parts[at:]
    return f"{write.method} {'/'.join([name_and_rest[0], *name_and_rest[2:]])}"


def let_the_next_lead_at_once(cluster: Cluster) -> None:
    """Empties the dead holder's lease and claim, instead of waiting until they expire."""
    for kind, name, holder in (
        ("lease", "bireme-operator", "holderIdentity"),
        ("clusterclaim", "bireme", "holder"),
    ):
        empty = json.dumps({"spec": {holder: ""}})
        cluster.kubectl("patch", kind, name, "--type=merge", "-p", empty)


class KilledOften:
    """A stack whose operator dies at chosen writes."""

    def __init__(self, stack: BiremeStack, proxy: FaultProxy) -> None:
        self.stack = stack
        self.proxy = proxy
        self.deaths: list[Write] = []

    def die_at(self, number: int, when: Literal["before", "after"]) -> None:
        self.proxy.on_write(number, self._die, when=when)

    def _die(self, write: Write) -> None:
        self.deaths.append(write)
        self.stack.operator().kill()

    def revive(self) -> None:
        let_the_next_lead_at_once(self.stack.cluster)
        self.stack.operator().start().wait_ready()


@pytest.fixture
def killed_often(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledOften]:
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        folder = tmp_path_factory.mktemp("stack")
        proxy = enter(FaultProxy(cluster.kubeconfig, is_counted=is_about_a_gang))
        stack = BiremeStack(cluster, folder, kubeconfigs={"operator-a": proxy.kubeconfig})
        yield KilledOften(enter(stack).start(), proxy)


@pytest.fixture
def tenant(killed_often: KilledOften) -> Iterator[Tenant]:
    stack = killed_often.stack
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant


def finish(tenant: Tenant, killed_often: KilledOften) -> Manifest:
    """The job's end, with the operator started again when it has died."""

    def ended_or_dead() -> bool:
        return not killed_often.stack.operator().running or is_done(tenant)

    tenant.eventually(ended_or_dead)
    if not killed_often.stack.operator().running:
        killed_often.revive()
    done = tenant.await_phase("gang", "Succeeded")
    tenant.eventually(lambda: is_done(tenant))
    return done


def is_done(tenant: Tenant) -> bool:
    """Whether the last write of the job's life has been done: its plan is cleared."""
    return tenant.status("gang").get("phase") == "Succeeded" and tenant.plan("gang") is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_operator_killed_at_any_write_leaves_no_gang_partial_and_no_replica_twice(
    killed_often: KilledOften, tenant: Tenant, when: Literal["before", "after"]
) -> None:
    # A master that ends before a killed operator has made the workers would end the job.
    run_all = {"successPolicy": "AllReplicas"}
    job = torch_job("gang", workers=3, fake=annotations(duration="1500ms"), runPolicy=run_all)
    for number in range(1, MAX_WRITES):
        deaths = len(killed_often.deaths)
        killed_often.die_at(len(killed_often.proxy.writes) + number, when)
        tenant.create(job)
        done = finish(tenant, killed_often)
        assert (done["ready"], done["attempt"]) == ("4/4", 0), killed_often.deaths[-1:]
        assert not done.get("restarts"), killed_often.deaths[-1:]
        assert not done.get("interruptions"), killed_often.deaths[-1:]
        pods = tenant.pods()
        assert set(uids_of(pods)) == NAMES
        labels = {p["metadata"]["labels"]["bireme.dev/plan"] for p in pods}
        assert len(labels) == 1, "all from one plan"
        if len(killed_often.deaths) == deaths:
            break
        tenant.delete("TrainingJob", "gang")
        for kind in ("TrainingJob", "Service"):
            tenant.await_gone(kind, "gang")
        tenant.eventually(tenant.pods, lambda left: left == [])
    met = [kind_of(write) for write in killed_often.deaths]
    # These five leave at once, and arrive in another order every time.
    assert met.count("POST pods") + met.count("POST services") >= 4
    # Admitted, Running, and ended, which drops the plan too: all pods are over.
    assert met.count("PUT trainingjobs/status") >= 3
    assert number < MAX_WRITES - 1, "the last job met no more write to die at"
