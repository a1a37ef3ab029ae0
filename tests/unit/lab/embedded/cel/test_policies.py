"""Admission policies on small requests: matching, errors, variables, messages, bindings."""

from typing import Any

import pytest

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.cel import policies
from bireme_lab.embedded.cel.matching import matches
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings
from testbed.controlplane.api import Manifest

ANN = ApiUser("ann", extra={"team": ["a"]})
NAMESPACES: dict[str, Manifest] = {
    "a": {"metadata": {"name": "a", "labels": {"tier": "gold"}}},
    "b": {"metadata": {"name": "b"}},
}
PARAMS = [
    {"metadata": {"name": "one", "labels": {"x": "1"}}, "limit": 1},
    {"metadata": {"name": "two"}, "limit": 2},
]
CLUSTER = Surroundings(
    NAMESPACES,
    lambda user, check: user.name == "ann" and check["verb"] == "use",
    lambda kind, namespace: [each for each in PARAMS if (kind, namespace) == ("Limit", "a")],
)


def request_of(**fields: Any) -> AdmissionRequest:
    made: dict[str, Any] = {
        "operation": "CREATE",
        "resource": "pods",
        "kind": "Pod",
        "user": ANN,
        "namespace": "a",
        "name": "p",
        "object": {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"n": 1}},
    }
    return AdmissionRequest(**made | fields)


def rule_of(**fields: Any) -> Manifest:
    made = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    return made | fields


def policy_of(
    *validations: Manifest, binding: Manifest | None = None, **spec: Any
) -> list[Manifest]:
    constraints = {"resourceRules": [rule_of()]}
    bound = {"policyName": "p", "validationActions": ["Deny"], **(binding or {})}
    made = {"matchConstraints": constraints, "validations": list(validations), **spec}
    return [
        {"kind": policies.POLICY, "metadata": {"name": "p"}, "spec": made},
        {"kind": policies.BINDING, "metadata": {"name": "bound"}, "spec": bound},
    ]


def messages(manifests: list[Manifest], **fields: Any) -> list[str]:
    found = policies.denials(manifests, request_of(**fields), CLUSTER)
    return [each.message for each in found]


# --- matching -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraints", "is_matched"),
    [
        ({}, True),
        ({"resourceRules": [rule_of()]}, True),
        ({"resourceRules": [rule_of(resources=["*"])]}, True),
        ({"resourceRules": [rule_of(resources=["*/status"])]}, False),
        ({"resourceRules": [rule_of(resources=["*/*"])]}, True),
        ({"resourceRules": [rule_of(resources=["pods/*"])]}, True),
        ({"resourceRules": [rule_of(resources=["services"]), rule_of()]}, True),
        ({"resourceRules": [rule_of(operations=["UPDATE", "DELETE"])]}, False),
        ({"resourceRules": [rule_of(operations=["CREATE"])]}, True),
        ({"resourceRules": [rule_of(apiGroups=["batch"])]}, False),
        ({"resourceRules": [rule_of(apiGroups=["*"], apiVersions=["*"])]}, True),
        ({"resourceRules": [rule_of(apiVersions=["v2"])]}, False),
        ({"resourceRules": [rule_of(resourceNames=["q"])]}, False),
        ({"resourceRules": [rule_of(resourceNames=["q", "p"])]}, True),
        ({"resourceRules": [rule_of(scope="Cluster")]}, False),
        ({"resourceRules": [rule_of(scope="Namespaced")]}, True),
        ({"excludeResourceRules": [rule_of()]}, False),
        ({"excludeResourceRules": [rule_of(resourceNames=["q"])]}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "lead"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "y"}}}, False),
    ],
)
def test_constraints_describe_requests_as_the_api_server_reads_them(
    constraints: Manifest, is_matched: bool
) -> None:
    assert matches(constraints, request_of(), CLUSTER) is is_matched


def test_subresource_is_matched_by_its_own_name_alone() -> None:
    status = request_of(operation="UPDATE", subresource="status")
    for pattern, is_matched in {
        "pods": False,
        "*": False,
        "pods/status": True,
        "*/status": True,
        "pods/*": True,
        "*/*": True,
        "pods/resize": False,
    }.items():
        constraints = {"resourceRules": [rule_of(resources=[pattern])]}
        assert matches(constraints, status, CLUSTER) is is_matched, pattern


def test_object_selector_matches_the_old_object_too() -> None:
    selector = {"objectSelector": {"matchLabels": {"app": "old"}}}
    old = {"metadata": {"name": "p", "labels": {"app": "old"}}}
    assert matches(selector, request_of(operation="UPDATE", old=old), CLUSTER)
    assert matches(selector, request_of(operation="DELETE", old=old, object=None), CLUSTER)
    assert not matches(selector, request_of(), CLUSTER)


