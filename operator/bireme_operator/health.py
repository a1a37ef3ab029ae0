"""Which nodes can be trusted with what was planned on them, and since when they cannot."""

from collections.abc import Callable

import numpy as np

from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.cluster_state import ClusterState

_OVERFULL_SECONDS = 2.0
"""How long a node may look overfull before it counts: a pod just bound and still planned."""


class NodeHealth:
    """Verdicts on nodes, for gangs that sit or are about to sit on them."""

    def __init__(
        self, state: ClusterState, clock: Callable[[], float], lost_seconds: float
    ) -> None:
        self._state = state
        self._clock = clock
        self._lost_seconds = lost_seconds
        self._not_ready_since: dict[str, float] = {}
        self._overfull_since: dict[str, float] = {}

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Note which nodes are not ready or hold more than they offer."""
        now, nodes = self._clock(), snapshot.nodes
        overfull = (snapshot.used > nodes.allocatable).any(axis=1)
        not_ready = {nodes.names[row] for row in np.flatnonzero(~nodes.is_ready)}
        full = {nodes.names[row] for row in np.flatnonzero(overfull)}
        self._not_ready_since = {n: self._not_ready_since.get(n, now) for n in not_ready}
        self._overfull_since = {n: self._overfull_since.get(n, now) for n in full}

    def lost(self, name: str) -> str:
        """Why the node is lost; empty when it is not."""
        node = self._state.node(name)
        if node is None:
            return "the node was deleted"
        since = self._not_ready_since.get(name)
        if since is not None and self._clock() - since >= self._lost_seconds:
            return f"the node has not been ready for {self._lost_seconds:.0f} s"
        return ""

    def unusable(self, name: str) -> str:
        """Why a planned pod that is not bound yet cannot get there; empty when it can."""
        node = self._state.node(name)
        if node is not None and node.is_cordoned:
            return "the node was cordoned before the pod was bound"
        since = self._overfull_since.get(name)
        if since is not None and self._clock() - since >= _OVERFULL_SECONDS:
            return "the planned room was taken by another pod"
        return ""
