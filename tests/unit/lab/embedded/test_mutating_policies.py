"""Mutating policies in front of the API server in memory, in the words of kube-apiserver."""

from typing import Any

import pytest

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.server import ApiServer
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"
COUNT = (
    'Object{metadata: Object.metadata{annotations: {"n":'
    ' string(int(object.metadata.annotations["n"]) + 1)}}}'
)


def patch(expression: str) -> Object:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def configuration(expression: str) -> Object:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def put_policy(
    api: ApiServer, name: str, *mutations: Object, resource: str = "configmaps", **spec: Any
) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"]}
    binding = spec.pop("binding", {})
    made = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": [resource]}]},
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
        **spec,
    }
    done(api, "POST", kinds.MUTATING_POLICIES, {"metadata": {"name": name}, "spec": made})
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, **binding}}
    done(api, "POST", kinds.MUTATING_BINDINGS, bound)


def a_map(**meta: Any) -> Object:
    return {"metadata": {"name": "m", **meta}, "data": {"a": "1"}}


def test_pod_is_changed_and_completed_before_it_is_validated_and_stored() -> None:
    api = an_api()
    added = (
        '[JSONPatch{op: "add", path: "/spec/containers/-", value: {"name": "b", "image": "j:1"}}]'
    )
    put_policy(api, "sidecar", patch(added), resource="pods")
    done(api, "POST", PODS, a_pod())
    stored = done(api, "GET", f"{PODS}/p")
    assert stored["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"
    assert stored["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert '"b"' in str(stored["metadata"]["managedFields"])


def test_changes_go_to_creations_and_updates_and_their_uid_stays() -> None:
    api = an_api()
    put_policy(api, "size", configuration('Object{data: {"size": string(size(object.data))}}'))
    made = done(api, "POST", MAPS, a_map())
    assert made["data"] == {"a": "1", "size": "1"}
    changed = done(api, "PUT", f"{MAPS}/m", {**a_map(), "data": {"b": "1", "c": "2"}})
    assert changed["data"] == {"b": "1", "c": "2", "size": "2"}
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    done(api, "DELETE", f"{MAPS}/m")


def test_policy_may_rename_what_is_created_and_nothing_else() -> None:
    api = an_api()
    put_policy(api, "name", configuration('Object{metadata: Object.metadata{name: "n"}}'))
    done(api, "POST", MAPS, a_map())
    assert [each["metadata"]["name"] for each in done(api, "GET", MAPS)["items"]] == ["n"]
    assert ask(api, "POST", MAPS, a_map()).body["message"] == 'configmaps "n" already exists'
    done(api, "DELETE", f"{kinds.MUTATING_BINDINGS}/name")
    put_policy(api, "none", patch('[JSONPatch{op: "remove", path: "/metadata/name"}]'))
    assert ask(api, "POST", MAPS, a_map()).body["message"] == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )


def test_validating_policies_and_schemas_judge_what_mutating_ones_made() -> None:
    api = an_api()
    labelled = 'Object{metadata: Object.metadata{labels: {"a": "-"}}}'
    put_policy(api, "label", configuration(labelled))
    answer = ask(api, "POST", MAPS, a_map())
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert 'metadata.labels: Invalid value: "-"' in answer.body["message"]


@pytest.mark.parametrize(("policy", "count"), [("Never", "1"), ("IfNeeded", "2")])
def test_policy_runs_once_more_if_it_asks_for_that(policy: str, count: str) -> None:
    api = an_api()
    put_policy(api, "count", configuration(COUNT), reinvocationPolicy=policy)
    made = done(api, "POST", MAPS, a_map(annotations={"n": "0"}))
    assert made["metadata"]["annotations"]["n"] == count


def test_policy_runs_once_more_after_the_change_of_a_later_one() -> None:
    api = an_api()
    copy = configuration('Object{data: {"copy": has(object.data.b) ? object.data.b : ""}}')
    put_policy(api, "a-copy", copy, reinvocationPolicy="IfNeeded")
    put_policy(api, "b-value", configuration('Object{data: {"b": "2"}}'))
    assert done(api, "POST", MAPS, a_map())["data"] == {"a": "1", "b": "2", "copy": "2"}


def test_policy_changes_by_each_parameter_of_its_binding() -> None:
    api = an_api()
    for name in ("x", "y"):
        meta = {"name": name, "labels": {"limit": "yes"}}
        done(api, "POST", MAPS, {"metadata": meta, "data": {"value": name}})
    reference = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"}
    put_policy(
        api,
        "limits",
        configuration("Object{spec: Object.spec{schedulerName: params.data.value}}"),
        resource="pods",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": reference},
    )
    assert done(api, "POST", PODS, a_pod())["spec"]["schedulerName"] == "y"
    for name in ("x", "y"):
        done(api, "DELETE", f"{MAPS}/{name}")
    assert ask(api, "POST", PODS, a_pod("q")).body["message"] == (
        "policy 'limits' with binding 'limits' denied request: failed to configure binding:"
        " no params found for policy binding with `Deny` parameterNotFoundAction"
    )


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (
            configuration('Object{spec: Object.spec{nodeSelector: {"a": "b"}}}'),
            (
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays,"
                " maps or structs: .spec.nodeSelector"
            ),
        ),
        (
            configuration("Object{spec: Object.spec{nope: 1}}"),
            (
                "error applying patch: failed to convert patch object to typed object: .spec.nope:"
                " field not declared in schema"
            ),
        ),
        (
            configuration("Object{spec: Object.spec{securityContext: Object.spec.wrong{}}}"),
            (
                'type mismatch: unexpected type name "Object.spec.wrong", expected'
                ' "Object.spec.securityContext", which matches field name path from root Object'
                " type"
            ),
        ),
        (
            configuration("Object{spec: object.metadata.z}"),
            "expression 'Object{spec: object.metadata.z}' resulted in error: no such key: z",
        ),
        (
            patch('[JSONPatch{op: "add", path: "/metadata/labels/a", value: "x"}]'),
            (
                "JSON Patch: add operation does not apply: doc is missing path:"
                ' "/metadata/labels/a": missing value'
            ),
        ),
    ],
)
def test_failure_refuses_in_the_servers_words_unless_it_is_ignored(
    mutation: Object, message: str
) -> None:
    api = an_api()
    put_policy(api, "p", mutation, resource="pods")
    answer = ask(api, "POST", PODS, a_pod())
    assert (answer.code, answer.body["reason"]) == (403, "Invalid")
    assert answer.body["message"] == f"policy 'p' with binding 'p' denied request: {message}"
    ignoring = an_api()
    put_policy(ignoring, "p", mutation, resource="pods", failurePolicy="Ignore")
    done(ignoring, "POST", PODS, a_pod())


