"""The machines of a simulation and the gangs on them, updated with every change.

The simulation makes every change itself, so adding and subtracting is exact. A failed node stays in
the table as not ready. A removed node stays as not ready with nothing allocatable. So the rows of
all placements stay valid.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bireme.core.finished_runs import NO_RUNS
from bireme.core.gangs import Gang
from bireme.core.gpus import read_gpu_models
from bireme.core.nodes import GrowablePool, Node, NodeTable
from bireme.core.queues import (
    Queue,
    max_min_runtime_seconds,
    overdue_after_seconds,
    wait_bound_seconds,
)
from bireme.core.resources import IntArray, add
from bireme.core.running import RunningGang, RunningTable
from bireme.core.service import ServiceLedger
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.simulator.errors import SimulationError

RACK_LEVEL = "topology.bireme.dev/rack"


class SimulatedCluster:
    """Nodes, the gangs that hold places on them, and the usage of their queues.

    Attributes:
        table: All nodes as arrays; a new one whenever a node goes or comes.
        away: Names of nodes that a pool has scaled away.
        used: Shape (nodes, resources).
        running: Gangs that hold places, by uid, in order of their start.
        changes: Grows with every change of ``used``.
        finished_runs: The last runs that ended.
        service: Device-seconds by submitter.
    """

    def __init__(
        self, nodes: Sequence[Node], queues: Mapping[str, Queue], settings: SchedulingSettings
    ) -> None:
        if not nodes:
            raise SimulationError("nodes is empty; give the simulation at least one node")
        self.settings = settings
        self.queues = queues
        self.running: dict[str, RunningGang] = {}
        self.queue_usage: dict[str, dict[str, int]] = {}
        self.changes = 0
        self.finished_runs = NO_RUNS
        self.service = ServiceLedger(
            settings.service_half_life_seconds, settings.known_accelerators
        )
        self._nodes = {node.name: node for node in nodes}
        self._down: set[str] = set()
        self.away: set[str] = set()
        self._tenants: dict[int, dict[str, None]] = {}  # as a set in order of arrival
        self.table = NodeTable(
            nodes,
            settings.topology_levels,
            read_gpu_models(settings.gpu_models),
            settings.known_accelerators,
        )
        self._running = RunningTable.of((), self.table.axis)
        self.used: IntArray = self.table.fixed.copy()

    def snapshot(
        self, now: float, waiting: tuple[Gang, ...], growable: tuple[GrowablePool, ...] = ()
    ) -> ClusterSnapshot:
        """Return the cluster at this moment; later changes do not show in it."""
        return ClusterSnapshot(
            now=now,
            nodes=self.table,
            used=self.used.copy(),
            waiting=waiting,
            queues=self.queues,
            queue_usage={name: dict(used) for name, used in self.queue_usage.items()},
            settings=self.settings,
            running=self._running.gangs,
            known_table=self._running,
            growable=growable,
            finished_runs=self.finished_runs,
            service=self.service.at(now),
        )

    def occupy(self, running: RunningGang) -> None:
        """Put ``running`` on its places.

        Raises SimulationError when it is split or a node is over-committed or not ready.
        """
        _check_whole(running)
        self.restore(running)
        rows, usage = running.usage(self.table.axis)
        # Pods outside all gangs may overcommit a resource that this gang does not request.
        is_over = (self.used[rows] > self.table.allocatable[rows]) & (usage > 0)
        for entry, column in np.argwhere(is_over):
            row, table = int(rows[entry]), self.table
            raise SimulationError(
                f"{running.gang.uid} was placed on node {table.names[row]}, which then has "
                f"{self.used[row, column]} of {table.allocatable[row, column]} "
                f"{table.axis.names[column]} in use"
            )
        if not self.table.is_ready[rows].all():
            raise SimulationError(f"{running.gang.uid} was placed on a node that is not ready")

    def restore(self, running: RunningGang) -> None:
        """Put ``running`` on its places without a check, as no decision chose them."""
        rows, usage = running.usage(self.table.axis)
        # A node of several tasks appears several times; += would apply only the last one.
        np.add.at(self.used, rows, usage)
        self.running[running.gang.uid] = running
        self._running = self._running.plus(running, self.table.axis)
        for row in rows.tolist():
            self._tenants.setdefault(row, {})[running.gang.uid] = None
        self._charge(running, 1)

    def release(self, running: RunningGang) -> None:
        """Take its places from ``running``."""
        rows, usage = running.usage(self.table.axis)
        np.subtract.at(self.used, rows, usage)
        del self.running[running.gang.uid]
        self._running = self._running.minus(running.gang.uid)
        for row in rows.tolist():
            self._tenants[row].pop(running.gang.uid, None)
        self._charge(running, -1)

    def update(self, changed: Iterable[RunningGang]) -> None:
        """Replace running gangs by newer versions on the same places."""
        self.running |= {running.gang.uid: running for running in changed}
        self._running = RunningTable.of(self.running.values(), self.table.axis)

    def _charge(self, running: RunningGang, times: int) -> None:
        queue = running.gang.queue
        usage = self.queue_usage.get(queue, {})
        self.queue_usage[queue] = add(usage, running.current.demand, times)
        self.changes += 1

    def is_up(self, name: str) -> bool:
        """Return whether the node called ``name`` has not failed."""
        return name not in self._down

    def set_node_ready(self, name: str, is_ready: bool) -> None:
        """Let a node fail or return; the caller stops the gangs on it first."""
        (self._down.discard if is_ready else self._down.add)(name)
        self._renew_table()

    def remove_nodes(self, names: Iterable[str]) -> None:
        """Scale nodes away; SimulationError when a gang is on one."""
        self.away.update(names)
        if tenants := self.tenants_of(self.table.row[name] for name in self.away):
            raise SimulationError(f"a node went away while {tenants[0]} was on it")
        self._renew_table()

    def add_node(self, name: str) -> None:
        """Bring back a node that was scaled away."""
        self.away.remove(name)
        self._renew_table()

    def _renew_table(self) -> None:
        nodes = [self._current(node) for node in self._nodes.values()]
        self.table = self.table.with_nodes(nodes)
        self.changes += 1

    def _current(self, node: Node) -> Node:
        if node.name in self.away:
            return replace(node, allocatable=dict.fromkeys(node.allocatable, 0), is_ready=False)
        return replace(node, is_ready=False) if node.name in self._down else node

    def wait_bound_seconds(self, gang: Gang) -> int:
        """Return the wait bound of the queue of ``gang``."""
        return wait_bound_seconds(gang.queue, self.queues, self.settings)

    def overdue_after_seconds(self, gang: Gang) -> float:
        """Return the wait after which ``gang`` goes before all others."""
        return overdue_after_seconds(gang, self.queues, self.settings)

    def min_runtime_seconds(self, gang: Gang) -> float:
        """Return how long after its start no other gang may preempt ``gang``."""
        requested_seconds, settings = gang.min_runtime_seconds, self.settings
        max_seconds = max_min_runtime_seconds(gang.queue, self.queues, settings)
        return min(
            settings.min_runtime_seconds if requested_seconds is None else requested_seconds,
            max_seconds,
        )

    def tenants_of(self, rows: Iterable[int]) -> list[str]:
        """Return the uids of all gangs with a replica on any of ``rows``, first come first."""
        return list(dict.fromkeys(uid for row in rows for uid in self._tenants.get(row, ())))

    def neighbours(self, running: RunningGang) -> int:
        """Return how many other gangs have a replica on a node of ``running``."""
        return len(self.tenants_of(running.placement.node_rows().tolist())) - 1

    def neighbours_by_node(self, running: RunningGang) -> dict[str, int]:
        """Return how many other gangs have a replica on each node of ``running``, by node name."""
        rows = running.placement.node_rows().tolist()
        return {self.table.names[row]: len(self._tenants[row]) - 1 for row in rows}

    def spread(self, running: RunningGang) -> tuple[int, int]:
        """Return the number of nodes and racks of ``running``; a missing label is one rack."""
        rows = running.placement.node_rows()
        levels = self.table.topology_levels
        if len(rows) == 1 or RACK_LEVEL not in levels:
            return len(rows), 1
        codes = self.table.domains[levels.index(RACK_LEVEL)]
        return len(rows), len(np.unique(codes[rows]))

    def gpu_use(self) -> tuple[int, int]:
        """Return the GPUs in use, and the free GPUs on partly used nodes."""
        is_accelerator = self.table.accelerators.is_accelerator
        columns = [
            column for column, name in enumerate(self.table.axis.names) if is_accelerator(name)
        ]
        used = self.used[:, columns].sum(axis=1)
        offered = self.table.allocatable[:, columns].sum(axis=1)
        gang_gpus = used - self.table.fixed[:, columns].sum(axis=1)
        return int(gang_gpus.sum()), int((offered - used)[used > 0].sum())

    def verify(self) -> None:
        """Recompute all usage from the running gangs; raise SimulationError where it differs."""
        used = self.table.fixed.copy()
        queue_usage: dict[str, dict[str, int]] = {}
        for running in self.running.values():
            for task in running.placement.tasks:
                request = next(t.request for t in running.gang.tasks if t.name == task.task)
                amounts = self.table.axis.usage(request)
                for row, count in zip(task.rows, task.counts, strict=True):
                    used[row] += count * amounts
            queue = running.gang.queue
            queue_usage[queue] = add(queue_usage.get(queue, {}), running.current.demand)
        if not np.array_equal(used, self.used):
            raise SimulationError("used differs from what the running gangs use")
        nonzero_usage = {n: {r: a for r, a in u.items() if a} for n, u in self.queue_usage.items()}
        if {name: amounts for name, amounts in nonzero_usage.items() if amounts} != queue_usage:
            raise SimulationError(
                f"queue usage is {nonzero_usage}, its running gangs ask {queue_usage}"
            )


def replicas_by_node(running: RunningGang) -> tuple[int, ...]:
    """Return the replicas of all tasks on each of its nodes, in the order of the nodes."""
    tasks = running.placement.tasks
    rows = np.concatenate([task.rows for task in tasks])
    counts = np.bincount(rows, np.concatenate([task.counts for task in tasks]))
    return tuple(counts[counts > 0].astype(int).tolist())


def _check_whole(running: RunningGang) -> None:
    """Raise SimulationError unless every task is within its bounds and enough replicas run."""
    replicas = {task.task: int(task.counts.sum()) for task in running.placement.tasks}
    for task in running.gang.tasks:
        if not task.minimum <= replicas.get(task.name, 0) <= task.maximum:
            raise SimulationError(
                f"{running.gang.uid} was given {replicas.get(task.name, 0)} replicas of task "
                f"{task.name}, which takes {task.minimum} to {task.maximum}"
            )
    if sum(replicas.values()) < running.gang.min_available:
        raise SimulationError(
            f"{running.gang.uid} was given {sum(replicas.values())} replicas, "
            f"fewer than its min_available of {running.gang.min_available}"
        )
