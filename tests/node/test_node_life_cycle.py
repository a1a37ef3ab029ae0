"""Traces of a real node on the machine: none, however it ends."""

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from testbed.controlplane.__main__ import main
from testbed.controlplane.cluster import Cluster, clusters_folder, stop_orphans
from testbed.controlplane.process import processes
from testbed.controlplane.realnode.cgroups import CGROUPS
from testbed.controlplane.realnode.settings import PAUSE
from testbed.controlplane.waiting import wait_until

ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
START_SECONDS: Final = 300.0
POD: Final = """
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  containers: [{name: main, image: IMAGE, command: [/pause, NAME]}]
"""

pytestmark = pytest.mark.usefixtures("able")


@pytest.fixture
def name() -> str:
    """A cluster for one test alone."""
    return f"life-{secrets.token_hex(4)}"


def run_a_pod(cluster: Cluster) -> Path:
    """One real pod, so that there is all that a node makes: mounts, namespaces, processes.

    Returns where the machine shows its end of the link to the node, while there is one.
    """
    pod = POD.replace("IMAGE", PAUSE).replace("NAME", cluster.name)
    cluster.kubectl("apply", "-f", "-", input=pod)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
    link = Path("/sys/class/net") / cluster.node.network.interface
    assert link.exists()
    assert traces(cluster.name) == {"program", "container", "control group", "folder"}
    return link


def traces(name: str) -> set[str]:
    """Traces on the machine of a node of the cluster ``name``, by kind."""
    lines = [" ".join(line) for line in processes().values()]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = {
        "program": [line for line in lines if str(clusters_folder() / name) in line],
        "container": [line for line in lines if line == f"/pause {name}"],
        "control group": list(CGROUPS.glob(f"**/bireme-{name}")),
        "mount": [line for line in mounts if name in line],
        "folder": list(clusters_folder().glob(name)),
    }
    return {kind for kind, what in found.items() if what}


def test_a_stopped_node_leaves_nothing(name: str) -> None:
    with Cluster.start(name, real_node=True) as cluster:
        link = run_a_pod(cluster)
    assert traces(name) == set()
    assert not link.exists()
    cluster.stop()  # twice is fine


def test_the_node_of_a_killed_program_is_cleared_away(name: str) -> None:
    program = (
        "import sys, time; from testbed.controlplane.cluster import Cluster;"
        "cluster = Cluster.start(sys.argv[1], real_node=True); print('up', flush=True);"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", program, name]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "up\n"
            link = run_a_pod(Cluster.find(name))
        finally:
            owner.kill()
    # The kernel ends what ran, at once; groups and the folder wait for the next program.
    wait_until(lambda: not link.exists() and "container" not in traces(name), 20, "its end")
    stop_orphans()
    wait_until(lambda: traces(name) == set(), 60, "another program to clear it, should one have")


def test_a_node_of_the_command_line_stays_until_it_is_stopped(name: str) -> None:
    command = [sys.executable, "-m", "testbed.controlplane", "up", name, "--nodes", "1", "--node"]
    try:
        done = subprocess.run(
            command,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert "with 1 fake nodes and a real one" in done.stdout, done.stderr
        assert name not in stop_orphans()
        link = run_a_pod(Cluster.find(name))
    finally:
        assert main(["down", name]) == 0
    assert traces(name) == set()
    assert not link.exists()
