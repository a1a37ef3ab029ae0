"""Resizing elastic gangs: where a shrink removes replicas and a growth adds them.

Remaining replicas stay on their nodes. A growth adds replicas in the smallest topology domain
around the others that has room. A shrink empties the nodes with the fewest replicas first.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import (
    FreeCapacity,
    Placement,
    TaskPlacement,
    keeps_affinity,
    make_placement,
)
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, IntArray
from bireme.core.running import RunningGang


def smaller(running: RunningGang, sizes: Mapping[str, int], nodes: NodeTable) -> Placement | None:
    """Return ``running`` with at most ``sizes[task name]`` replicas; None if it is no larger now.

    Also None if a worker would lose the parameter server that it must have near it.
    """
    tasks = []
    changed = False
    for task in running.placement.tasks:
        excess = int(task.counts.sum()) - sizes.get(task.task, 0)
        if excess > 0:
            changed = True
            task = _without(task, excess, running.anchor_row)
        if len(task.rows):
            tasks.append(task)
    if not changed or not tasks or not keeps_affinity(running.gang, tasks, nodes):
        return None
    return Placement(tuple(tasks), running.placement.level, running.placement.domain)


def _without(task: TaskPlacement, excess: int, anchor_row: int) -> TaskPlacement:
    """Return ``task`` with ``excess`` fewer replicas."""
    # The anchor's node comes last: the other pods find their rendezvous there.
    order = np.lexsort((-task.rows, task.counts, task.rows == anchor_row))
    counts = task.counts[order]
    offsets = np.cumsum(counts) - counts
    result = np.empty_like(counts)
    result[order] = counts - np.clip(excess - offsets, 0, counts)
    stays = result > 0
    return TaskPlacement(task.task, task.rows[stays], result[stays])


def larger(
    running: RunningGang,
    sizes: Mapping[str, int],
    capacity: FreeCapacity,
    placer: Placer,
    may_add: Callable[[Gang], bool],
) -> tuple[Gang, Placement, Placement] | None:
    """Find a growth of ``running`` towards ``sizes`` that fits ``capacity``; halve until it does.

    Returns:
        The added replicas (as a gang and its places), and all its places then; None when no size
        fits that ``may_add`` accepts.
    """
    extra = {name: max(0, size - running.sizes.get(name, 0)) for name, size in sizes.items()}
    room = {
        task.name: int(np.minimum(capacity.replicas(task), extra.get(task.name, 0)).sum())
        for task in running.gang.tasks
    }
    extra = {name: min(count, room.get(name, 0)) for name, count in extra.items()}
    while sum(extra.values()):
        added = running.gang.with_sizes({t.name: extra.get(t.name, 0) for t in running.gang.tasks})
        for inside in _nearest(running, capacity.nodes) if may_add(added) else ():
            placement = placer.place(added, capacity.inside(inside))
            if placement is not None:
                whole = _join(running, placement, capacity.nodes)
                if keeps_affinity(running.gang, whole.tasks, capacity.nodes):
                    return added, placement, whole
        # Halve: only a placement shows whether replicas fit together.
        extra = {name: count // 2 for name, count in extra.items()}
    return None


def _nearest(running: RunningGang, nodes: NodeTable) -> Iterator[BoolArray]:
    """Yield masks of the domains of ``running``, shape (nodes,), from its own nodes to all."""
    rows = running.placement.node_rows()
    own_nodes = np.zeros(len(nodes), dtype=np.bool_)
    own_nodes[rows] = True
    yield own_nodes
    # Narrowest first: a resize must not stretch a gang over more of the network than needed.
    for codes in nodes.domains:
        yield own_nodes | ((codes >= 0) & np.isin(codes, codes[rows]))
    yield np.ones(len(nodes), dtype=np.bool_)


def _join(running: RunningGang, added: Placement, nodes: NodeTable) -> Placement:
    """Return all places of ``running`` together with ``added``."""
    sizes: dict[str, IntArray] = {}
    for task in (*running.placement.tasks, *added.tasks):
        counts = sizes.setdefault(task.task, np.zeros(len(nodes), dtype=np.int64))
        counts[task.rows] += task.counts
    totals = {name: int(counts.sum()) for name, counts in sizes.items()}
    whole = running.gang.with_sizes({t.name: totals.get(t.name, 0) for t in running.gang.tasks})
    return make_placement(whole, nodes, sizes)
