"""All nodes of a cluster as arrays, built once and reused until a node changes.

One row per node, one column per resource. Labels and taints are kept as codes: a label's column
holds small integers, so that a selector is one comparison over all nodes, and nodes with the same
taints share one evaluation per pod template. Topology domains are codes too, narrowest level first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bireme.core.accelerators import DEFAULT, Accelerators
from bireme.core.errors import SnapshotError, find_duplicate, require
from bireme.core.gangs import Task
from bireme.core.gpus import GPU, GPU_MODEL_LABEL, GpuModel, gpu_model
from bireme.core.pod_constraints import (
    MAX_WEIGHT,
    PLUGIN_WEIGHTS,
    NodeConstraints,
    NodeDemand,
    NodePreference,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Taint,
    Toleration,
)
from bireme.core.resources import BoolArray, FloatArray, IntArray, ResourceAxis

HOSTNAME_LABEL = "kubernetes.io/hostname"
"""The topology level whose domains are the nodes themselves, labelled or not."""

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint a cordoned node carries, for pods that tolerate it (``kubectl cordon``)."""

Codes = NDArray[np.int32]

_COLUMNS_UNASKED = 32
"""Number of label columns up to which no check precedes whether any node has the label."""
_MEMO_CEILING = 10_000
"""The limit on entries of ``memo``: tenants may submit any number of templates."""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time in which a node is under maintenance, POSIX seconds.

    Raises:
        SnapshotError: it ends before it begins.
    """

    begins: float
    ends: float

    def __post_init__(self) -> None:
        require("end of a maintenance window", self.ends, self.begins, error=SnapshotError)


@dataclass(frozen=True, slots=True)
class Node:
    """One node as facts. ``allocatable`` in the units of :mod:`bireme.core.resources`."""

    name: str
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    soft_taints: tuple[Taint, ...] = ()
    """Taints that keep no pod away (``PreferNoSchedule``)."""
    is_ready: bool = True
    """Its kubelet reports that it works; a silent kubelet makes a node lost after a while."""
    is_cordoned: bool = False
    is_leaving: bool = False
    """The node is being deleted: it takes no new pods, but its present pods may work on."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Request of pods that never leave the node (DaemonSets, static pods)."""
    maintenance: MaintenanceWindow | None = None
    """See :mod:`bireme.core.maintenance`."""


@dataclass(frozen=True)
class LabelColumn:
    """One label over all nodes: ``codes[row]`` indexes ``values``; -1 where it is missing."""

    codes: Codes
    values: tuple[str, ...]


