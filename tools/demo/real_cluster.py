"""The demo on a real control plane: a cluster that ends with this program, or one that stays.

A cluster that stays (``up``, ``KEEP=1``) has a keeper: a program that starts Bireme's processes
again when they end, as a kubelet would, and goes when the cluster goes.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.controlplane.cluster import Cluster, clusters_folder
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.leader import SYSTEM, own_address, serve_leader
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.process import Process, command_line, ended
from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.controlplane.waiting import wait_until
from testbed.scenario.clusters import install_api
from tools.demo.cluster import (
    INTERNALS,
    QUEUES,
    ROOT,
    RUN,
    DemoCluster,
    DemoClusterError,
    Say,
)
from tools.demo.recording import operator_settings
from tools.demo.workload import NAMESPACE


@contextmanager
def temporary(nodes: int, racks: int, say: Say) -> Iterator[DemoCluster]:
    """Run a cluster that ends with the block."""
    with served(nodes, racks, say) as stack:
        yield demo_cluster(stack.cluster)


@contextmanager
def served(nodes: int, racks: int, say: Say) -> Iterator[BiremeStack]:
    """Run a cluster that ends with the block; yield Bireme's programs on it."""
    with Cluster.start(f"demo-{os.getpid()}") as cluster:
        _furnish(cluster, nodes, racks, say)
        settings = operator_settings(RUN / "records")
        with BiremeStack(cluster, RUN / "logs", settings, internals=INTERNALS) as stack:
            stack.start()
            say("Bireme runs: operator, extender, and a second kube-scheduler")
            # An operator that loses its lease on a busy machine exits, for a kubelet to restart it.
            with Keeper(stack.processes):
                yield stack


def staying(name: str, nodes: int, racks: int, say: Say) -> DemoCluster:
    """Start a cluster with Bireme on it that stays until :func:`down`.

    Raises:
        DemoClusterError: it runs already.
        ControlPlaneError: it did not start.
    """
    if (clusters_folder() / name).exists():
        raise DemoClusterError(f"cluster {name!r} is up already; stop it with: make cluster-down")
    cluster = Cluster.start(name, detached=True)
    try:
        _furnish(cluster, nodes, racks, say)
        _start_keeper(name)
    except BaseException:
        down(name)
        raise
    say("Bireme runs: operator, extender, and a second kube-scheduler")
    return demo_cluster(cluster, _board_address(name))


def demo_cluster(cluster: Cluster, board_address: str = "") -> DemoCluster:
    """Return a real cluster as the demo's story sees it."""

    def apply(files: Sequence[Path]) -> None:
        cluster.kubectl("apply", *(f"--filename={file}" for file in files))

    programs = (Path(sys.executable).parent, cluster.binary("kubectl").parent)
    return DemoCluster(cluster.kubeconfig, apply, programs, board_address)


def down(name: str) -> None:
    """Stop the cluster that stays, and its keeper."""
    cluster = Cluster.find(name)
    if _file(name, "pid").exists():
        pid = int(_file(name, "pid").read_text())
        # Another program may have its number by now.
        if command_line(pid)[1:4] == ["-m", "tools.demo", "keep"]:
            # It goes first, as it would start again what the end of the cluster stops.
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: ended(pid), 30, f"the keeper (pid {pid}) to end")
    cluster.stop()


def keep(name: str) -> None:
    """Run Bireme's programs on the cluster that stays; ends with it, or by SIGTERM.

    What the leader foresees can be asked by the cluster's kubeconfig, where this machine has an
    address that pods might have. The operator's port is open at that address: questions need a
    ticket, metrics do not.
    """
    cluster = Cluster.find(name)
    board = Process(
        "the board",
        [
            sys.executable,
            "-m",
            "bireme.cli",
            "ui",
            "--no-browser",
            f"--kubeconfig={cluster.kubeconfig}",
        ],
        log_path=_file(name, "board"),
        ready_url="",
    )
    folder = clusters_folder() / name
    settings = operator_settings(folder / "records")
    with BiremeStack(cluster, folder / "logs", settings, internals=INTERNALS) as stack:
        _let_leader_be_asked(stack)
        stack.start()
        board.start()
        _file(name, "ready").touch()
        try:
            with Keeper(stack.processes):
                while cluster.kubeconfig.exists():
                    time.sleep(0.5)
        finally:
            board.terminate()


def _board_address(name: str) -> str:
    """Return where the board of the cluster that stays is; its address works once.

    Raises:
        ControlPlaneError: it did not start.
    """
    log = _file(name, "board")
    found: list[str] = []

    def is_told() -> bool:
        lines = log.read_text().splitlines() if log.exists() else []
        found[:] = [line for line in lines if line.startswith("http://")]
        return bool(found)

    wait_until(is_told, 30, "the board's address", lambda: log.read_text()[-1000:])
    return found[0]


def _let_leader_be_asked(stack: BiremeStack) -> None:
    operator = stack.operator()
    try:
        address = own_address()
    except OSError:  # no network: no endpoint can be made that the API server reaches
        return
    port = operator.port
    operator.env |= {
        "BIREME_OUTLOOK": "true",
        "BIREME_METRICS_ADDRESS": f"{address}:{port}",
        "BIREME_LEASE_NAMESPACE": SYSTEM,
    }
    operator.ready_url = f"http://{address}:{port}/readyz"
    serve_leader(stack.cluster, address, port)


def _furnish(cluster: Cluster, nodes: int, racks: int, say: Say) -> None:
    say("Kubernetes runs: etcd, API server, controllers, scheduler")
    cluster.create_namespace(NAMESPACE)
    cluster.add_nodes(fake_nodes(nodes, racks=racks))
    install_api(cluster)
    cluster.kubectl("apply", "-f", str(QUEUES))
    say(f"{nodes} fake nodes of 8 GPUs in {racks} racks are ready, queues and CRDs in place")


def _start_keeper(name: str) -> None:
    keeper = Process(
        "Bireme's keeper",
        [sys.executable, "-m", "tools.demo", "keep", f"--name={name}"],
        log_path=_file(name, "log"),
        ready_url="",
        env={"PYTHONPATH": str(ROOT)},
        outlives_starter=True,  # this program ends; the keeper goes with the cluster
    ).start()
    _file(name, "pid").write_text(str(keeper.pid))

    def ready() -> bool:
        if not keeper.running:
            raise ControlPlaneError(f"Bireme did not start: {keeper.log_tail()}")
        return _file(name, "ready").exists()

    wait_until(ready, 90, "Bireme's programs to be ready", keeper.log_tail)


def _file(name: str, ending: str) -> Path:
    return clusters_folder() / name / f"keeper.{ending}"