def test_content_that_is_no_object_of_the_kind_is_an_error_of_the_server() -> None:
    api = an_api()
    unknown = '[JSONPatch{op: "add", path: "/spec/nope", value: 1}]'
    put_policy(api, "p", patch(unknown), resource="pods", failurePolicy="Ignore")
    answer = ask(api, "POST", PODS, a_pod())
    assert (answer.code, answer.body["message"]) == (
        500,
        'Internal error occurred: strict decoding error: unknown field "spec.nope"',
    )


def test_subresources_that_are_not_mutated_are_refused_by_name() -> None:
    api = an_api()
    spec = {"selector": {"matchLabels": {"a": "b"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]}
    path = "/apis/apps/v1/namespaces/default/deployments"
    done(api, "POST", path, {"metadata": {"name": "d"}, "spec": {**spec, "template": template}})
    put_policy(api, "all", configuration("Object{}"), resource="*/*")
    scale = {"metadata": {"name": "d"}, "spec": {"replicas": 2}}
    answer = ask(api, "PUT", f"{path}/d/scale", scale)
    assert answer.code == 501
    assert (
        "mutates no subresource scale, which MutatingAdmissionPolicy 'all'"
        in answer.body["message"]
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    made = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["pods/binding"]}]},
        "reinvocationPolicy": "Never",
        "mutations": [patch('[JSONPatch{op: "remove", path: "/a"}]')],
    }
    refusal = ask(api, "POST", kinds.MUTATING_POLICIES, {"metadata": {"name": "b"}, "spec": made})
    assert refusal.code == 422
    assert '"pods/binding": the embedded cluster mutates no requests' in refusal.body["message"]


def test_policies_are_no_objects_of_policies() -> None:
    api = an_api()
    put_policy(api, "all", configuration("Object{spec: object.metadata.z}"), resource="*")
    done(api, "DELETE", f"{kinds.MUTATING_BINDINGS}/all")
    put_policy(api, "again", configuration("Object{}"), resource="*")


def test_policy_whose_expression_makes_no_object_is_refused() -> None:
    api = an_api()
    with pytest.raises(AssertionError, match=r"must evaluate to Object but got Object\.spec"):
        put_policy(api, "p", configuration("Object.spec{}"))
    with pytest.raises(
        AssertionError, match=r"must evaluate to list\(JSONPatch\) but got list\(dyn\)"
    ):
        put_policy(api, "p", patch("[]"))
