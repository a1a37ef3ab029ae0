"""Jobs of Kubeflow's own controllers as gangs: what docs/cookbook.md says of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from bireme.cli import main
from testbed.controlplane.kubeflow import training_operator
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import (
    Manifest,
    annotations,
    documents,
    member_template,
    pod_group,
    pod_spec,
    task,
    training_job,
)
from testbed.scenario.tenant import KUBEFLOW_KINDS, Tenant, environment, nodes_of, uids_of
from testbed.scenario.waiting import always

_SHAPES: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
}
"""Kind to the field of its replica types and the name that its main container must have."""


@contextmanager
def kubeflow_stack(
    purpose: str, folder: Path, internals: dict[str, float]
) -> Iterator[BiremeStack]:
    """Bireme and Kubeflow's controllers on two nodes of eight GPUs."""
    with (
        gpu_stack(purpose, folder / "bireme", internals=internals) as stack,
        training_operator(stack.cluster, folder / "kubeflow"),
    ):
        yield stack


@contextmanager
def kubeflow_tenant(stack: BiremeStack) -> Iterator[Tenant]:
    """A tenant whose Kubeflow jobs go before its pods, which would come back otherwise."""
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
        kinds = ",".join(plural for _, plural in KUBEFLOW_KINDS.values())
        stack.cluster.kubectl("delete", kinds, "--all", "-n", tenant.namespace)


def replicas(
    count: int,
    group: str,
    gpus: int = 1,
    *,
    fake: Manifest | None = None,
    restart: str = "Never",
    labels: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """One replica type whose pods are members of the PodGroup ``group``; ``labels`` come on top."""
    template = member_template(group, gpus, fake, **spec)
    template["metadata"]["labels"] |= labels or {}
    return {"replicas": count, "restartPolicy": restart, "template": template}


def kubeflow_job(kind: str, name: str, specs: dict[str, Manifest], **spec: Any) -> Manifest:
    """A job of ``kind`` with the replica types ``specs``, such as ``{"Worker": replicas(...)}``."""
    field, container = _SHAPES[kind]
    for replica in specs.values():
        replica["template"]["spec"]["containers"][0]["name"] = container
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: specs, **spec},
    }


def pytorch_job(name: str, workers: int = 3, gpus: int = 2, **shape: Any) -> Manifest:
    """A master and ``workers`` workers, members of the PodGroup ``name``."""
    master = replicas(1, name, gpus, labels={"bireme.dev/role": "master"}, **shape)
    specs = {"Master": master, "Worker": replicas(workers, name, gpus, **shape)}
    return kubeflow_job("PyTorchJob", name, specs)


def holds(job: Manifest, condition: str) -> bool:
    """Whether a Kubeflow job has ``condition``: Created, Running, Restarting, Succeeded, Failed."""
    conditions = job.get("status", {}).get("conditions") or ()
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


pytestmark = pytest.mark.cluster

SEEN = annotations(duration="6s")
"""Long enough that a slow machine sees it run."""
QUICK = {"status_refresh_seconds": 1.0}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with kubeflow_stack("kubeflow", tmp_path_factory.mktemp("stack"), QUICK) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with kubeflow_tenant(stack) as tenant:
        yield tenant


def await_job(tenant: Tenant, kind: str, name: str, condition: str) -> None:
    tenant.eventually(lambda: tenant.get(kind, name), lambda job: holds(job, condition))


def gated(tenant: Tenant, name: str) -> list[str]:
    """Names of the members that still wait for their plan."""
    pods = tenant.pods(name)
    return sorted(p["metadata"]["name"] for p in pods if "schedulingGates" in p["spec"])


def planned_uids(tenant: Tenant, name: str) -> list[str]:
    plan = tenant.plan(name) or {"placements": []}
    return sorted(uid for placement in plan["placements"] for uid in placement["pods"])


def fail(tenant: Tenant, pod: str, exit_code: int) -> None:
    """Ends a pod as a kubelet tells of a container that exited."""
    (container,) = tenant.get("Pod", pod)["status"]["containerStatuses"]
    ended = {**container, "ready": False, "state": {"terminated": {"exitCode": exit_code}}}
    tenant.patch(
        "Pod", pod, {"status": {"phase": "Failed", "containerStatuses": [ended]}}, "status"
    )