class NodeTable:
    """The nodes of a cluster, rows in name order, whatever order they came in.

    Attributes:
        nodes: The nodes, in row order.
        names: Node names, shape (nodes,).
        axis: The columns of ``allocatable``.
        allocatable: int64, shape (nodes, resources); read-only.
        fixed: The part of it that permanent pods use, same shape; read-only.
        is_ready: The kubelet works; bool, shape (nodes,).
        accepts: The node is ready and not being deleted, so that pods may come unless taints keep
            them off; bool, shape (nodes,).
        accelerators: Which resources are GPUs and their like.
        gpu_models: GPU models that extend or replace those of :mod:`bireme.core.gpus`.
        memo: Cache of answers that depend on nodes alone, for the life of this table.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        topology_levels: Sequence[str],
        gpu_models: Sequence[GpuModel] = (),
        accelerators: Accelerators = DEFAULT,
    ) -> None:
        nodes = self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self.names = tuple(node.name for node in nodes)
        self.row = {name: row for row, name in enumerate(self.names)}
        if len(self.row) < len(nodes):
            raise SnapshotError(f"two nodes have the same name, {find_duplicate(self.names)!r}")
        self.topology_levels = tuple(topology_levels)
        self.gpu_models = tuple(gpu_models)
        self.accelerators = accelerators
        self.axis = ResourceAxis.of(node.allocatable for node in nodes)
        self.allocatable: IntArray = np.zeros((len(nodes), len(self.axis)), dtype=np.int64)
        self.fixed: IntArray = np.zeros_like(self.allocatable)
        for row, node in enumerate(nodes):
            self.allocatable[row] = self.axis.offer(node.allocatable)
            if node.fixed:
                self.fixed[row] = self.axis.usage(node.fixed)
        # One table serves many snapshots.
        self.allocatable.setflags(write=False)
        self.fixed.setflags(write=False)
        self.is_ready = np.fromiter((node.is_ready for node in nodes), np.bool_, len(nodes))
        self.accepts = self.is_ready & ~np.fromiter(
            (node.is_leaving for node in nodes), np.bool_, len(nodes)
        )
        self.memo: dict[object, object] = {}
        self._columns: dict[str, LabelColumn] = {}
        self._intern_taints(nodes)

    def __len__(self) -> int:
        return len(self.names)

    def with_nodes(self, nodes: Sequence[Node]) -> "NodeTable":
        """Return a table of other ``nodes``, read by the same settings."""
        return NodeTable(nodes, self.topology_levels, self.gpu_models, self.accelerators)

    def devices(self, task: Task) -> int:
        """Return the accelerators that all replicas of ``task`` request together."""
        return task.replicas * self.accelerators.count(task.request)

    def _intern_taints(self, nodes: Sequence[Node]) -> None:
        sets: dict[tuple[Taint, ...], int] = {}
        codes = np.zeros(len(nodes), dtype=np.int32)
        for row, node in enumerate(nodes):
            # A cordon shows in the spec at once; the node controller adds the taint later.
            taints = set(node.taints) | ({CORDON} if node.is_cordoned else set())
            key = tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))
            codes[row] = sets.setdefault(key, len(sets))
        self.taint_sets = tuple(sets)
        self.taint_codes: Codes = codes

    @cached_property
    def windows(self) -> dict[str, MaintenanceWindow]:
        """The maintenance windows by node, ended ones too; empty in nearly every cluster."""
        return {node.name: w for node in self.nodes if (w := node.maintenance) is not None}

    @cached_property
    def softly_tainted(self) -> tuple[int, ...]:
        """Rows of nodes with a taint that keeps no pod away."""
        return tuple(row for row, node in enumerate(self.nodes) if node.soft_taints)

    def remember(self, key: object, answer: object) -> None:
        """Keep ``answer`` in ``memo``, which is emptied when it is full."""
        if len(self.memo) >= _MEMO_CEILING:
            self.memo.clear()
        self.memo[key] = answer

    @cached_property
    def _label_keys(self) -> frozenset[str]:
        return frozenset().union(*(node.labels for node in self.nodes))

    @cached_property
    def _no_label(self) -> LabelColumn:
        return LabelColumn(np.full(len(self), -1, dtype=np.int32), ())

    def label(self, key: str) -> LabelColumn:
        """Return the column of label ``key``."""
        column = self._columns.get(key)
        if column is None:  # built on first use: nodes have dozens of labels, selectors a few
            # Tenants may name any number of labels that no node has.
            if len(self._columns) >= _COLUMNS_UNASKED and key not in self._label_keys:
                return self._no_label
            codes: dict[str, int] = {}
            column_codes = np.full(len(self), -1, dtype=np.int32)
            for row, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    column_codes[row] = codes.setdefault(value, len(codes))
            column = self._columns[key] = LabelColumn(column_codes, tuple(codes))
        return column

    @cached_property
    def gpu_speeds(self) -> FloatArray:
        """Training speed of one GPU of every node, relative to a V100, shape (nodes,).

        By the node's label; see :mod:`bireme.core.gpus`. A node without GPUs has a speed too.
        """
        label = self.label(GPU_MODEL_LABEL)
        # The last entry is for nodes without the label, whose code is -1.
        models = [gpu_model(value, self.gpu_models) for value in (*label.values, "")]
        return np.array([model.speed for model in models])[label.codes]

    @cached_property
    def differ_in_gpu_speed(self) -> bool:
        """True if the nodes have GPUs of different speeds."""
        column = self.axis.column(GPU)
        speeds = self.gpu_speeds[self.allocatable[:, column] > 0] if column is not None else ()
        return len(np.unique(speeds)) > 1

    @cached_property
    def domains(self) -> tuple[Codes, ...]:
        """Domain code of every node per topology level, narrowest first; -1 where it has none."""
        wider: Codes = np.zeros(len(self), dtype=np.int32)
        levels: list[Codes] = []
        for level in reversed(self.topology_levels):
            if level == HOSTNAME_LABEL:
                levels.append(np.arange(len(self), dtype=np.int32))
                continue
            codes = self.label(level).codes
            # With the codes of the wider levels: equal rack names in two zones are two racks.
            pairs = np.stack([wider, codes], axis=1)
            _, joint = np.unique(pairs, axis=0, return_inverse=True)
            wider = joint.reshape(-1).astype(np.int32)
            levels.append(np.where(codes < 0, np.int32(-1), wider))
        return tuple(reversed(levels))

    def domain_name(self, level: int, row: int) -> str:
        """Return the label value of ``row``'s domain at ``level``; the node's name for hosts."""
        key = self.topology_levels[level]
        if key == HOSTNAME_LABEL:
            return self.names[row]
        column = self.label(key)
        code = int(column.codes[row])
        return column.values[code] if code >= 0 else ""


# --- filters: which nodes a pod template may use ---
#
# The semantics are those of kube-scheduler's NodeAffinity, TaintToleration, NodeUnschedulable and
# NodeReady checks, so that what the operator plans the stock scheduler accepts.

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")


def feasible(constraints: NodeConstraints, nodes: NodeTable) -> BoolArray:
    """Return which nodes ``constraints`` allow, shape (nodes,); cached with the table."""
    cached = nodes.memo.get(constraints)
    if isinstance(cached, np.ndarray):
        return cached
    mask = nodes.accepts & _toleration_mask(constraints, nodes) & selector_nodes(constraints, nodes)
    for demand in constraints.demands:
        mask &= meets(demand, nodes)
    if (min_score := constraints.least) is not None:
        mask &= score(min_score.preferences, constraints.tolerations, nodes) >= min_score.score
    mask.setflags(write=False)
    nodes.remember(constraints, mask)
    return mask


def selector_nodes(constraints: NodeConstraints, nodes: NodeTable) -> BoolArray:
    """Return which nodes the node selector and node affinity allow, shape (nodes,)."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    for key, value in constraints.node_selector:
        mask &= _matches(Requirement(key, SelectorOperator.IN, (value,)), nodes)
    if constraints.affinity_terms is not None:
        any_term = np.zeros(len(nodes), dtype=np.bool_)
        for term in constraints.affinity_terms:
            any_term |= _matches_term(term, nodes)
        mask &= any_term
    return mask


