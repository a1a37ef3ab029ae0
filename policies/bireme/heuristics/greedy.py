"""Placing a gang by a rule about one task: the skeleton of every simple placer.

A rule says how one task's replicas are divided among nodes; the tasks of a gang follow each other,
those with the most devices first. These rules know nothing of roles or of what fits together, so
two cases go to :class:`~bireme.heuristics.packing.Packing`: gangs whose roles must meet in one
domain, and gangs of several tasks that the rule, taken task by task, found no places for. Whether a
gang of one task fits never depends on the rule, only where it goes.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, make_placement
from bireme.core.resources import FloatArray, IntArray
from bireme.heuristics.affinity import pair_of
from bireme.heuristics.packing import Packing
from bireme.heuristics.ranking import device_of

Divide: TypeAlias = Callable[[Task, IntArray, FreeCapacity], IntArray]
"""``divide(task, room, capacity)``: replicas per node, int64 of shape (nodes,).

``room``, of the same shape, is how many each node takes, at most all; together they take all.
"""
Cost: TypeAlias = Callable[[IntArray, IntArray], FloatArray]
"""``cost(rows, held)``: what one more replica costs on ``rows`` that got ``held`` of it already."""


def place_by(gang: Gang, capacity: FreeCapacity, divide: Divide) -> Placement | None:
    """Nodes for all replicas of ``gang`` by the rule ``divide``, or None."""
    pair = pair_of(gang, capacity)
    if pair is None or not pair.is_required:
        counts = _divided(gang, capacity, divide)
        if counts is not None:
            return make_placement(gang, capacity.nodes, counts)
    return Packing().place(gang, capacity) if len(gang.tasks) > 1 else None


def _divided(gang: Gang, capacity: FreeCapacity, divide: Divide) -> dict[str, IntArray] | None:
    counts: dict[str, IntArray] = {}
    nodes = capacity.nodes
    tasks = sorted(gang.tasks, key=lambda task: (-task.replicas * device_of(task)[1], task.name))
    for index, task in enumerate(tasks):
        room = np.minimum(capacity.replicas(task), task.replicas)
        if int(room.sum()) < task.replicas:
            return None
        placed = counts[task.name] = divide(task, room, capacity)
        if index + 1 < len(tasks):
            free = capacity.free - placed[:, None] * nodes.axis.usage(task.request)
            capacity = FreeCapacity(nodes, nodes.allocatable - free)
    return counts


def fill(room: IntArray, replicas: int, order: IntArray) -> IntArray:
    """Node after node in ``order`` (rows), each as full as it gets, until all are placed."""
    counts = np.zeros_like(room)
    in_order = room[order]
    before = in_order.cumsum() - in_order
    counts[order] = np.clip(replicas - before, 0, in_order)
    return counts


def by_tightness(capacity: FreeCapacity) -> IntArray:
    """Rows of all nodes, the least free first; equal ones by index."""
    return np.argsort(capacity.tightness.round(9), kind="stable")


def descend(cost: Cost, room: IntArray, replicas: int, tightness: FloatArray) -> IntArray:
    """Replica after replica where it costs least now; ties to the tightest node, then by index."""
    rows = np.flatnonzero(room)
    rows = rows[np.argsort(tightness[rows].round(9), kind="stable")]
    held = np.zeros(len(rows), dtype=np.int64)
    costs = cost(rows, held)
    for _ in range(replicas):
        best = int(costs.argmin())
        held[best] += 1
        here = slice(best, best + 1)
        costs[best] = cost(rows[here], held[here])[0] if held[best] < room[rows[best]] else np.inf
    counts = np.zeros_like(room)
    counts[rows] = held
    return counts


def device_column(task: Task, nodes: NodeTable) -> int | None:
    """The column of the device ``task`` asks for, else of the one there is most of, if any."""
    name, _ = device_of(task)
    if name:
        return nodes.axis.column(name)
    offered = dict(zip(nodes.axis.names, nodes.allocatable.sum(axis=0).tolist(), strict=True))
    known = [(amount, name) for name, amount in offered.items() if "/" in name and amount]
    return nodes.axis.column(max(known)[1]) if known else None
