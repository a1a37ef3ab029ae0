"""What ``bireme doctor`` makes of leaders, queues, policies, nodes and gangs that are not well."""

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.cli import checkup, main
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.kube import names
from bireme_operator.settings import OperatorSettings
from testbed.fakeapi import FakeApi

ROOT = Path(__file__).parents[2]
JOBS = names.path("trainingjobs")


class Doctor:
    def __init__(self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig = f"--kubeconfig={api.kubeconfig(folder)}"
        self._capsys = capsys

    async def __call__(self, check: str, state: str) -> list[str]:
        """Message and remedy of all answers of one check that are of this state."""
        await asyncio.to_thread(main, ["doctor", "-o=json", self._kubeconfig])
        found = json.loads(self._capsys.readouterr().out)["checks"]
        return [
            f"{each['message']} {each['helps'] or ''}".rstrip()
            for each in found
            if (each["check"], each["state"]) == (check, state)
        ]


@pytest.fixture
def doctor(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(api, tmp_path, capsys)


def written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ago(seconds: float) -> str:
    return written(time.time() - seconds)  # noqa: TID251  # as the command reads it


def claim(api: FakeApi, renewed_ago: float, seconds: int = 2) -> None:
    spec = {"namespace": "bireme-system", "holder": "one", "durationSeconds": seconds}
    about = {"name": "bireme"}
    body = {"metadata": about, "spec": {**spec, "renewTime": ago(renewed_ago), "transitions": 1}}
    api.put(names.path("clusterclaims", name="bireme"), body)


def operator_of(api: FakeApi, namespace: str) -> None:
    labels = {"app.kubernetes.io/part-of": "bireme", "app.kubernetes.io/component": "operator"}
    about = {"name": "bireme-operator", "namespace": namespace, "labels": labels}
    container = {"name": "operator", "image": "bireme:1.0.0"}
    spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/bireme-operator"
    api.put(path, {"metadata": about, "spec": spec})


def job(api: FakeApi, name: str, made_ago: float, spec: Any, status: Any) -> None:
    about = {"name": name, "namespace": "default"}
    api.store.create(JOBS, ("default", name), {"metadata": about, "spec": spec, "status": status})
    stored = api.store.collection(JOBS).objects["default", name]
    stored["metadata"]["creationTimestamp"] = ago(made_ago)


def test_the_limits_are_those_of_chart_and_operator() -> None:
    chart = yaml.safe_load((ROOT / "charts/bireme/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">=1.{checkup.OLDEST_MINOR}.0-0"
    assert OperatorSettings().start_timeout_seconds == checkup.START_TIMEOUT_SECONDS


async def test_a_claim_that_is_not_renewed_has_no_leader(api: FakeApi, doctor: Doctor) -> None:
    claim(api, 0)
    assert await doctor("operator leads", "ok") == [
        "bireme-system/one holds ClusterClaim bireme and renews it"
    ]
    claim(api, 100)
    (message,) = await doctor("operator leads", "wrong")
    assert message.startswith("nobody: ClusterClaim bireme is not renewed any more why none")


async def test_a_claim_is_believed_and_not_this_machines_clock(
    api: FakeApi, doctor: Doctor
) -> None:
    claim(api, -3600, seconds=2**31)  # out of bounds, so that it counts as the usual 15 s
    check = asyncio.create_task(doctor("operator leads", "ok"))
    while not check.done():
        await asyncio.sleep(0.2)
        claim(api, -3600, seconds=2**31)
    assert len(await check) == 1


async def test_a_lease_of_a_tenant_is_no_leader(api: FakeApi, doctor: Doctor) -> None:
    claim(api, 0)
    far = {"holderIdentity": "x", "leaseDurationSeconds": 2**31 - 1, "renewTime": ago(-3600)}
    for name in (names.OPERATOR_LEASE, "bireme-scheduler"):
        path = f"/apis/coordination.k8s.io/v1/namespaces/tenant/leases/{name}"
        api.put(path, {"metadata": {"name": name, "namespace": "tenant"}, "spec": far})
    assert await doctor("operator leads", "wrong") == []
    (message,) = await doctor("kube-scheduler leads", "wrong")
    assert message.startswith("nobody: of Lease bireme-scheduler, there is no such object")


async def test_the_release_that_waits_for_another_is_named(api: FakeApi, doctor: Doctor) -> None:
    claim(api, 0)
    for namespace in ("bireme-system", "second"):
        operator_of(api, namespace)
    message = "the operator in second waits for the release in bireme-system"
    helps = "helm uninstall one of the releases; the other leads when the lease ends"
    assert await doctor("operator leads", "note") == [f"{message} {helps}"]


async def test_gangs_that_nobody_looks_after_are_named(api: FakeApi, doctor: Doctor) -> None:
    limit = {"startTimeoutSeconds": 100}
    api.put(names.path("queues", None, "top"), {"metadata": {"name": "top"}, "spec": limit})
    below = {"metadata": {"name": "below"}, "spec": {"parent": "top"}}
    api.put(names.path("queues", None, "below"), below)
    starting = {"phase": "Starting", "admittedTime": ago(330)}
    job(api, "unseen", 100, {}, None)
    job(api, "new", 1, {}, None)
    job(api, "own", 400, {"runPolicy": limit}, starting)
    job(api, "by-its-queue", 400, {"queue": "below"}, starting)
    job(api, "in-time", 400, {}, starting)
    job(api, "runs", 400, {"runPolicy": limit}, {**starting, "phase": "Running"})
    unseen, stuck = await doctor("gangs", "wrong")
    assert unseen.startswith("default/unseen have no status: no operator")
    named = "default/by-its-queue (6 min), default/own (6 min)"
    assert f"Starting for longer than their start limit: {named} the operator" in stuck
    for name in ("unseen", "own", "by-its-queue"):
        api.store.delete(JOBS, ("default", name), {})
    assert await doctor("gangs", "ok") == ["3 of all namespaces, none is stuck"]


async def test_queues_and_policies_that_do_not_work_say_why(api: FakeApi, doctor: Doctor) -> None:
    assert (await doctor("queues", "wrong"))[0].startswith("there is none create one")
    invalid = {"type": "Admitting", "status": "False", "reason": "QueueInvalid", "message": "loop"}
    status = {"conditions": [invalid]}
    body = {"metadata": {"name": "default"}, "spec": {}, "status": status}
    api.store.create(names.path("queues"), ("", "default"), body)
    (message,) = await doctor("queues", "wrong")
    assert message.startswith("default admits no gangs: QueueInvalid: loop an administrator must")
    full = {"type": "Admitting", "status": "False", "reason": "OverQueueLimit", "message": "full"}
    body = {**body, "status": {"conditions": [full]}}
    api.store.update(names.path("queues"), ("", "default"), body, "status")
    assert await doctor("queues", "ok") == ["1 is there"]
    failed = {"type": "Loaded", "status": "False", "reason": "LoadFailed", "message": "no file"}
    body = {"metadata": {"name": "trial"}, "spec": {}, "status": {"conditions": [failed]}}
    api.store.create(names.path("schedulingpolicies"), ("", "trial"), body)
    (message,) = await doctor("policies", "wrong")
    assert message.startswith("trial does not decide: LoadFailed: no file correct what")


async def test_gpu_models_that_nobody_knows_are_named_with_what_they_count_as(
    api: FakeApi, doctor: Doctor
) -> None:
    for name, model in (("a", "R100"), ("b", "R100"), ("c", "Tesla-T4")):
        labels = {GPU_MODEL_LABEL: model}
        api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name, "labels": labels}})
    (message,) = await doctor("nodes", "note")
    assert message.startswith("2 with GPUs of model R100, which Bireme does not know")
    assert "assume 1 times the speed of a V100 add it to the setting gpuModels" in message


async def test_a_cluster_that_is_too_old_is_refused(api: FakeApi, doctor: Doctor) -> None:
    told = {"major": "1", "minor": "34+", "gitVersion": "v1.34.9-eks"}
    api.documents["/version"] = told
    (message,) = await doctor("API server", "wrong")
    assert message.startswith("v1.34.9-eks is too old for Bireme upgrade the cluster")