def without(constraints: NodeConstraints, not_there: Requirement) -> NodeConstraints:
    """Return ``constraints`` narrowed by a requirement on node names."""
    terms = constraints.affinity_terms
    if terms is None:
        return replace(constraints, affinity_terms=(SelectorTerm(names=(not_there,)),))
    # A term without any requirement matches no node, and must not start to match some.
    narrowed = (
        replace(term, names=(*term.names, not_there)) if term.labels or term.names else term
        for term in terms
    )
    return replace(constraints, affinity_terms=tuple(narrowed))


def closures(constraints: NodeConstraints, nodes: NodeTable) -> dict[str, int]:
    """Return the states and taints that keep pods off selected nodes, and the nodes of each."""
    is_selected = selector_nodes(constraints, nodes)
    counts: dict[str, int] = {}
    for code, taints in enumerate(nodes.taint_sets):
        code_rows = is_selected & (nodes.taint_codes == code)
        # A node that is not ready has taints that say so; it takes no pods that tolerate them
        # either.
        strict = [t for t in taints if not any(c.tolerates(t) for c in constraints.tolerations)]
        groups = {_describe(strict[0]): code_rows} if strict else _unavailable(code_rows, nodes)
        for word, rows in groups.items():
            if number := int(np.count_nonzero(rows)):
                counts[word] = counts.get(word, 0) + number
    return counts


