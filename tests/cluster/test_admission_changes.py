"""Pods that the real API server's admission changes or refuses.

A LimitRange, a RuntimeClass with overhead and mutating policies change pods as they are created,
and gangs are planned with what comes of it. ResourceQuotas refuse pods one by one.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.at_once import at_once, starts_at_once, waits_at_once
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import GPU, Manifest, pod_spec, queue, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = pytest.mark.cluster
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = f"{POLICIES[:-3]}ybindings"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("admission", tmp_path_factory.mktemp("stack"), nodes=2) as stack:
        for name, change in CHANGES.items():
            add_policy(stack, name, change)
        yield stack


CHANGES = {
    "sidecar": """Object{spec: Object.spec{initContainers: [Object.spec.initContainers{
        name: "proxy", image: "proxy", restartPolicy: "Always",
        resources: Object.spec.initContainers.resources{requests: {"cpu": "2"}}}]}}""",
    "gate": """Object{spec: Object.spec{schedulingGates: [
        Object.spec.schedulingGates{name: "example.com/budget"}]}}""",
    "label": """Object{metadata: Object.metadata{labels: {"example.com/tier": "gpu"}}}""",
}


def add_policy(stack: BiremeStack, name: str, expression: str) -> None:
    """Have pods in namespaces labelled ``change: name`` changed by ``expression``."""
    api = stack.cluster.api
    rule: Manifest = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    spec: Manifest = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"change": name}},
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": expression},
            }
        ],
    }
    version = "admissionregistration.k8s.io/v1"
    meta = {"metadata": {"name": name}, "apiVersion": version}
    api.post(POLICIES, {**meta, "kind": "MutatingAdmissionPolicy", "spec": spec})
    binding = {**meta, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}
    api.post(BINDINGS, binding)


def make(tenant: Tenant, kind: str, name: str, **fields: Any) -> None:
    group, namespace = "/api/v1", f"/namespaces/{tenant.namespace}"
    if kind == "RuntimeClass":
        group, namespace = "/apis/node.k8s.io/v1", ""
    plural = {"LimitRange": "limitranges", "ResourceQuota": "resourcequotas"}
    body = {"metadata": {"name": name}, **fields}
    path = f"{group}{namespace}/{plural.get(kind, 'runtimeclasses')}"
    tenant.cluster.api.post(path, body)


def changed_by(tenant: Tenant, name: str) -> None:
    """Have the policy ``name`` change the tenant's pods, and wait until it does."""
    tenant.cluster.kubectl("label", "namespace", tenant.namespace, f"change={name}")

    def is_changed() -> bool:
        pod = {"metadata": {"name": "probe"}, "spec": pod_spec(0), "kind": "Pod"}
        path = tenant.path("Pod")
        made = tenant.cluster.api.post(f"{path}?dryRun=All", pod)
        changed = {"initContainers", "schedulingGates", "labels"}
        return bool(changed & {*made["spec"], *made["metadata"]})

    tenant.eventually(is_changed)


def runs_at_once(tenant: Tenant, name: str, **fields: Any) -> dict[str, str]:
    """Return what one replica is planned with, of a gang of two that runs without a detour."""
    tenant.create(training_job(name, task(replicas=2, spec=pod_spec(gpus=1, **fields))))
    requests: dict[str, str] = starts_at_once(tenant, name)["plan"]["tasks"][0]["requests"]
    return requests


def test_a_limit_range_raises_what_a_gang_is_planned_with(tenant: Tenant) -> None:
    limit = {"type": "Container", "defaultRequest": {"memory": "3Gi"}}
    make(tenant, "LimitRange", "defaults", spec={"limits": [limit]})
    assert runs_at_once(tenant, "job")["memory"] == "3Gi"


def test_the_overhead_of_a_runtime_class_is_planned(tenant: Tenant) -> None:
    overhead = {"podFixed": {"cpu": "500m", "memory": "1Gi"}}
    make(tenant, "RuntimeClass", "kata", handler="kata", overhead=overhead)
    requests = runs_at_once(tenant, "job", runtimeClassName="kata")
    assert (requests["cpu"], requests["memory"]) == ("1500m", "1Gi")


def test_an_injected_sidecar_is_planned(tenant: Tenant) -> None:
    changed_by(tenant, "sidecar")
    assert runs_at_once(tenant, "job")["cpu"] == "3"


def test_the_nodes_of_a_runtime_class_are_planned(tenant: Tenant) -> None:
    nodes = {"nodeSelector": {"kubernetes.io/hostname": "gpu-01"}}
    make(tenant, "RuntimeClass", "gvisor", handler="gvisor", scheduling=nodes)
    runs_at_once(tenant, "job", runtimeClassName="gvisor")
    assert {pod["spec"]["nodeName"] for pod in tenant.pods("job")} == {"gpu-01"}


def test_the_tolerations_of_a_runtime_class_are_planned(tenant: Tenant) -> None:
    """One node has a taint that only the class tolerates, and the gang needs both."""
    tenant.cluster.kubectl("taint", "node", "gpu-00", "isolated:NoSchedule")
    try:
        scheduling = {"tolerations": [{"key": "isolated", "operator": "Exists"}]}
        make(tenant, "RuntimeClass", "isolated", handler="isolated", scheduling=scheduling)
        spec = pod_spec(gpus=8, runtimeClassName="isolated")
        tenant.create(training_job("job", task(replicas=2, spec=spec)))
        starts_at_once(tenant)
    finally:
        tenant.cluster.kubectl("taint", "node", "gpu-00", "isolated:NoSchedule-")


