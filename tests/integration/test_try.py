"""``bireme try``: a job runs on it, and nothing of it stays."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bireme.cli import main
from bireme_lab.cli import trial
from testbed.controlplane.waiting import wait_until
from testbed.scenario.manifests import task, training_job

JOBS = "/apis/bireme.dev/v1alpha1/namespaces/default/trainingjobs"


def call(kubeconfig: Path, path: str, body: Any = None) -> Any:
    """Send a request to the server of a kubeconfig, and return its answer."""
    config = yaml.safe_load(kubeconfig.read_text())
    server, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token['token']}"
    data = None if body is None else json.dumps(body).encode()
    # The kubeconfig is of the program that the test started.
    request = urllib.request.Request(server + path, data, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
            return json.load(reply)
    except urllib.error.HTTPError as error:
        return json.load(error)


def started(*arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """Start ``bireme try``; return it and its kubeconfig once it is ready."""
    command = [sys.executable, "-m", "bireme.cli", "try", "--no-board", *arguments]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    for line in program.stdout:
        if found := re.search(r"export KUBECONFIG=(\S+)", line):
            return program, Path(found[1])
    raise AssertionError(f"bireme try ended with {program.wait()}")


def phase(kubeconfig: Path) -> str:
    status = call(kubeconfig, f"{JOBS}/j").get("status") or {}
    return str(status.get("phase"))


def test_a_job_runs_and_nothing_stays_after_ctrl_c() -> None:
    program, kubeconfig = started("--nodes", "2", "--gpus", "8")
    try:
        call(kubeconfig, JOBS, training_job("j", task("worker", 2, gpus=4)))
        wait_until(lambda: phase(kubeconfig) == "Running", 30, "the job to run")
        children = psutil.Process(program.pid).children(recursive=True)
        assert len(children) == 2
    finally:
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0
        program.communicate()
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert (len(gone), alive) == (2, [])
    assert not kubeconfig.parent.exists()


def test_the_chart_rules_what_programs_and_users_may_do() -> None:
    program, kubeconfig = started("--nodes", "1")
    try:
        operator = kubeconfig.with_name("operator.yaml")
        allowed = call(operator, "/api/v1/pods")
        assert allowed["kind"] == "PodList"
        refused = call(operator, "/api/v1/secrets")
        assert refused["message"] == (
            'secrets is forbidden: User "system:serviceaccount:bireme-system:bireme-operator" '
            'cannot list resource "secrets" in API group "" at the cluster scope'
        )
        containers = [{"name": "c", "image": "i"}]
        spec = {"schedulerName": "bireme", "hostPID": True, "containers": containers}
        pod = {"metadata": {"name": "p"}, "spec": spec}
        refused = call(operator, "/api/v1/namespaces/default/pods", pod)
        assert "the operator makes no pod with hostPID: leave it out" in refused["message"]
        # A tenant cannot let a pod go that the scheduler of gangs would bind.
        refused = call(kubeconfig, "/api/v1/namespaces/default/pods", pod)
        assert "ValidatingAdmissionPolicy 'bireme-pods'" in refused["message"]
    finally:
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=20)


def test_the_leader_is_asked_and_the_doctor_misses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, kubeconfig = started("--nodes", "1", "--gpus", "8")
    try:
        where = f"--kubeconfig={kubeconfig}"
        job = tmp_path / "job.yaml"
        job.write_text(yaml.safe_dump(training_job("j", task("worker", 1, gpus=4))))
        wait_until(lambda: main(["doctor", where]) == 0, 30, "the scheduler to lead")
        assert "Nothing is wrong" in capsys.readouterr().out
        assert main(["submit", "--dry-run", str(job), where]) == 0
        assert "starts    at once" in capsys.readouterr().out
        services = "/api/v1/namespaces/bireme-system/services"
        refused = call(kubeconfig.with_name("scheduler.yaml"), f"{services}/bireme-outlook/proxy/x")
        assert 'cannot get resource "services/proxy"' in refused["message"]
        missing = call(kubeconfig, f"{services}/nobody:outlook/proxy/v1/outlook")
        assert (missing["code"], missing["message"]) == (404, 'services "nobody" not found')
        ports = {"ports": [{"port": 80}]}
        call(kubeconfig, services, {"metadata": {"name": "idle"}, "spec": ports})
        idle = call(kubeconfig, f"{services}/idle/proxy/")
        assert (idle["code"], idle["reason"]) == (503, "ServiceUnavailable")
    finally:
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=20)


def test_its_programs_end_when_it_is_killed() -> None:
    program, _ = started()
    children = psutil.Process(program.pid).children(recursive=True)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate(timeout=10)
    assert psutil.wait_procs(children, timeout=15)[1] == []


def test_a_printed_cluster_is_played_and_others_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}, "conditions": []},
    }
    queue = {"kind": "Queue", "metadata": {"name": "q", "generation": 3}, "spec": {}}
    printed = tmp_path / "cluster.yaml"
    printed.write_text(yaml.safe_dump({"kind": "List", "items": [node, queue]}))
    nodes, others = trial.read_cluster(printed)
    assert nodes[0]["metadata"] == {"name": "n", "labels": {"a": "b"}}
    assert nodes[0]["status"] == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
    assert others == [{"kind": "Queue", "metadata": {"name": "q"}, "spec": {}}]
    printed.write_text(yaml.safe_dump({"kind": "Node", "metadata": "n"}))
    assert main(["try", "-f", str(printed)]) == 2
    assert "has a Node without metadata.name" in capsys.readouterr().err
    printed.write_text(yaml.safe_dump({"kind": "Pod", "metadata": {"name": "p"}}))
    assert main(["try", "-f", str(printed)]) == 2
    assert "has an object of kind 'Pod'; print it with kubectl get" in capsys.readouterr().err
