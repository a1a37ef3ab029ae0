"""The chart's admission policies on requests that they admit and refuse, without a cluster.

They are those of the golden rendering. ``tests/cluster/test_api_server_parity.py`` puts the same
table to a real API server.
"""

from dataclasses import replace
from typing import Any, Final

import pytest
import yaml

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.patches import merge
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.cel import policies
from testbed.cel.examples import (
    RequestExample,
    Right,
    accounts,
    complete,
    namespaces,
    policies_for,
    request_examples,
    world,
)
from testbed.cel.examples import policies as policies_of_the_chart
from testbed.controlplane.api import Manifest
from testbed.scenario.renderings import ADMISSION, DEFAULT


@pytest.mark.parametrize("example", request_examples().values(), ids=lambda each: each.name)
def test_request_is_answered_as_the_table_says(example: RequestExample) -> None:
    try:
        policies.judge(policies_for(example), example.request, world())
        answer: tuple[int, str, str] = (0, "", "")
    except ApiRefusal as refusal:
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


# --- values and roles of the chart ----------------------------------------------------------------

OPERATOR_BY_HAND: Final = ApiUser("system:serviceaccount:gangs:operator-by-hand")
"""The operator's account where every value is set."""


def is_allowed_with_every_value(example: RequestExample) -> bool:
    request = example.request
    if request.user == accounts()["operator"].user:
        request = replace(request, user=OPERATOR_BY_HAND)
    there = {request.namespace: {"metadata": {"name": request.namespace}}, **namespaces()}
    surroundings = replace(world(), namespaces=there, may=lambda user, _: user == OPERATOR_BY_HAND)
    rendered = list(yaml.safe_load_all(ADMISSION.read_text()))
    return not policies.denials([each for each in rendered if each], request, surroundings)


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("pod-with-the-network-of-its-node", True),
        ("pod-with-the-memory-of-its-node", True),
        ("privileged-pod", True),
        ("pod-with-a-folder-of-its-node", True),
        ("pod-with-another-account", False),
        ("pod-with-a-capability", False),
        ("pod-with-a-capability-of-the-baseline", False),
        ("pod-with-the-processes-of-its-node", False),
        ("device-past-the-queues", False),
        ("device-of-a-class", True),
    ],
)
def test_values_say_what_is_listed_and_what_the_fence_lets_through(
    name: str, is_allowed: bool
) -> None:
    assert is_allowed_with_every_value(request_examples()[name]) is is_allowed


@pytest.mark.parametrize(
    ("pod", "is_allowed"),
    [
        ({"spec": {"serviceAccountName": "train-s3"}}, True),
        ({"spec": {"serviceAccountName": "retrain-s3"}}, False),
        ({"container": {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}}, True),
        ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/dev/infinibandx"}}]}}, False),
        ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/dev/infiniband/x"}}]}}, True),
        ({"namespace": "kube-public"}, True),
        ({"namespace": "monitoring"}, False),
        ({"namespace": "gangs"}, False),
    ],
)
def test_lists_of_values_are_read_as_names_and_folders(pod: Manifest, is_allowed: bool) -> None:
    given: Manifest = merge(
        {"kind": "Pod", "name": "made", "spec": {"schedulerName": "bireme"}}, pod
    )
    made = complete(given)
    example = request_examples()["replica-of-the-operator"]
    request = replace(example.request, object=made, namespace=made["metadata"]["namespace"])
    assert is_allowed_with_every_value(replace(example, request=request)) is is_allowed


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        ("bireme-operator", accounts()["operator"].rights),
        ("bireme-forecast", accounts()["other-forecast"].rights),
        ("bireme-admin", (Right.parse("use queues.bireme.dev"),)),
        ("bireme-admin", accounts()["erin"].rights),
        ("bireme-admin", (Right.parse("resize queues.bireme.dev"),)),
    ],
)
def test_roles_of_the_chart_give_the_rights_that_policies_ask_for(
    role: str, rights: tuple[Right, ...]
) -> None:
    (rules,) = (
        each["rules"]
        for each in yaml.safe_load_all(DEFAULT.read_text())
        if each and each["kind"] == "ClusterRole" and each["metadata"]["name"] == role
    )
    for right in rights:
        assert any(
            right.verb in rule["verbs"]
            and right.group in rule["apiGroups"]
            and right.resource in rule["resources"]
            and "resourceNames" not in rule
            for rule in rules
        ), right
