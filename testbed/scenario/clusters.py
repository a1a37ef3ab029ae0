"""A fresh cluster with GPU nodes, Bireme's API and an open queue, and its history judged."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bireme.kube import crd
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.manifests import queue
from testbed.scenario.promises import judged

PATIENT: Final[Mapping[str, str]] = {"BIREME_LEASE_DURATION_SECONDS": "60"}
"""For stories without a second operator: a machine that stood still for ten seconds ends none."""


@contextmanager
def gpu_cluster(purpose: str, nodes: int = 4, gpus: int = 8, **terms: Any) -> Iterator[Cluster]:
    """``nodes`` nodes named ``gpu-00``, ... of ``gpus`` GPUs in two racks; gone afterwards.

    With ``nodes=0`` the cluster has none, for tests that bring their own. Its history is judged,
    by the ``terms`` of :func:`testbed.scenario.promises.judged`.
    """
    name = f"{purpose}-{os.getpid()}-{secrets.token_hex(2)}"
    with Cluster.start(name) as cluster:
        if nodes:
            cluster.add_nodes(fake_nodes(nodes, gpus=gpus, racks=min(2, nodes)))
        install_api(cluster)
        # The garbage collector looks for new kinds every 30 s only, and at its start.
        controllers = cluster.component("kube-controller-manager")
        controllers.stop()
        controllers.start()
        with judged(cluster, **terms):
            cluster.kubectl("apply", "-f", "-", input=json.dumps(queue("default")))
            yield cluster


@contextmanager
def gpu_stack(
    purpose: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    *,
    nodes: int = 2,
    gpus: int = 8,
    **terms: Any,
) -> Iterator[BiremeStack]:
    """Bireme running on a :func:`gpu_cluster`; logs go to ``folder``, ``env`` are its settings.

    A killed operator's lease holds for a minute; ``env`` may shorten it.
    """
    with (
        gpu_cluster(purpose, nodes, gpus, **terms) as cluster,
        BiremeStack(cluster, folder, {**PATIENT, **(env or {})}) as stack,
    ):
        yield stack.start()


def install_api(cluster: Cluster) -> None:
    """Apply the CRDs and return when objects of them are taken."""
    cluster.install(crd.DIRECTORY)
