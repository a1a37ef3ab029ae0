"""The nodes of one pool, worked out once per table of nodes: which they are, what one more is."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bireme.core.nodes import Node, NodeTable
from bireme.core.pools import in_pool
from bireme.core.resources import BoolArray
from bireme.kube import timestamps
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.node_pool_scalers import template_of

Born = Callable[[str], str | None]
"""When the node of a name was created, as the API server writes times."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolNodes:
    """One pool's part of a table.

    Attributes:
        mask: Which nodes it has, shape (nodes,).
        template: What one more would offer; None where nobody knows.
        not_ready: When its nodes that are not ready were created, POSIX seconds.
    """

    table: NodeTable
    mask: BoolArray
    template: Node | None
    not_ready: tuple[float, ...]

    @classmethod
    def of(cls, name: str, spec: NodePoolScalerSpec, table: NodeTable, born: Born) -> "PoolNodes":
        """The nodes of ``table`` that ``spec`` selects."""
        mask = in_pool(spec.node_selector.match_labels, table)
        ready = [table.nodes[row] for row in np.flatnonzero(mask & table.is_ready)]
        newest = max(ready, key=lambda node: (born(node.name) or "", node.name), default=None)
        others = [table.nodes[row] for row in np.flatnonzero(mask & ~table.is_ready)]
        not_ready = tuple(timestamps.parse(born(node.name)) or 0.0 for node in others)
        return cls(table, mask, template_of(name, spec, newest), not_ready)

    @property
    def count(self) -> int:
        """How many there are, ready or not."""
        return int(self.mask.sum())

    @property
    def ready(self) -> int:
        """How many of them are ready."""
        return int((self.mask & self.table.is_ready).sum())
