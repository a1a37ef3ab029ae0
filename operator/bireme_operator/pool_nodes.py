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
        unfinished: When its nodes were created that are not ready, or ready and not yet what one
            more would be: some taints go and some resources come later. POSIX seconds.
    """

    table: NodeTable
    mask: BoolArray
    template: Node | None
    unfinished: tuple[float, ...]

    @classmethod
    def of(cls, name: str, spec: NodePoolScalerSpec, table: NodeTable, born: Born) -> "PoolNodes":
        """The nodes of ``table`` that ``spec`` selects."""
        mask = in_pool(spec.node_selector.match_labels, table)
        all_nodes = [table.nodes[row] for row in np.flatnonzero(mask)]
        ready = [node for node in all_nodes if node.is_ready]
        model = max(ready, key=lambda n: (*_finished(n), born(n.name) or "", n.name), default=None)
        template = template_of(name, spec, model)
        unfinished = tuple(
            timestamps.parse(born(node.name)) or 0.0
            for node in all_nodes
            if not node.is_ready or (template is not None and not _offers_what(template, node))
        )
        return cls(table, mask, template, unfinished)

    @property
    def count(self) -> int:
        """How many there are, ready or not."""
        return int(self.mask.sum())

    @property
    def ready(self) -> int:
        """How many of them are ready."""
        return int((self.mask & self.table.is_ready).sum())


def _finished(node: Node) -> tuple[int, int]:
    """How far a node has come: while it starts it has taints to lose and resources to get."""
    return -len(node.taints), sum(amount > 0 for amount in node.allocatable.values())


def _offers_what(template: Node, node: Node) -> bool:
    asked = (name for name, amount in template.allocatable.items() if amount > 0)
    has_all = all(node.allocatable.get(name, 0) > 0 for name in asked)
    return has_all and set(node.taints) <= set(template.taints)
