"""Mutating policies on the embedded cluster and on a real one: the same objects, the same answers.

Every story has a namespace, and its policies are about that namespace alone. The real server
follows policies a moment later, so its answer is awaited until it is the embedded one.
"""

from typing import Any, Final

import pytest

from bireme.kube import crd
from bireme_lab.embedded.cluster import make_api
from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.scenario.server_pair import ServerPair

pytestmark = pytest.mark.cluster

GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
MUTATING: Final = f"{GROUP}/mutatingadmissionpolicies"
VALIDATING_PATH: Final = f"{GROUP}/validatingadmissionpolicies"
MUTATING_BINDINGS: Final = f"{GROUP}/mutatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> ServerPair:
    return ServerPair(make_api(lambda: 1_900_000_000.0), cluster)


# --- policies as objects --------------------------------------------------------------------------


def json_patch(expression: str) -> Manifest:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def configuration(expression: str) -> Manifest:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def policy(name: str, *mutations: Manifest, resource: str = "pods", **spec: Any) -> Manifest:
    """A policy about one resource in the namespace of its own name."""
    group, _, plural = resource.rpartition("/")
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural],
    }
    own = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    constraints = {"namespaceSelector": own, "resourceRules": [rule]}
    made = {
        "matchConstraints": constraints,
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
    }
    return {"metadata": {"name": name}, "spec": {**made, **spec}}


ADD: Final = json_patch('[JSONPatch{op: "remove", path: "/metadata/labels"}]')
POLICIES: Final[dict[str, Manifest]] = {
    "complete": policy("a", ADD),
    "operation of a number": policy("a", json_patch('[JSONPatch{op: 1, path: "/a"}]')),
    "unknown name": policy("a", json_patch('[JSONPatch{op: "add", path: nope}]')),
    "text": policy("a", json_patch('"x"')),
    "any value": policy("a", json_patch("object")),
    "empty list": policy("a", json_patch("[]")),
    "map": policy("a", configuration('{"a": 1}')),
    "object of a part": policy("a", configuration("Object.spec{}")),
    "second line": policy("a", configuration("Object{spec:\n   Object.spec{a: nope}}")),
    "variable": policy("a", configuration("Object{spec: Object.spec{a: variables.x}}")),
    "no mutations": policy("a"),
    "both forms": policy("a", {**configuration("Object{}"), "jsonPatch": {"expression": "[]"}}),
    "no form": policy("a", {"patchType": "ApplyConfiguration"}),
    "blank": policy("a", configuration("  ")),
    "unknown type": policy("a", {"patchType": "Merge"}),
    "no type": policy("a", {}),
    "unknown reinvocation": policy("a", ADD, reinvocationPolicy="Sometimes"),
    "no reinvocation": policy("a", ADD, reinvocationPolicy=None),
    "no constraints": policy("a", ADD, matchConstraints=None),
    "no rules": policy("a", ADD, matchConstraints={}),
    "unknown failure policy": policy("a", ADD, failurePolicy="Maybe"),
    "params without a kind": policy("a", configuration("Object{spec: params.x}")),
    "bad condition and variable": policy(
        "a",
        ADD,
        matchConditions=[{"name": "a", "expression": "variables.x"}],
        variables=[{"name": "x", "expression": "nope"}],
    ),
    "deletions": policy(
        "a",
        ADD,
        matchConstraints={
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["DELETE", "CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
    ),
}
BINDINGS: Final[dict[str, Manifest]] = {
    "complete": {"policyName": "a", "matchResources": {}},
    "no policy": {},
    "empty reference": {"policyName": "a", "paramRef": {}},
    "name and selector": {"policyName": "a", "paramRef": {"name": "x", "selector": {}}},
}


def validating(*validations: Manifest, **spec: Any) -> Manifest:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    made = {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations)}
    return {"metadata": {"name": "v"}, "spec": {**made, **spec}}


VALIDATING: Final[dict[str, Manifest]] = {
    "complete": validating({"expression": "has(object.spec)", "message": "m"}),
    "unknown name": validating({"expression": "nope == 1"}),
    "unknown variable": validating(
        {"expression": "variables.y"}, variables=[{"name": "x", "expression": "1"}]
    ),
    "message": validating({"expression": "true", "messageExpression": "nope"}),
    "no validations": validating(),
    "no rules": validating({"expression": "true"}, matchConstraints={}),
    "params without a kind": validating({"expression": "params == null"}),
}


def test_policies_are_answered_as_by_the_api_server(servers: ServerPair) -> None:
    assert not (differences := servers.differences(MUTATING, POLICIES)), differences
    assert not (differences := servers.differences(VALIDATING_PATH, VALIDATING)), differences
    bindings = {name: {"metadata": {"name": "a"}, "spec": spec} for name, spec in BINDINGS.items()}
    assert not (differences := servers.differences(MUTATING_BINDINGS, bindings)), differences


# --- policies at work -----------------------------------------------------------------------------


def a_pod(**spec: Any) -> Manifest:
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}
    own = {"containers": [container], "automountServiceAccountToken": False}
    return {"metadata": {"name": "p"}, "spec": {**own, **spec}}


