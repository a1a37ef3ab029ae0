"""Thirty seconds after the last of many faults every gang is where it would be without them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import (
    Manifest,
    batch_job,
    member_template,
    pod_group,
    task,
    torch_job,
    training_job,
)
from testbed.scenario.promises import REST_SECONDS, history_of
from testbed.scenario.tenant import Tenant, nodes_of

pytestmark = pytest.mark.cluster

SETTINGS = {"BIREME_NODE_LOST_SECONDS": "3"}
SHORT_LEASE = {"lease_duration_seconds": 5}
OUTAGE_SECONDS = 8.0
RUN = {"wide": 12, "small": 4, "late": 2, "guests": 2}
"""Gangs that there is room for, and their pods; ``huge`` is larger than the cluster, and waits."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Three nodes of eight GPUs; whatever is killed comes back, as by a kubelet."""
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        cluster = enter(gpu_cluster("convergence", nodes=3))
        folder = tmp_path_factory.mktemp("stack")
        programs = BiremeStack(cluster, folder, SETTINGS, internals=SHORT_LEASE)
        enter(programs).start()
        enter(Keeper(programs.processes))
        yield programs


def test_every_gang_is_at_rest_thirty_seconds_after_the_last_fault(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(torch_job("wide", workers=11), torch_job("small", workers=3))
    tenant.create(pod_group("guests", 2), batch_job("guests", 2, member_template("guests")))
    for name in ("wide", "small"):
        tenant.await_phase(name, "Running")
    tenant.create(training_job("huge", task(replicas=25)))
    tenant.await_reason("huge", "NeverFits")

    tenant.delete("Pod", "wide-worker-3", grace_seconds=0)
    server = tenant.cluster.component("kube-apiserver")
    server.stop()
    stack.extender.kill()
    time.sleep(OUTAGE_SECONDS)  # what is tested is an outage of this length
    server.start()
    tenant.create(torch_job("late", workers=1))
    tenant.delete("Pod", "small-worker-1", grace_seconds=0)
    cordoned = next(iter(nodes_of(tenant.pods("small")).values()))
    tenant.cluster.kubectl("cordon", cordoned)
    stack.scheduler.kill()
    tenant.cluster.kubectl("uncordon", cordoned)
    stack.operator().kill()

    tenant.eventually(lambda: unlike(tenant), lambda found: not found, REST_SECONDS)


def unlike(tenant: Tenant) -> list[str]:
    """What is not as it would be without faults: the gangs that fit run whole, the last waits."""
    history = history_of(tenant.cluster)
    assert history is not None
    found = history.restless(tenant.namespace)
    for name, pods in RUN.items():
        bound = len(nodes_of(alive(tenant, name)))
        if bound != pods:
            found.append(f"{name}: {bound} of {pods} pods on nodes")
    huge = tenant.status("huge")
    if (huge["phase"], huge["reason"]) != ("Pending", "NeverFits"):
        found.append(f"huge: {huge['phase']}, {huge['reason']}")
    return found


def alive(tenant: Tenant, name: str) -> list[Manifest]:
    pods = tenant.pods(name)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
