"""The chart installed for real: its programs with its accounts, its roles tried by tenants.

Operator, kube-scheduler and extender run as local processes with the tokens, settings and
configuration that their pods would have, so that a missing permission fails here.
"""

import http.client
import json
import re
import ssl
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.process import Process, free_ports
from testbed.controlplane.scheduling import scheduler_command
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import (
    NAMESPACE,
    Helm,
    config_map,
    container,
    install,
    running,
    uninstall,
)
from testbed.scenario.manifests import (
    annotations,
    batch_job,
    member_template,
    pod,
    pod_group,
    priority_class,
    queue,
    task,
    training_job,
)
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster

ANN = ("--as=ann", "--as-group=system:authenticated")
"""A user of one namespace, with the cluster's own role ``edit`` there."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, helm: Helm) -> Iterator[BiremeStack]:
    """A cluster with nodes onto which the chart was installed, by its default values."""
    with scenario_helm.installed("install", fake_nodes(2, gpus=8, racks=2), helm) as cluster:
        cluster.kubectl("apply", "-f", "-", input=json.dumps(priority_class("urgent", 1000)))
        with running(cluster, tmp_path_factory.mktemp("stack")) as stack:
            yield stack


@pytest.fixture
def tenant(installed: BiremeStack) -> Iterator[Tenant]:
    cluster = installed.cluster
    with Tenant.staying(cluster, installed.log_tails) as tenant:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant.namespace}/rolebindings"
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        role, ann = ({**group, "kind": kind, "name": name} for kind, name in EDITOR)
        made = {"metadata": {"name": "ann"}, "roleRef": role, "subjects": [ann]}
        cluster.api.post(rbac, made)
        create = [("create", "bireme.dev:trainingjobs")]
        tenant.eventually(lambda: allowed(cluster, "ann", create, tenant.namespace))
        yield tenant


EDITOR = (("ClusterRole", "edit"), ("User", "ann"))


def submitted(tenant: Tenant, manifest: dict[str, Any], *flags: str) -> str:
    """The API server's answer when ann creates it."""
    where = (f"--namespace={tenant.namespace}", *ANN, *flags)
    text = json.dumps(manifest)
    return tenant.cluster.kubectl("create", "-f", "-", *where, input=text, check=False)


def test_a_gang_of_a_tenant_runs_and_ends(tenant: Tenant) -> None:
    job = training_job("train", task("worker", 2, gpus=4, fake=annotations(duration="2s")))
    assert "created" in submitted(tenant, job)
    tenant.await_phase("train", "Succeeded")


def test_the_learned_shadow_is_there_and_loaded(tenant: Tenant) -> None:
    asked = ("get", "bsp", "bireme-learned-shadow", "-o=json")

    def status() -> dict[str, Any]:
        found = json.loads(tenant.cluster.kubectl(*asked, check=False) or "{}")
        return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", ())}

    tenant.eventually(status, lambda found: found == {"Loaded": "True", "Degraded": "False"})


def test_a_pod_group_of_another_controller_is_placed(tenant: Tenant) -> None:
    assert "created" in submitted(tenant, pod_group("crew", 1))
    member = pod("crew-0", gpus=1, schedulerName="bireme")
    member["metadata"]["labels"] = {"bireme.dev/pod-group": "crew"}
    member["spec"]["schedulingGates"] = [{"name": "bireme.dev/plan"}]
    assert "created" in submitted(tenant, member)
    tenant.eventually(lambda: tenant.pods()[0]["spec"].get("nodeName"), bool)


def test_a_job_with_no_retries_outlives_a_start_that_failed(
    installed: BiremeStack, tenant: Tenant
) -> None:
    template = member_template("crew", 4)
    job = batch_job("crew", 2, template)
    job["spec"]["backoffLimit"] = 0
    installed.scheduler.pause()
    try:
        submitted(tenant, pod_group("crew", 2))
        assert "created" in submitted(tenant, job)
        plan = tenant.eventually(lambda: tenant.plan("crew"))
        (node,) = {placement["node"] for placement in plan["placements"]}
        tenant.cluster.kubectl("cordon", node)
        tenant.eventually(
            lambda: ("Normal", "Resumed", "Job resumed") in tenant.events("crew"),
        )
    finally:
        tenant.cluster.kubectl("uncordon", node)
        installed.scheduler.resume()
    tenant.await_group("crew", phase="Running")
    found = tenant.get("Job", "crew")
    assert (found["spec"]["suspend"], found["status"].get("failed")) == (False, None)


