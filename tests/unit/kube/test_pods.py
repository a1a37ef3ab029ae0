"""Pods to what they ask, demand and have become."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.pod_constraints import (
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Toleration,
)
from bireme.kube import pods, quantities, wire
from testbed.objects.facts import gated_pod, served, through_the_wire
from testbed.scenario.manifests import GPU, Manifest, pod


def container(always: bool = False, **requests: str) -> Manifest:
    """``cpu="1"``, ``gpu="2"``; a sidecar with ``always``."""
    asked = {GPU if name == "gpu" else name: value for name, value in requests.items()}
    made: Manifest = {"name": "c", "resources": {"requests": asked}}
    return {**made, "restartPolicy": "Always"} if always else made


def request(**spec: Any) -> dict[str, int]:
    """The request of a pod spec, without the pod itself."""
    found = dict(pods.request_of_spec(msgspec.convert(spec, wire.V1PodSpec)))
    assert found.pop("pods") == 1
    return found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": [{"name": "c"}]}, {}),
        ({"containers": [container(cpu="0")]}, {}),
        (
            {"containers": [container(cpu="1"), container(cpu="500m", gpu="1")]},
            {"cpu": 1500, GPU: 1},
        ),
        # An init container needs its room only before the others start.
        (
            {"initContainers": [container(cpu="3")], "containers": [container(cpu="1", gpu="2")]},
            {"cpu": 3000, GPU: 2},
        ),
        (
            {
                "initContainers": [container(cpu="1"), container(cpu="2")],
                "containers": [container(cpu="4")],
            },
            {"cpu": 4000},
        ),
        # A sidecar stays, beside later init containers and all containers.
        (
            {"initContainers": [container(True, cpu="1")], "containers": [container(cpu="2")]},
            {"cpu": 3000},
        ),
        (
            {
                "initContainers": [container(True, cpu="1"), container(cpu="5")],
                "containers": [container(cpu="2")],
            },
            {"cpu": 6000},
        ),
        (
            {
                "initContainers": [container(cpu="5"), container(True, cpu="1")],
                "containers": [container(cpu="2")],
            },
            {"cpu": 5000},
        ),
        (
            {
                "initContainers": [
                    container(True, cpu="1"),
                    container(cpu="2"),
                    container(True, cpu="3"),
                ],
                "containers": [container(cpu="1")],
            },
            {"cpu": 5000},
        ),
        # Overhead comes on top of everything.
        (
            {
                "initContainers": [container(cpu="3")],
                "containers": [container(cpu="1")],
                "overhead": {"cpu": "250m", "memory": "1Ki"},
            },
            {"cpu": 3250, "memory": 1024},
        ),
        # Pod-level requests replace the sum of the containers, resource by resource.
        (
            {
                "containers": [container(cpu="4", gpu="1")],
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "1"},
            },
            {"cpu": 3000, GPU: 1},
        ),
        # A pod-level limit stands for a request only where nothing is requested.
        (
            {
                "containers": [container(cpu="1")],
                "resources": {"limits": {"cpu": "8", "memory": "1Ki"}},
            },
            {"cpu": 1000, "memory": 1024},
        ),
        # A container's limit alone is its request.
        (
            {"containers": [{"name": "c", "resources": {"limits": {GPU: 2, "cpu": 1}}}]},
            {"cpu": 1000, GPU: 2},
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}},
                    }
                ]
            },
            {"cpu": 1000},
        ),
    ],
)
def test_a_pod_asks_what_the_scheduler_says_it_asks(
    spec: dict[str, Any], expected: dict[str, int]
) -> None:
    assert request(**spec) == expected


CPUS = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=5)


@given(inits=CPUS, mains=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_the_request_is_the_highest_point_of_the_pods_life(
    inits: list[tuple[bool, int]], mains: list[int]
) -> None:
    sidecars, peak = 0, 0
    for always, cpu in inits:
        peak = max(peak, sidecars + cpu)
        sidecars += cpu if always else 0
    peak = max(peak, sidecars + sum(mains))
    found = request(
        initContainers=[container(always, cpu=str(cpu)) for always, cpu in inits],
        containers=[container(cpu=str(cpu)) for cpu in mains],
    )
    assert found.get("cpu", 0) == peak * 1000


@pytest.mark.parametrize("value", ["many", "-1", "1e99", "", "1 Gi", "NaN"])
def test_a_quantity_nobody_understands_fits_nowhere_and_a_template_with_it_is_refused(
    value: str,
) -> None:
    spec = msgspec.convert({"containers": [container(memory=value)]}, wire.V1PodSpec)
    assert dict(pods.request_of_spec(spec))["memory"] == quantities.LARGEST
    with pytest.raises(quantities.QuantityError, match="memory"):
        pods.request_of_spec(spec, strict=True)


@pytest.mark.parametrize(
    ("allocated", "actual", "reason", "cpu"),
    [
        ("1", "1", None, 1000),
        ("3", "3", "Deferred", 3000),
        ("1", "2", None, 2000),
        ("500m", "500m", "Deferred", 1000),
        ("500m", "500m", "Infeasible", 500),
    ],
)
def test_a_pod_that_is_resized_holds_the_most_of_what_it_has_and_is_to_have(
    allocated: str, actual: str, reason: str | None, cpu: int
) -> None:
    there = {"allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    status = {
        "containerStatuses": [{"name": "c", **there}],
        "conditions": [pending] if reason else [],
    }
    made = {"metadata": {}, "spec": {"containers": [container(cpu="1")]}, "status": status}
    found = dict(pods.request_of_pod(through_the_wire(made, wire.V1Pod)))
    assert found == {"cpu": cpu, "pods": 1}


# --- demands on nodes -------------------------------------------------------------------------


def constraints(**spec: Any) -> NodeConstraints:
    return pods.constraints_of_spec(msgspec.convert(spec, wire.V1PodSpec))


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {name: {"nodeSelectorTerms": list(terms)}}}


def test_a_pod_without_demands_has_no_constraints() -> None:
    assert constraints() == NodeConstraints()
    assert constraints(affinity={}, tolerations=None) == NodeConstraints()
    assert constraints(affinity={"podAffinity": {}, "nodeAffinity": {}}) == NodeConstraints()


def test_selector_affinity_and_tolerations_are_read() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    name = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    found = constraints(
        nodeSelector={"b": "2", "a": "1"},
        affinity=required({"matchExpressions": [zone], "matchFields": [name]}, {}),
        tolerations=[
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "value": "x", "tolerationSeconds": 5},
            {"operator": "Exists"},
        ],
    )
    assert found == NodeConstraints(
        node_selector=(("a", "1"), ("b", "2")),
        affinity_terms=(
            SelectorTerm(
                (Requirement("zone", SelectorOperator.IN, ("a", "b")),),
                (Requirement("metadata.name", SelectorOperator.NOT_IN, ("n1",)),),
            ),
            SelectorTerm(),
        ),
        tolerations=(
            Toleration("gpu", "Exists", "", "NoSchedule"),
            Toleration("team", "Equal", "x", ""),
            Toleration("", "Exists", "", ""),
        ),
    )


def test_required_affinity_without_terms_is_not_the_same_as_none() -> None:
    assert constraints(affinity=required()).affinity_terms == ()


# --- states -----------------------------------------------------------------------------------


def facts(status: dict[str, Any] | None = None, **metadata: Any) -> pods.PodFacts:
    manifest = {**served(pod("p"), "p-uid", **metadata), "status": status or {}}
    return pods.from_manifest(through_the_wire(manifest, wire.V1Pod))


def test_a_pod_without_a_status_is_pending_and_unready() -> None:
    found = facts()
    assert (found.phase, found.is_ready, found.is_terminal) == ("Pending", False, False)


def test_a_condition_counts_only_when_it_is_true() -> None:
    assert facts({"conditions": [{"type": "Ready", "status": "True"}]}).is_ready
    for value in ("False", "Unknown", ""):
        found = facts(
            {"conditions": [{"type": t, "status": value} for t in ("Ready", "DisruptionTarget")]}
        )
        assert not found.is_ready
        assert not found.is_disrupted


def test_owners_gates_and_deletion_are_seen() -> None:
    found = facts(
        ownerReferences=[{"uid": "a"}, {"uid": "b"}], deletionTimestamp="2030-01-01T00:00:00Z"
    )
    assert found.owner_uids == frozenset({"a", "b"})
    assert (found.is_leaving, found.is_gated) == (True, False)
    gated = pods.from_manifest(through_the_wire(gated_pod("p"), wire.V1Pod))
    assert gated.is_gated
    other = gated_pod("p", schedulingGates=[{"name": "example.com/other"}])
    assert not pods.from_manifest(through_the_wire(other, wire.V1Pod)).is_gated


# --- pins -------------------------------------------------------------------------------------

PIN = {"key": "metadata.name", "operator": "In", "values": ["n7"]}


@pytest.mark.parametrize("spec", [{}, {"affinity": None}, {"affinity": {"nodeAffinity": None}}])
def test_a_pin_is_made_where_there_is_no_affinity(spec: dict[str, Any]) -> None:
    assert pods.affinity_on_node(spec, "n7") == required({"matchFields": [PIN]})


def test_a_pin_is_added_to_every_alternative_and_changes_nothing_else() -> None:
    zone = {"key": "zone", "operator": "Exists"}
    spec = {
        "affinity": {
            **required({"matchExpressions": [zone]}, {"matchFields": [zone]}),
            "podAntiAffinity": {"x": 1},
        }
    }
    before = msgspec.json.encode(spec)
    found = pods.affinity_on_node(spec, "n7")
    assert found == {
        **required(
            {"matchExpressions": [zone], "matchFields": [PIN]}, {"matchFields": [zone, PIN]}
        ),
        "podAntiAffinity": {"x": 1},
    }
    assert msgspec.json.encode(spec) == before
