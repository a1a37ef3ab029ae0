"""The chart's policies on a cluster on which Bireme runs: every resource, and what still works.

Each validation is put to a real API server by ``test_api_server_parity.py``.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from testbed.controlplane.api import JSON
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import NAMESPACE, Helm, running
from testbed.scenario.manifests import (
    GPU,
    PLAN_GATE,
    Manifest,
    member_template,
    pod,
    pod_group,
    pod_spec,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

ANN: Final = ("--as=ann", "--as-group=system:authenticated")
"""The owner of one namespace: she may do everything there is in it."""
OPERATOR: Final = f"--as=system:serviceaccount:{NAMESPACE}:bireme-operator"


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Iterator[BiremeStack]:
    """A cluster onto which the chart was installed, by its default values."""
    with (
        scenario_helm.installed("enforce", fake_nodes(2, gpus=8, racks=2), helm) as cluster,
        running(cluster, tmp_path_factory.mktemp("stack")) as stack,
    ):
        yield stack


@pytest.fixture
def tenant(installed: BiremeStack) -> Iterator[Tenant]:
    """A namespace whose owner has a Role with every verb on everything."""
    cluster = installed.cluster
    with Tenant.staying(cluster, installed.log_tails) as tenant:
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant.namespace}"
        api, named = cluster.api, {"metadata": {"name": "owner"}}
        api.post(f"{rbac}/roles", {**named, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "owner"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
        api.post(f"{rbac}/rolebindings", {**named, "roleRef": role, "subjects": [subject]})
        until("created", tried, tenant, pod("probe", gpus=0), *ANN)
        yield tenant


def said(tenant: Tenant, *arguments: str, manifest: Manifest | None = None) -> str:
    """Return what kubectl prints about a request in the tenant's namespace, however it ends."""
    text = json.dumps(manifest) if manifest is not None else ""
    where = f"--namespace={tenant.namespace}"
    return tenant.cluster.kubectl(*arguments, where, input=text, check=False)


def answer_to(
    tenant: Tenant, method: str, path: str, body: object, who: Sequence[str], content: str = JSON
) -> str:
    """Return ``created`` or ``patched``, or the API server's message to ``who``."""
    headers = {"Content-Type": content}
    for flag in who:
        name, _, value = flag.partition("=")
        headers[{"--as": "Impersonate-User", "--as-group": "Impersonate-Group"}[name]] = value
    reply = tenant.cluster.api.request(method, path, body, headers)
    word = {200: "patched", 201: "created"}.get(reply.status)
    return word or str(reply.json()["message"])


def tried(tenant: Tenant, manifest: Manifest, *who: str) -> str:
    """Return the answer to a creation that changes nothing."""
    path = f"{tenant.path(manifest['kind'])}?dryRun=All&fieldValidation=Strict"
    return answer_to(tenant, "POST", path, manifest, who)


def until(words: str, answer: Callable[..., str], *arguments: Any) -> None:
    """Return once ``answer(*arguments)`` has these words: policies act a moment after a write."""
    eventually(lambda: answer(*arguments), lambda text: words in text)


def label_namespace(tenant: Tenant, name: str, value: str) -> None:
    path = f"/api/v1/namespaces/{tenant.namespace}"
    tenant.cluster.api.patch(path, {"metadata": {"labels": {name: value}}})


def enforced(tenant: Tenant) -> None:
    """Label the namespace, and return when the API server acts on it."""
    label_namespace(tenant, "bireme.dev/enforce", "true")
    until("keeps its queues", tried, tenant, pod("probe", gpus=1))


@contextmanager
def without(tenant: Tenant, policy: str) -> Iterator[None]:
    """Take the binding of a policy away within the block, as administrators do for a repair."""
    api = tenant.cluster.api
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    found = api.get(f"{path}/{policy}")
    found["metadata"] = {key: found["metadata"][key] for key in ("name", "labels", "annotations")}
    assert api.request("DELETE", f"{path}/{policy}").status == 200
    try:
        yield
    finally:
        api.post(path, found)


# --- namespaces that enforce their queues ---------------------------------------------------------


def test_whatever_goes_through_a_queue_or_asks_for_no_device_runs_where_they_are_enforced(
    tenant: Tenant,
) -> None:
    enforced(tenant)
    member = {"apiVersion": "v1", "kind": "Pod", **member_template("crew", 1)}
    member["metadata"]["name"] = "crew-0"
    none = pod("none", gpus=0)
    none["spec"]["containers"][0]["resources"] = {"limits": {GPU: "0"}}
    for manifest in (pod_group("crew", 1), member, none, training_job("job", task("worker", 2))):
        assert "created" in said(tenant, "create", "-f", "-", *ANN, manifest=manifest)
    tenant.await_phase("job", "Running")
    tenant.eventually(lambda: nodes_of(tenant.pods()).keys() >= {"crew-0", "none"})


def binding(name: str) -> Manifest:
    head = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
    return {**head, "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-00"}}


SUBRESOURCES_OF_NAMESPACES: Final = ("", "/status", "/finalize")


# --- labels, gates and scheduler of pods ----------------------------------------------------------

GATED: Final = [{"name": PLAN_GATE}]


@dataclass(frozen=True)
class Write:
    """A request by which labels of a pod might be written.

    Attributes:
        answer: Words of the refusal; empty where the request changes no label and no gate.
    """

    verb: str
    answer: str = ""


