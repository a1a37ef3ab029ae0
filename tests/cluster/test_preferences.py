"""Preferences of pods choose the nodes; the real kube-scheduler binds there, and nothing waits."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bireme.core.pod_constraints import PLUGIN_WEIGHTS
from bireme_lab.embedded.fake_nodes import RACK
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant
from tests.cluster.test_rules_over_pods import await_first_start, of_job, racks

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

HOST = "kubernetes.io/hostname"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
FAST = "gpu-03"
"""The node with fast disks: by name the last, which nobody gets without asking."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("preferences", tmp_path_factory.mktemp("stack"), nodes=4) as stack:
        stack.cluster.kubectl("label", "node", FAST, "disk=ssd")
        yield stack


def a_job(name: str, replicas: int, gpus: int, **spec: object) -> Manifest:
    return training_job(name, task(replicas=replicas, spec=pod_spec(gpus=gpus) | spec))


FAST_DISKS = {
    "nodeAffinity": {
        SOFT: [
            {
                "weight": 50,
                "preference": {
                    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                },
            }
        ]
    }
}


def test_a_preferred_node_is_taken_while_it_has_room_and_nobody_waits_for_it(
    tenant: Tenant,
) -> None:
    tenant.create(a_job("first", 4, 2, affinity=FAST_DISKS))
    assert await_first_start(tenant, "first") == {FAST: 4}
    tenant.create(a_job("second", 2, 2, affinity=FAST_DISKS))
    assert FAST not in await_first_start(tenant, "second")
    assert tenant.plan("first")["mode"] == "Pinned"  # type: ignore[index]


def apart(name: str) -> Manifest:
    term = {"topologyKey": HOST, **of_job(name)}
    return {"podAntiAffinity": {SOFT: [{"weight": 100, "podAffinityTerm": term}]}}


@pytest.mark.parametrize(("replicas", "per_node"), [(2, [1, 1]), (6, [1, 1, 2, 2])])
def test_replicas_that_would_rather_be_apart_are_spread_as_evenly_as_can_be(
    tenant: Tenant, replicas: int, per_node: list[int]
) -> None:
    tenant.create(a_job("apart", replicas, 1, affinity=apart("apart")))
    assert sorted(await_first_start(tenant, "apart").values()) == per_node


def test_a_soft_spread_over_racks_is_kept(tenant: Tenant) -> None:
    rule = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "ScheduleAnyway"}
    tenant.create(a_job("spread", 4, 1, topologySpreadConstraints=[{**rule, **of_job("spread")}]))
    nodes = await_first_start(tenant, "spread")
    assert sorted(Counter(racks(tenant, nodes.elements())).values()) == [2, 2]


def test_a_node_to_avoid_is_avoided_as_long_as_there_are_others(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(a_job("usual", 1, 1))
    (usual,) = await_first_start(tenant, "usual")
    tenant.delete("TrainingJob", "usual")
    tenant.eventually(lambda: not tenant.pods("usual"))
    stack.cluster.kubectl("taint", "node", usual, "old=yes:PreferNoSchedule")
    try:
        tenant.create(a_job("one", 1, 1))
        assert usual not in await_first_start(tenant, "one")
        tenant.create(a_job("rest", 3, 8))
        assert usual in await_first_start(tenant, "rest")
    finally:
        stack.cluster.kubectl("taint", "node", usual, "old-")


def test_the_weights_are_those_of_kube_schedulers_default_profile(
    stack: BiremeStack, tmp_path: Path
) -> None:
    written = tmp_path / "config.yaml"
    program = stack.cluster.binary("kube-scheduler")
    flags = (f"--kubeconfig={stack.cluster.kubeconfig}", f"--write-config-to={written}")
    subprocess.run([program, *flags], check=True, capture_output=True, timeout=60)
    [profile] = yaml.safe_load(written.read_text())["profiles"]
    enabled = profile["plugins"]["multiPoint"]["enabled"]
    weights = {each["name"]: each["weight"] for each in enabled}
    assert {name: weights[name] for name in PLUGIN_WEIGHTS} == PLUGIN_WEIGHTS, json.dumps(weights)
