"""The demo on a real control plane, in its small variant, and the cluster that stays."""

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bireme.cli import main as bireme
from testbed.controlplane.cluster import Cluster, known_clusters
from testbed.controlplane.process import ended, processes_from
from testbed.demo_runs import run
from testbed.scenario.waiting import eventually
from tools.demo.cluster import ROOT

pytestmark = pytest.mark.cluster


def operators(keeper: int) -> list[int]:
    """The operators that the keeper runs."""
    found = []
    for program in psutil.Process(keeper).children():
        with suppress(psutil.NoSuchProcess):  # as which a zombie counts, too
            found += [program.pid] if "bireme_operator" in program.cmdline() else []
    return found


@pytest.fixture
def name() -> Iterator[str]:
    name = f"stay-{os.getpid()}-{secrets.token_hex(2)}"
    yield name
    if name in known_clusters():
        Cluster.find(name).stop()


def test_small_demo_keeps_every_promise_on_a_real_control_plane(tmp_path: Path) -> None:
    before = set(known_clusters())
    done = run(tmp_path, "run", "--real", "--small", "--seed=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "demo-report.json").read_text())["ok"]
    assert not {left for left in set(known_clusters()) - before if left.startswith("demo-")}


def test_cluster_stays_until_it_is_asked_to_go(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    up = run(tmp_path, "up", f"--name={name}")
    assert up.returncode == 0, up.stdout + up.stderr
    cluster = Cluster.find(name)
    assert f"export KUBECONFIG={cluster.kubeconfig}" in up.stdout
    again = run(tmp_path, "up", f"--name={name}")
    assert again.returncode == 1
    assert "is up already; stop it with: make cluster-down" in again.stderr

    cluster.kubectl("apply", "-f", str(ROOT / "manifests/examples/01-single-gpu.yaml"))
    phase = ("get", "btj", "digits", "-o=jsonpath={.status.phase}")
    eventually(lambda: cluster.kubectl(*phase), lambda found: found == "Running")

    # The leader can be asked with the kubeconfig that was printed.
    another = str(ROOT / "manifests/examples/03-parameter-server.yaml")
    assert bireme(["submit", "--dry-run", another, f"--kubeconfig={cluster.kubeconfig}"]) == 0
    assert "starts    at once" in capsys.readouterr().out

    keeper = int((cluster.kubeconfig.parents[2] / "keeper.pid").read_text())
    running = processes_from(cluster.kubeconfig.parents[2])
    assert len(running) >= 5
    down = run(tmp_path, "down", f"--name={name}")
    assert down.returncode == 0, down.stdout + down.stderr
    assert ended(keeper)
    assert all(ended(pid) for pid in running)
    assert name not in known_clusters()
    late = run(tmp_path, "down", f"--name={name}")
    assert late.returncode == 1
    assert f"no cluster {name!r}" in late.stderr


def test_keeper_brings_back_what_ends_and_goes_with_its_cluster(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, "up", f"--name={name}").returncode == 0
    cluster = Cluster.find(name)
    folder = cluster.kubeconfig.parents[2]
    keeper = int((folder / "keeper.pid").read_text())
    (operator,) = operators(keeper)
    os.kill(operator, signal.SIGKILL)
    eventually(lambda: operators(keeper), lambda pids: pids and operator not in pids)
    cluster.kubectl("apply", "-f", str(ROOT / "manifests/examples/01-single-gpu.yaml"))
    phase = ("get", "btj", "digits", "-o=jsonpath={.status.phase}")
    eventually(lambda: cluster.kubectl(*phase), lambda found: found == "Running")
    programs = [program.pid for program in psutil.Process(keeper).children()]
    cluster.stop()
    deadline_seconds = time.monotonic() + 30
    while not all(ended(pid) for pid in (keeper, *programs)):
        assert time.monotonic() < deadline_seconds, "the keeper outlives its cluster"
        time.sleep(0.2)
