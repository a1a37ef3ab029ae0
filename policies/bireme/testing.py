"""Builders of objects for tests: a test states its subject, and the rest has defaults."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.gpus import read_gpu_models
from bireme.core.nodes import GrowablePool, Node, NodeTable
from bireme.core.placement import placement_at
from bireme.core.pod_constraints import Taint
from bireme.core.queues import Queue
from bireme.core.quotas import Quota
from bireme.core.resources import IntArray, add, request_of
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot

GPU = "nvidia.com/gpu"
GIB = 2**30


class ManualClock:
    """A clock in seconds that only moves by :meth:`advance`."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.now += seconds


def a_node(
    name: str,
    gpus: int = 8,
    *,
    cpu_millis: int = 96_000,
    memory_bytes: int = 1024 * GIB,
    pods: int = 110,
    rack: str | None = None,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    **facts: Any,
) -> Node:
    """Make a healthy node with eight GPUs; ``facts`` are further fields of :class:`Node`."""
    offers = {"cpu": cpu_millis, "memory": memory_bytes, "pods": pods}
    if gpus:
        offers[GPU] = gpus
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    if rack is not None:
        all_labels["topology.bireme.dev/rack"] = rack
    if zone is not None:
        all_labels["topology.kubernetes.io/zone"] = zone
    return Node(name, offers, all_labels, tuple(taints), **facts)


def a_pool(
    name: str = "pool",
    room: int = 10,
    template: Node | None = None,
    *,
    coming: int = 0,
    asked_at: float | None = None,
) -> GrowablePool:
    """Make a pool that may get ten more nodes of eight GPUs; late 100 s after ``asked_at``."""
    return GrowablePool(
        name, template or a_node("new"), room, coming, asked_at, patience_seconds=100
    )


def racks(count: int, nodes_per_rack: int, gpus: int = 8) -> list[Node]:
    """Make ``count`` racks ``r0, r1, ...`` of equal nodes ``r0-n0, ...``."""
    return [
        a_node(f"r{rack}-n{node}", gpus, rack=f"r{rack}")
        for rack in range(count)
        for node in range(nodes_per_rack)
    ]


def a_task(
    replicas: int = 1,
    gpus: int = 1,
    *,
    name: str | None = None,
    role: Role = Role.WORKER,
    cpu_millis: int = 1000,
    memory_bytes: int = GIB,
    priority: int | None = None,
    **facts: Any,
) -> Task:
    """Make a task of one-GPU workers; ``facts`` are further fields of :class:`Task`."""
    request = request_of({"cpu": cpu_millis, "memory": memory_bytes, "pods": 1, GPU: gpus})
    return Task(
        name=name or role.value,
        replicas=replicas,
        request=request,
        role=role,
        priority=role.default_priority if priority is None else priority,
        **facts,
    )


def a_gang(
    name: str = "job",
    *tasks: Task,
    queue: str = "default",
    namespace: str = "default",
    arrived: float = 0.0,
    **facts: Any,
) -> Gang:
    """Make a gang, of one one-GPU worker unless tasks are given; its uid is its name.

    ``facts`` are further fields of :class:`Gang`.
    """
    return Gang(
        uid=name,
        name=name,
        namespace=namespace,
        queue=queue,
        tasks=tasks or (a_task(),),
        arrived=arrived,
        **facts,
    )


def a_snapshot(
    nodes: Sequence[Node],
    *waiting: Gang,
    queues: Sequence[Queue] = (Queue("default"),),
    queue_usage: Mapping[str, Mapping[str, int]] | None = None,
    used: IntArray | None = None,
    now: float = 0.0,
    settings: SchedulingSettings | None = None,
    growable: Sequence[GrowablePool] = (),
    quotas: Sequence[Quota] = (),
) -> ClusterSnapshot:
    """Make a snapshot of ``nodes`` with one open queue called ``default``; no gang runs."""
    settings = settings or SchedulingSettings()
    table = NodeTable(
        nodes,
        settings.topology_levels,
        read_gpu_models(settings.gpu_models),
        settings.known_accelerators,
    )
    return ClusterSnapshot(
        now=now,
        nodes=table,
        used=np.zeros_like(table.allocatable) if used is None else used,
        waiting=tuple(waiting),
        queues={queue.name: queue for queue in queues},
        queue_usage=queue_usage or {},
        settings=settings,
        growable=tuple(growable),
        quotas={(quota.namespace, quota.name): quota for quota in quotas},
    )


def a_running_gang(
    gang: Gang,
    nodes: NodeTable,
    *,
    row: int = 0,
    sizes: Mapping[str, int] | None = None,
    started: float = 0.0,
    resized: float = -math.inf,
    is_leaving: bool = False,
) -> RunningGang:
    """Run ``gang`` on one node, whole unless ``sizes`` gives the replicas of each task."""
    replicas = sizes or {task.name: task.replicas for task in gang.tasks}
    places = {name: {nodes.names[row]: count} if count else {} for name, count in replicas.items()}
    return RunningGang(gang, placement_at(places, nodes), started, resized, is_leaving)


def a_running(
    gang: Gang,
    nodes: NodeTable,
    places: Mapping[str, int | Mapping[str, int]],
    *,
    started: float = 0.0,
    resized: float = -math.inf,
    is_leaving: bool = False,
    anchor: str = "",
    kept_by_budget: bool = False,
    is_opportunistic: bool = False,
) -> RunningGang:
    """Run ``gang`` on ``places``: replicas by task and node name, by node name for a single task.

    ``anchor`` is the node that a shrink empties last.
    """
    by_task: dict[str, dict[str, int]] = {task.name: {} for task in gang.tasks}
    for name, value in places.items():
        by_node = {name: value} if isinstance(value, int) else value
        task = gang.tasks[0].name if isinstance(value, int) else name
        by_task[task] |= {node: replicas for node, replicas in by_node.items() if replicas}
    node_counts = {name: by_node for name, by_node in by_task.items() if by_node}
    row = nodes.row[anchor] if anchor else -1
    return RunningGang(
        gang,
        placement_at(node_counts, nodes),
        started,
        resized,
        is_leaving,
        row,
        kept_by_budget,
        is_opportunistic=is_opportunistic,
    )


def with_running(snapshot: ClusterSnapshot, *running: RunningGang) -> ClusterSnapshot:
    """Return ``snapshot`` with these running gangs, whose use counts on nodes and in queues."""
    used = snapshot.used.copy()
    usage = dict(snapshot.queue_usage)
    for gang_run in running:
        np.add.at(used, *gang_run.usage(snapshot.nodes.axis))
        gang = gang_run.current
        usage[gang.queue] = add(usage.get(gang.queue, {}), gang.demand)
    return replace(snapshot, running=(*snapshot.running, *running), used=used, queue_usage=usage)