def test_a_queue_that_its_author_may_not_use_is_refused(tenant: Tenant) -> None:
    tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(queue("vip")))
    answer = submitted(tenant, training_job("j", task("worker", 1), queue="vip"))
    assert "ann may not use queue vip: name another one in spec.queue" in answer
    rule = {"apiGroups": ["bireme.dev"], "resources": ["queues"], "resourceNames": ["vip"]}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    role = {**head, "metadata": {"name": "vip"}, "rules": [{**rule, "verbs": ["use"]}]}
    where = f"--namespace={tenant.namespace}"
    tenant.cluster.kubectl("create", "-f", "-", where, input=json.dumps(role))
    tenant.cluster.kubectl("create", "rolebinding", "vip", "--role=vip", "--user=ann", where)
    allowed = training_job("allowed", task("worker", 1), queue="vip")
    tenant.eventually(lambda: submitted(tenant, allowed), lambda answer: "created" in answer)


def test_the_queue_of_a_namespace_is_judged_like_one_that_is_named(tenant: Tenant) -> None:
    cluster, label = tenant.cluster, "bireme.dev/default-queue"
    cluster.kubectl("apply", "-f", "-", input=json.dumps(queue("closed-club")))
    cluster.kubectl("create", "clusterrole", "labels", "--verb=get,patch", "--resource=namespaces")
    cluster.kubectl("create", "clusterrolebinding", "labels", "--clusterrole=labels", "--user=ann")
    may = ("auth", "can-i", "patch", "namespaces", *ANN)
    tenant.eventually(lambda: cluster.kubectl(*may, check=False), lambda said: said[:3] == "yes")
    set_label = ("label", "namespace", tenant.namespace)
    refused = cluster.kubectl(*set_label, f"{label}=closed-club", *ANN, check=False)
    assert f"ann may not use queue closed-club: name another one in label {label}" in refused
    assert "labeled" in cluster.kubectl(*set_label, "team=a", *ANN)

    assert "created" in submitted(tenant, training_job("before"))
    # A gang that waits would move to the queue that the label names.
    tenant.await_phase("before", "Running")
    cluster.kubectl(*set_label, f"{label}=closed-club")
    answer = submitted(tenant, training_job("none"))
    named = f"closed-club, which label {label} of namespace {tenant.namespace} names"
    assert f"ann may not use queue {named}: name another one in spec.queue" in answer
    assert "created" in submitted(tenant, training_job("own", queue="default"))
    change = ("--type=merge", "-p", json.dumps({"metadata": {"labels": {"seen": "yes"}}}))
    where = (f"--namespace={tenant.namespace}", *ANN)
    assert "patched" in cluster.kubectl("patch", "trainingjob", "before", *where, *change)
    left_out = ("--type=merge", "-p", json.dumps({"spec": {"queue": None}}))
    held = submitted(tenant, training_job("held", queue="default", runPolicy={"suspend": True}))
    assert "created" in held
    answer = cluster.kubectl("patch", "trainingjob", "held", *where, *left_out, check=False)
    assert f"ann may not use queue {named}" in answer
    for name in ("before", "own"):
        tenant.await_phase(name, "Running")
        assert tenant.status(name)["queue"] == "default"


def test_a_priority_class_that_its_author_may_not_use_is_refused(tenant: Tenant) -> None:
    urgent = training_job("j", task("worker", 1), priorityClassName="urgent")
    answer = submitted(tenant, urgent)
    assert "ann may not use priority class urgent" in answer
    plain = training_job("k", task("worker", 1), runPolicy={"suspend": True})
    assert "created" in submitted(tenant, plain)
    raised = json.dumps({"spec": {"priorityClassName": "urgent"}})
    where = (f"--namespace={tenant.namespace}", *ANN, "--type=merge", "-p", raised)
    assert "may not use priority class urgent" in tenant.cluster.kubectl(
        "patch", "trainingjob", "k", *where, check=False
    )


