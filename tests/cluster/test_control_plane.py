"""The control plane all other cluster tests stand on: real, complete, and gone afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.controlplane.api import Manifest
from testbed.controlplane.binaries import KUBERNETES_VERSION
from testbed.controlplane.cluster import Cluster, clusters_folder, known_clusters, stop_orphans
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.pool import ClusterPool, collections, inventory
from testbed.controlplane.process import answers, ended, processes_from
from testbed.controlplane.stack import BiremeStack
from testbed.controlplane.waiting import wait_until
from testbed.scenario import promises
from testbed.scenario.manifests import queue
from tests.cluster.conftest import unique_name

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "charts" / "bireme" / "files" / "crds"
DURATION = "fake.bireme.dev/duration"
FAIL_ATTEMPTS = "fake.bireme.dev/fail-attempts"
FAIL_MESSAGE = "fake.bireme.dev/fail-message"


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[list[str]]:
    made = fake_nodes(4, prefix="plane")
    cluster.add_nodes(made)
    names = [node["metadata"]["name"] for node in made]
    yield names
    cluster.kubectl("delete", "node", "--wait=false", *names)


def pod(
    name: str, annotations: dict[str, str] | None = None, attempt: str = "0", **spec: Any
) -> Manifest:
    gpu = {"nvidia.com/gpu": "1"}
    resources = {"requests": {"cpu": "1", **gpu}, "limits": gpu}
    metadata = {
        "name": name,
        "labels": {"bireme.dev/attempt": attempt},
        "annotations": annotations or {},
    }
    containers = [{"name": "main", "image": "trainer", "resources": resources}]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, "restartPolicy": "Never"} | spec,
    }


def create(cluster: Cluster, namespace: str, *pods: Manifest) -> None:
    for manifest in pods:
        cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", manifest)


def await_phase(
    cluster: Cluster, namespace: str, name: str, phase: str, timeout_seconds: int = 20
) -> Manifest:
    wanted = f"--for=jsonpath={{.status.phase}}={phase}"
    timeout = f"--timeout={timeout_seconds}s"
    cluster.kubectl("wait", f"pod/{name}", wanted, timeout, "-n", namespace)
    return cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


def terminated(found: Manifest) -> dict[str, Any]:
    (status,) = found["status"]["containerStatuses"]
    ended: dict[str, Any] = status["state"]["terminated"]
    return ended


def test_api_server_answers_with_the_pinned_version(cluster: Cluster) -> None:
    assert cluster.api.get("/version")["gitVersion"] == KUBERNETES_VERSION == "v1.37.1"
    client = json.loads(cluster.kubectl("version", "--output=json"))["clientVersion"]
    assert client["gitVersion"] == KUBERNETES_VERSION


def test_every_port_of_the_cluster_is_on_loopback(cluster: Cluster) -> None:
    listening = [
        connection.laddr.ip
        for pid in processes_from(clusters_folder() / cluster.name)
        for connection in psutil.Process(pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 6
    assert set(listening) == {"127.0.0.1"}


@pytest.mark.usefixtures("nodes")
def test_default_scheduler_runs_a_plain_pod_on_a_fake_node(
    cluster: Cluster, namespace: str, nodes: list[str]
) -> None:
    create(cluster, namespace, pod("plain"))
    running = await_phase(cluster, namespace, "plain", "Running")
    assert running["spec"]["nodeName"] in nodes
    assert running["spec"]["schedulerName"] == "default-scheduler"
    assert running["status"]["containerStatuses"][0]["ready"]


@pytest.mark.usefixtures("nodes")
def test_pod_succeeds_after_its_duration_however_often_it_is_written_to(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/timed"
    create(cluster, namespace, pod("timed", {DURATION: "3s"}))
    await_phase(cluster, namespace, "timed", "Running")

    def succeeded_after_one_more_write() -> bool:  # each makes kwok look at the pod again
        label = f"seen={time.monotonic_ns()}"
        cluster.kubectl("label", "pod", "timed", label, "--overwrite", "-n", namespace)
        phase: str = cluster.api.get(path)["status"]["phase"]
        return phase == "Succeeded"

    wait_until(succeeded_after_one_more_write, 20, "success", poll_seconds=0.3)
    ended_as = terminated(cluster.api.get(path))
    assert (ended_as["exitCode"], ended_as["reason"]) == (0, "Completed")
    started, finished = (
        datetime.fromisoformat(ended_as[f"{t}At"]) for t in ("started", "finished")
    )
    assert finished - started >= timedelta(seconds=3)


@pytest.mark.usefixtures("nodes")
def test_pod_fails_at_the_listed_attempts_and_at_no_other(cluster: Cluster, namespace: str) -> None:
    annotations = {DURATION: "1s", FAIL_ATTEMPTS: "0, 2", FAIL_MESSAGE: 'CUDA: "out of memory"'}
    create(cluster, namespace, *(pod(f"attempt-{n}", annotations, str(n)) for n in range(4)))
    for number, phase in enumerate(["Failed", "Succeeded", "Failed", "Succeeded"]):
        ended = terminated(await_phase(cluster, namespace, f"attempt-{number}", phase))
        failed = phase == "Failed"
        assert ended["exitCode"] == (1 if failed else 0)
        assert ended.get("message") == ('CUDA: "out of memory"' if failed else None)


@pytest.mark.usefixtures("nodes")
def test_pod_with_a_misspelt_duration_fails_and_says_so(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, pod("misspelt", {DURATION: "20 sec"}))
    status = await_phase(cluster, namespace, "misspelt", "Failed")["status"]
    assert status["reason"] == "InvalidDuration"
    assert '"20 sec"' in status["message"]


@pytest.mark.usefixtures("nodes")
def test_deleted_pod_is_seen_failed_before_it_is_gone(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, pod("deleted"))
    version = await_phase(cluster, namespace, "deleted", "Running")["metadata"]["resourceVersion"]
    cluster.kubectl("delete", "pod", "deleted", "--timeout=20s", "-n", namespace)
    query = f"watch=1&timeoutSeconds=1&resourceVersion={version}"
    reply = cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")
    events = [json.loads(line) for line in reply.body.splitlines()]
    story = [(event["type"], event["object"]["status"]["phase"]) for event in events]
    assert ("MODIFIED", "Failed") in story
    assert story[-1][0] == "DELETED"
    assert terminated(events[-1]["object"])["exitCode"] == 143


def test_annotated_node_is_not_ready_until_the_annotation_goes(
    cluster: Cluster, nodes: list[str]
) -> None:
    annotation = "fake.bireme.dev/not-ready"
    ready = '--for=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    cluster.kubectl("annotate", "node", nodes[0], f"{annotation}=1")
    cluster.kubectl("wait", f"node/{nodes[0]}", f"{ready}=False", "--timeout=20s")
    cluster.kubectl("annotate", "node", nodes[0], f"{annotation}-")
    cluster.kubectl("wait", f"node/{nodes[0]}", f"{ready}=True", "--timeout=20s")


def pinned(name: str, node: str) -> Manifest:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod(name, schedulerName="bireme", affinity=affinity)


def test_second_scheduler_binds_pinned_pods_without_an_extender_and_after_a_kill(
    cluster: Cluster, namespace: str, nodes: list[str], stack: BiremeStack
) -> None:
    stack.scheduler.start().wait_ready()
    assert answers(stack.scheduler.ready_url.replace("/readyz", "/metrics"))
    create(cluster, namespace, pinned("first", nodes[2]))
    assert await_phase(cluster, namespace, "first", "Running")["spec"]["nodeName"] == nodes[2]

    assert stack.scheduler.kill() == -signal.SIGKILL
    create(cluster, namespace, pinned("second", nodes[1]))
    stack.scheduler.start().wait_ready()
    # It leads when the Lease of the one before has run out, 15 s from now.
    found = await_phase(cluster, namespace, "second", "Running", timeout_seconds=40)
    assert found["spec"]["nodeName"] == nodes[1]


def test_pod_of_the_bireme_scheduler_waits_while_that_scheduler_is_away(
    cluster: Cluster, namespace: str, nodes: list[str], stack: BiremeStack
) -> None:
    create(cluster, namespace, pinned("waiting", nodes[0]), pod("other"))
    await_phase(cluster, namespace, "other", "Running")
    assert "nodeName" not in await_phase(cluster, namespace, "waiting", "Pending")["spec"]
    stack.scheduler.start()
    await_phase(cluster, namespace, "waiting", "Running")


def test_stack_starts_every_program_and_a_second_operator(
    cluster: Cluster, stack: BiremeStack
) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    stack.operator("b", env={"BIREME_LOG_LEVEL": "debug"})
    with promises.judged(cluster):
        stack.start()
        names = [process.name for process in stack.processes]
        assert names == ["extender", "kube-scheduler", "operator-b", "operator-a"]
        pids = [process.pid for process in stack.processes]
        for process in stack.processes:
            # A busy machine may answer one question late.
            wait_until(partial(answers, process.ready_url), 20, process.name)
        stack.stop()
    assert all(ended(pid) for pid in pids)


def fill(cluster: Cluster) -> None:
    """Leave much behind: a kind, objects that wait for a finalizer, a policy that refuses all."""
    post, finalizers = cluster.api.post, {"finalizers": ["example.com/never"]}
    cluster.add_nodes(fake_nodes(2, racks=1, prefix="left"))
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    namespace = cluster.create_namespace("left")
    here = {"metadata": {"name": "left", **finalizers}}
    post("/apis/bireme.dev/v1alpha1/queues", {**queue("left"), **here})
    for where in (namespace, "default"):
        post(f"/api/v1/namespaces/{where}/configmaps", here)
        left = pod("left", schedulerName="nobody")
        left["metadata"] |= finalizers
        create(cluster, where, left)
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    constraints = {"resourceRules": [{**rule, "resources": ["pods"]}]}
    spec = {"matchConstraints": constraints, "validations": [{"expression": "false"}]}
    post(f"{policies}ies", {"metadata": {"name": "left"}, "spec": spec})
    bound = {"policyName": "left", "validationActions": ["Deny"]}
    post(f"{policies}ybindings", {"metadata": {"name": "left"}, "spec": bound})


def test_cluster_that_is_returned_is_emptied_for_the_next_and_stopped_if_its_own_was_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ClusterPool()
    with pool.borrow(unique_name("pool")) as own:
        name, before = own.name, inventory(own.api, collections(own.api)).keys()
        fill(own)
        assert cluster.api.request("GET", "/api/v1/namespaces/left").status == 404
    with pool.borrow(unique_name("pool")) as own:
        assert own.name == name
        assert inventory(own.api, collections(own.api)).keys() == before
        own.kubectl("label", "namespace", "default", "left=behind")

    def refuse(*_: object, **__: object) -> None:
        raise ControlPlaneError("another is started")

    folder = clusters_folder() / name
    assert len(processes_from(folder)) == 5
    monkeypatch.setattr(Cluster, "start", refuse)
    with pytest.raises(ControlPlaneError, match="another is started"), pool.borrow("next"):
        pass
    assert processes_from(folder) == {}
    assert name not in known_clusters()
    assert cluster.api.get("/version")["gitVersion"] == KUBERNETES_VERSION


def test_component_that_was_stopped_comes_back_and_old_watches_expire(cluster: Cluster) -> None:
    server = cluster.component("kube-apiserver")
    cluster.create_namespace("kept")
    version = cluster.api.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"]
    first_pid = server.pid
    server.stop()
    assert server.pid is None
    with pytest.raises(ConnectionRefusedError):
        cluster.api.get("/version")

    server.start()
    assert server.pid not in (None, first_pid)
    cluster.kubectl("label", "namespace", "kept", "a=b")
    assert cluster.expire_watches() > int(version)
    query = f"watch=1&timeoutSeconds=1&resourceVersion={version}"
    reply = cluster.api.request("GET", f"/api/v1/namespaces?{query}")
    assert reply.json()["object"]["code"] == 410
    assert "kept" in cluster.kubectl("get", "namespaces")


def test_cluster_of_a_killed_program_is_cleared_away(tmp_path: Path) -> None:
    name = f"orphan-{time.monotonic_ns() % 10**9}"
    program = (
        "import time; from testbed.controlplane.cluster import Cluster;"
        f"Cluster.start({name!r}); print('up', flush=True); time.sleep(600)"
    )
    log = tmp_path / "log"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        starter = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=output)
    try:
        wait_until(lambda: log.read_bytes() == b"up\n", 60, name)
        assert name not in stop_orphans()
    finally:
        starter.kill()
        starter.wait(10)
    assert len(processes_from(clusters_folder() / name)) == 5
    assert name in stop_orphans()
    assert processes_from(clusters_folder() / name) == {}


def test_unknown_component_is_refused_with_the_known_ones(cluster: Cluster) -> None:
    with pytest.raises(ControlPlaneError, match=r"no component 'kubelet': it has etcd"):
        cluster.component("kubelet")


def test_failing_kubectl_says_what_was_refused(cluster: Cluster) -> None:
    with pytest.raises(ControlPlaneError, match=r'nodes "nowhere" not found'):
        cluster.kubectl("get", "node", "nowhere")
    assert "not found" in cluster.kubectl("get", "node", "nowhere", check=False)