def test_what_admission_adds_counts_against_the_queue(tenant: Tenant) -> None:
    changed_by(tenant, "sidecar")
    name = f"narrow-{tenant.namespace}"
    tenant.create(queue(name, limit={"cpu": "10"}))
    tenant.create(training_job("job", task(replicas=3), queue=name))
    starts_at_once(tenant)
    tenant.create(training_job("late", task(), queue=name))
    waits_at_once(tenant, f"queue '{name}': asks 3 cpu, 9 cpu of 10 cpu in use", "late")
    tenant.delete("TrainingJob", "job")
    tenant.await_phase("late", "Running")


def test_a_webhook_that_refuses_dry_runs_is_named_and_its_pods_run(tenant: Tenant) -> None:
    """The API takes no such webhook any more, but those of earlier versions are still in etcd."""
    name = f"audit-{tenant.namespace}"
    add_webhook_without_dry_runs(tenant, name)
    try:
        runs_at_once(tenant, "job")
        words = f'planned without a dry run of task worker: admission webhook "{name}.example.com"'
        tenant.eventually(lambda: [text for _, _, text in tenant.events("job") if words in text])
    finally:
        tenant.cluster.kubectl("delete", "mutatingwebhookconfigurations", name)


def add_webhook_without_dry_runs(tenant: Tenant, name: str) -> None:
    """A webhook on the tenant's pods that nobody serves, which is ignored but for dry runs."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    hook: Manifest = {
        "name": f"{name}.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{**rule, "resources": ["pods"]}],
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": tenant.namespace},
        },
    }
    version = "admissionregistration.k8s.io/v1"
    kind = {"apiVersion": version, "kind": "MutatingWebhookConfiguration"}
    cluster = tenant.cluster
    path = f"/apis/{version}/mutatingwebhookconfigurations"
    found = cluster.api.post(path, {**kind, "metadata": {"name": name}, "webhooks": [hook]})
    found["webhooks"][0]["sideEffects"] = "Some"
    key = coded(f"/registry/mutatingwebhookconfigurations/{name}")
    cluster.call_etcd("put", {"key": key, "value": coded(json.dumps({**kind, **found}))})

    def refusal() -> str:
        pod = {"metadata": {"name": "probe"}, "spec": pod_spec(0), "kind": "Pod"}
        return str(cluster.api.request("POST", f"{tenant.path('Pod')}?dryRun=All", pod).json())

    tenant.eventually(refusal, lambda answer: "does not support dry run" in answer)


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_replicas_are_apart_by_a_label_that_admission_adds(tenant: Tenant) -> None:
    """Without it both would be planned onto one node, where kube-scheduler refuses the second."""
    changed_by(tenant, "label")
    selected = {"labelSelector": {"matchLabels": {"example.com/tier": "gpu"}}}
    term = {"topologyKey": "kubernetes.io/hostname", **selected}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    runs_at_once(tenant, "job", affinity=rules)
    assert len({pod["spec"]["nodeName"] for pod in tenant.pods("job")}) == 2


def test_a_gate_that_admission_puts_on_pods_is_named_and_holds_nothing(tenant: Tenant) -> None:
    changed_by(tenant, "gate")
    tenant.create(training_job("job", task(replicas=2, gpus=8)))
    message = tenant.await_reason("job", "PodsRefused")["message"]
    assert "the scheduling gate example.com/budget" in message
    assert (tenant.plan("job"), tenant.pods("job")) == (None, [])


def test_a_gang_whose_pods_turn_out_larger_is_planned_again_at_once(tenant: Tenant) -> None:
    runs_at_once(tenant, "before")
    limit = {"type": "Container", "defaultRequest": {"memory": "3Gi"}}
    make(tenant, "LimitRange", "later", spec={"limits": [limit]})
    with at_once(tenant):
        tenant.create(training_job("after", task(replicas=2, spec=pod_spec(gpus=1))))
        status = tenant.await_phase("after", "Running")
    assert status["plan"]["tasks"][0]["requests"]["memory"] == "3Gi"
    assert status["interruptions"] == 1
    assert any(
        reason == "PodsChanged" and "3Gi memory where 0 was planned" in message
        for _, reason, message in tenant.events("after")
    )


def test_a_quota_admits_whole_gangs_one_after_the_other(tenant: Tenant) -> None:
    make(tenant, "ResourceQuota", "gpus", spec={"hard": {f"requests.{GPU}": "4", "pods": "9"}})
    tenant.eventually(
        lambda: (
            tenant.cluster.api.get(f"/api/v1/namespaces/{tenant.namespace}/resourcequotas/gpus")
            .get("status", {})
            .get("used")
        )
    )
    names = [f"job-{i}" for i in range(3)]
    for name in names:
        tenant.create(training_job(name, task(replicas=3)))
    tenant.create(training_job("large", task(replicas=5)))
    message = tenant.await_reason("large", "NeverFits")["message"]
    assert "ResourceQuota 'gpus'" in message
    assert "which allows 4" in message
    words = f"asks 3 {GPU}, 3 {GPU} of 4 {GPU} in use"
    while names:
        (runs,) = tenant.eventually(lambda: [n for n in names if is_running(tenant, n)])
        assert tenant.status(runs)["attempt"] == 0
        names.remove(runs)
        tenant.eventually(lambda: [n for n in names if is_over_quota(tenant, n, words)] == names)
        assert {pod["metadata"]["labels"]["bireme.dev/pod-group"] for pod in tenant.pods()} == {
            runs
        }
        tenant.delete("TrainingJob", runs)


def is_running(tenant: Tenant, name: str) -> bool:
    return bool(tenant.status(name).get("phase") == "Running")


def is_over_quota(tenant: Tenant, name: str, words: str) -> bool:
    status = tenant.status(name)
    return status.get("reason") == "OverQuota" and words in status["message"]
