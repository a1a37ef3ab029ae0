"""On the real control plane: a pod's own token lets it report for its job, and nobody else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bireme.kube.pod_builder import AUDIENCE, path
from testbed.controlplane.process import free_ports
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import annotations, task, training_job
from testbed.scenario.tenant import Tenant, environment, uids_of

pytestmark = pytest.mark.cluster

STAYS = annotations("1h")
SCRIPT = """
from bireme.report import finish, report
assert report(step=40, total_steps=100, loss=0.25, accuracy=0.9), "not taken"
assert finish(), "not sent"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    (port,) = free_ports(1)
    env = {
        "BIREME_PROGRESS_URL": f"http://127.0.0.1:{port}",
        "BIREME_PROGRESS_ADDRESS": f"http://127.0.0.1:{port}",
    }
    often = {"progress_write_seconds": 1.0, "status_refresh_seconds": 1.0}
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("progress", folder, env, internals=often) as stack:
        yield stack


def run(tenant: Tenant, *names: str) -> None:
    """Jobs of two workers that stay."""
    for name in names:
        tenant.create(training_job(name, task("worker", 2, fake=STAYS)))
    for name in names:
        tenant.await_phase(name, "Running")


def token(tenant: Tenant, pod: str, audience: str = AUDIENCE) -> str:
    """The token that the kubelet would project into ``pod``, by TokenRequest."""
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
    uid = f"--bound-object-uid={uids_of(tenant.pods())[pod]}"
    asked = ("create", "token", "default", f"--audience={audience}", *bound, uid)
    return tenant.cluster.kubectl(*asked, "--namespace", tenant.namespace).strip()


def post(stack: BiremeStack, tenant: Tenant, job: str, bearer: str, percentage: int = 10) -> int:
    """The status of the answer to a report."""
    body = json.dumps({"trainerStatus": {"progressPercentage": percentage}})
    address = stack.env["BIREME_PROGRESS_ADDRESS"].removeprefix("http://")
    connection = HTTPConnection(address, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {bearer}"}
        connection.request("POST", path((tenant.namespace, job)), body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_script_in_a_pod_tells_its_progress_and_kubectl_shows_it(
    stack: BiremeStack, tenant: Tenant, tmp_path: Path
) -> None:
    """The script runs here, with the variables of the pod and the token a kubelet would give."""
    run(tenant, "job")
    given = environment(next(p for p in tenant.pods() if p["metadata"]["name"] == "job-worker-0"))
    file = tmp_path / "token"
    file.write_text(token(tenant, "job-worker-0"))
    env = {"BIREME_PROGRESS_URL": given["BIREME_PROGRESS_URL"], "RANK": "0"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **env, "BIREME_PROGRESS_TOKEN_FILE": str(file)},
        check=True,
        timeout=60,
    )
    tenant.eventually(lambda: tenant.status("job"), lambda status: "progress" in status)
    progress = tenant.status("job")["progress"]
    assert (progress["percentage"], progress["step"], progress["totalSteps"]) == (40, 40, 100)
    assert (progress["loss"], progress["accuracy"]) == (0.25, 0.9)
    shown = tenant.cluster.kubectl("get", "btj", "job", "-o", "wide", "-n", tenant.namespace)
    header, row = shown.splitlines()
    assert row[header.index("PROGRESS") :].split()[:2] == ["40", "0.25"]


def test_only_a_live_member_with_the_right_token_is_heard(
    stack: BiremeStack, tenant: Tenant
) -> None:
    run(tenant, "mine", "yours")
    mine, yours = token(tenant, "mine-worker-0"), token(tenant, "yours-worker-0")
    assert post(stack, tenant, "mine", mine) == 200
    assert post(stack, tenant, "mine", yours) == 403
    assert post(stack, tenant, "nobody", mine) == 404
    other = token(tenant, "mine-worker-1", "https://kubernetes.default.svc")
    assert post(stack, tenant, "mine", other) == 401
    assert post(stack, tenant, "mine", token(tenant, "mine-worker-1")[:-20] + "x" * 20) == 401
    tenant.delete("TrainingJob", "mine")
    tenant.await_gone("Pod", "mine-worker-0")
    assert post(stack, tenant, "mine", mine) == 403


def test_pods_carry_a_token_volume_that_the_api_server_accepts(
    stack: BiremeStack, tenant: Tenant
) -> None:
    run(tenant, "job")
    (volume, *_) = (
        volume["projected"]["sources"][0]["serviceAccountToken"]
        for volume in tenant.pods("job")[0]["spec"]["volumes"]
        if volume["name"] == "bireme-progress"
    )
    assert (volume["audience"], volume["expirationSeconds"]) == (AUDIENCE, 3600)