WRITES_TO_PODS: Final[dict[str, Write | None]] = {
    "pods": Write("PUT", "only the operator"),
    "pods/status": Write("PUT", "only the operator writes the labels"),
    "pods/ephemeralcontainers": Write("PUT"),
    "pods/resize": Write("PUT"),
    "pods/binding": Write("POST", "a binding does not write the labels"),
    "bindings": Write("POST", "a binding does not write the labels"),
    "pods/eviction": Write("POST"),
    "pods/attach": None,
    "pods/exec": None,
    "pods/log": None,
    "pods/portforward": None,
    "pods/proxy": None,
}
"""All resources of pods, by the API server's discovery; None where nothing is written."""

WRITES_TO_NAMESPACES: Final = {f"namespaces{each}" for each in SUBRESOURCES_OF_NAMESPACES}
SERVED_OF_OURS: Final = {
    *("trainingjobs", "trainingjobs/status", "podgroups", "podgroups/status"),
    *("queues", "queues/status", "schedulingpolicies", "schedulingpolicies/status"),
    *("nodepoolscalers", "nodepoolscalers/status", "clusterclaims", "tickets"),
}
"""``/status`` is the operators', and no kind has a ``/scale``."""


def discovered(tenant: Tenant, path: str) -> set[str]:
    return {each["name"] for each in tenant.cluster.api.get(path)["resources"]}


def those_of(names: set[str], *resources: str) -> set[str]:
    return {name for name in names if name.partition("/")[0] in resources}


def test_no_resource_is_unknown_through_which_a_pod_or_a_queue_could_be_chosen(
    tenant: Tenant,
) -> None:
    core = discovered(tenant, "/api/v1")
    assert those_of(core, "pods", "bindings") == WRITES_TO_PODS.keys()
    assert those_of(core, "namespaces") == WRITES_TO_NAMESPACES
    assert discovered(tenant, "/apis/bireme.dev/v1alpha1") == SERVED_OF_OURS


def written(tenant: Tenant, name: str, resource: str, labels: Manifest) -> str:
    """Return the answer when ann writes ``labels`` of a pod through ``resource``."""
    write, where = WRITES_TO_PODS[resource], f"/api/v1/namespaces/{tenant.namespace}"
    assert write is not None
    if resource == "pods/eviction":
        made: Manifest = {"apiVersion": "policy/v1", "kind": "Eviction", "dryRun": ["All"]}
        made["metadata"] = {"name": name, "labels": labels}
    elif write.verb == "POST":
        made = binding(name)
        made["metadata"]["labels"] = labels
    else:
        made = tenant.get("Pod", name)
        made["metadata"]["labels"] |= labels
        made["spec"].pop("schedulingGates", None)
    _, _, sub = resource.partition("/")
    path = f"{where}/bindings" if resource == "bindings" else f"{where}/pods/{name}"
    if sub:
        path += f"/{sub}"
    dry = "?dryRun=All" if resource == "pods/eviction" else ""
    return answer_to(tenant, write.verb, path + dry, made, ANN[:1])


@pytest.mark.parametrize("resource", [name for name, write in WRITES_TO_PODS.items() if write])
def test_labels_and_gates_are_the_operators_through_every_resource(
    tenant: Tenant, resource: str
) -> None:
    spec = pod_spec(schedulerName="bireme", schedulingGates=GATED)
    gated: Manifest = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    gated["metadata"] = {"name": "gated", "labels": {"bireme.dev/pod-group": "never"}}
    tenant.create(gated)
    before = tenant.get("Pod", "gated")
    answer = written(tenant, "gated", resource, {"bireme.dev/queue": "another"})
    write = WRITES_TO_PODS[resource]
    assert write is not None
    assert write.answer in answer
    found = tenant.get("Pod", "gated")
    assert found["metadata"]["labels"] == before["metadata"]["labels"]
    assert found["spec"]["schedulingGates"] == GATED


@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
def test_binding_writes_labels_of_a_pod_where_no_policy_refuses_it(
    tenant: Tenant, resource: str
) -> None:
    tenant.create(pod("plain", gpus=0, schedulerName="nobody"))
    with without(tenant, "bireme-pods-bindings"):

        def written_label() -> str:
            written(tenant, "plain", resource, {"bireme.dev/queue": "another"})
            found = tenant.get("Pod", "plain")["metadata"].get("labels") or {}
            return str(found.get("bireme.dev/queue"))

        until("another", written_label)


# --- the fence ------------------------------------------------------------------------------------


def test_helm_test_alone_runs_in_the_namespace_of_the_release(
    installed: BiremeStack, helm: Helm
) -> None:
    made = (each for each in yaml.safe_load_all(helm.template()) if each)
    text = next(each["data"]["job.yaml"] for each in made if "job.yaml" in each.get("data", {}))
    job = yaml.safe_load(text)
    job["metadata"] = {"name": f"{job['metadata']['generateName']}a", "namespace": NAMESPACE}
    system = Tenant(installed.cluster, NAMESPACE, installed.log_tails)
    system.create(job)
    try:
        system.await_phase("bireme-test-a", "Running")
        like_it = pod("bireme-test-b", schedulerName="bireme")
        assert "systemNamespaces" in tried(system, like_it, OPERATOR)
    finally:
        system.delete("TrainingJob", "bireme-test-a")


def test_job_whose_template_the_fence_refuses_says_what_and_which_value_allows_it(
    tenant: Tenant,
) -> None:
    spec = pod_spec(hostNetwork=True)
    tenant.create(training_job("job", task("worker", 2, spec=spec)))
    status = tenant.eventually(
        lambda: tenant.status("job"),
        lambda status: "admission.operator.hostNetwork" in status.get("message", ""),
    )
    assert status["reason"] == "PodsRefused"
    assert tenant.pods() == []
