"""Demands about other pods: planned, and bound by the real kube-scheduler at the first try."""

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from bireme_lab.embedded.fake_nodes import RACK
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import pod, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster

HOST = "kubernetes.io/hostname"
SPREAD = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}


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
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [{**SPREAD, **of_job("spread")}]}
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


def test_more_domains_than_there_are_keep_a_gang_from_fitting(tenant: Tenant) -> None:
    """With ``minDomains`` the two racks are too few for more than one replica each."""
    few = {**SPREAD, **of_job("few"), "minDomains": 3}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [few]}
    tenant.create(training_job("few", task(replicas=3, spec=spec)))
    assert "holds at most 2" in tenant.await_reason("few", "NeverFits")["message"]
    spec["topologySpreadConstraints"] = [{**few, **of_job("enough"), "minDomains": 2}]
    tenant.create(training_job("enough", task(replicas=4, spec=spec)))
    nodes = await_first_start(tenant, "enough")
    assert sorted(Counter(racks(tenant, nodes.elements())).values()) == [2, 2]
    assert tenant.plan("enough")["mode"] == "Pinned"  # type: ignore[index]


def test_domains_that_a_gang_may_not_use_count_where_its_spread_says_so(tenant: Tenant) -> None:
    wide = {**SPREAD, **of_job("wide"), "nodeAffinityPolicy": "Ignore"}
    only = {"topologySpreadConstraints": [wide], "nodeSelector": {RACK: "rack-0"}}
    tenant.create(training_job("wide", task(replicas=2, spec=pod_spec(gpus=1) | only)))
    assert "holds at most 1" in tenant.await_reason("wide", "NeverFits")["message"]
    only["topologySpreadConstraints"] = [{**SPREAD, **of_job("narrow")}]
    tenant.create(training_job("narrow", task(replicas=2, spec=pod_spec(gpus=1) | only)))
    nodes = await_first_start(tenant, "narrow")
    assert racks(tenant, nodes.elements()) == ["rack-0", "rack-0"]
    # Pinned pods that kept the policy would be refused in some orders of binding.
    both = {**SPREAD, "nodeAffinityPolicy": "Ignore", **of_job("both")}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [both]}
    tenant.create(training_job("both", task(replicas=4, spec=spec)))
    nodes = await_first_start(tenant, "both")
    assert sorted(Counter(racks(tenant, nodes.elements())).values()) == [2, 2]


def test_what_is_not_planned_is_said_and_kept_by_kube_scheduler(tenant: Tenant) -> None:
    has_index = {"key": "bireme.dev/index", "operator": "Exists"}
    own = {"matchLabels": {"bireme.dev/training-job": "left"}, "matchExpressions": [has_index]}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [{**SPREAD, "labelSelector": own}]}
    tenant.create(training_job("left", task(replicas=4, spec=spec)))
    nodes = await_first_start(tenant, "left")
    assert sorted(Counter(racks(tenant, nodes.elements())).values()) == [2, 2]
    assert tenant.plan("left")["mode"] != "Pinned"  # type: ignore[index]