def test_namespace_selector_reads_a_namespace_by_its_new_labels_but_for_subresources() -> None:
    selector = {"namespaceSelector": {"matchLabels": {"tier": "lead"}}}
    new = {"metadata": {"name": "a", "labels": {"tier": "lead"}}}
    of_it: dict[str, Any] = {"resource": "namespaces", "name": "a", "object": new}
    assert matches(selector, request_of(operation="UPDATE", **of_it), CLUSTER)
    assert not matches(selector, request_of(subresource="status", **of_it), CLUSTER)
    of_it["object"] = None
    assert not matches(selector, request_of(operation="DELETE", **of_it), CLUSTER)
    # A selector exempts nothing of the whole cluster.
    assert matches(selector, request_of(resource="nodes", namespace="", name="n"), CLUSTER)


@pytest.mark.parametrize(
    ("requirement", "is_selected"),
    [
        ({"operator": "In", "values": ["x", "y"]}, True),
        ({"operator": "In", "values": ["y"]}, False),
        ({"operator": "NotIn", "values": ["y"]}, True),
        ({"operator": "NotIn", "values": ["x"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_selector_keeps_its_expressions(requirement: Manifest, is_selected: bool) -> None:
    selector = {"matchExpressions": [{"key": "app", **requirement}]}
    assert matches_labels(selector, {"app": "x"}) is is_selected
    is_absent = requirement["operator"] in ("NotIn", "DoesNotExist")
    assert matches_labels(selector, {}) is is_absent


def test_selector_with_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="operator Near of key app is no operator of a selector"):
        matches_labels({"matchExpressions": [{"key": "app", "operator": "Near"}]}, {})


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413), ("", 422)],
)
def test_refusal_has_reason_code_and_words_of_the_api_server(reason: str, code: int) -> None:
    validation = {"expression": "object.spec.n > 1", "message": "too few"}
    if reason:
        validation["reason"] = reason
    with pytest.raises(ApiRefusal) as caught:
        policies.judge(policy_of(validation), request_of(), CLUSTER)
    assert (caught.value.status, caught.value.reason) == (code, reason or "Invalid")
    assert caught.value.message == (
        "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'bound' denied"
        " request: too few"
    )


def test_target_of_a_refusal_is_named_by_group_and_by_generated_name() -> None:
    assert request_of(group="batch", resource="jobs").target == 'jobs.batch "p"'
    unnamed = {"metadata": {"generateName": "p-"}}
    assert request_of(name="", object=unnamed).target == 'pods "p-"'
    assert request_of(name="", object={"metadata": {}}).target == 'pods "Unknown"'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "failed expression: object.spec.n > 1"),
        ({"message": " said "}, "said"),
        ({"message": "said", "messageExpression": "' n is ' + string(object.spec.n)"}, "n is 1"),
        ({"message": "said", "messageExpression": "object.spec.z"}, "said"),
        ({"message": "said", "messageExpression": "''"}, "said"),
        ({"message": "said", "messageExpression": r"'a\nb'"}, "said"),
        ({"message": "said", "messageExpression": "object.spec.n"}, "said"),
        ({"messageExpression": "'%s'.format([request.userInfo.username])"}, "ann"),
    ],
)
def test_message_is_the_expressions_or_falls_back(fields: Manifest, message: str) -> None:
    assert messages(policy_of({"expression": " object.spec.n > 1 ", **fields})) == [message]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_error_refuses_unless_the_policy_ignores_failures(policy: str) -> None:
    validation = {"expression": "object.spec.z == 1", "reason": "Forbidden"}
    manifests = policy_of(validation, failurePolicy=policy)
    words = "expression 'object.spec.z == 1' resulted in error: no such key: z"
    assert messages(manifests) == ([words] if policy == "Fail" else [])
    if policy == "Fail":
        with pytest.raises(ApiRefusal) as caught:
            policies.judge(manifests, request_of(), CLUSTER)
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")


def test_function_that_is_not_built_refuses_with_its_name() -> None:
    (message,) = messages(policy_of({"expression": "ip('::1').family() == 6"}))
    assert message.startswith("compilation error: compilation failed: ERROR")
    assert "undeclared reference to 'ip'" in message


