"""Placements of whole gangs, and the free capacity of a cycle."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bireme.core.gangs import AffinityMode, Gang, Role, Task
from bireme.core.nodes import HOSTNAME_LABEL, NodeTable, feasible
from bireme.core.pod_rules import NOBODY, Occupants, PodsOf, max_pods_per_node
from bireme.core.resources import (
    CPU,
    MEMORY,
    BoolArray,
    FloatArray,
    IntArray,
    ResourceAxis,
    is_device,
)

CLUSTER_LEVEL = "cluster"
"""Name of the level above all topology levels."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlacement:
    """``counts[i]`` replicas on node row ``rows[i]``; rows ascending, counts > 0."""

    task: str
    rows: IntArray
    counts: IntArray

    def rows_by_replica(self) -> IntArray:
        """Return the node row of replica 0, 1, ..."""
        # In row order: neighbours in an all-reduce ring are neighbours in the cluster.
        return np.repeat(self.rows, self.counts)


@dataclass(frozen=True, slots=True)
class Placement:
    """A whole gang on nodes of one table, and the smallest domain that holds it."""

    tasks: tuple[TaskPlacement, ...]
    level: str
    domain: str

    def node_rows(self) -> IntArray:
        """Return the rows of all nodes used, ascending, each once."""
        return np.unique(np.concatenate([task.rows for task in self.tasks]))

    def by_task(self, nodes: NodeTable) -> dict[str, tuple[str, ...]]:
        """Return the node names of replica 0, 1, ..., by task name."""
        return {
            task.task: tuple(nodes.names[row] for row in task.rows_by_replica())
            for task in self.tasks
        }


def smallest_domain(nodes: NodeTable, rows: IntArray) -> tuple[str, str]:
    """Return the narrowest topology level that holds ``rows`` in one domain, and that domain."""
    for level, codes in enumerate(nodes.domains):
        used = codes[rows]
        if used[0] >= 0 and bool((used == used[0]).all()):
            return nodes.topology_levels[level], nodes.domain_name(level, int(rows[0]))
    return CLUSTER_LEVEL, ""


def make_placement(gang: Gang, nodes: NodeTable, counts: dict[str, IntArray]) -> Placement:
    """Return the placement of ``counts[task name]``, int64 of shape (nodes,): replicas per node."""
    tasks = []
    for task in gang.tasks:
        rows = np.flatnonzero(counts[task.name])
        tasks.append(TaskPlacement(task.name, rows, counts[task.name][rows]))
    every = np.unique(np.concatenate([task.rows for task in tasks]))
    return Placement(tuple(tasks), *smallest_domain(nodes, every))


def placement_at(places: Mapping[str, Mapping[str, int]], nodes: NodeTable) -> Placement:
    """Return the placement of replicas by task name and node name; it may be empty.

    Raises KeyError for a node that is not in ``nodes``.
    """
    tasks = []
    for task, counts_by_node in places.items():
        pairs = sorted((nodes.row[name], count) for name, count in counts_by_node.items())
        rows, counts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        tasks.append(TaskPlacement(task, rows, counts))
    if not any(len(task.rows) for task in tasks):
        return Placement(tuple(tasks), CLUSTER_LEVEL, "")
    every = np.unique(np.concatenate([task.rows for task in tasks]))
    return Placement(tuple(tasks), *smallest_domain(nodes, every))


def pods_at(gang: Gang, placement: Placement, *, are_coming: bool = False) -> tuple[PodsOf, ...]:
    """Return the pods of ``gang`` on ``placement`` that rules over pods concern."""
    if not gang.has_rules:
        return ()
    kinds = {task.name: task.pod for task in gang.tasks}
    return tuple(
        PodsOf(kind, task.rows_by_replica(), gang.uid, are_coming=are_coming)
        for task in placement.tasks
        if (kind := kinds[task.task]) is not None
    )


