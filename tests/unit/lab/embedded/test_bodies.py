"""Bodies that no client should send: the API server answers each, and goes on."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bireme_lab.embedded.api import patches
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.server import ApiServer
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]}
_RULE = {"rule": "self == oldSelf", "message": "is fixed", "reason": "FieldValueInvalid"}
_SIZE = {
    "type": "object",
    "required": ["count"],
    "additionalProperties": {"type": "string", "pattern": "^a"},
    "properties": {
        "count": {
            "type": "integer",
            "format": "int32",
            "minimum": 1,
            "x-kubernetes-validations": [_RULE],
        },
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    },
}
_SPEC = ("properties", "spec")
_COUNT = (*_SPEC, "properties", "count")
_PARTS = (*_SPEC, "properties", "parts")
_FIRST = ("x-kubernetes-validations", 0)
_DEFINITION = {
    "metadata": {"name": "widgets.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["w"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SIZE}}},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Count", "type": "integer", "jsonPath": ".spec.count"}
                ],
            }
        ],
    },
}
_JOB_SPEC = {
    "parallelism": 2,
    "template": {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}},
}
_OBJECTS: dict[str, Object] = {
    PODS: a_pod(
        tolerations=[{"key": "a", "operator": "Exists"}],
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        schedulingGates=[{"name": "a.example.org/b"}],
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    MAPS: {"data": {"a": "1"}},
    "/api/v1/nodes": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {}},
    "/api/v1/namespaces": {},
    "/api/v1/namespaces/default/services": {"spec": {"ports": [{"port": 80}]}},
    "/apis/batch/v1/namespaces/default/jobs": {"spec": _JOB_SPEC},
    "/apis/apps/v1/namespaces/default/deployments": {
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
    },
    "/apis/apps/v1/namespaces/default/statefulsets": {
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE, "serviceName": "s"}
    },
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 5},
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    },
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
    },
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": {
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'x'"}],
        }
    },
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {
        "webhooks": [
            {
                "name": "a.example.org",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [
                    {
                        "apiGroups": ["x"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["none"],
                    }
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ]
    },
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {
        "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
    DEFINITIONS: _DEFINITION,
    "/apis/example.org/v1/namespaces/default/widgets": {
        "spec": {"count": 1, "parts": [{"name": "a"}], "x": "ab"}
    },
}
_DIRECTIVES = (
    {"$patch": "replace"},
    {"$retainKeys": 5},
    {"$deleteFromPrimitiveList/finalizers": 5},
    {"$setElementOrder/finalizers": "x", "finalizers": ["a"]},
)
_STRANGE: st.SearchStrategy[Any] = st.sampled_from(
    [None, 5, -1.5, "x", "", [], {}, [None], [[]], {"a": None}, True]
)
_PATCHES = (patches.MERGE_PATCH, patches.STRATEGIC_PATCH, patches.APPLY_PATCH)


@pytest.fixture(scope="module", name="api")
def _api() -> ApiServer:
    api = an_api()
    done(api, "POST", DEFINITIONS, _DEFINITION)
    return api


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of a value, of itself first."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [place, *(each for key, part in items for each in _places(part, (*place, key)))]


def _with_part(value: Any, place: tuple[Any, ...], part: Any) -> Any:
    if not place:
        return part
    changed = value.copy()
    inner = value[place[0]] if place[1:] else None
    changed[place[0]] = _with_part(inner, place[1:], part)
    return changed


@given(path=st.sampled_from(sorted(_OBJECTS)), data=st.data())
def test_an_api_server_answers_every_body(api: ApiServer, path: str, data: st.DataObject) -> None:
    """A part of an object is replaced by something strange; then all verbs get it."""
    name = "widgets.example.org" if path == DEFINITIONS else "s"
    resource = _OBJECTS[path]
    resource = {
        **resource,
        "metadata": {"labels": {"l": "v"}, **resource.get("metadata", {}), "name": name},
    }
    place = data.draw(st.sampled_from(_places(resource)))
    strange = _with_part(resource, place, data.draw(_STRANGE))
    for method, address, content_type in (
        ("POST", path, "application/json"),
        ("PUT", f"{path}/{name}", "application/json"),
        ("PATCH", f"{path}/{name}", patches.JSON_PATCH),
        *(("PATCH", f"{path}/{name}", each) for each in _PATCHES),
    ):
        ask(api, method, address, strange, content_type=content_type, fieldManager="f")
        if "reviews" not in path:
            ask(api, "POST", path, resource)  # where the first was refused
            listed = ask(api, "GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
            assert listed.code in (200, 404)
            ask(api, "DELETE", f"{path}/{name}", strange)
            ask(api, "DELETE", f"{path}/{name}")
    done(api, "DELETE", PODS)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((), None, ".schema.openAPIV3Schema: Required value: schemas are required"),
        (("type",), "array", '.type: Invalid value: "array": must be object at the root'),
        (("type",), 5, "type must be a string, not 5"),
        (
            (*_SPEC, "type"),
            "text",
            '[spec].type: Unsupported value: "text": supported values: "arr',
        ),
        (
            (*_SPEC, "additionalProperties", "pattern"),
            "(",
            '.pattern: Invalid value: "(": must be a',
        ),
        ((*_COUNT, "format"), "duration", ".format: Forbidden: rules of CEL over values of this"),
        ((*_COUNT, *_FIRST, "rule"), " ", ".x-kubernetes-validations[0].rule: Required value"),
        (
            (*_COUNT, *_FIRST, "rule"),
            "self ==",
            '.rule: Invalid value: "self ==": compilation fail',
        ),
        ((*_COUNT, *_FIRST, "reason"), "Because", '.reason: Unsupported value: "Because"'),
        (
            (*_COUNT, *_FIRST),
            {**_RULE, "optionalOldSelf": True},
            ".optionalOldSelf: Forbidden: it is not built; write the rule without",
        ),
        ((*_PARTS, "x-kubernetes-list-type"), "bag", '-list-type: Unsupported value: "bag"'),
        ((*_PARTS, "x-kubernetes-list-map-keys"), [], "-list-map-keys: Required value"),
        (
            (*_PARTS, "items"),
            {"type": 5},
            "[parts].items.type: Invalid value: 5: type must be a st",
        ),
    ],
)
def test_a_schema_that_nobody_can_follow_is_refused(
    place: tuple[Any, ...], value: Any, words: str
) -> None:
    schema = {"type": "object", "properties": {"spec": _SIZE}}
    root = ("spec", "versions", 0, "schema", "openAPIV3Schema")
    body = _with_part(_DEFINITION, root, _with_part(schema, place, value))
    answer = ask(an_api(), "POST", DEFINITIONS, body)
    assert answer.code in (400, 422)
    assert words in answer.body["message"]
