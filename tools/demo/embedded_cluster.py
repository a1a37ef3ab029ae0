"""The demo on an embedded cluster, in a process of its own.

One that stays (``KEEP=1``) has its folder below the run's, with the number of its process.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from bireme.kube import names
from tools.demo.cluster import READY, ROOT, RUN, DemoCluster, DemoClusterError, Say

_PID: Final = "pid"
_LOG: Final = "cluster.log"
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def temporary(nodes: int, racks: int, say: Say) -> Iterator[DemoCluster]:
    """Run a cluster that ends with the block, and with this program in whatever way that ends."""
    folder = RUN / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    arguments = _arguments(folder, RUN / "records", nodes, racks)
    # It ends when its standard input does, of which this program holds the other end.
    with _start(folder, ["bireme_lab.embedded.child", *arguments], stdin=subprocess.PIPE) as server:
        process = psutil.Process(server.pid)
        try:
            yield _wait_ready(process, folder, nodes, say)
        finally:
            _end(process)


def staying(name: str, nodes: int, racks: int, say: Say) -> DemoCluster:
    """Start a cluster that stays until :func:`down`.

    Raises:
        DemoClusterError: it runs already, or did not start.
    """
    folder = folder_of(name)
    if _server(folder) is not None:
        raise DemoClusterError(f"cluster {name!r} is up already; stop it with: make cluster-down")
    shutil.rmtree(folder, ignore_errors=True)  # of a machine that was switched off
    arguments = _arguments(folder, folder / "records", nodes, racks)
    server = _start(
        folder, [*arguments, "--board"], stdin=subprocess.DEVNULL, start_new_session=True
    )
    (folder / _PID).write_text(str(server.pid))
    try:
        return _wait_ready(psutil.Process(server.pid), folder, nodes, say)
    except BaseException:
        down(name)
        raise


def down(name: str) -> None:
    """Stop the cluster that stays, and remove its folder."""
    folder = folder_of(name)
    if (server := _server(folder)) is not None:
        _end(server)
    shutil.rmtree(folder)


def folder_of(name: str) -> Path:
    """Return the folder of a cluster that stays; there is none without such a cluster."""
    return RUN / "embedded" / name


def _arguments(folder: Path, records: Path, nodes: int, racks: int) -> list[str]:
    size = [f"--nodes={nodes}", f"--racks={racks}"]
    return ["tools.demo.embedded_server", f"--folder={folder}", f"--records={records}", *size]


def _start(folder: Path, arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            **options,
        )


def _wait_ready(server: psutil.Process, folder: Path, nodes: int, say: Say) -> DemoCluster:
    deadline = time.monotonic() + _START_SECONDS
    while not (folder / READY).exists():
        is_running = server.is_running() and server.status() != psutil.STATUS_ZOMBIE
        if not is_running or time.monotonic() > deadline:
            tail = (folder / _LOG).read_text(errors="replace")[-2000:]
            raise DemoClusterError(f"the embedded cluster did not start:\n{tail}")
        time.sleep(_POLL_SECONDS)
    ready = json.loads((folder / READY).read_text())
    say(f"Bireme runs: operator and extender, and {nodes} fake nodes of 8 GPUs are ready")
    say("API server, scheduler, kubelets and controllers are models in one process;")
    say("make demo-cluster plays the same on a real control plane")
    return DemoCluster(
        Path(ready["kubeconfig"]),
        partial(_apply, ready["server"]),
        (Path(sys.executable).parent,),
        ready["board"],
    )


def _server(folder: Path) -> psutil.Process | None:
    """Return the process of a cluster that stays; None without one."""
    try:
        process = psutil.Process(int((folder / _PID).read_text()))
        # Another program may have its number by now.
        return process if f"--folder={folder}" in process.cmdline() else None
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def _end(server: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        server.terminate()
    try:
        server.wait(_END_SECONDS)
    except psutil.TimeoutExpired:
        server.kill()  # its programs end with their standard input
        server.wait()


def _apply(server: str, files: Sequence[Path]) -> None:
    """Apply files of jobs, as ``kubectl apply --server-side`` does."""
    for file in files:
        job = yaml.safe_load(file.read_text())
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/trainingjobs/{name}"
        request = urllib.request.Request(  # noqa: S310  # of this machine
            f"{server}{path}?fieldManager=demo",
            file.read_bytes(),
            {"Content-Type": "application/apply-patch+yaml"},
            method="PATCH",
        )
        try:
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise DemoClusterError(f"{file} is refused with {error.code}: {text}") from error
