"""Kubeflow's training operator on a local cluster: the real controllers of PyTorchJob, TFJob, ...

Its gang scheduling is off, as for every job that Bireme places. The server that refuses bad jobs at
admission is left out: see ``go/kubeflow``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.controlplane.binaries import KUBEFLOW, build
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.process import Process, free_ports


@contextmanager
def training_operator(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Run Kubeflow against ``cluster``, its CRDs installed; ``folder`` takes its log.

    It ends with the block; its jobs and their pods stay as they are.
    """
    built = build(KUBEFLOW)
    cluster.install(*sorted((built / "manifests").glob("kubeflow.org_*")))
    (port,) = free_ports(1)
    with Process(
        "training-operator",
        [str(built / "training-operator"), f"--health-probe-bind-address=127.0.0.1:{port}"],
        log_path=folder / "training-operator.log",
        ready_url=f"http://127.0.0.1:{port}/readyz",
        env={"KUBECONFIG": str(cluster.kubeconfig)},
    ) as process:
        yield process.start().wait_ready(60)
