"""What is asked of node pools, in nodes: by what runs or is planned there, and by who waits.

An amount counts as so many nodes as it takes of the pool's scarcest resource, in fractions. A
waiting gang counts at the least size that may start, if its queue could admit it beside those
that came before; each of its tasks to the pool whose template takes its replicas with the fewest
nodes.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bireme.core import filters
from bireme.core.cycle import configuration_fault
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import NodeTable
from bireme.core.pools import ScaledPool, in_pool
from bireme.core.queue_tree import QueueTree
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot


def pool_demand(snapshot: ClusterSnapshot, pools: Sequence[ScaledPool]) -> dict[str, float]:
    """Nodes' worth of what is asked of each of ``pools``, by name; names are different.

    A node may be in several pools. A pool without a template has no demand: its nodes are unknown.
    """
    known = [pool for pool in sorted(pools, key=lambda pool: pool.name) if pool.template]
    templates = _templates(known, snapshot.nodes.topology_levels)
    demand = np.array([_held(snapshot, pool, templates) for pool in known])
    most = np.array([pool.most for pool in known])
    each: dict[object, FloatArray] = {}
    for gang in _admissible(snapshot) if known else ():
        for task in gang.tasks:
            kind = (task.request, task.constraints)
            if kind not in each:
                each[kind] = _worth(task, templates)
            nodes = each[kind] * task.replicas
            nodes = np.where(nodes <= most, nodes, np.inf)
            fewest = int(np.argmin(nodes))
            if np.isfinite(nodes[fewest]):
                demand[fewest] += nodes[fewest]
    counted = dict(zip((pool.name for pool in known), demand.tolist(), strict=True))
    return {pool.name: counted.get(pool.name, 0.0) for pool in pools}


def _templates(pools: Sequence[ScaledPool], levels: Sequence[str]) -> NodeTable:
    """One empty node of every pool, under its name: rows are those of ``pools``."""
    nodes = [
        replace(pool.template, name=pool.name, is_ready=True, is_cordoned=False)
        for pool in pools
        if pool.template is not None
    ]
    return NodeTable(nodes, levels)


def _held(snapshot: ClusterSnapshot, pool: ScaledPool, templates: NodeTable) -> float:
    """Nodes' worth of what is bound or planned in ``pool``, without pods that never leave."""
    nodes, row = snapshot.nodes, templates.row[pool.name]
    here = in_pool(pool.selector, nodes)
    used = np.maximum(snapshot.used[here] - nodes.fixed[here], 0).sum(axis=0)
    by_name = dict(zip(nodes.axis.names, used.tolist(), strict=True))
    held = np.array([by_name.get(name, 0) for name in templates.axis.names], dtype=np.float64)
    return float(_shares(held, templates)[row])


def _shares(amounts: FloatArray, templates: NodeTable) -> FloatArray:
    """``amounts``, shape (resources,), in nodes of every template; of what they have none, 0."""
    offers = (templates.allocatable - templates.fixed).astype(np.float64)
    shares = np.divide(amounts, offers, out=np.zeros_like(offers), where=offers > 0)
    return np.asarray(shares.max(axis=1), dtype=np.float64)


def _worth(task: Task, templates: NodeTable) -> FloatArray:
    """Nodes' worth of one replica per pool, shape (pools,); infinite where it may not run."""
    request = templates.axis.request(task.request)
    if request is None:
        return np.full(len(templates), np.inf)
    fits = (request <= templates.allocatable - templates.fixed).all(axis=1)
    fits &= filters.feasible(task.constraints, templates)
    return np.where(fits, _shares(request.astype(np.float64), templates), np.inf)


def _admissible(snapshot: ClusterSnapshot) -> Iterator[Gang]:
    """Waiting gangs, first come first, as far as their queues could hold them together."""
    queues = QueueTree(snapshot.queues, snapshot.queue_usage, snapshot.total)
    for whole in sorted(snapshot.waiting, key=lambda gang: (gang.arrived, gang.uid)):
        gang = whole.at_minimum
        if configuration_fault(gang, snapshot, queues) is not None:
            continue
        if queues.excess(gang.queue, gang.demand) is None:
            queues.take(gang.queue, gang.demand)
            yield gang


def needed_nodes(snapshot: ClusterSnapshot, kept: Collection[str]) -> BoolArray:
    """Nodes that must stay, shape (nodes,): in use or planned on, or in ``kept`` by name.

    ``kept`` is that of the decision (:class:`bireme.core.decision.Decision`). What pods that never
    leave use does not count.
    """
    needed = np.asarray((snapshot.used > snapshot.nodes.fixed).any(axis=1), dtype=np.bool_)
    row = snapshot.nodes.row
    needed[[row[name] for name in kept if name in row]] = True
    return needed
