"""What a real node leaves on the machine: nothing, however it ends."""

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from controlplane.__main__ import main
from controlplane.cluster import Cluster, clusters_folder, stop_orphans
from controlplane.process import processes
from controlplane.realnode.cgroups import CGROUPS
from controlplane.waiting import wait_until
from images import base

ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "tools")}
START_SECONDS: Final = 300.0
POD: Final = """
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  containers: [{name: main, image: IMAGE, command: [sleep, NAME]}]
"""

pytestmark = pytest.mark.usefixtures("able")


@pytest.fixture
def name() -> str:
    """A cluster for one test alone; digits, so that ``sleep`` may carry it in its arguments."""
    return str(secrets.randbelow(10**9) + 10**9)


def run_a_pod(cluster: Cluster) -> None:
    """One real pod, so that there is all that a node makes: mounts, namespaces, processes."""
    cluster.node.load(base().path)
    pod = POD.replace("IMAGE", base().name).replace("NAME", f'"{cluster.name}"')
    cluster.kubectl("apply", "-f", "-", input=pod)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")


def traces(name: str) -> set[str]:
    """What there is on the machine of a node of the cluster ``name``, by kind."""
    lines = [" ".join(line) for line in processes().values()]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = {
        "program": [line for line in lines if str(clusters_folder() / name) in line],
        "container": [line for line in lines if line == f"sleep {name}"],
        "control group": list(CGROUPS.glob(f"**/bireme-{name}")),
        "mount": [line for line in mounts if name in line],
        "folder": list(clusters_folder().glob(name)),
    }
    return {kind for kind, what in found.items() if what}


def interfaces() -> set[str]:
    """The machine's ends of all nodes' links."""
    return {path.name for path in Path("/sys/class/net").glob("bireme*")}


def test_a_stopped_node_leaves_nothing(name: str) -> None:
    before = interfaces()
    with Cluster.start(name, real_node=True) as cluster:
        run_a_pod(cluster)
        assert interfaces() - before == {cluster.node.network.interface}
        assert traces(name) == {"program", "container", "control group", "folder"}
    assert traces(name) == set()
    assert interfaces() == before
    cluster.stop()  # twice is fine


def test_the_node_of_a_killed_program_is_cleared_away(name: str) -> None:
    before = interfaces()
    program = (
        "import sys, time; from controlplane.cluster import Cluster;"
        "cluster = Cluster.start(sys.argv[1], real_node=True); print('up', flush=True);"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", program, name]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "up\n"
            run_a_pod(Cluster.find(name))
        finally:
            owner.kill()
    # The kernel ends what ran, at once; groups and the folder wait for the next program.
    wait_until(lambda: interfaces() == before and "container" not in traces(name), 20, "its end")
    assert {"control group", "folder"} <= traces(name)
    assert name in stop_orphans()
    assert traces(name) == set()


def test_a_node_of_the_command_line_stays_until_it_is_stopped(name: str) -> None:
    before = interfaces()
    command = [sys.executable, "-m", "controlplane", "up", name, "--nodes", "1", "--node"]
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
        run_a_pod(Cluster.find(name))
    finally:
        assert main(["down", name]) == 0
    assert traces(name) == set()
    assert interfaces() == before