def test_condition_decides_whether_the_policy_is_about_a_request() -> None:
    false, broken = (
        {"name": name, "expression": expression}
        for name, expression in (("no", "object.spec.n > 1"), ("bad", "object.spec.z"))
    )
    never = {"expression": "false", "message": "never"}
    assert messages(policy_of(never, matchConditions=[false])) == []
    # A condition that is false counts before one that fails.
    assert messages(policy_of(never, matchConditions=[broken, false])) == []
    words = "expression 'object.spec.z' resulted in error: no such key: z"
    assert messages(policy_of(never, matchConditions=[broken])) == [words]
    assert messages(policy_of(never, matchConditions=[broken, broken])) == [f"[{words}, {words}]"]
    assert messages(policy_of(never, matchConditions=[broken], failurePolicy="Ignore")) == []
    namespace = {"name": "no namespace", "expression": "namespaceObject != null"}
    assert messages(policy_of(never, matchConditions=[namespace])) == []


def test_variable_is_evaluated_where_it_is_read_and_sees_those_before_it() -> None:
    variables = [
        {"name": "broken", "expression": "object.spec.z"},
        {"name": "n", "expression": "object.spec.n"},
        {"name": "more", "expression": "variables.n + 1"},
    ]
    read = {"expression": "variables.more == 2 && (variables.n == 1 || variables.broken)"}
    assert messages(policy_of(read, variables=variables)) == []
    fails = {"expression": "variables.broken"}
    assert messages(policy_of(fails, variables=variables)) == [
        (
            "expression 'variables.broken' resulted in error: composited variable \"broken\" fails"
            " to evaluate: no such key: z"
        )
    ]
    unknown = {"expression": "variables.other"}
    assert "no such key: other" in messages(policy_of(unknown, variables=variables))[0]


def test_authorizer_answers_validations_and_no_message() -> None:
    right = "authorizer.group('g').resource('r').check('{}').allowed()"
    variables = [{"name": "may", "expression": right.format("use")}]
    validation = {"expression": "!variables.may", "message": "said"}
    assert messages(policy_of(validation, variables=variables)) == ["said"]
    assert messages(policy_of(validation, variables=variables), user=ApiUser("bob")) == []
    validation["messageExpression"] = "string(variables.may)"
    assert messages(policy_of(validation, variables=variables)) == ["said"]


def test_variables_describe_the_request() -> None:
    expression = (
        "request.operation == 'UPDATE' && request.namespace == 'a' && request.name == 'p'"
        " && request.resource.resource == 'pods' && request.subResource == 'status'"
        " && request.kind.kind == 'Pod' && request.userInfo.extra['team'] == ['a']"
        " && !has(request.userInfo.uid) && namespaceObject.metadata.labels['tier'] == 'gold'"
        " && object == null && oldObject.metadata.name == 'p' && params == null"
    )
    constraints = {"resourceRules": [rule_of(resources=["pods/status"])]}
    asked = {"operation": "UPDATE", "subresource": "status", "object": None}
    old = {"metadata": {"name": "p"}}
    policy = policy_of({"expression": f"!({expression})"}, matchConstraints=constraints)
    assert len(messages(policy, old=old, **asked)) == 1


# --- bindings -------------------------------------------------------------------------------------


def test_binding_says_what_becomes_of_a_failure() -> None:
    never = {"expression": "false", "message": "never"}
    warns = policy_of(never, binding={"validationActions": ["Warn", "Audit"]})
    assert policies.judge(warns, request_of(), CLUSTER) == [
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'bound': never"
    ]
    assert messages(policy_of(never)[:1]) == [], "nothing binds it"
    elsewhere = {"matchResources": {"namespaceSelector": {"matchLabels": {"tier": "lead"}}}}
    assert messages(policy_of(never, binding=elsewhere)) == []


def test_policy_is_judged_once_for_each_parameter() -> None:
    kind = {"paramKind": {"kind": "Limit"}}
    above = {"expression": "params.limit > 2", "messageExpression": "params.metadata.name"}

    def refusing(reference: Manifest, **fields: Any) -> list[str]:
        return messages(policy_of(above, binding={"paramRef": reference}, **kind), **fields)

    assert refusing({"selector": {}}) == ["one", "two"]
    assert refusing({"selector": {"matchLabels": {"x": "1"}}}) == ["one"]
    assert refusing({"name": "two"}) == ["two"]
    allows = {"selector": {}, "parameterNotFoundAction": "Allow"}
    assert refusing(allows, namespace="b") == []
    assert refusing({"selector": {}, "namespace": "a"}, namespace="b") == ["one", "two"]
    words = "no params found for policy binding with `Deny` parameterNotFoundAction"
    assert refusing({"selector": {}}, namespace="b") == [f"failed to configure binding: {words}"]
    assert messages(policy_of({"expression": "params == null"}, **kind)) == []
