"""Where a whole gang goes: for every task, which nodes take how many replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.gangs import AffinityMode, Gang, Role
from bireme.core.nodes import HOST_LEVEL, NodeTable
from bireme.core.resources import IntArray

CLUSTER_LEVEL = "cluster"
"""Name of the level above all topology levels."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlacement:
    """``counts[i]`` replicas on node row ``rows[i]``; rows ascending, counts > 0."""

    task: str
    rows: IntArray
    counts: IntArray

    def rows_by_replica(self) -> IntArray:
        """Node row of replica 0, 1, ...; neighbours in index are neighbours in the cluster."""
        return np.repeat(self.rows, self.counts)


@dataclass(frozen=True, slots=True)
class Placement:
    """A whole gang on nodes of one table, and the smallest domain that holds it."""

    tasks: tuple[TaskPlacement, ...]
    level: str
    domain: str

    def node_rows(self) -> IntArray:
        """Rows of all nodes used, ascending, each once."""
        return np.unique(np.concatenate([task.rows for task in self.tasks]))

    def by_task(self, nodes: NodeTable) -> dict[str, tuple[str, ...]]:
        """Task name to node name of replica 0, 1, ..."""
        return {
            task.task: tuple(nodes.names[row] for row in task.rows_by_replica())
            for task in self.tasks
        }


def smallest_domain(nodes: NodeTable, rows: IntArray) -> tuple[str, str]:
    """The narrowest topology level that holds all ``rows`` in one domain, and the domain's name."""
    for level, codes in enumerate(nodes.domains):
        used = codes[rows]
        if used[0] >= 0 and bool((used == used[0]).all()):
            return nodes.topology_levels[level], nodes.domain_name(level, int(rows[0]))
    return CLUSTER_LEVEL, ""


def make_placement(gang: Gang, nodes: NodeTable, counts: dict[str, IntArray]) -> Placement:
    """A placement from ``counts[task name]``, int64 of shape (nodes,): replicas per node."""
    tasks = []
    for task in gang.tasks:
        rows = np.flatnonzero(counts[task.name])
        tasks.append(TaskPlacement(task.name, rows, counts[task.name][rows]))
    level, domain = smallest_domain(nodes, np.unique(np.concatenate([t.rows for t in tasks])))
    return Placement(tuple(tasks), level, domain)


def placement_at(places: Mapping[str, Mapping[str, int]], nodes: NodeTable) -> Placement:
    """A placement from replicas by task name and node name; KeyError for a node not in ``nodes``.

    It may be empty: nobody holds it then.
    """
    tasks = []
    for task, there in places.items():
        pairs = sorted((nodes.row[name], count) for name, count in there.items())
        rows, counts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        tasks.append(TaskPlacement(task, rows, counts))
    if not any(len(task.rows) for task in tasks):
        return Placement(tuple(tasks), CLUSTER_LEVEL, "")
    every = np.unique(np.concatenate([task.rows for task in tasks]))
    return Placement(tuple(tasks), *smallest_domain(nodes, every))


def keeps_affinity(gang: Gang, tasks: Sequence[TaskPlacement], nodes: NodeTable) -> bool:
    """Whether every worker on ``tasks`` has a parameter server in its domain, where it must.

    As in :class:`~bireme.core.gangs.RoleAffinity`: a demand only where it is required and the gang
    has one task of each role. A key that is no topology level speaks of the node itself.
    """
    names = {task.role: task.name for task in gang.tasks}
    roles = [task.role for task in gang.tasks]
    required = gang.role_affinity.mode is AffinityMode.REQUIRED
    if not required or roles.count(Role.PS) != 1 or roles.count(Role.WORKER) != 1:
        return True
    none = np.zeros(0, dtype=np.int64)
    rows = {task.task: task.rows for task in tasks}
    servers, workers = rows.get(names[Role.PS], none), rows.get(names[Role.WORKER], none)
    beside = np.isin(workers, servers)
    key, levels = gang.role_affinity.topology_key, nodes.topology_levels
    if key != HOST_LEVEL and key in levels:
        codes = nodes.domains[levels.index(key)]
        beside |= (codes[workers] >= 0) & np.isin(codes[workers], codes[servers])
    return bool(beside.all())