def keeps_affinity(gang: Gang, tasks: Sequence[TaskPlacement], nodes: NodeTable) -> bool:
    """Return whether every worker on ``tasks`` has a parameter server in its domain, if required.

    See :class:`~bireme.core.gangs.RoleAffinity`.
    """
    names = {task.role: task.name for task in gang.tasks}
    roles = [task.role for task in gang.tasks]
    required = gang.role_affinity.mode is AffinityMode.REQUIRED
    # With several tasks of a role, no rule assigns servers to workers.
    if not required or roles.count(Role.PS) != 1 or roles.count(Role.WORKER) != 1:
        return True
    none = np.zeros(0, dtype=np.int64)
    rows = {task.task: task.rows for task in tasks}
    servers, workers = rows.get(names[Role.PS], none), rows.get(names[Role.WORKER], none)
    has_server = np.isin(workers, servers)
    key, levels = gang.role_affinity.topology_key, nodes.topology_levels
    # A key that is no topology level means the node itself.
    if key != HOSTNAME_LABEL and key in levels:
        codes = nodes.domains[levels.index(key)]
        has_server |= (codes[workers] >= 0) & np.isin(codes[workers], codes[servers])
    return bool(has_server.all())


def usage_of(gang: Gang, placement: Placement, axis: ResourceAxis) -> tuple[IntArray, IntArray]:
    """Return rows of ``placement``, shape (entries,), and the usage of ``gang`` there, per task."""
    requests = {task.name: task.request for task in gang.tasks}
    parts = [(t.rows, t.counts[:, None] * axis.usage(requests[t.task])) for t in placement.tasks]
    if len(parts) == 1:
        return parts[0]
    if not parts:  # all its nodes are gone
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64)
    rows, usage = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(usage)


COUNT_CEILING = 2**31
"""Stands for "without limit" if a replica requests nothing of a node."""
# The limit on cached kinds of replicas: for ten thousand nodes one takes 80 kB.
_COUNTS_KEPT = 256
# Sums of amounts are floats with 16 digits: sums with a smaller difference may be equal.
_SLACK = 1 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """``counts[row]`` replicas with ``request`` each that a trial assumes to be placed."""

    request: IntArray
    counts: IntArray


