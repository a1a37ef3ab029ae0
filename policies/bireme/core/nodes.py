"""All nodes of a cluster as arrays, built once and reused until a node changes.

One row per node, one column per resource. Labels and taints are kept as codes: a label's column
holds small integers, so that a selector is one comparison over all nodes, and nodes with the same
taints share one verdict per pod template. Topology domains are codes too, narrowest level first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bireme.core.constraints import Taint
from bireme.core.errors import SnapshotError, repeated
from bireme.core.resources import IntArray, ResourceAxis

HOST_LEVEL = "kubernetes.io/hostname"
"""The topology level whose domains are the nodes themselves, labelled or not."""

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint a cordoned node carries, for pods that tolerate it (``kubectl cordon``)."""

Codes = NDArray[np.int32]

_MEMO_CEILING = 10_000
"""Verdicts kept per table. Anyone may submit templates without end, memory has one."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as facts. ``allocatable`` in the units of :mod:`bireme.core.resources`."""

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    is_cordoned: bool = False
    fixed: Mapping[str, int] = field(default_factory=dict)
    """What pods that never leave the node (DaemonSets, static pods) ask of it."""


@dataclass(frozen=True)
class LabelColumn:
    """One label over all nodes: ``codes[row]`` indexes ``values``; -1 where it is missing."""

    codes: Codes
    values: tuple[str, ...]


class NodeTable:
    """The nodes of a cluster, rows in name order, whatever order they came in.

    Attributes:
        nodes: What the rows are made of, in their order.
        names: Node names, shape (nodes,).
        axis: The columns of ``allocatable``.
        allocatable: int64, shape (nodes, resources); read-only.
        fixed: What pods that never leave use of it, same shape; read-only.
        is_ready: bool, shape (nodes,).
        memo: Verdicts that depend on nodes alone, kept for as long as this table is.
    """

    def __init__(self, nodes: Sequence[Node], topology_levels: Sequence[str]) -> None:
        nodes = self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self.names = tuple(node.name for node in nodes)
        self.row = {name: row for row, name in enumerate(self.names)}
        if len(self.row) < len(nodes):
            raise SnapshotError(f"two nodes have the same name, {repeated(self.names)!r}")
        self.topology_levels = tuple(topology_levels)
        self.axis = ResourceAxis.of(node.allocatable for node in nodes)
        self.allocatable: IntArray = np.zeros((len(nodes), len(self.axis)), dtype=np.int64)
        for row, node in enumerate(nodes):
            self.allocatable[row] = self.axis.offer(node.allocatable)
        self.allocatable.setflags(write=False)
        self.fixed: IntArray = np.zeros_like(self.allocatable)
        for row, node in enumerate(nodes):
            if node.fixed:
                self.fixed[row] = self.axis.usage(node.fixed)
        self.fixed.setflags(write=False)
        self.is_ready = np.fromiter((node.is_ready for node in nodes), np.bool_, len(nodes))
        self.memo: dict[object, object] = {}
        self._columns: dict[str, LabelColumn] = {}
        self._intern_taints(nodes)

    def __len__(self) -> int:
        return len(self.names)

    def _intern_taints(self, nodes: Sequence[Node]) -> None:
        sets: dict[tuple[Taint, ...], int] = {}
        codes = np.zeros(len(nodes), dtype=np.int32)
        for row, node in enumerate(nodes):
            taints = set(node.taints) | ({CORDON} if node.is_cordoned else set())
            key = tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))
            codes[row] = sets.setdefault(key, len(sets))
        self.taint_sets = tuple(sets)
        self.taint_codes: Codes = codes

    def remember(self, key: object, verdict: object) -> None:
        """Keep ``verdict`` in ``memo``; everything is forgotten before it outgrows its bound."""
        if len(self.memo) >= _MEMO_CEILING:
            self.memo.clear()
        self.memo[key] = verdict

    def label(self, key: str) -> LabelColumn:
        """The column of label ``key``, built on first use."""
        column = self._columns.get(key)
        if column is None:
            codes: dict[str, int] = {}
            column_codes = np.full(len(self), -1, dtype=np.int32)
            for row, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    column_codes[row] = codes.setdefault(value, len(codes))
            column = self._columns[key] = LabelColumn(column_codes, tuple(codes))
        return column

    @cached_property
    def domains(self) -> tuple[Codes, ...]:
        """Domain code of every node per topology level, narrowest first; -1 where it has none.

        A domain is identified by its own label *and* those of all wider levels, so that equal
        rack names in two zones are two racks. A node whose level is its host name is always its
        own domain, labelled or not.
        """
        wider: Codes = np.zeros(len(self), dtype=np.int32)
        levels: list[Codes] = []
        for level in reversed(self.topology_levels):
            if level == HOST_LEVEL:
                levels.append(np.arange(len(self), dtype=np.int32))
                continue
            codes = self.label(level).codes
            pairs = np.stack([wider, codes], axis=1)
            _, joint = np.unique(pairs, axis=0, return_inverse=True)
            wider = joint.reshape(-1).astype(np.int32)
            levels.append(np.where(codes < 0, np.int32(-1), wider))
        return tuple(reversed(levels))

    def domain_name(self, level: int, row: int) -> str:
        """The label value of ``row``'s domain at ``level``; the node's own name for hosts."""
        key = self.topology_levels[level]
        if key == HOST_LEVEL:
            return self.names[row]
        column = self.label(key)
        code = int(column.codes[row])
        return column.values[code] if code >= 0 else ""
