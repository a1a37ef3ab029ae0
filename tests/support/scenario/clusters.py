"""A fresh cluster with GPU nodes, Bireme's API and an open queue, and its history checked."""

import json
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bireme.kube import crd
from tests.support.history.observer import check
from tests.support.history.recorder import Recorder
from tests.support.scenario.manifests import queue
from tools.controlplane.cluster import Cluster
from tools.controlplane.nodes import fake_nodes
from tools.controlplane.stack import BiremeStack

PATIENT: Final[Mapping[str, str]] = {"BIREME_LEASE_DURATION_SECONDS": "60"}
"""For stories without a second operator: a machine that stood still for ten seconds ends none."""


@contextmanager
def gpu_cluster(purpose: str, nodes: int = 4, gpus: int = 8) -> Iterator[Cluster]:
    """``nodes`` nodes named ``gpu-00``, ... of ``gpus`` GPUs in two racks; gone afterwards.

    With ``nodes=0`` the cluster has none, for tests that bring their own.
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
) -> Iterator[BiremeStack]:
    """Bireme running on a :func:`gpu_cluster`; logs go to ``folder``, ``env`` are its settings.

    A killed operator's lease holds for a minute; ``env`` may shorten it.
    """
    with (
        gpu_cluster(purpose, nodes, gpus) as cluster,
        BiremeStack(cluster, folder, {**PATIENT, **(env or {})}) as stack,
    ):
        yield stack.start()


def install_api(cluster: Cluster) -> None:
    """Apply the CRDs and return when objects of them are taken."""
    cluster.install(crd.DIRECTORY)


@contextmanager
def kept_promises(
    cluster: Cluster,
    folder: Path,
    *,
    grace_seconds: float = 20.0,
    except_for: Collection[str] = ("job-lost",),
) -> Iterator[Recorder]:
    """Record every revision within the block and check the whole history at its end.

    An AssertionError lists every broken invariant that is not in ``except_for``. Jobs may vanish by
    default: tests delete what they made.
    """
    with Recorder(cluster.kubeconfig, folder / "history.jsonl") as recorder:
        yield recorder
        recorder.settle()
    found = check(recorder.records(), grace_seconds=grace_seconds)
    broken = [str(one) for one in found if one.invariant not in except_for]
    if broken:
        raise AssertionError("\n".join(broken))
