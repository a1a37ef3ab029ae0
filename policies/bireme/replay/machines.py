"""The nodes of a record, as a simulation needs them: what others use, when nodes come and go.

What pods outside all gangs use of a node when it is first seen, they use of it to the end. A node
that is not ready for less than ``PATIENCE_SECONDS`` stays up, as it does for the operator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from bireme.core.nodes import Node, NodeTable
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.physics.failures import NodeChange
from bireme.simulator.physics.model import Physics

PATIENCE_SECONDS: Final = 40.0
"""The operator's default for how long a node that is not ready may still hold its gangs."""


@dataclass(frozen=True, slots=True)
class RecordedNodes(Physics):
    """Nothing is added to the durations of the record, and nodes go and come as in it."""

    changes: tuple[NodeChange, ...] = ()

    def failures(self, nodes: Iterable[Node], horizon: float, seed: int) -> list[NodeChange]:
        """What was recorded."""
        return list(self.changes)


class NodesSeen:
    """All nodes of a record; times in seconds after its start."""

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._nodes: dict[str, Node] = {}
        self._states: dict[str, list[tuple[float, bool]]] = {}

    def see(self, at: float, snapshot: ClusterSnapshot) -> None:
        """What ``snapshot`` shows at ``at``."""
        table = snapshot.nodes
        if table is self._table:
            return
        self._table = table
        if new := [node for node in table.nodes if node.name not in self._nodes]:
            self._add(new, snapshot)
        for name, states in self._states.items():
            is_up = name in table.row and bool(table.is_ready[table.row[name]])
            if not states and at > 0:
                states.append((0.0, False))  # it comes later
            if not states or states[-1][1] is not is_up:
                states.append((at, is_up))

    def _add(self, new: Iterable[Node], snapshot: ClusterSnapshot) -> None:
        table, others = snapshot.nodes, snapshot.used.copy()
        for running in snapshot.running:
            np.subtract.at(others, *running.usage(table.axis))
        for node in new:
            used = others[table.row[node.name]].tolist()
            fixed = {n: u for n, u in zip(table.axis.names, used, strict=True) if u > 0}
            self._nodes[node.name] = replace(node, is_ready=True, fixed=fixed)
            self._states[node.name] = []

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that was ever there, as it was first seen, ready."""
        return tuple(self._nodes.values())

    @property
    def changes(self) -> tuple[NodeChange, ...]:
        """When which of them go and come, by time; they are up before."""
        return tuple(
            sorted(
                NodeChange(at, name, is_up)
                for name, states in self._states.items()
                for at, is_up in _patient(states)
                if at > 0 or not is_up
            )
        )


def _patient(states: list[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """``states`` without outages that are too short to count."""
    short = {
        at
        for (began, is_up), (ended, _) in pairwise(states)
        if began > 0 and not is_up and ended - began < PATIENCE_SECONDS
        for at in (began, ended)
    }
    return [state for state in states if state[0] not in short]
