"""Demands about other pods: planned, and bound by the real kube-scheduler at the first try."""

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import pod, pod_spec, task, training_job
from tests.support.scenario.tenant import Tenant
from tools.controlplane.nodes import RACK
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster

HOST = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("rules", tmp_path_factory.mktemp("stack"), nodes=4) as stack:
        yield stack


def of_job(name: str) -> dict[str, object]:
    return {"labelSelector": {"matchLabels": {"bireme.dev/training-job": name}}}


def required(kind: str, key: str, job: str, **fields: object) -> dict[str, object]:
    """Return an affinity of this kind to the pods of ``job``."""
    term = {"topologyKey": key, **of_job(job), **fields}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def await_first_start(tenant: Tenant, name: str) -> Counter[str]:
    """Return how many pods of a job run on each node, once it runs by its first plan."""
    status = tenant.await_phase(name, "Running")
    assert not status.get("startFailures")
    assert not status.get("interruptions")
    return Counter(pod["spec"]["nodeName"] for pod in tenant.pods(name))


def racks(tenant: Tenant, nodes: Iterable[str]) -> list[str]:
    return sorted(tenant.get("Node", name)["metadata"]["labels"][RACK] for name in nodes)


def test_a_hard_spread_over_racks_is_kept_under_a_pin(tenant: Tenant) -> None:
    """All four would fit on one node; of a pinned pod kube-scheduler counts its own rack alone."""
    rule = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [{**rule, **of_job("spread")}]}
    tenant.create(training_job("spread", task(replicas=4, spec=spec)))
    nodes = await_first_start(tenant, "spread")
    found = racks(tenant, nodes.elements())
    assert sorted(Counter(found).values()) == [2, 2]
    assert tenant.plan("spread")["mode"] == "Pinned"  # type: ignore[index]


def test_replicas_apart_from_each_other_are_on_as_many_nodes(tenant: Tenant) -> None:
    spec = pod_spec(gpus=1) | required("podAntiAffinity", HOST, "apart")
    tenant.create(training_job("apart", task(replicas=4, spec=spec)))
    assert set(await_first_start(tenant, "apart").values()) == {1}


def test_more_replicas_apart_than_nodes_never_fit_and_say_how_many_do(tenant: Tenant) -> None:
    spec = pod_spec(gpus=1) | required("podAntiAffinity", HOST, "many")
    tenant.create(training_job("many", task(replicas=5, spec=spec)))
    held = tenant.await_reason("many", "NeverFits")
    assert "holds at most 4" in held["message"]
    assert f"required pod anti-affinity on {HOST}" in held["message"]
    assert tenant.pods("many") == []


def test_a_gang_near_itself_is_in_one_rack_and_a_follower_beside_it(tenant: Tenant) -> None:
    spec = pod_spec(gpus=5) | required("podAffinity", RACK, "near")
    tenant.create(training_job("near", task(replicas=2, spec=spec)))
    nodes = await_first_start(tenant, "near")
    (rack,) = set(racks(tenant, nodes))
    assert len(nodes) == 2
    spec = pod_spec(gpus=1) | required("podAffinity", RACK, "near")
    tenant.create(training_job("follower", task(replicas=2, spec=spec)))
    assert set(racks(tenant, await_first_start(tenant, "follower"))) == {rack}


def test_a_gang_waits_for_what_it_must_be_near_and_says_so(tenant: Tenant) -> None:
    spec = pod_spec(gpus=1) | required("podAffinity", RACK, "leader")
    tenant.create(training_job("waits", task(replicas=1, spec=spec)))
    held = tenant.await_reason("waits", "WaitingForCapacity")
    assert f"required pod affinity on {RACK}" in held["message"]
    tenant.create(training_job("leader", task(replicas=1, spec=pod_spec(gpus=1))))
    nodes = await_first_start(tenant, "leader") + await_first_start(tenant, "waits")
    assert len(set(racks(tenant, nodes))) == 1


def test_a_gang_without_rules_keeps_away_from_pods_that_want_it_away(tenant: Tenant) -> None:
    """Anti-affinity holds both ways: the pod of nobody closes its rack to the job."""
    made = pod("guard", 0)
    made["metadata"]["labels"] = {"app": "guard"}
    made["spec"] |= required("podAntiAffinity", RACK, "plain")
    tenant.create(made)
    tenant.eventually(lambda: tenant.get("Pod", "guard")["spec"].get("nodeName"))
    (closed,) = racks(tenant, [tenant.get("Pod", "guard")["spec"]["nodeName"]])
    tenant.create(training_job("plain", task(replicas=2, spec=pod_spec(gpus=8))))
    assert closed not in racks(tenant, await_first_start(tenant, "plain"))


def test_what_is_not_planned_is_said_and_kept_by_kube_scheduler(tenant: Tenant) -> None:
    rule = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
    left = {**rule, **of_job("left"), "minDomains": 2}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [left]}
    tenant.create(training_job("left", task(replicas=4, spec=spec)))
    nodes = await_first_start(tenant, "left")
    assert sorted(Counter(racks(tenant, nodes.elements())).values()) == [2, 2]
    assert tenant.plan("left")["mode"] != "Pinned"  # type: ignore[index]
