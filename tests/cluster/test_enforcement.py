"""Queues that hold, status that is the operator's alone, and the fence around its account.

Each attempt is made twice on a real API server: where nothing stands against it, so that it is
known to work, and against the policies of the chart.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from testbed.controlplane.api import JSON, JSON_PATCH, MERGE_PATCH
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import NAMESPACE, Helm, install, running
from testbed.scenario.manifests import (
    GPU,
    PLAN_GATE,
    Manifest,
    batch_job,
    member_template,
    pod,
    pod_group,
    pod_spec,
    queue,
    scheduling_policy,
    task,
    training_job,
)
from testbed.scenario.pools import pool_scaler
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

ANN: Final = ("--as=ann", "--as-group=system:authenticated")
"""The owner of one namespace: she may do everything there is in it."""
OPERATOR: Final = f"--as=system:serviceaccount:{NAMESPACE}:bireme-operator"
FORECAST: Final = f"--as=system:serviceaccount:{NAMESPACE}:bireme-forecast"
OURS: Final = "app.kubernetes.io/part-of=bireme"
DRY_RUN: Final = "--dry-run=server"


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


def patched(
    tenant: Tenant, kind: str, name: str, change: object, *who: str, status: bool = False
) -> str:
    """Return the answer to a change; ``DRY_RUN`` among ``who`` leaves the object as it was.

    kubectl would read the object first, which not everybody may.
    """
    path = tenant.path(kind, name) + ("/status" if status else "")
    if DRY_RUN in who:
        path += "?dryRun=All"
    callers = [flag for flag in who if flag != DRY_RUN]
    form = JSON_PATCH if isinstance(change, list) else MERGE_PATCH
    return answer_to(tenant, "PATCH", path, change, callers, form)


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


def test_the_api_server_finds_nothing_wrong_with_the_types_of_any_policy(
    installed: BiremeStack,
) -> None:
    kind = "validatingadmissionpolicies"

    def checked() -> dict[str, Manifest | None]:
        listed = installed.cluster.kubectl("get", kind, f"-l={OURS}", "-o=json")
        return {
            policy["metadata"]["name"]: policy.get("status", {}).get("typeChecking")
            for policy in json.loads(listed)["items"]
        }

    found = eventually(checked, lambda found: None not in found.values())
    assert len(found) == 12
    assert [name for name, warnings in found.items() if warnings] == []


# --- namespaces that enforce their queues ---------------------------------------------------------


def asking(amounts: Manifest, field: str = "containers", **more: object) -> Manifest:
    """Return a pod of the default scheduler with another container that asks for ``amounts``."""
    made = pod("loose", gpus=0)
    container = {"name": "asks", "image": "trainer", "resources": {"limits": amounts}, **more}
    made["spec"].setdefault(field, []).append(container)
    return made


ASKING: Final[dict[str, Manifest]] = {
    "container": asking({GPU: "1"}),
    "init container": asking({GPU: "1"}, "initContainers"),
    "sidecar": asking({GPU: "1"}, "initContainers", restartPolicy="Always"),
    "another device": asking({"deviceclass.resource.kubernetes.io/gpu": "1"}),
    "resource claim": pod(
        "loose", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    ),
    "node of its own": pod("loose", gpus=1, nodeName="gpu-00"),
    "gate without the scheduler": pod("loose", gpus=1, schedulingGates=[{"name": PLAN_GATE}]),
    "gate without a group": pod(
        "loose", gpus=1, schedulerName="bireme", schedulingGates=[{"name": PLAN_GATE}]
    ),
}


@pytest.mark.parametrize("how", ASKING)
def test_pod_that_asks_for_devices_past_the_queues_is_refused_where_they_are_enforced(
    tenant: Tenant, how: str
) -> None:
    assert "created" in tried(tenant, ASKING[how], *ANN)
    enforced(tenant)
    assert "keeps its queues" in tried(tenant, ASKING[how], *ANN)
    # Who administers the cluster passes no more than who owns the namespace.
    assert "keeps its queues" in tried(tenant, ASKING[how])


def test_whatever_goes_through_a_queue_or_asks_for_no_device_runs_where_they_are_enforced(
    tenant: Tenant,
) -> None:
    enforced(tenant)
    member = {"apiVersion": "v1", "kind": "Pod", **member_template("crew", 1)}
    member["metadata"]["name"] = "crew-0"
    none = asking({GPU: "0"})
    none["metadata"]["name"] = "none"
    for manifest in (pod_group("crew", 1), member, none, training_job("job", task("worker", 2))):
        assert "created" in said(tenant, "create", "-f", "-", *ANN, manifest=manifest)
    tenant.await_phase("job", "Running")
    tenant.eventually(lambda: nodes_of(tenant.pods()).keys() >= {"crew-0", "none"})


def test_gate_is_lifted_by_the_operator_alone_where_queues_are_enforced(tenant: Tenant) -> None:
    gated = {"apiVersion": "v1", "kind": "Pod", **member_template("never", 1)}
    gated["metadata"]["name"] = "gated"
    lift = [{"op": "remove", "path": "/spec/schedulingGates"}]
    with without(tenant, "bireme-pods"):  # which says so everywhere
        tenant.create(gated)
        until("patched", patched, tenant, "Pod", "gated", lift, DRY_RUN, *ANN)
        enforced(tenant)
        assert "only the operator lifts" in patched(tenant, "Pod", "gated", lift, *ANN)
        assert "patched" in patched(tenant, "Pod", "gated", lift, DRY_RUN, OPERATOR)


def binding(name: str) -> Manifest:
    head = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
    return {**head, "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-00"}}


def test_only_who_binds_in_the_whole_cluster_binds_where_queues_are_enforced(
    tenant: Tenant,
) -> None:
    def bound(name: str, path: str, *who: str) -> str:
        raw = f"/api/v1/namespaces/{tenant.namespace}/{path}"
        made = binding(name)
        made["metadata"]["namespace"] = tenant.namespace
        return said(tenant, "create", f"--raw={raw}", "-f", "-", *who, manifest=made)

    tenant.create(*(pod(name, gpus=1, schedulerName="nobody") for name in ("first", "next")))
    assert "Success" in bound("first", "pods/first/binding", *ANN)
    enforced(tenant)
    words = "may bind pods in namespace"
    assert words in bound("next", "pods/next/binding", *ANN)
    assert words in bound("next", "bindings", *ANN)
    assert "Success" in bound("next", "pods/next/binding")


SUBRESOURCES_OF_NAMESPACES: Final = ("", "/status", "/finalize")


def labelled(
    tenant: Tenant,
    name: str,
    value: str | None,
    subresource: str = "",
    who: str = "ann",
    *,
    dry_run: bool = False,
) -> str:
    """Return the answer when ``who`` writes a label of the namespace, or tries to."""
    path = f"/api/v1/namespaces/{tenant.namespace}"
    found = tenant.cluster.api.get(path)
    labels = found["metadata"]["labels"]
    labels.pop(name, None)
    if value is not None:
        labels[name] = value
    where = f"{path}{subresource}{'?dryRun=All' if dry_run else ''}"
    answer = answer_to(tenant, "PUT", where, found, (f"--as={who}",))
    return "written" if answer == "patched" else answer


@pytest.mark.parametrize("subresource", SUBRESOURCES_OF_NAMESPACES)
def test_namespace_is_let_go_only_by_who_may_enforce(tenant: Tenant, subresource: str) -> None:
    enforced(tenant)
    assert labelled(tenant, "team", "a", subresource) == "written"
    for value in (None, "false"):
        answer = labelled(tenant, "bireme.dev/enforce", value, subresource)
        assert "may not let go of namespace" in answer
    who = ("--clusterrole=bireme-admin", "--user=ann")
    tenant.cluster.kubectl("create", "clusterrolebinding", tenant.namespace, *who)
    try:
        until("written", labelled, tenant, "bireme.dev/enforce", None, subresource)
    finally:
        tenant.cluster.kubectl("delete", "clusterrolebinding", tenant.namespace)
    until("created", tried, tenant, pod("loose", gpus=1), *ANN)


@pytest.mark.parametrize("subresource", SUBRESOURCES_OF_NAMESPACES)
def test_queue_of_a_namespace_is_chosen_by_who_may_use_it_through_every_subresource(
    tenant: Tenant, subresource: str
) -> None:
    label, gold = "bireme.dev/default-queue", f"gold-{tenant.namespace}"
    tenant.create(queue(gold))
    core = ("--verb=*", "--resource=namespaces,namespaces/status,namespaces/finalize")
    for made in (("role", "core", *core), ("rolebinding", "bob", "--role=core", "--user=bob")):
        tenant.cluster.kubectl("create", *made, f"--namespace={tenant.namespace}")

    def chosen(name: str | None, key: str = label) -> str:
        return labelled(tenant, key, name, subresource, "bob", dry_run=True)

    with without(tenant, "bireme-use-by-default"):
        until("written", chosen, gold)
    until(f"bob may not use queue {gold}", chosen, gold)
    label_namespace(tenant, label, gold)
    assert chosen("a", "team") == "written"
    # Without the label its jobs would be of the queue default, which bob may not use either.
    assert "bob may not use queue default" in chosen(None)
    tenant.delete("Queue", gold)


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


UNPLANNED: Final[dict[str, Manifest]] = {
    "no gate": pod("loose", gpus=0, schedulerName="bireme"),
    "gate of another": pod(
        "loose", gpus=0, schedulerName="bireme", schedulingGates=[{"name": "example.com/mine"}]
    ),
    "a member without a gate": pod("loose", gpus=0, schedulerName="bireme"),
}
UNPLANNED["a member without a gate"]["metadata"]["labels"] = {"bireme.dev/pod-group": "crew"}


@pytest.mark.parametrize("how", UNPLANNED)
def test_pod_of_the_scheduler_that_nobody_plans_is_refused(tenant: Tenant, how: str) -> None:
    words = "the scheduler bireme places no pod that has no plan"
    with without(tenant, "bireme-pods"):
        until("created", tried, tenant, UNPLANNED[how], *ANN)
    until(words, tried, tenant, UNPLANNED[how], *ANN)
    assert words in tried(tenant, UNPLANNED[how])
    assert "created" in tried(tenant, UNPLANNED[how], OPERATOR)
    gated = json.loads(json.dumps(UNPLANNED[how]))
    gated["spec"]["schedulingGates"] = GATED
    assert "created" in tried(tenant, gated, *ANN)
    assert "created" in tried(tenant, pod("loose", gpus=0, schedulerName="another"), *ANN)


# --- status ---------------------------------------------------------------------------------------

PLAN: Final[Manifest] = {"status": {"reason": "Admitted"}}


def test_status_of_a_job_is_written_by_the_operator_alone_whatever_a_role_has(
    tenant: Tenant,
) -> None:
    tenant.create(training_job("job", task("worker", 1), runPolicy={"suspend": True}))

    def forged(*who: str) -> str:
        return patched(tenant, "TrainingJob", "job", PLAN, DRY_RUN, *who, status=True)

    with without(tenant, "bireme-status"):
        until("patched", forged, *ANN)
    for who in (ANN, ()):
        until("is written by the operator", forged, *who)


def test_status_of_every_kind_is_closed_to_administrators_and_open_to_the_forecast(
    tenant: Tenant,
) -> None:
    made = {
        "TrainingJob": training_job("kind", task("worker", 1), runPolicy={"suspend": True}),
        "PodGroup": pod_group("kind", 1),
        "Queue": queue("kind"),
        "SchedulingPolicy": scheduling_policy("kind", orderer="fifo", stage="Shadow"),
        "NodePoolScaler": pool_scaler("kind"),
    }
    tenant.create(*made.values())
    try:
        for kind in made:
            answer = patched(tenant, kind, "kind", {"status": {"conditions": []}}, status=True)
            assert "is written by the operator" in answer, kind
        forecast = {"status": {"model": {"name": "gru"}}}
        change = ("NodePoolScaler", "kind", forecast)
        assert patched(tenant, *change, FORECAST, status=True) == "patched"
        assert tenant.status("kind", "NodePoolScaler")["model"]["name"] == "gru"
    finally:
        for manifest in made.values():
            tenant.delete(manifest["kind"], "kind")


# --- the fence ------------------------------------------------------------------------------------


def of_operator(**spec: Any) -> Manifest:
    return pod("made", gpus=1, schedulerName="bireme", **spec)


def secured(**context: object) -> Manifest:
    made = of_operator()
    made["spec"]["containers"][0]["securityContext"] = context
    return made


FENCED: Final[dict[str, tuple[Manifest, str]]] = {
    "another scheduler": (pod("made"), "spec.schedulerName"),
    "a node": (of_operator(nodeName="gpu-00"), "spec.nodeName"),
    "a folder of the node": (
        of_operator(volumes=[{"name": "root", "hostPath": {"path": "/dev/infinibandx"}}]),
        "admission.operator.hostPaths",
    ),
    "the network of the node": (of_operator(hostNetwork=True), "admission.operator.hostNetwork"),
    "the processes of the node": (of_operator(hostPID=True), "hostPID"),
    "the memory of the node": (of_operator(hostIPC=True), "admission.operator.hostIPC"),
    "privilege": (secured(privileged=True), "admission.operator.privileged"),
    "a capability": (
        secured(capabilities={"add": ["SYS_ADMIN"]}),
        "admission.operator.capabilities",
    ),
    "an unmasked proc": (secured(procMount="Unmasked"), "procMount"),
    "privilege at first": (
        of_operator(
            initContainers=[
                {"name": "first", "image": "trainer", "securityContext": {"privileged": True}}
            ]
        ),
        "admission.operator.privileged",
    ),
    "another account": (
        of_operator(serviceAccountName="builder"),
        "admission.operator.serviceAccounts",
    ),
}
FENCED["an unmasked proc"][0]["spec"]["hostUsers"] = False


def of_container(**fields: object) -> Manifest:
    made = of_operator()
    made["spec"]["containers"][0] |= fields
    return made


def annotated(key: str, value: str) -> Manifest:
    made = of_operator()
    made["metadata"]["annotations"] = {key: value}
    return made


HOOK: Final = {"httpGet": {"host": "192.0.2.1", "port": 80}}
PAST_BASELINE: Final[dict[str, tuple[Manifest, str]]] = {
    "a port of the node": (
        of_container(ports=[{"containerPort": 80, "hostPort": 80}]),
        "with hostPort",
    ),
    "a sysctl": (
        of_operator(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
        "with sysctls",
    ),
    "no seccomp": (secured(seccompProfile={"type": "Unconfined"}), "Unconfined seccompProfile"),
    "no seccomp in the pod": (
        of_operator(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "Unconfined seccompProfile",
    ),
    "no AppArmor": (secured(appArmorProfile={"type": "Unconfined"}), "appArmorProfile"),
    "a type of SELinux": (secured(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions"),
    "a user of SELinux": (
        of_operator(securityContext={"seLinuxOptions": {"user": "root"}}),
        "seLinuxOptions",
    ),
    "a probe of another host": (of_container(livenessProbe=HOOK), "name a host"),
    "a hook to another host": (of_container(lifecycle={"preStop": HOOK}), "name a host"),
}
"""Which the namespace of the tenant may allow, by its label of Pod Security."""


def test_operator_makes_no_pod_past_the_level_baseline_but_where_the_namespace_says_privileged(
    tenant: Tenant,
) -> None:
    until("the operator", tried, tenant, pod("made"), OPERATOR)
    for how, (manifest, words) in PAST_BASELINE.items():
        answer = tried(tenant, manifest, OPERATOR)
        assert words in answer, how
        assert "pod-security.kubernetes.io/enforce=privileged" in answer, how
    allowed = of_operator(
        securityContext={
            "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
            "seccompProfile": {"type": "RuntimeDefault"},
            "appArmorProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"},
        }
    )
    assert "created" in tried(tenant, allowed, OPERATOR)
    level = "pod-security.kubernetes.io/enforce"
    label_namespace(tenant, level, "privileged")
    for how, (manifest, _) in PAST_BASELINE.items():
        until("created", tried, tenant, manifest, OPERATOR)
        assert "created" in tried(tenant, manifest, OPERATOR), how
    assert "admission.operator.privileged" in tried(tenant, secured(privileged=True), OPERATOR)


def evicted(tenant: Tenant, name: str, who: str) -> str:
    made: Manifest = {"apiVersion": "policy/v1", "kind": "Eviction"}
    made["metadata"] = {"name": name, "namespace": tenant.namespace}
    path = f"/api/v1/namespaces/{tenant.namespace}/pods/{name}/eviction?dryRun=All"
    return answer_to(tenant, "POST", path, made, (who,))


def test_operator_evicts_pods_of_its_scheduler_alone(tenant: Tenant) -> None:
    member: Manifest = {"apiVersion": "v1", "kind": "Pod", **member_template("crew", 0)}
    member["metadata"]["name"] = "member"
    ours = pod("ours", gpus=0, schedulerName="bireme", schedulingGates=GATED)
    with without(tenant, "bireme-operator-evictions"):
        tenant.create(pod("theirs", gpus=0))
        until("created", evicted, tenant, "theirs", OPERATOR)
    until("evicts pods of its scheduler alone", evicted, tenant, "theirs", OPERATOR)
    tenant.create(ours, member)
    for name in ("ours", "member"):
        until("created", evicted, tenant, name, OPERATOR)
    assert "evicts pods of its scheduler alone" in evicted(tenant, "theirs", OPERATOR)
    label = {"metadata": {"labels": {"bireme.dev/pod-group": "crew"}}}
    assert "of its scheduler alone" in patched(tenant, "Pod", "theirs", label, OPERATOR)


def test_operator_makes_no_pod_that_is_more_than_a_replica(tenant: Tenant) -> None:
    said(tenant, "create", "serviceaccount", "builder")
    with without(tenant, "bireme-operator-pods"):
        for manifest, _ in FENCED.values():
            until("created", tried, tenant, manifest, OPERATOR)
    until("the operator", tried, tenant, pod("made"), OPERATOR)
    answers = {how: tried(tenant, manifest, OPERATOR) for how, (manifest, _) in FENCED.items()}
    for how, (_, words) in FENCED.items():
        assert words in answers[how], how
    assert "created" in tried(tenant, of_operator(), OPERATOR)


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", NAMESPACE])
def test_operator_makes_and_changes_nothing_in_namespaces_of_the_system(
    installed: BiremeStack, namespace: str
) -> None:
    system = Tenant(installed.cluster, namespace)
    assert "admission.operator.systemNamespaces" in tried(system, of_operator(), OPERATOR)
    service: Manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "made"}}
    service["spec"] = {"clusterIP": "None", "selector": {"a": "b"}}
    assert "admission.operator.systemNamespaces" in tried(system, service, OPERATOR)
    bait = pod("bait", gpus=0, schedulerName="bireme", schedulingGates=GATED)
    bait["spec"]["containers"][0]["image"] = "bait"
    system.create(bait)
    try:
        image = {"spec": {"containers": [{"name": "train", "image": "thief"}]}}
        arguments = ("patch", "pod", "bait", "-p", json.dumps(image), DRY_RUN)
        assert "systemNamespaces" in said(system, *arguments, OPERATOR)
        answer = said(system, "delete", "pod", "bait", DRY_RUN, OPERATOR)
        assert "systemNamespaces" in answer
    finally:
        system.delete("Pod", "bait", 0)


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
        like_it = of_operator()
        like_it["metadata"]["name"] = "bireme-test-b"
        assert "systemNamespaces" in tried(system, like_it, OPERATOR)
    finally:
        system.delete("TrainingJob", "bireme-test-a")


def test_operator_changes_pods_of_its_scheduler_alone_and_never_what_they_run(
    tenant: Tenant,
) -> None:
    ours = pod("ours", gpus=0, schedulerName="bireme", schedulingGates=GATED)
    tenant.create(pod("theirs", gpus=0), ours)
    image = {"spec": {"containers": [{"name": "train", "image": "thief"}]}}
    label = {"metadata": {"labels": {"team": "a"}}}

    def answer(name: str, change: Manifest) -> str:
        return said(tenant, "patch", "pod", name, "-p", json.dumps(change), DRY_RUN, OPERATOR)

    assert "patched" in answer("ours", label)
    assert "the images" in answer("ours", image)
    assert "of its scheduler alone" in answer("theirs", label)
    forged = {"status": {"podIP": "192.0.2.1"}}
    answered = patched(tenant, "Pod", "theirs", forged, DRY_RUN, OPERATOR, status=True)
    assert "of its scheduler alone" in answered
    deleted = said(tenant, "delete", "pod", "theirs", DRY_RUN, OPERATOR)
    assert "of its scheduler alone" in deleted


def test_operator_makes_headless_services_alone(tenant: Tenant) -> None:
    service: Manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "made"}}
    service["spec"] = {"clusterIP": "None", "selector": {"a": "b"}}
    assert "created" in tried(tenant, service, OPERATOR)
    service["spec"]["externalIPs"] = ["192.0.2.1"]
    assert "headless" in tried(tenant, service, OPERATOR)
    service["spec"] = {"ports": [{"port": 80}], "selector": {"a": "b"}}
    assert "headless" in tried(tenant, service, OPERATOR)


def test_operator_suspends_jobs_and_changes_nothing_that_they_run(tenant: Tenant) -> None:
    template: Manifest = {"spec": {"containers": [{"name": "train", "image": "trainer"}]}}
    job = batch_job("nobodys", 1, template)
    job["spec"]["suspend"] = True
    tenant.create(job)
    lifted = {"spec": {"suspend": False}}
    assert "owners of gangs" in patched(tenant, "Job", "nobodys", lifted, DRY_RUN, OPERATOR)
    template["metadata"] = {"labels": {"bireme.dev/pod-group": "crew"}}
    job = batch_job("theirs", 1, template)
    job["spec"]["suspend"] = True
    tenant.create(job)

    def answer(spec: Manifest) -> str:
        return patched(tenant, "Job", "theirs", {"spec": spec}, DRY_RUN, OPERATOR)

    assert "patched" in answer({"suspend": False})
    moved = {"template": {"spec": {"nodeSelector": {"a": "b"}}}}
    assert "patched" in patched(tenant, "Job", "theirs", {"spec": moved}, DRY_RUN)
    assert "nothing in spec" in answer(moved)
    assert "nothing in spec" in answer({"parallelism": 0})
    finalizer = {"metadata": {"finalizers": ["x/y"]}}
    assert "nothing in metadata" in patched(tenant, "Job", "theirs", finalizer, DRY_RUN, OPERATOR)


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


def test_values_say_what_is_listed_and_what_the_fence_lets_through(
    tenant: Tenant, helm: Helm
) -> None:
    allowed = (
        *("hostNetwork=true", "hostIPC=true", "hostPaths={/dev/infiniband}"),
        *("capabilities={IPC_LOCK}", "serviceAccounts={default,train-*}"),
    )
    listed = ("enforce.resources={nvidia.com/*,hugepages-*}",)
    sets = [f"--set=admission.operator.{value}" for value in allowed]
    sets += [f"--set=admission.{value}" for value in listed]
    rdma = of_operator(
        hostNetwork=True,
        hostIPC=True,
        serviceAccountName="train-s3",
        volumes=[{"name": "ib", "hostPath": {"path": "/dev/infiniband/uverbs0"}}],
    )
    context = {"capabilities": {"add": ["IPC_LOCK"]}}
    rdma["spec"]["containers"][0]["securityContext"] = context
    for account in ("train-s3", "builder"):
        said(tenant, "create", "serviceaccount", account)
    huge = pod("huge", gpus=0, resources={"limits": {"hugepages-2Mi": "2Mi"}})
    fuse = asking({"example.com/fuse": "1"})
    install(tenant.cluster, helm, *sets)
    try:
        until("created", tried, tenant, rdma, OPERATOR)
        for how in ("a folder of the node", "another account", "privilege", "a capability"):
            manifest, words = FENCED[how]
            assert words in tried(tenant, manifest, OPERATOR), how
        enforced(tenant)
        until("created", tried, tenant, fuse, *ANN)
        assert "keeps its queues" in tried(tenant, huge, *ANN)
    finally:
        install(tenant.cluster, helm)
