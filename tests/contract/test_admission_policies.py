"""The chart's admission policies on requests that they admit and refuse, without a cluster.

They are those of the golden rendering. ``tests/cluster/test_api_server_parity.py`` puts the same
table to a real API server.
"""

from dataclasses import replace
from typing import Any, Final

import pytest

from testbed.cel import policies
from testbed.cel.examples import RequestExample, namespaces, policies_for, request_examples, world
from testbed.cel.examples import policies as policies_of_the_chart
from testbed.controlplane.api import Manifest
from testbed.fakeapi.store import Refusal, merge


@pytest.mark.parametrize("example", request_examples().values(), ids=lambda each: each.name)
def test_request_is_answered_as_the_table_says(example: RequestExample) -> None:
    try:
        policies.judge(policies_for(example), example.request, world())
        answer: tuple[int, str, str] = (0, "", "")
    except Refusal as refusal:
        answer = (refusal.status, refusal.reason, refusal.message)
    assert answer == ((403, "Forbidden", example.refusal) if example.refusal else (0, "", ""))


def test_every_validation_has_an_example_that_it_alone_refuses() -> None:
    expected = {
        (each["metadata"]["name"], index)
        for each in policies_of_the_chart()
        if each["kind"] == policies.POLICY
        for index in range(len(each["spec"]["validations"]))
    }
    refusing = set()
    for example in request_examples().values():
        denials = policies.denials(policies_for(example), example.request, world())
        refusing |= {(each.policy, each.index) for each in denials if len(denials) == 1}
    assert len(expected) >= 42
    assert expected - refusing == set()


# --- what the API server or Pod Security refuses before any policy --------------------------------

LEVEL: Final = "pod-security.kubernetes.io/enforce"
PAST_BASELINE: Final = "pod-with-a-port-of-its-node"


@pytest.mark.parametrize(("level", "is_refused"), [("baseline", True), ("privileged", False)])
def test_operator_makes_pods_past_the_baseline_where_the_namespace_says_privileged_alone(
    level: str, is_refused: bool
) -> None:
    example = request_examples()[PAST_BASELINE]
    labelled = merge(namespaces()["team-a"], {"metadata": {"labels": {LEVEL: level}}})
    there = replace(world(), namespaces={"team-a": labelled})
    found = policies.denials(policies_for(example), example.request, there)
    assert [each.policy for each in found] == ["bireme-operator-pods"] * is_refused


@pytest.mark.parametrize("place", ["pod", "container"])
def test_operator_makes_no_pod_that_is_a_process_of_a_windows_host(place: str) -> None:
    example = request_examples()["replica-of-the-operator"]
    context = {"securityContext": {"windowsOptions": {"hostProcess": True}}}
    made: Manifest = merge(example.request.object, {})
    part: dict[str, Any] = made["spec"] if place == "pod" else made["spec"]["containers"][0]
    part |= context
    asked = replace(example.request, object=made)
    (found,) = policies.denials(policies_for(example), asked, world())
    assert "hostProcess" in found.message