def a_map(**meta: Any) -> Manifest:
    return {"metadata": {"name": "m", **meta}, "data": {"a": "1"}}


COUNT: Final = (
    'Object{metadata: Object.metadata{annotations: {"n":'
    ' string(int(object.metadata.annotations["n"]) + 1)}}}'
)
ANNOTATED: Final = {"annotations": {"n": "0"}}
TRAINING_JOB: Final[Manifest] = {
    "apiVersion": "bireme.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "j"},
    "spec": {
        "tasks": [
            {
                "name": "worker",
                "role": "worker",
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            }
        ]
    },
}
JOBS: Final = "bireme.dev/trainingjobs"
PATHS: Final = {
    "pods": "/api/v1/namespaces/{}/pods",
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "batch/jobs": "/apis/batch/v1/namespaces/{}/jobs",
    JOBS: "/apis/bireme.dev/v1alpha1/namespaces/{}/trainingjobs",
}
Story = tuple[str, list[Manifest], Manifest, dict[str, Any]]
STORIES: Final[dict[str, Story]] = {
    "schedulername": (
        "pods",
        [json_patch('[JSONPatch{op: "replace", path: "/spec/schedulerName", value: "yunikorn"}]')],
        a_pod(),
        {},
    ),
    "escaped": (
        "configmaps",
        [
            json_patch(
                '[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a.b/c"),'
                ' value: "x"}]'
            )
        ],
        a_map(labels={"z": "1"}),
        {},
    ),
    "missing-path": (
        "configmaps",
        [json_patch('[JSONPatch{op: "add", path: "/metadata/labels/a", value: "x"}]')],
        a_map(),
        {},
    ),
    "failed-test": (
        "configmaps",
        [
            json_patch(
                '[JSONPatch{op: "add", path: "/data/b", value: "2"},'
                ' JSONPatch{op: "test", path: "/data/a", value: "2"}]'
            )
        ],
        a_map(),
        {},
    ),
    "unknown-field": (
        "pods",
        [json_patch('[JSONPatch{op: "add", path: "/spec/nope", value: 1}]')],
        a_pod(),
        {},
    ),
    "second-container": (
        "pods",
        [
            configuration(
                'Object{spec: Object.spec{containers: [Object.spec.containers{name: "b", image:'
                ' "j"}, Object.spec.containers{name: "c", env: [Object.spec.containers.env{name:'
                ' "B", value: "2"}]}]}}'
            )
        ],
        a_pod(),
        {},
    ),
    "whole-containers": (
        "pods",
        [
            json_patch(
                '[JSONPatch{op: "add", path: "/spec/initContainers", value:'
                ' [Object.spec.initContainers{name: "b", image: "j:1"}]}]'
            )
        ],
        a_pod(),
        {},
    ),
    "atomic": (
        "pods",
        [
            configuration(
                'Object{spec: Object.spec{nodeSelector: {"a": "b"}, containers:'
                ' [Object.spec.containers{name: "c", args: ["-g"]}]}}'
            )
        ],
        a_pod(),
        {},
    ),
    "undeclared": (
        "pods",
        [configuration('Object{spec: Object.spec{nope: 1, schedulerName: "x"}}')],
        a_pod(),
        {},
    ),
    "misplaced": (
        "pods",
        [configuration("Object{spec: Object.spec{securityContext: Object.spec.wrong{}}}")],
        a_pod(),
        {},
    ),
    "no-such-key": (
        "configmaps",
        [configuration('Object{data: {"b": object.data.z}}')],
        a_map(),
        {},
    ),
    "ignored-failure": (
        "configmaps",
        [
            configuration('Object{data: {"b": object.data.z}}'),
            configuration('Object{data: {"c": object.data.a}}'),
        ],
        a_map(),
        {"failurePolicy": "Ignore"},
    ),
    "two-failures": (
        "configmaps",
        [
            configuration('Object{data: {"b": object.data.z}}'),
            configuration('Object{data: {"c": object.data.y}}'),
        ],
        a_map(),
        {},
    ),
    "condition": (
        "configmaps",
        [configuration('Object{data: {"b": "2"}}')],
        a_map(),
        {"matchConditions": [{"name": "no", "expression": "has(object.data.z)"}]},
    ),
    "broken-condition": (
        "configmaps",
        [configuration('Object{data: {"b": "2"}}')],
        a_map(),
        {"matchConditions": [{"name": "no", "expression": "object.data.z == '1'"}]},
    ),
    "variables": (
        "configmaps",
        [configuration('Object{data: {"b": variables.b, "n": string(variables.n)}}')],
        a_map(),
        {
            "variables": [
                {"name": "n", "expression": "size(object.data)"},
                {"name": "b", "expression": "object.data.a + string(variables.n)"},
            ]
        },
    ),
    "what-is-seen": (
        "configmaps",
        [
            configuration(
                'Object{data: {"b": request.operation + request.name + string(has(object.metadata'
                ".uid)) + namespaceObject.metadata.name + string(oldObject == null)}}"
            )
        ],
        a_map(),
        {},
    ),
    "without-own-labels": (
        "batch/jobs",
        [
            json_patch(
                '[JSONPatch{op: "add", path: "/spec/template/metadata/labels/a", value: "x"}]'
            )
        ],
        {
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}},
        },
        {},
    ),
    "unnamed": (
        "configmaps",
        [
            configuration(
                'Object{data: {"n": string(has(request.name)) + string(has(request.subResource)) +'
                " string(has(object.metadata.name)) + string(request.dryRun)}}"
            )
        ],
        {"metadata": {"generateName": "m-"}, "data": {"a": "1"}},
        {},
    ),
    "once": ("configmaps", [configuration(COUNT)], a_map(**ANNOTATED), {}),
    "if-needed": (
        "configmaps",
        [configuration(COUNT)],
        a_map(**ANNOTATED),
        {"reinvocationPolicy": "IfNeeded"},
    ),
    "invalid-result": (
        "configmaps",
        [configuration('Object{metadata: Object.metadata{labels: {"a": "-"}}}')],
        a_map(),
        {},
    ),
    "priority": (
        "pods",
        [configuration('Object{spec: Object.spec{priorityClassName: "system-node-critical"}}')],
        a_pod(),
        {},
    ),
    "custom": (
        JOBS,
        [
            configuration(
                "Object{spec: Object.spec{runPolicy: Object.spec.runPolicy{backoffLimit: 7}}}"
            )
        ],
        TRAINING_JOB,
        {},
    ),
    "custom-undeclared": (
        JOBS,
        [configuration("Object{spec: Object.spec{nope: 7}}")],
        TRAINING_JOB,
        {},
    ),
    "custom-invalid": (
        JOBS,
        [json_patch('[JSONPatch{op: "add", path: "/spec/tasks/0/minReplicas", value: 3}]')],
        TRAINING_JOB,
        {},
    ),
}


@pytest.fixture(scope="module")
def policies_at_work(servers: ServerPair) -> ServerPair:
    """Every story's namespace, policy and binding."""
    kind = next(each for each in crd.KINDS if each.plural == "trainingjobs")
    servers.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
               crd.definition(kind))  # fmt: skip
    for name, (resource, mutations, _, spec) in STORIES.items():
        made = policy(name, *mutations, resource=resource, **spec)
        made["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = ["*"]
        binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
        servers.do("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        servers.do("POST", MUTATING, made)
        servers.do("POST", MUTATING_BINDINGS, binding)
    return servers


@pytest.mark.parametrize("name", STORIES)
def test_policy_changes_what_the_api_server_would(policies_at_work: ServerPair, name: str) -> None:
    resource, _, obj, _ = STORIES[name]
    path = PATHS[resource].format(name)
    difference = policies_at_work.difference("POST", f"{path}?dryRun=All", obj)
    assert not difference, difference
