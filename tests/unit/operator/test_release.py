"""The patch that releases a gated pod: applied by another implementation, and what it leaves."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.kube import names, wire
from bireme.kube.plans import PlanFacts
from bireme_operator.pod_groups import release
from testbed.fakeapi.answers import json_patched
from testbed.objects.facts import gated_pod, through_the_wire

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PIN = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
PLAN = PlanFacts(1, 0, "", "Pinned", 0.0, {}, {}, (), queue="q")
KARPENTERS = "karpenter.sh/do-not-disrupt"
OTHER_GATE = {"name": "example.com/quota"}
OURS = {"name": names.PLAN_GATE}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
SSD = {"key": "ssd", "operator": "Exists"}
NOT_N1 = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
POD_AFFINITY = {"podAffinity": {PREFERRED: [{"weight": 1}]}}
NODE_WISH = [{"weight": 5, "preference": {"matchExpressions": [SSD]}}]

TERMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(st.sampled_from((ZONE, SSD)), min_size=1, max_size=2),
            "matchFields": st.just([NOT_N1]),
        },
    ).filter(bool),
    min_size=1,
    max_size=3,
)


def released(pod: dict[str, Any], mode: str = "Pinned") -> dict[str, Any]:
    """``pod`` after its patch, applied by a JSON patch library."""
    operations = release(through_the_wire(pod, wire.V1Pod), "n7", replace(PLAN, mode=mode))
    return json_patched(deepcopy(pod), operations)


def with_affinity(affinity: Any) -> dict[str, Any]:
    return gated_pod("p", affinity=affinity)


def pinned(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelectorTerms": list(terms)}


@pytest.mark.parametrize(
    ("given_affinity", "expected"),
    [
        (None, {"nodeAffinity": {REQUIRED: pinned({"matchFields": [PIN]})}}),
        ({}, {"nodeAffinity": {REQUIRED: pinned({"matchFields": [PIN]})}}),
        (
            POD_AFFINITY,
            {**POD_AFFINITY, "nodeAffinity": {REQUIRED: pinned({"matchFields": [PIN]})}},
        ),
        (
            {**POD_AFFINITY, "nodeAffinity": None},
            {**POD_AFFINITY, "nodeAffinity": {REQUIRED: pinned({"matchFields": [PIN]})}},
        ),
        (
            {"nodeAffinity": {}},
            {"nodeAffinity": {REQUIRED: pinned({"matchFields": [PIN]})}},
        ),
        (
            {**POD_AFFINITY, "nodeAffinity": {PREFERRED: NODE_WISH}},
            {
                **POD_AFFINITY,
                "nodeAffinity": {
                    PREFERRED: NODE_WISH,
                    REQUIRED: pinned({"matchFields": [PIN]}),
                },
            },
        ),
        (
            {
                "nodeAffinity": {
                    PREFERRED: NODE_WISH,
                    REQUIRED: pinned({"matchExpressions": [ZONE, SSD]}, {"matchFields": [NOT_N1]}),
                }
            },
            {
                "nodeAffinity": {
                    PREFERRED: NODE_WISH,
                    REQUIRED: pinned(
                        {"matchExpressions": [ZONE, SSD], "matchFields": [PIN]},
                        {"matchFields": [NOT_N1, PIN]},
                    ),
                }
            },
        ),
    ],
)
def test_the_pin_goes_as_deep_as_the_pods_own_affinity(
    given_affinity: Any, expected: dict[str, Any]
) -> None:
    assert released(with_affinity(given_affinity))["spec"]["affinity"] == expected


@given(TERMS)
def test_every_alternative_is_kept_and_narrowed_to_the_node(terms: list[dict[str, Any]]) -> None:
    pod = with_affinity({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    found = released(pod)["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert len(found) == len(terms)
    for before, after in zip(terms, found, strict=True):
        assert after["matchFields"] == [*before.get("matchFields", []), PIN]
        assert after.get("matchExpressions") == before.get("matchExpressions")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_only_our_gate_is_removed_wherever_it_stands(at: int) -> None:
    gates = [OTHER_GATE, {"name": "example.com/second"}]
    gates.insert(at, OURS)
    pod = gated_pod("p", schedulingGates=gates)
    assert released(pod)["spec"]["schedulingGates"] == [g for g in gates if g != OURS]


@pytest.mark.parametrize("given", [None, {}, {"note": "x"}, {KARPENTERS: "false"}])
def test_a_released_pod_is_left_in_place_unless_it_says_otherwise(
    given: dict[str, str] | None,
) -> None:
    pod = gated_pod("p")
    pod["metadata"] |= {"annotations": given} if given is not None else {}
    found = released(pod)["metadata"]["annotations"]
    assert found == {**names.KEPT_IN_PLACE, **(given or {})}


def test_annotations_that_came_in_the_meantime_are_not_lost() -> None:
    operations = release(through_the_wire(gated_pod("p"), wire.V1Pod), "n7", PLAN)
    later = gated_pod("p")
    later["metadata"]["annotations"] = {"note": "x"}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        json_patched(later, operations)


def test_nothing_but_gate_affinity_label_of_the_queue_and_two_annotations_changes() -> None:
    pod = with_affinity(POD_AFFINITY)
    patched = released(pod)
    assert patched["metadata"].pop("annotations") == names.KEPT_IN_PLACE
    assert patched["metadata"]["labels"].pop(names.QUEUE_LABEL) == "q"
    assert patched["spec"].pop("affinity") != pod["spec"].pop("affinity")
    assert patched["spec"].pop("schedulingGates") == []
    pod["spec"].pop("schedulingGates")
    assert patched == pod


def test_a_pod_that_is_to_be_scored_gets_no_pin() -> None:
    patched = released(gated_pod("p"), "Score")
    assert "affinity" not in patched["spec"]
    assert patched["spec"]["schedulingGates"] == []


def test_the_patch_fails_on_another_pod_of_the_same_name() -> None:
    operations = release(through_the_wire(gated_pod("p"), wire.V1Pod), "n7", PLAN)
    another = gated_pod("p")
    another["metadata"]["uid"] = "another"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        json_patched(another, operations)


def test_the_patch_fails_when_the_gates_have_moved() -> None:
    operations = release(through_the_wire(gated_pod("p"), wire.V1Pod), "n7", PLAN)
    moved = gated_pod("p", schedulingGates=[OTHER_GATE, OURS])
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        json_patched(moved, operations)
