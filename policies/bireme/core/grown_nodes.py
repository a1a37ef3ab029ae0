"""The nodes of a cluster as they would be with more nodes in its pools.

New nodes are copies of their pool's template, in a table together with the nodes that are there,
so that filters, capacity, affinity and topology judge them like any other. The table is kept with
that of the nodes it extends: from cycle to cycle only the numbers of nodes that come or may still
be asked for change, and mostly not even their sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core import filters
from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.nodes import HOST_LEVEL, Node, NodeTable
from bireme.core.pools import GrowablePool
from bireme.core.resources import BoolArray, IntArray

_KEY: Final = "grown_nodes"


@dataclass(frozen=True, eq=False)
class GrownNodes:
    """A table of all nodes, those that are there and new ones.

    Attributes:
        standing: Rows of the nodes that are there, in the order of their own table.
        new: Rows of the new nodes by pool, in the order in which they are counted.
    """

    table: NodeTable
    standing: IntArray
    new: dict[str, IntArray]
    templates: tuple[Node, ...]

    @cached_property
    def is_new(self) -> BoolArray:
        """Which nodes are not there, shape (nodes,)."""
        mask = np.ones(len(self.table), dtype=np.bool_)
        mask[self.standing] = False
        return mask

    @property
    def copies(self) -> dict[str, int]:
        """How many new nodes of each pool."""
        return {name: len(rows) for name, rows in self.new.items()}

    def takes(self, pool: str, gang: Gang) -> bool:
        """Whether a new node of ``pool``, still empty, takes a replica of any task of ``gang``."""
        rows, table = self.new[pool], self.table
        if not len(rows):
            return False
        offer = table.allocatable[rows[0]] - table.fixed[rows[0]]
        requests = ((task, table.axis.request(task.request)) for task in gang.tasks)
        return any(
            request is not None
            and bool((request <= offer).all())
            and bool(filters.feasible(task.constraints, table)[rows[0]])
            for task, request in requests
        )

    def with_free(self, free: IntArray, axis_names: Sequence[str]) -> FreeCapacity:
        """The capacity with ``free`` on nodes that are there, and all of the new ones.

        ``free`` is int64, shape (nodes that are there, resources ``axis_names``).
        """
        table = self.table
        left = table.allocatable - table.fixed
        left[self.standing] = 0
        columns = np.array([table.axis.names.index(name) for name in axis_names])
        left[self.standing[:, None], columns] = free
        return FreeCapacity(table, table.allocatable - left)


def grown_nodes(nodes: NodeTable, pools: Sequence[GrowablePool], most: int) -> GrownNodes:
    """``nodes`` with the nodes that come or may be asked for, at most ``most`` of a pool.

    ``pools`` have different names.
    """
    templates = tuple(pool.template for pool in pools)
    copies = {pool.name: min(pool.coming + pool.room, most) for pool in pools}
    known = nodes.memo.get(_KEY)
    if isinstance(known, GrownNodes) and known.templates == templates and known.copies == copies:
        return known
    fresh = _grown_nodes(nodes, pools, copies)
    nodes.remember(_KEY, fresh)
    return fresh


def _grown_nodes(
    nodes: NodeTable, pools: Sequence[GrowablePool], copies: dict[str, int]
) -> GrownNodes:
    new = {pool.name: [_copy(pool, index) for index in range(copies[pool.name])] for pool in pools}
    everything = [*nodes.nodes, *(node for of_pool in new.values() for node in of_pool)]
    table = NodeTable(everything, nodes.topology_levels)

    def rows(names: Sequence[str]) -> IntArray:
        return np.array([table.row[name] for name in names], dtype=np.int64)

    return GrownNodes(
        table=table,
        standing=rows(nodes.names),
        new={name: rows([node.name for node in of_pool]) for name, of_pool in new.items()},
        templates=tuple(pool.template for pool in pools),
    )


def _copy(pool: GrowablePool, index: int) -> Node:
    """A new node; no node of a cluster has a name with a slash."""
    name = f"{pool.name}/{index}"
    labels = {**pool.template.labels, HOST_LEVEL: name}
    return replace(pool.template, name=name, labels=labels, is_ready=True, is_cordoned=False)
