"""The operator killed while a Job of others is suspended for a stop: the next one lifts it."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.faultproxy import FaultProxy, Write
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import (
    batch_job,
    member_template,
    pod_group,
)
from testbed.scenario.tenant import Tenant, nodes_of, uids_of

pytestmark = pytest.mark.cluster

INTERNALS = {"lease_duration_seconds": 5, "status_refresh_seconds": 1.0}
LABEL = "bireme.dev/suspended-for"


@dataclass
class Site:
    """The stack, its operator behind a proxy that counts the writes to Jobs."""

    stack: BiremeStack
    proxy: FaultProxy
    deaths: list[Write] = field(default_factory=list)

    def die_at_next(self, number: int, when: Literal["before", "after"]) -> None:
        self.proxy.on_write(len(self.proxy.writes) + number, self._die, when=when)

    def _die(self, write: Write) -> None:
        self.stack.operator().kill()
        self.deaths.append(write)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        cluster = enter(gpu_cluster("suspensions", nodes=3))
        proxy = enter(FaultProxy(cluster.kubeconfig, is_counted=is_write_to_a_job))
        folder = tmp_path_factory.mktemp("stack")
        kubeconfigs = {"operator-a": proxy.kubeconfig}
        stack = BiremeStack(cluster, folder, kubeconfigs=kubeconfigs, internals=INTERNALS)
        yield Site(enter(stack).start(), proxy)


def is_write_to_a_job(method: str, path: str) -> bool:
    return method == "PATCH" and "/jobs/" in path


@pytest.fixture
def tenant(site: Site) -> Iterator[Tenant]:
    with Tenant.staying(site.stack.cluster, site.stack.log_tails) as tenant:
        yield tenant
    for node in ("gpu-00", "gpu-01", "gpu-02"):
        tenant.cluster.kubectl("uncordon", node)


@pytest.mark.parametrize(
    ("number", "when"),
    [(1, "before"), (1, "after"), (2, "before"), (2, "after")],
    ids=["before it suspends", "once it has", "before it lifts that", "once it has lifted it"],
)
def test_a_job_is_not_left_suspended_by_an_operator_that_dies(
    site: Site, tenant: Tenant, number: int, when: Literal["before", "after"]
) -> None:
    job = batch_job("train", 2, member_template("train", gpus=4))
    job["spec"]["backoffLimit"] = 0
    deaths = len(site.deaths)
    site.stack.scheduler.pause()
    try:
        tenant.create(pod_group("train", 2), job)
        plan = tenant.eventually(lambda: tenant.plan("train"))
        (node,) = {placement["node"] for placement in plan["placements"]}
        first = uids_of(tenant.pods("train"))
        site.die_at_next(number, when)
        tenant.cluster.kubectl("cordon", node)
        tenant.eventually(lambda: len(site.deaths) > deaths)
        suspended = tenant.get("Job", "train")
        is_suspended = (number, when) in ((1, "after"), (2, "before"))
        assert suspended["spec"].get("suspend", False) == is_suspended
        assert (LABEL in suspended["metadata"].get("labels", {})) == is_suspended
        site.stack.operator().start().wait_ready()
        tenant.eventually(
            lambda: first.keys().isdisjoint(uids_of(tenant.pods("train"))) and tenant.plan("train")
        )
    finally:
        site.stack.scheduler.resume()
    tenant.await_group("train", phase="Running")
    freed = tenant.get("Job", "train")
    assert (freed["spec"].get("suspend", False), freed["status"].get("failed")) == (False, None)
    assert LABEL not in freed["metadata"].get("labels", {})
    assert node not in nodes_of(tenant.pods("train")).values()