def why(tenant: Tenant, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of ``bireme why`` about a PodGroup."""
    kubeconfig = str(tenant.cluster.kubeconfig)
    command = ["why", f"podgroup/{name}", "-n", tenant.namespace, "--kubeconfig", kubeconfig]
    assert main(command) == 0
    return capsys.readouterr().out


def test_pytorch_job_starts_whole_where_it_was_planned_and_succeeds(tenant: Tenant) -> None:
    tenant.create(pod_group("resnet", 4), pytorch_job("resnet", 3, fake=SEEN))
    tenant.await_group("resnet", phase="Running")
    bound = nodes_of(tenant.pods("resnet"))
    assert set(bound) == {"resnet-master-0", *(f"resnet-worker-{n}" for n in range(3))}
    assert len(set(bound.values())) == 1, "eight GPUs fit one node, the smallest domain"
    plan = tenant.plan("resnet") or {}
    assert {p["node"] for p in plan["placements"]} == set(bound.values())
    assert {t["role"] for t in plan["tasks"]} == {"master", "worker"}
    await_job(tenant, "PyTorchJob", "resnet", "Succeeded")
    tenant.await_group("resnet", phase="Completed")


def test_example_runs(tenant: Tenant) -> None:
    group, job = documents("13-kubeflow-pytorch.yaml")
    tenant.create(group, job)
    tenant.await_group("resnet", phase="Running")
    await_job(tenant, "PyTorchJob", "resnet", "Running")
    assert len(nodes_of(tenant.pods("resnet"))) == group["spec"]["minMember"] == 4


def test_nothing_starts_before_every_replica_type_is_there(tenant: Tenant) -> None:
    tenant.create(pod_group("late", 5), pytorch_job("late", 3))
    tenant.await_group("late", message="4 of minMember 5 pods exist")
    always(lambda: len(gated(tenant, "late")), lambda n: n == 4, 1.0, what="all gated")
    tenant.patch(
        "PyTorchJob", "late", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}}
    )
    tenant.await_group("late", phase="Running")
    assert len(nodes_of(tenant.pods("late"))) == 5


def test_of_two_jobs_that_do_not_both_fit_one_waits_whole_and_then_runs(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"first", "second"}
    for name in sorted(pair):
        tenant.create(pod_group(name, 6), pytorch_job(name, 5))
    phases = tenant.eventually(
        lambda: {name: tenant.status(name, "PodGroup").get("phase") for name in pair},
        lambda found: sorted(map(str, found.values())) == ["Pending", "Running"],
    )
    winner, loser = sorted(pair, key=phases.__getitem__, reverse=True)
    tenant.await_group(loser, message="asks 12 nvidia.com/gpu")
    always(lambda: len(gated(tenant, loser)), lambda n: n == 6, 1.0, what="all gated")
    printed = why(tenant, loser, capsys)
    assert f"PodGroup {tenant.namespace}/{loser}: Pending, queue default" in printed
    assert "WaitingForCapacity" in printed
    assert "position 1 of 1" in printed
    tenant.delete("PyTorchJob", winner)
    tenant.await_group(loser, phase="Running")
    assert len(nodes_of(tenant.pods(loser))) == 6
    tenant.await_group(winner, phase="Completed")


def test_parameter_servers_lie_beside_the_workers_of_their_tf_job(tenant: Tenant) -> None:
    servers = replicas(2, "wide", 0, labels={"bireme.dev/role": "ps"})
    workers = replicas(6, "wide", 2, fake=SEEN, labels={"bireme.dev/role": "worker"})
    cleaning = {"cleanPodPolicy": "Running"}
    specs = {"PS": servers, "Worker": workers}
    tenant.create(pod_group("wide", 8), kubeflow_job("TFJob", "wide", specs, runPolicy=cleaning))
    tenant.await_group("wide", phase="Running")
    bound = nodes_of(tenant.pods("wide"))
    beside = {role: {bound[n] for n in bound if f"-{role}-" in n} for role in ("ps", "worker")}
    assert beside["ps"] == beside["worker"]
    assert len(beside["worker"]) == 2, "twelve GPUs need both nodes, and so both servers"
    cluster = json.loads(environment(tenant.get("Pod", "wide-worker-0"))["TF_CONFIG"])["cluster"]
    assert (len(cluster["ps"]), len(cluster["worker"])) == (2, 6)
    await_job(tenant, "TFJob", "wide", "Succeeded")
    tenant.await_group("wide", phase="Completed")


def test_workers_that_kubeflow_makes_again_get_places_of_their_own(tenant: Tenant) -> None:
    tenant.create(pod_group("ring", 4), pytorch_job("ring", 3, restart="ExitCode"))
    tenant.await_group("ring", phase="Running")
    first = uids_of(tenant.pods("ring"))
    fail(tenant, "ring-worker-1", exit_code=137)
    tenant.delete("Pod", "ring-worker-2")

    def replaced(pods: list[Manifest]) -> bool:
        now = uids_of(pods)
        return len(nodes_of(pods)) == 4 and all(
            now[f"ring-worker-{number}"] != first[f"ring-worker-{number}"] for number in (1, 2)
        )

    second = uids_of(tenant.eventually(lambda: tenant.pods("ring"), replaced))
    assert {name for name in first if second[name] == first[name]} == {
        "ring-master-0",
        "ring-worker-0",
    }
    tenant.await_group("ring", phase="Running", reason="GangRunning")
    assert planned_uids(tenant, "ring") == sorted(second.values())


def test_job_that_kubeflow_gives_up_frees_the_room(tenant: Tenant) -> None:
    tenant.create(pod_group("doomed", 4), pytorch_job("doomed", 3, 4, restart="ExitCode"))
    tenant.await_group("doomed", phase="Running")
    tenant.create(pod_group("next", 4), pytorch_job("next", 3, 4))
    tenant.await_group("next", reason="WaitingForCapacity")
    tenant.patch("PyTorchJob", "doomed", {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}})
    fail(tenant, "doomed-master-0", exit_code=1)
    await_job(tenant, "PyTorchJob", "doomed", "Failed")
    tenant.await_group("next", phase="Running")


def test_suspended_job_gives_its_room_back_and_comes_again_whole(tenant: Tenant) -> None:
    def suspend(value: bool) -> None:
        tenant.patch("PyTorchJob", "paused", {"spec": {"runPolicy": {"suspend": value}}})

    tenant.create(pod_group("paused", 4), pytorch_job("paused", 3, 4))
    tenant.await_group("paused", phase="Running")
    suspend(True)
    tenant.await_group("paused", phase="Completed")
    tenant.create(training_job("between", task(gpus=8)))
    tenant.await_phase("between", "Running")
    suspend(False)
    tenant.await_group("paused", reason="WaitingForCapacity")
    always(lambda: len(gated(tenant, "paused")), lambda n: n == 4, 1.0, what="all gated")
    tenant.delete("TrainingJob", "between")
    tenant.await_group("paused", phase="Running")


def test_elastic_job_grows_as_far_as_there_is_room_and_shrinks(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    def scale(workers: int) -> None:
        tenant.cluster.kubectl(
            "scale", "pytorchjob", "stretch", f"--replicas={workers}", "-n", tenant.namespace
        )

    def bound() -> list[str]:
        return sorted(nodes_of(tenant.pods("stretch")))

    names = [f"stretch-worker-{number}" for number in range(6)]
    elastic = {"minReplicas": 2, "maxReplicas": 6, "rdzvBackend": "c10d"}
    workers = {"Worker": replicas(2, "stretch", 4)}
    job = kubeflow_job("PyTorchJob", "stretch", workers, elasticPolicy=elastic)
    tenant.create(pod_group("stretch", 2), job)
    tenant.await_group("stretch", phase="Running")
    scale(6)
    tenant.eventually(bound, lambda found: len(found) == 4)
    tenant.await_group("stretch", message="2 more pods wait to join: asks ")
    assert sorted([*bound(), *gated(tenant, "stretch")]) == names
    printed = why(tenant, "stretch", capsys)
    assert f"PodGroup {tenant.namespace}/stretch: Running, queue default" in printed
    assert "position 1 of 1" in printed
    scale(2)
    tenant.eventually(bound, lambda found: found == names[:2])
    status = tenant.await_group("stretch", phase="Running", reason="GangRunning")
    assert "queuePosition" not in status


def test_other_kinds_become_gangs_by_the_same_lines(tenant: Tenant) -> None:
    kinds = {"MPIJob": "Launcher", "XGBoostJob": "Master", "PaddleJob": "Master"}
    groups = {kind: kind.lower() for kind in kinds}
    quick = annotations(duration="2s")
    for kind, first in kinds.items():
        group = groups[kind]
        specs = {first: replicas(1, group, 0, fake=quick), "Worker": replicas(2, group, fake=quick)}
        tenant.create(kubeflow_job(kind, group, specs))
    tenant.eventually(tenant.pods, lambda pods: len(pods) == 9)
    assert [len(gated(tenant, group)) for group in groups.values()] == [3, 3, 3]
    tenant.create(*(pod_group(group, 3) for group in groups.values()))
    for kind, group in groups.items():
        await_job(tenant, kind, group, "Succeeded")
        assert len(nodes_of(tenant.pods(group))) == 3


def test_replica_type_without_the_lines_is_named_by_what_is_missing(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    job = pytorch_job("half", 3)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {
        "spec": {**pod_spec(2), "containers": [{"name": "pytorch", "image": "trainer"}]}
    }
    tenant.create(pod_group("half", 4), job)
    status = tenant.await_group("half", message="1 of minMember 4 pods exist")
    assert status["reason"] == "WaitingForPods"
    assert gated(tenant, "half") == ["half-master-0"]
    assert "1 of minMember 4 pods exist" in why(tenant, "half", capsys)