_STARTING = re.compile(
    r"(startup-taint|ignore-taint)\.cluster-autoscaler\.kubernetes\.io/.+"
    r"|(.*[-./])?(not-?ready|uninitiali[sz]ed|initiali[sz]ing|unregistered|start-?up)"
    r"|node\.kubernetes\.io/(unreachable|network-unavailable)"
)
_STARTED = "nodes that have started"
"""Key of a memo."""


def once_started(nodes: NodeTable) -> NodeTable | None:
    """Return ``nodes`` as they will be once all have started; None if all have.

    A node that is not ready, or whose taint key says that it starts, takes pods after a while.
    Such keys come from Kubernetes, cloud providers, Karpenter, cluster-autoscaler or network
    plugins.
    """
    if _STARTED not in nodes.memo:
        later = [_as_started(node) for node in nodes.nodes]
        is_same = all(new is node for new, node in zip(later, nodes.nodes, strict=True))
        table = None if is_same else nodes.with_nodes(later)
        nodes.remember(_STARTED, table)
    cached = nodes.memo[_STARTED]
    return cached if isinstance(cached, NodeTable) else None


def _as_started(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if not _STARTING.fullmatch(taint.key))
    if node.is_leaving or (node.is_ready and len(taints) == len(node.taints)):
        return node
    return replace(node, taints=taints, is_ready=True)


def _unavailable(rows: BoolArray, nodes: NodeTable) -> dict[str, BoolArray]:
    return {
        "not ready": rows & ~nodes.is_ready,
        "being deleted": rows & nodes.is_ready & ~nodes.accepts,
    }


def _describe(taint: Taint) -> str:
    if taint == CORDON:
        return "cordoned"
    value = f"={taint.value}" if taint.value else ""
    return f"taint {taint.key}{value}:{taint.effect}"


