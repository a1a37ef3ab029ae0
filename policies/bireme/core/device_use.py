"""What the devices of a cluster do, by node pool and model: used, kept, free, or closed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bireme.core.decision import Hold
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import NodeTable
from bireme.core.placement import usage_of
from bireme.core.resources import BoolArray, IntArray
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Numbers of devices of one resource, on the nodes of one pool and model.

    Attributes:
        resource: Such as ``nvidia.com/gpu``.
        pool, model: Values of the nodes' labels; empty where they have none.
        used: Held by pods and planned ones, of gangs and of others.
        kept: Free now, and kept for a gang that waits.
        free: Free for the next gang.
        closed: Not used, on nodes that are cordoned or not ready.
        scattered: Those of ``free`` on nodes that are partly used.
        weight: What one of the resource counts, in accelerators.
    """

    resource: str
    pool: str
    model: str
    used: int
    kept: int
    free: int
    closed: int
    scattered: int
    weight: float = 1


def device_uses(snapshot: ClusterSnapshot, kept: IntArray) -> Iterator[DeviceUse]:
    """Yield the use of the devices of ``snapshot``; ``kept`` is as of :func:`kept_places`."""
    nodes = snapshot.nodes
    pools, models = nodes.label(snapshot.settings.node_pool_label), nodes.label(GPU_MODEL_LABEL)
    is_open = open_nodes(nodes)
    # One number for each pair of pool and model; the code -1 of no label is the first.
    groups = (pools.codes.astype(np.int64) + 1) * (len(models.values) + 1) + models.codes + 1
    for column, resource in enumerate(nodes.axis.names):
        there = nodes.allocatable[:, column]
        if not nodes.accelerators.is_accelerator(resource) or not there.any():
            continue
        used = np.clip(snapshot.used[:, column], 0, there)
        unused = there - used
        promised = np.where(is_open, np.minimum(unused, kept[:, column]), 0)
        free = np.where(is_open, unused - promised, 0)
        for group in np.unique(groups[there > 0]).tolist():
            own = groups == group
            pool, model = divmod(group, len(models.values) + 1)
            yield DeviceUse(
                resource,
                pools.values[pool - 1] if pool else "",
                models.values[model - 1] if model else "",
                used=int(used[own].sum()),
                kept=int(promised[own].sum()),
                free=int(free[own].sum()),
                closed=int(unused[own & ~is_open].sum()),
                scattered=int(free[own & (used > 0)].sum()),
                weight=nodes.accelerators.weight(resource),
            )


def open_nodes(nodes: NodeTable) -> BoolArray:
    """Return which nodes are ready, stay, and are not cordoned, shape (nodes,)."""
    return nodes.accepts & ~np.array([node.is_cordoned for node in nodes.nodes], dtype=np.bool_)


def kept_places(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> IntArray:
    """Return what is kept for the gangs ``holds``, shape (nodes, resources); it may be in use."""
    kept = np.zeros_like(snapshot.nodes.allocatable)
    for hold in holds:
        if hold.reservation is not None:
            placement = hold.reservation.placement
            np.add.at(kept, *usage_of(hold.gang, placement, snapshot.nodes.axis))
    return kept
