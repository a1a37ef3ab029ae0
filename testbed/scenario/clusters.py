"""A fresh cluster with GPU nodes, Bireme's API and an open queue, and its history judged."""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bireme.kube import crd
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.pool import ClusterPool
from testbed.controlplane.stack import BiremeStack
from testbed.embedded_cluster import ThreadedCluster
from testbed.scenario.manifests import queue
from testbed.scenario.promises import judged

PATIENT: Final[Mapping[str, float]] = {"lease_duration_seconds": 60}
"""For stories without a second operator: a machine that stood still for ten seconds ends none."""


_pools: Final[list[ClusterPool]] = []
_embedded: Final[list[bool]] = [False]


@contextmanager
def embedded(is_embedded: bool = True) -> Iterator[None]:
    """Have clusters within the block be embedded ones, or real ones."""
    _embedded.append(is_embedded)
    try:
        yield
    finally:
        _embedded.pop()


@contextmanager
def pooled() -> Iterator[ClusterPool]:
    """Have clusters of this module come from one pool within the block, and end with it."""
    pool = ClusterPool()
    _pools.append(pool)
    try:
        yield pool
    finally:
        _pools.remove(pool)
        pool.stop_idle()


@contextmanager
def bare_cluster(
    purpose: str, furnish: Callable[[Cluster], None] | None = None
) -> Iterator[Cluster]:
    """A cluster without nodes; ``furnish`` adds definitions of kinds to it.

    Within :func:`pooled` it may have served others before, and it may serve others afterwards.
    """
    if _embedded[-1]:
        with ThreadedCluster(purpose) as threaded:
            if furnish is not None:
                furnish(threaded)
            yield threaded
        return
    pool = _pools[-1] if _pools else ClusterPool()
    try:
        with pool.borrow(f"{purpose}-{os.getpid()}-{secrets.token_hex(2)}", furnish) as cluster:
            yield cluster
    finally:
        if pool not in _pools:
            pool.stop_idle()


@contextmanager
def gpu_cluster(purpose: str, nodes: int = 4, gpus: int = 8, **terms: Any) -> Iterator[Cluster]:
    """``nodes`` nodes named ``gpu-00``, ... of ``gpus`` GPUs in two racks; gone afterwards.

    With ``nodes=0`` the cluster has none, for tests that bring their own. Its history is judged,
    by the ``terms`` of :func:`testbed.scenario.promises.judged`.
    """
    with bare_cluster(purpose, install_api) as cluster:
        if nodes:
            cluster.add_nodes(fake_nodes(nodes, gpus=gpus, racks=min(2, nodes)))
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
    internals: Mapping[str, float] | None = None,
    **terms: Any,
) -> Iterator[BiremeStack]:
    """Bireme running on a :func:`gpu_cluster`; logs go to ``folder``, ``env`` are its settings.

    A killed operator's lease holds for a minute; ``internals`` may shorten it.
    """
    with (
        gpu_cluster(purpose, nodes, gpus, **terms) as cluster,
        BiremeStack(cluster, folder, env, internals={**PATIENT, **(internals or {})}) as stack,
    ):
        yield stack.start()


def install_api(cluster: Cluster) -> None:
    """Apply the CRDs and return when objects of them are taken."""
    cluster.install(crd.DIRECTORY)