class FreeCapacity:
    """Free amounts on every node during one cycle, int64 of shape (nodes, resources).

    It caches, per kind of replica, how many every node takes. After an admission it corrects only
    the nodes that changed: a thousand gangs of a few shapes cost little more than a few gangs.
    """

    def __init__(
        self,
        nodes: NodeTable,
        used: IntArray,
        occupants: Occupants = NOBODY,
        present: BoolArray | None = None,
    ) -> None:
        self.nodes = nodes
        self.occupants = occupants
        # Nodes that exist, shape (nodes,); None for all. Other nodes are no domains of a spread.
        self.present = present
        # It may be negative: allocatable may shrink while pods run, or another scheduler may have
        # placed pods there. Such a node takes no more pods.
        self.free: IntArray = nodes.allocatable - used
        self._counts: dict[object, IntArray] = {}
        self._seen: dict[object, int] = {}
        self._touched: list[IntArray] = []
        self._tightness: FloatArray | None = None
        self._total: FloatArray | None = None
        self._only_on: dict[str, BoolArray] = {}

    def lacks(self, gang: Gang) -> bool:
        """Return whether all nodes together have too little for ``gang``, wherever it is placed."""
        if self._total is None:
            self._total = np.maximum(self.free, 0).sum(axis=0, dtype=np.float64) * _SLACK
        for name, amount in gang.demand.items():
            column = self.nodes.axis.column(name)
            if amount and (column is None or amount > self._total[column]):
                return True
        return False

    def replicas(self, task: Task, assumed: Sequence[Take] = ()) -> IntArray:
        """Return how many replicas of ``task`` each node takes after ``assumed``, shape (nodes,).

        Rules over pods limit it by the present pods, not by those of ``assumed``. The array is
        shared and read-only, unless rules, views or ``assumed`` correct it.
        """
        counts = self._replicas(task, assumed)
        for resource, mask in self._only_on.items():
            if any(name == resource and amount for name, amount in task.request):
                counts = np.where(mask, counts, 0)
        return counts

    def _replicas(self, task: Task, assumed: Sequence[Take]) -> IntArray:
        if task.pod is not None:
            counts = self._replicas(replace(task, pod=None), assumed)
            counts = np.minimum(counts, max_pods_per_node(task.pod, self.nodes))
            if task.pod.volumes:
                counts = np.minimum(counts, self._beside_volumes(task, task.pod.volumes))
            return np.where(self.occupants.conflict_nodes(task.pod, self.nodes), 0, counts)
        counts = self._current(task)
        takes = [take for take in assumed if take.counts.any()]
        if not takes:
            return counts
        request = self.nodes.axis.request(task.request)
        rows = np.flatnonzero(np.logical_or.reduce([take.counts > 0 for take in takes]))
        free = self.free[rows]
        for take in takes:
            free = free - take.counts[rows, None] * take.request
        corrected = counts.copy()
        if request is not None:
            allowed = feasible(task.constraints, self.nodes)[rows]
            corrected[rows] = np.where(allowed, _fits(free, request), 0)
        return corrected

    def _beside_volumes(self, task: Task, volumes: Iterable[tuple[str, str]]) -> IntArray:
        """Return how many replicas of ``task`` each node takes beside its new ``volumes``."""
        new: dict[str, IntArray] = {}
        for volume in volumes:
            is_new = ~self.occupants.have_volume(volume, self.nodes)
            new[volume[0]] = new.get(volume[0], np.zeros(len(self.nodes), np.int64)) + is_new
        limits = np.full(len(self.nodes), COUNT_CEILING, dtype=np.int64)
        for name, count in new.items():
            if (column := self.nodes.axis.column(name)) is not None:
                remaining = self.free[:, column] - count
                # Replicas may also request volumes that do not exist yet.
                amount = dict(task.request).get(name, 0)
                fits = remaining // amount if amount else np.where(remaining < 0, 0, COUNT_CEILING)
                limits = np.where(count > 0, np.minimum(limits, np.maximum(fits, 0)), limits)
        return limits

    def usage(self, gang: Gang, placement: Placement) -> tuple[IntArray, IntArray]:
        """Return rows of ``placement`` and the usage of ``gang`` there, as :func:`usage_of`.

        It includes volumes that the gang brings to a node; a row appears once for each of them too.
        """
        rows, usage = usage_of(gang, placement, self.nodes.axis)
        new = list(self._new_volumes(gang, placement))
        if not new:
            return rows, usage
        added = [
            np.tile(self.nodes.axis.usage(((name, 1),)), (len(volume_rows), 1))
            for name, volume_rows in new
        ]
        return np.concatenate([rows, *(volume_rows for _, volume_rows in new)]), np.concatenate(
            [usage, *added]
        )

    def _new_volumes(self, gang: Gang, placement: Placement) -> Iterator[tuple[str, IntArray]]:
        """Yield the amount and the rows of each volume that ``gang`` would bring to nodes."""
        rows: dict[tuple[str, str], list[IntArray]] = {}
        kinds = {task.name: task.pod for task in gang.tasks if task.pod is not None}
        for task in placement.tasks:
            if (kind := kinds.get(task.task)) is not None:
                for volume in kind.volumes:
                    rows.setdefault(volume, []).append(task.rows)
        for volume, several in rows.items():
            unique_rows = np.unique(np.concatenate(several))
            yield (
                volume[0],
                unique_rows[~self.occupants.have_volume(volume, self.nodes)[unique_rows]],
            )

    def _current(self, task: Task) -> IntArray:
        """Return the cached counts for this kind of replica, brought up to date."""
        key = (task.request, task.constraints)
        counts = self._counts.get(key)
        request = self.nodes.axis.request(task.request)  # None: no node has one of the resources
        allowed = feasible(task.constraints, self.nodes)
        if counts is None:
            counts = np.zeros(len(self.nodes), dtype=np.int64)
            if request is not None:
                counts = np.where(allowed, _fits(self.free, request), 0)
        elif request is not None and self._seen[key] < len(self._touched):
            rows = np.unique(np.concatenate(self._touched[self._seen[key] :]))
            counts = counts.copy()  # the earlier array may still be in use
            counts[rows] = np.where(allowed[rows], _fits(self.free[rows], request), 0)
        counts.setflags(write=False)
        if len(self._counts) >= _COUNTS_KEPT and key not in self._counts:
            self._counts.clear()
        self._counts[key] = counts
        self._seen[key] = len(self._touched)
        return counts

    def take(self, gang: Gang, placement: Placement) -> None:
        """Subtract the usage of ``placement`` of ``gang``."""
        requests = {task.name: task.request for task in gang.tasks}
        for task in placement.tasks:
            request = self.nodes.axis.usage(requests[task.task])
            self.free[task.rows] -= task.counts[:, None] * request
            self._touched.append(task.rows)
        for name, rows in self._new_volumes(gang, placement):
            self.free[rows] -= self.nodes.axis.usage(((name, 1),))
        self.add_pods(gang, placement)
        self._tightness = self._total = None

    def add_pods(self, gang: Gang, placement: Placement, *, are_coming: bool = False) -> None:
        """Add the pods of ``gang`` on ``placement``, present or coming, to those that rules see."""
        if gang.has_rules:
            pods = pods_at(gang, placement, are_coming=are_coming)
            self.occupants = self.occupants.plus(pods)

    def remove_pods(self, gang: Gang, placement: Placement) -> None:
        """Undo :meth:`add_pods`."""
        if gang.has_rules:
            self.occupants = self.occupants.less(pods_at(gang, placement))

    def only_on(self, mask: BoolArray, resource: str) -> "FreeCapacity":
        """Return a view in which requests for ``resource`` only fit nodes of ``mask``.

        A view of a view combines both masks. It shares all caches of this capacity, so it costs
        nothing. Nothing may be taken from it, and it is invalid once something is taken from this
        capacity.
        """
        _ = self.tightness  # computed once for all views
        view = copy.copy(self)
        current = self._only_on.get(resource)
        view._only_on = {**self._only_on, resource: mask if current is None else mask & current}
        return view

    def inside(self, mask: BoolArray, *, are_all: bool = False) -> "FreeCapacity":
        """Return a capacity that is free only on nodes of ``mask``, shape (nodes,).

        With ``are_all`` no other nodes exist. The restriction of a view (:meth:`only_on`) stays.
        """
        if mask.all():
            return self
        free = np.where(mask[:, None], self.free, 0)
        present = mask if are_all else self.present
        room = FreeCapacity(self.nodes, self.nodes.allocatable - free, self.occupants, present)
        room._only_on = self._only_on
        return room

    def correct(self, rows: IntArray, free: IntArray) -> None:
        """Set the free amounts on ``rows``, shape (rows, resources)."""
        self.free[rows] = free
        self._touched.append(rows)
        self._tightness = self._total = None

    @property
    def tightness(self) -> FloatArray:
        """Free amounts of each node as one number, shape (nodes,); less is tighter."""
        if self._tightness is None:
            axis = self.nodes.axis
            largest = np.maximum(self.nodes.allocatable.max(axis=0, initial=1), 1)
            weights = np.array([_scarcity(name) for name in axis.names]) / largest
            self._tightness = np.asarray(np.maximum(self.free, 0) @ weights, dtype=np.float64)
        return self._tightness


def _scarcity(resource: str) -> float:
    # Devices weigh ten times as much as cores and memory: scarce resources must be packed tightly.
    if resource in (CPU, MEMORY):
        return 0.1
    return 1.0 if is_device(resource) else 0.0


def _fits(free: IntArray, request: IntArray) -> IntArray:
    """Return the number of whole replicas that fit each row of ``free``, shape (rows,)."""
    columns = np.flatnonzero(request)
    if not len(columns):
        return np.full(len(free), COUNT_CEILING, dtype=np.int64)
    counts: IntArray = free[:, columns[0]] // request[columns[0]]
    # Column by column: this avoids a second table of the size of ``free``.
    for column in columns[1:]:
        np.minimum(counts, free[:, column] // request[column], out=counts)
    np.maximum(counts, 0, out=counts)
    return counts