def test_only_the_operator_lifts_gates_and_writes_its_labels(tenant: Tenant) -> None:
    submitted(tenant, pod_group("never", 9))
    gated = pod("gated", gpus=1, schedulerName="bireme")
    gated["metadata"]["labels"] = {"bireme.dev/pod-group": "never"}
    gated["spec"]["schedulingGates"] = [{"name": "bireme.dev/plan"}]
    assert "created" in submitted(tenant, gated)
    where = (f"--namespace={tenant.namespace}", *ANN)
    lift = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    patched = tenant.cluster.kubectl(
        "patch", "pod", "gated", *where, "--type=json", "-p", lift, check=False
    )
    assert "only the operator lifts" in patched
    labelled = tenant.cluster.kubectl(
        "label", "pod", "gated", *where, "bireme.dev/plan=1.0", check=False
    )
    assert "only the operator writes the labels" in labelled
    for label in ("bireme.dev/pod-group-", "bireme.dev/pod-group=another"):
        moved = tenant.cluster.kubectl(
            "label", "pod", "gated", *where, "--overwrite", label, check=False
        )
        assert "the pod is of gang never until it ends" in moved
    assert "labeled" in tenant.cluster.kubectl("label", "pod", "gated", *where, "team=a")
    forged = pod("forged", gpus=1)
    forged["metadata"]["labels"] = {"bireme.dev/training-job": "victim"}
    assert "only the operator writes the labels" in submitted(tenant, forged)
    plain = pod("plain", gpus=0)
    assert "created" in submitted(tenant, plain)


REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def allowed(
    cluster: Cluster, user: str, verbs: Iterable[tuple[str, str]], namespace: str
) -> set[str]:
    """Return what the roles let ``user`` do, of verbs on ``group:resource/subresource``."""
    groups = ["system:authenticated"]
    if user.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]

    def may(verb: str, what: str) -> bool:
        group, _, resource = what.rpartition(":")
        resource, _, sub = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
        asked["namespace"] = namespace
        spec = {"user": user, "groups": groups, "resourceAttributes": asked}
        review = cluster.api.post(REVIEWS, {"spec": spec})
        return bool(review["status"]["allowed"])

    return {f"{verb} {what}" for verb, what in verbs if may(verb, what)}


def test_what_a_tenant_may_do(tenant: Tenant) -> None:
    ours = "bireme.dev:"
    may = [("create", f"{ours}trainingjobs"), ("delete", f"{ours}podgroups")]
    may_not = [
        ("patch", f"{ours}trainingjobs/status"),
        ("update", f"{ours}podgroups/status"),
        ("create", f"{ours}queues"),
        ("patch", f"{ours}queues/status"),
        ("update", f"{ours}schedulingpolicies"),
        ("create", f"{ours}nodepoolscalers"),
        ("patch", f"{ours}nodepoolscalers/status"),
    ]
    granted = allowed(tenant.cluster, "ann", [*may, *may_not], tenant.namespace)
    assert granted == {" ".join(each) for each in may}


OF_EACH_PROGRAM = {
    "bireme-operator": ("create", "pods"),
    "bireme-scheduler": ("create", "pods/binding"),
    "bireme-forecast": ("list", "bireme.dev:nodepoolscalers"),
}
"""A right that its role gives it."""


@pytest.mark.parametrize("account", OF_EACH_PROGRAM)
def test_what_no_program_may_do(installed: BiremeStack, account: str) -> None:
    rbac = "rbac.authorization.k8s.io:"
    asked = [
        ("get", "secrets"), ("list", "secrets"), ("create", f"{rbac}clusterrolebindings"),
        ("escalate", f"{rbac}clusterroles"), ("bind", f"{rbac}clusterroles"),
        ("impersonate", "users"), ("create", "pods/exec"), ("update", "nodes"), ("delete", "nodes"),
        ("create", "serviceaccounts/token"), ("patch", "apps:deployments"),
    ]  # fmt: skip
    asked.append(OF_EACH_PROGRAM[account])
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    granted = allowed(installed.cluster, user, asked, "")
    assert granted == {" ".join(OF_EACH_PROGRAM[account])}


def test_the_scheduler_image_is_of_the_clusters_version(installed: BiremeStack) -> None:
    cluster = installed.cluster
    image = container(cluster, "bireme-scheduler", "kube-scheduler")["image"]
    assert image.endswith(
        f":{json.loads(cluster.kubectl('version', '-o=json'))['serverVersion']['gitVersion']}"
    )


