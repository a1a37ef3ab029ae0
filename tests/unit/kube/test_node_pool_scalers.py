"""NodePoolScalers as they are watched, and what one more node would be."""

from typing import Any

from bireme.core.pod_constraints import Taint
from bireme.kube import quantities, wire
from bireme.kube.node_pool_scalers import NodePoolScalers, PoolFacts, from_manifest, template_of
from bireme.testing import a_node
from testbed.objects.facts import CREATED, served, through_the_wire

TARGET = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "h200"}
LABELS = {"karpenter.sh/nodepool": "h200"}


def scaler(
    name: str = "h200", age: float = 0.0, generation: int = 1, **spec: Any
) -> wire.CustomObject:
    given = {"nodeSelector": {"matchLabels": LABELS}, "max": 4, **spec}
    manifest = {
        "apiVersion": "bireme.dev/v1alpha1",
        "kind": "NodePoolScaler",
        "metadata": {"name": name},
        "spec": given,
    }
    made = served(
        manifest,
        f"{name}-uid",
        namespace="",
        generation=generation,
        creationTimestamp=quantities.format_timestamp(CREATED - age),
    )
    return through_the_wire(made, wire.CustomObject)


def applying(name: str, age: float = 0.0, **target: str) -> wire.CustomObject:
    return scaler(name, age, mode="Apply", scaleTargetRef={**TARGET, **target})


def known(*scalers: wire.CustomObject) -> NodePoolScalers:
    found = NodePoolScalers(lambda: None)
    for each in scalers:
        found.put(("", each.metadata.name), each)
    return found


def first(found: NodePoolScalers, name: str) -> str:
    return found.first_of_target(found.known[name]).name


def test_a_spec_that_cannot_be_read_is_a_fault_with_its_field() -> None:
    facts = from_manifest(scaler(max=0))
    assert facts.spec is None
    assert facts.fault.startswith("spec.max: ")
    assert facts.fault.endswith("; correct it, or update Bireme")


def test_only_another_spec_and_not_another_status_is_a_change() -> None:
    changes: list[None] = []
    found = NodePoolScalers(lambda: changes.append(None))
    found.put(("", "h200"), scaler())
    found.put(("", "h200"), scaler())
    assert len(changes) == 1
    found.put(("", "h200"), scaler(generation=2))
    found.delete(("", "h200"))
    found.delete(("", "h200"))
    assert len(changes) == 3


def test_the_oldest_scaler_of_a_target_scales_it_ties_by_name() -> None:
    found = known(applying("young"), applying("b", 60.0), applying("a", 60.0))
    assert {first(found, name) for name in ("young", "a", "b")} == {"a"}


def test_another_version_of_a_kind_is_the_same_target_and_another_namespace_is_not() -> None:
    found = known(
        applying("old", 60.0),
        applying("version", apiVersion="karpenter.sh/v2"),
        applying("namespace", namespace="other"),
        applying("group", apiVersion="example.com/v1"),
    )
    firsts = {name: first(found, name) for name in ("version", "namespace", "group")}
    assert firsts == {"version": "old", "namespace": "namespace", "group": "group"}


def test_one_that_only_forecasts_is_in_nobodys_way() -> None:
    found = known(scaler("old", 60.0, scaleTargetRef=TARGET), applying("young"))
    assert first(found, "young") == "young"


def template(facts: PoolFacts, **newest: Any) -> Any:
    assert facts.spec is not None
    return template_of(facts.name, facts.spec, a_node("n0", **newest) if newest else None)


def test_a_stated_template_is_read_as_a_node_is_with_the_labels_of_the_pool() -> None:
    stated = {
        "allocatable": {"cpu": "95.5", "memory": "1000Gi", "nvidia.com/gpu": 8},
        "labels": {"zone": "a", "karpenter.sh/nodepool": "wrong"},
        "taints": [
            {"key": "gpu", "effect": "NoSchedule"},
            {"key": "slow", "effect": "PreferNoSchedule"},
        ],
    }
    node = template(from_manifest(scaler(nodeTemplate=stated)), gpus=4)
    assert dict(node.allocatable) == {"cpu": 95_500, "memory": 1000 * 2**30, "nvidia.com/gpu": 8}
    assert dict(node.labels) == {"zone": "a", **LABELS}
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert node.is_ready


def test_without_a_template_the_newest_node_is_one_with_its_own_taints_alone() -> None:
    taints = (Taint("gpu", "yes", "NoSchedule"), Taint("node.kubernetes.io/x", "", "NoSchedule"))
    node = template(from_manifest(scaler()), gpus=4, taints=taints, is_cordoned=True)
    assert (node.allocatable["nvidia.com/gpu"], node.taints) == (4, taints[:1])
    assert not node.is_cordoned
    assert node.name == "new-h200"


def test_nobody_knows_what_the_first_node_of_a_pool_without_a_template_would_be() -> None:
    assert template(from_manifest(scaler())) is None
