"""Pods of the embedded API server: binding, eviction, deletion, and what may change."""

from typing import Any

import pytest

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.builtin import pod_verbs
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

GATE = {"name": "bireme.dev/plan"}


@pytest.fixture
def api() -> ApiServer:
    made = an_api()
    pod_verbs.register(made, {})
    return made


def bind(api: ApiServer, node: str = "n", **meta: Any) -> Any:
    body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
    return ask(api, "POST", f"{PODS}/p/binding", body)


def running(api: ApiServer, name: str = "p", **labels: str) -> Object:
    pod = a_pod(name)
    done(api, "POST", PODS, {**pod, "metadata": {"name": name, "labels": labels}})
    body = {"metadata": {}, "target": {"name": "n"}}
    assert ask(api, "POST", f"{PODS}/{name}/binding", body).code == 201
    found = done(api, "GET", f"{PODS}/{name}")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return done(api, "PUT", f"{PODS}/{name}/status", {**found, "status": status})


def test_a_gated_pod_is_not_bound_and_says_so(api: ApiServer) -> None:
    pod = done(api, "POST", PODS, a_pod(schedulingGates=[GATE]))
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert bind(api).code == 409
    done(api, "PUT", f"{PODS}/p", {**pod, "spec": {**pod["spec"], "schedulingGates": []}})
    assert bind(api).code == 201
    again = bind(api, "m")
    assert again.code == 409
    assert 'already assigned to node "n"' in again.body["message"]


def test_a_binding_of_another_pod_of_that_name_conflicts(api: ApiServer) -> None:
    done(api, "POST", PODS, a_pod())
    assert bind(api, uid="other").code == 409


def test_gates_are_only_taken_away(api: ApiServer) -> None:
    pod = done(api, "POST", PODS, a_pod(schedulingGates=[GATE]))
    more = {**pod["spec"], "schedulingGates": [GATE, {"name": "a/b"}]}
    answer = ask(api, "PUT", f"{PODS}/p", {**pod, "spec": more})
    assert "only deletion is allowed" in answer.body["message"]


def test_the_spec_of_a_pod_is_fixed_but_for_a_few_fields(api: ApiServer) -> None:
    pod = done(api, "POST", PODS, a_pod())
    other = {**pod["spec"], "schedulerName": "bireme"}
    answer = ask(api, "PUT", f"{PODS}/p", {**pod, "spec": other})
    assert answer.code == 422
    assert "spec: Forbidden: pod updates may not change fields other than" in answer.body["message"]


def test_deletion_waits_for_the_kubelet_of_a_bound_pod_alone(api: ApiServer) -> None:
    done(api, "POST", PODS, a_pod("free"))
    done(api, "DELETE", f"{PODS}/free")
    assert ask(api, "GET", f"{PODS}/free").code == 404
    running(api)
    left = done(api, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 60})
    assert left["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = done(api, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    done(api, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert ask(api, "GET", f"{PODS}/p").code == 404


def test_a_budget_stops_the_eviction_that_it_cannot_afford(api: ApiServer) -> None:
    for name in ("p", "q"):
        running(api, name, app="x")
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    done(api, "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    done(api, "POST", f"{PODS}/p/eviction", eviction)
    found = done(api, "GET", f"{PODS}/p")
    assert found["metadata"]["deletionTimestamp"]
    assert found["status"]["conditions"][-1]["type"] == "DisruptionTarget"
    refused = ask(api, "POST", f"{PODS}/q/eviction", {**eviction, "metadata": {"name": "q"}})
    assert refused.code == 429
    assert "violate the pod's disruption budget" in refused.body["message"]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"nvidia.com/gpu": 1}}, "Limit must be set for non overcommitable"),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        ({"limits": {"nvidia.com/gpu": "500m"}}, 'Invalid value: "500m": must be an integer'),
        ({"requests": {"gold": "1"}}, "must be a standard resource type or fully qualified"),
    ],
)
def test_amounts_that_do_not_go_together_are_refused(
    api: ApiServer, resources: Object, words: str
) -> None:
    container = {"name": "c", "image": "x", "resources": resources}
    answer = ask(api, "POST", PODS, a_pod(containers=[container]))
    assert answer.code == 422
    assert words in answer.body["message"]


def test_a_priority_class_becomes_the_priority(api: ApiServer) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    done(api, "POST", classes, {"metadata": {"name": "high"}, "value": 7})
    pod = done(api, "POST", PODS, a_pod(priorityClassName="high"))
    assert pod["spec"]["priority"] == 7
    answer = ask(api, "POST", PODS, a_pod("q", priorityClassName="none"))
    assert "no PriorityClass with name none was found" in answer.body["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"activeDeadlineSeconds": 0}, "must be between 1 and 2147483647, inclusive"),
        ({"dnsPolicy": "None"}, "must provide `dnsConfig` when `dnsPolicy` is None"),
        ({"nodeSelector": {"a": "b c"}}, 'spec.nodeSelector: Invalid value: "b c": a valid label'),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "must be empty when"),
        ({"tolerations": [{"operator": "Like"}]}, "operator must be Exists when `key` is empty"),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'Gates[1]: Duplicate value: "a"'),
        ({"volumes": [{"name": "Bad"}]}, 'spec.volumes[0].name: Invalid value: "Bad"'),
        ({"serviceAccountName": "nobody"}, 'serviceaccount "nobody" not found'),
    ],
)
def test_fields_of_pods_are_checked(api: ApiServer, spec: Object, words: str) -> None:
    answer = ask(api, "POST", PODS, a_pod(**spec))
    assert answer.code in (403, 422)
    assert words in answer.body["message"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": " spaced "}, "must not have leading or trailing whitespace"),
        ({"imagePullPolicy": "Sometimes"}, 'Unsupported value: "Sometimes"'),
        ({"ports": [{"containerPort": 70_000}]}, "must be between 1 and 65535, inclusive"),
        ({"env": [{"name": "1=2"}]}, "a valid environment variable name must consist only of"),
    ],
)
def test_fields_of_containers_are_checked(api: ApiServer, fields: Object, words: str) -> None:
    answer = ask(api, "POST", PODS, a_pod(containers=[{"name": "c", "image": "x", **fields}]))
    assert answer.code == 422
    assert words in answer.body["message"]


def test_a_pod_whose_last_gate_goes_has_no_gates(api: ApiServer) -> None:
    done(api, "POST", PODS, a_pod(schedulingGates=[{"name": "a"}]))
    operations = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    pod = done(api, "PATCH", f"{PODS}/p", operations, content_type="application/json-patch+json")
    assert "schedulingGates" not in pod["spec"]


def test_a_bound_pod_has_the_zone_of_its_node(api: ApiServer) -> None:
    labels = {"topology.kubernetes.io/zone": "z", "other": "label"}
    done(api, "POST", "/api/v1/nodes", {"metadata": {"name": "n", "labels": labels}})
    done(api, "POST", PODS, a_pod())
    done(api, "POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert done(api, "GET", f"{PODS}/p")["metadata"]["labels"] == {
        "topology.kubernetes.io/zone": "z"
    }