def told(port: int, path: str = "/metrics") -> tuple[int, str]:
    """Status and text of what kube-scheduler answers a caller without any credentials."""
    # It makes its certificate at every start.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_kube_scheduler_tells_its_metrics_and_nothing_else_without_a_token(
    installed: BiremeStack, tenant: Tenant
) -> None:
    arguments = container(installed.cluster, "bireme-scheduler", "kube-scheduler")["args"]
    (open_to_all,) = (each for each in arguments if "always-allow" in each)
    assert open_to_all in installed.scheduler.command
    submitted(tenant, training_job("one", task("worker", 1)))
    tenant.await_phase("one", "Running")
    status, text = told(installed.scheduler_port)
    assert status == 200
    version = re.search(
        r'^kubernetes_build_info\{.*major="(\d+)",minor="(\d+)"', text, re.MULTILINE
    )
    assert version is not None
    # By these the alert BiremeSchedulerVersion tells it apart and compares it.
    assert 'scheduler_schedule_attempts_total{profile="bireme",result="scheduled"}' in text
    port = installed.operator().port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        same = f'bireme_kubernetes_info{{major="{version[1]}",minor="{version[2]}"}} 1.0'
        assert same in answer.read().decode()
    # Names pods of tenants.
    assert told(installed.scheduler_port, "/metrics/resources")[0] == 403


def test_of_two_kube_schedulers_one_binds_and_the_other_takes_over(
    installed: BiremeStack, tenant: Tenant, tmp_path: Path
) -> None:
    """As in a rollout of one replica, with the account and the configuration of the release."""
    (port,) = free_ports(1)
    config = installed.workdir / "scheduler-config.yaml"
    command = scheduler_command(installed.cluster.binary("kube-scheduler"), config, port)
    ready = f"https://127.0.0.1:{port}/readyz"
    second = Process("second", command, tmp_path / "second.log", ready)

    def leads(port: int) -> bool:
        metric = 'leader_election_master_status{name="kube-scheduler"} 1'
        return metric in told(port)[1].splitlines()

    second.start().wait_ready(60)
    try:
        submitted(tenant, training_job("first", task("worker", 2)))
        tenant.await_phase("first", "Running")
        assert (leads(installed.scheduler_port), leads(port)) == (True, False)
        assert "scheduler_schedule_attempts_total" not in told(port)[1]
        installed.scheduler.terminate()
        submitted(tenant, training_job("next", task("worker", 2)))
        tenant.await_phase("next", "Running")
        assert leads(port)
    finally:
        second.terminate()
        if not installed.scheduler.running:
            installed.scheduler.start().wait_ready(60)


def test_an_upgrade_touches_no_running_pod(
    installed: BiremeStack, tenant: Tenant, helm: Helm
) -> None:
    submitted(tenant, training_job("long", task("worker", 2, gpus=1)))
    tenant.await_phase("long", "Running")
    before = uids_of(tenant.pods())
    install(installed.cluster, helm, "--set=operator.settings.bindTimeoutSeconds=50")
    settings = config_map(installed.cluster, "bireme-settings")["settings.yaml"]
    assert "bindTimeoutSeconds: 50" in settings
    operator = installed.operator()
    operator.terminate()
    operator.start()
    operator.wait_ready(60)
    submitted(tenant, training_job("next", task("worker", 1, gpus=1)))
    tenant.await_phase("next", "Running")
    assert before.items() <= uids_of(tenant.pods()).items()


def test_uninstall_leaves_jobs_and_pods_and_reinstall_adopts_them(
    tmp_path: Path, helm: Helm
) -> None:
    with scenario_helm.installed("uninstall", fake_nodes(1, gpus=8, racks=1), helm) as cluster:
        tenant = Tenant(cluster, cluster.create_namespace("team"))
        with running(cluster, tmp_path / "first"):
            tenant.create(training_job("long", task("worker", 2, gpus=1)))
            tenant.await_phase("long", "Running")
        before = uids_of(tenant.pods())
        uninstall(cluster, helm)
        assert uids_of(tenant.pods()) == before
        assert "default" in cluster.kubectl("get", "queues")
        tenant.create(pod("other", gpus=0))  # the default scheduler goes on
        tenant.eventually(lambda: tenant.get("Pod", "other")["spec"].get("nodeName"), bool)
        kinds = "validatingadmissionpolicies,clusterroles,clusterrolebindings"
        left = cluster.kubectl("get", kinds, "-l", "app.kubernetes.io/instance=bireme", "-o=name")
        assert left == ""
        install(cluster, helm)
        with running(cluster, tmp_path / "second"):
            tenant.create(training_job("next", task("worker", 1, gpus=1)))
            tenant.await_phase("next", "Running")
            assert before.items() <= uids_of(tenant.pods()).items()
            assert tenant.get("TrainingJob", "long")["status"].get("interruptions") is None