def meets(demand: NodeDemand, nodes: NodeTable) -> BoolArray:
    """Return which nodes ``demand`` allows, shape (nodes,)."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in demand.terms:
        mask |= _matches_term(term, nodes)
    return mask


def score(
    preferences: tuple[NodePreference, ...], tolerations: tuple[Toleration, ...], nodes: NodeTable
) -> IntArray:
    """Return how much a pod prefers each node, int64, shape (nodes,); read-only.

    It is the total weight of the preferences that the node meets, less the weight of each
    ``PreferNoSchedule`` taint that the pod does not tolerate. Cached with the table.
    """
    key = "score", preferences, tolerations
    cached = nodes.memo.get(key)
    if isinstance(cached, np.ndarray):
        return cached
    total = np.zeros(len(nodes), dtype=np.int64)
    for preference in preferences:
        total += preference.weight * _matches_term(preference.term, nodes)
    for row in nodes.softly_tainted:
        if not tolerates(tolerations, nodes.nodes[row].soft_taints):
            total[row] -= PLUGIN_WEIGHTS["TaintToleration"] * MAX_WEIGHT
    total.setflags(write=False)
    nodes.remember(key, total)
    return total


def tolerates(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """Return whether a pod accepts all ``taints``."""
    return all(any(t.tolerates(taint) for t in tolerations) for taint in taints)


def _toleration_mask(constraints: NodeConstraints, nodes: NodeTable) -> BoolArray:
    answers = [tolerates(constraints.tolerations, taints) for taints in nodes.taint_sets]
    return np.array(answers, dtype=np.bool_)[nodes.taint_codes]


def _matches_term(term: SelectorTerm, nodes: NodeTable) -> BoolArray:
    if not term.labels and not term.names:  # as in the API, no requirement means no node
        return np.zeros(len(nodes), dtype=np.bool_)
    mask = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.labels:
        mask &= _matches(requirement, nodes)
    for requirement in term.names:
        mask &= _matches_name(requirement, nodes)
    return mask


def _matches(requirement: Requirement, nodes: NodeTable) -> BoolArray:
    column = nodes.label(requirement.key)
    # The last entry answers for code -1: nodes without the label.
    answers = [accepts(requirement, value) for value in (*column.values, None)]
    return np.array(answers, dtype=np.bool_)[column.codes]


def _matches_name(requirement: Requirement, nodes: NodeTable) -> BoolArray:
    mask = np.zeros(len(nodes), dtype=np.bool_)
    mask[[nodes.row[name] for name in requirement.values if name in nodes.row]] = True
    return mask if requirement.operator is SelectorOperator.IN else ~mask


def accepts(requirement: Requirement, value: str | None) -> bool:
    """Return whether ``requirement`` matches a label of this value; None where it is missing."""
    if value is None:  # as in the API, NotIn also matches an object without the label
        missing = (SelectorOperator.NOT_IN, SelectorOperator.DOES_NOT_EXIST)
        return requirement.operator in missing
    match requirement.operator:
        case SelectorOperator.IN:
            return value in requirement.values
        case SelectorOperator.NOT_IN:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return True
        case SelectorOperator.DOES_NOT_EXIST:
            return False
        case SelectorOperator.GT | SelectorOperator.LT:
            return _compares(requirement, value)


def _compares(requirement: Requirement, value: str) -> bool:
    label, limit = _integer(value), _integer(next(iter(requirement.values), ""))
    if label is None or limit is None:
        return False  # as in the API: a label that is no integer matches neither Gt nor Lt
    return label > limit if requirement.operator is SelectorOperator.GT else label < limit


def _integer(text: str) -> int | None:
    """Parse ``text`` as the API does (Go's ParseInt): int64, neither blanks nor underscores."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


# --- node pools: the nodes that a selector matches; an autoscaler adds and removes them ---


@dataclass(frozen=True, slots=True)
class GrowablePool:
    """A pool that may be asked for more nodes.

    Attributes:
        template: A new node, without the taints that it has only at its start. Its name and its
            host name label are placeholders; new nodes get their own.
        room: Nodes that may still be requested, beyond the requested ones.
        coming: Requested nodes that are not there yet.
        asked_at: The time of the first request, or of the last arrival if that is later, POSIX
            seconds; None while no node is coming.
        patience_seconds: The wait after which the pool is late, and other pools replace it.
    """

    name: str
    template: Node
    room: int
    coming: int = 0
    asked_at: float | None = None
    patience_seconds: int = field(kw_only=True)

    def __post_init__(self) -> None:
        for name in ("room", "coming"):
            where = f"{name} of pool {self.name!r}"
            require(where, getattr(self, name), 0, error=SnapshotError)

    def is_late(self, now: float) -> bool:
        """Return whether nodes were requested so long ago that they may never come."""
        if not self.coming or self.asked_at is None:
            return False
        return now - self.asked_at > self.patience_seconds


@dataclass(frozen=True, slots=True)
class ScaledPool:
    """A pool whose demand is measured.

    Attributes:
        selector: The labels of its nodes; without any it has no nodes.
        template: A node of it; None where unknown.
        most: The limit on its nodes; a task that requests more of them does not count.
    """

    name: str
    selector: Mapping[str, str]
    template: Node | None
    most: int


def in_pool(selector: Mapping[str, str], nodes: NodeTable) -> BoolArray:
    """Return which nodes have all labels of ``selector``, shape (nodes,); none if it is empty."""
    mask = np.full(len(nodes), bool(selector), dtype=np.bool_)
    for key, value in selector.items():
        column = nodes.label(key)
        # At most one code, and none if no node has the value.
        codes = [code for code, label_value in enumerate(column.values) if label_value == value]
        mask &= np.isin(column.codes, codes)
    return mask
