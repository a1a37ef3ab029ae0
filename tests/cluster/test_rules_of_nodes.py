"""Taints, and pods that need more than their main containers: planned, or named in the way."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bireme_lab.embedded.fake_nodes import HOSTNAME_LABEL
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.at_once import starts_at_once, waits_at_once
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import GPU, Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant, nodes_of

pytestmark = pytest.mark.cluster

DEDICATED = "gpu-02"
TAINT = {"key": "dedicated", "value": "speech", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "speech"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Three nodes of eight GPUs, the last of which is for those who tolerate its taint."""
    with gpu_stack("node-rules", tmp_path_factory.mktemp("stack"), nodes=3) as stack:
        stack.cluster.kubectl("taint", "node", DEDICATED, "dedicated=speech:NoSchedule")
        yield stack


@pytest.fixture(autouse=True)
def same_taints(stack: BiremeStack) -> Iterator[None]:
    yield
    for node in ("gpu-00", "gpu-01"):
        stack.cluster.kubectl("taint", "node", node, "late:NoSchedule-", check=False)


def nodes_of_job(tenant: Tenant, name: str = "job") -> Counter[str]:
    return Counter(nodes_of(tenant.pods(name)).values())


# --- taints --------------------------------------------------------------------------------


def test_a_tainted_node_is_for_those_who_tolerate_it(tenant: Tenant) -> None:
    fields: Manifest = {"tolerations": [TOLERATION], "nodeSelector": {HOSTNAME_LABEL: DEDICATED}}
    tenant.create(training_job("job", task(replicas=2, spec=pod_spec(4, **fields))))
    starts_at_once(tenant)
    assert nodes_of_job(tenant) == {DEDICATED: 2}


def test_a_gang_that_a_taint_keeps_out_names_it_and_an_equal_one_starts(tenant: Tenant) -> None:
    tenant.create(training_job("job", task(replicas=3, gpus=8)))
    taint = "(closed to it: 1 node, taint dedicated=speech:NoSchedule)"
    message = waits_at_once(tenant, taint)
    assert "holds at most 2" in message
    only_there = pod_spec(8, nodeSelector={HOSTNAME_LABEL: DEDICATED})
    tenant.create(training_job("only-there", task(spec=only_there)))
    message = waits_at_once(tenant, taint, "only-there")
    assert "no node matches the node selector, affinity and tolerations" in message
    tolerant = pod_spec(8, tolerations=[TOLERATION])
    tenant.create(training_job("equal", task(replicas=3, spec=tolerant)))
    starts_at_once(tenant, "equal")


def test_a_taint_that_comes_between_plan_and_bind_moves_the_gang_at_once(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tolerant = pod_spec(8, tolerations=[TOLERATION])
    stack.scheduler.pause()
    try:
        tenant.create(training_job("job", task(replicas=2, spec=tolerant)))
        plan = tenant.eventually(lambda: tenant.plan("job"))
        hit = min({each["node"] for each in plan["placements"]} - {DEDICATED})
        tenant.cluster.kubectl("taint", "node", hit, "late:NoSchedule")
        plan = tenant.eventually(
            lambda: tenant.plan("job"), lambda plan: plan and plan["attempt"] == 1
        )
    finally:
        stack.scheduler.resume()
    status = tenant.await_phase("job", "Running")
    assert hit not in nodes_of_job(tenant)
    assert "startFailures" not in status
    assert (status["interruptions"], status.get("restarts", 0)) == (1, 0)


def test_a_gang_that_a_late_taint_leaves_no_room_holds_nothing_and_says_so(
    stack: BiremeStack, tenant: Tenant
) -> None:
    stack.scheduler.pause()
    try:
        tenant.create(training_job("job", task(replicas=2, gpus=8)))
        tenant.eventually(lambda: tenant.plan("job"))
        tenant.cluster.kubectl("taint", "node", "gpu-00", "late:NoSchedule")
        tenant.eventually(lambda: tenant.plan("job"), lambda plan: plan is None)
    finally:
        stack.scheduler.resume()
    waits_at_once(tenant, "1 node, taint late:NoSchedule")
    late = {"key": "late", "operator": "Exists"}
    tenant.create(training_job("equal", task(replicas=2, spec=pod_spec(8, tolerations=[late]))))
    starts_at_once(tenant, "equal")
    tenant.delete("TrainingJob", "equal")
    tenant.cluster.kubectl("taint", "node", "gpu-00", "late:NoSchedule-")
    tenant.await_phase("job", "Running")


# --- what a pod asks for beside its main containers -------------------------------------------


def beside(main: int, *others: Manifest) -> Manifest:
    """A pod whose main container asks ``main`` GPUs, with init containers and sidecars."""
    return pod_spec(main, initContainers=list(others))


def init(name: str, gpus: int, **fields: Any) -> Manifest:
    return {"name": name, "image": name, "resources": {"limits": {GPU: str(gpus)}}, **fields}


def sidecar(name: str, gpus: int) -> Manifest:
    return init(name, gpus, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "peak"),
    [
        (beside(3, sidecar("proxy", 4)), 7),
        (beside(2, init("unpack", 7)), 7),
        (beside(2, init("unpack", 4), sidecar("proxy", 3), init("warm-up", 4)), 7),
        (beside(4, sidecar("proxy", 3), init("warm-up", 2)), 7),
    ],
    ids=["sidecar", "init container", "init beside an earlier sidecar", "main beside a sidecar"],
)
def test_the_peak_of_a_pod_is_what_it_is_planned_with(
    tenant: Tenant, spec: Manifest, peak: int
) -> None:
    """Two fill two nodes but for one GPU each, so a third waits and one of one GPU does not."""
    tenant.create(training_job("job", task(replicas=2, spec=spec)))
    plan = starts_at_once(tenant)["plan"]
    assert plan["tasks"][0]["requests"][GPU] == str(peak)
    assert sorted(nodes_of_job(tenant).values()) == [1, 1]
    tenant.create(training_job("third", task(spec=spec)))
    waits_at_once(
        tenant, f"asks {peak} {GPU} as 1 worker; 2 {GPU} free on nodes it may use", "third"
    )
    tenant.create(training_job("small", task(replicas=2, gpus=1), estimatedDuration="1s"))
    tenant.delete("TrainingJob", "job")
    tenant.await_phase("third", "Running")


def test_a_pod_whose_peak_no_node_has_says_so(tenant: Tenant) -> None:
    tenant.create(training_job("job", task(spec=beside(4, sidecar("proxy", 5)))))
    waits_at_once(tenant, f"one worker replica asks 9 {GPU}; the largest node it may use offers 8")
