"""Demands about other pods under the real kube-scheduler, which keeps them itself."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.manifests import pod_spec, task, training_job
from tests.support.scenario.tenant import Tenant
from tools.controlplane.nodes import RACK
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("rules", tmp_path_factory.mktemp("stack"), nodes=2) as stack:
        yield stack


def of_job(name: str) -> dict[str, object]:
    return {"labelSelector": {"matchLabels": {"bireme.dev/training-job": name}}}


def test_a_hard_spread_over_racks_is_kept(stack: BiremeStack, tenant: Tenant) -> None:
    """All four would fit on one node, where a pin would hide the other rack from the rule."""
    rule = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
    spec = pod_spec(gpus=1) | {"topologySpreadConstraints": [{**rule, **of_job("spread")}]}
    tenant.create(training_job("spread", task(replicas=4, spec=spec)))
    status = tenant.await_phase("spread", "Running")
    nodes = Counter(pod["spec"]["nodeName"] for pod in tenant.pods("spread"))
    assert sorted(nodes.values()) == [2, 2]
    assert "interruptions" not in status or not status["interruptions"]


def test_anti_affinity_that_leaves_too_few_nodes_holds_nothing(
    stack: BiremeStack, tenant: Tenant
) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", **of_job("apart")}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tenant.create(
        training_job("apart", task(replicas=3, spec=pod_spec(gpus=1) | {"affinity": apart}))
    )
    paused = tenant.await_reason("apart", "Unschedulable")
    assert "anti-affinity rules" in paused["message"]
    tenant.eventually(lambda: tenant.plan("apart") is None and tenant.pods("apart") == [])
