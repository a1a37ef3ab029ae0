"""The state of a cluster's devices, by node pool and model: used, kept, free, or closed."""

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
        used: Held by bound and planned pods, of gangs and of others.
        kept: Free now, and reserved for a waiting gang.
        free: Free for the next gang.
        closed: Unused, on nodes that are cordoned or not ready.
        scattered: The part of ``free`` on partly used nodes.
        weight: The number of accelerators for which one device counts.
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


def device_uses(snapshot: ClusterSnapshot, reserved: IntArray) -> Iterator[DeviceUse]:
    """Yield the use of the devices of ``snapshot``; :func:`places_for_holds` gives ``reserved``."""
    nodes = snapshot.nodes
    pools, models = nodes.label(snapshot.settings.node_pool_label), nodes.label(GPU_MODEL_LABEL)
    is_open = open_nodes(nodes)
    # One number for each pair of pool and model; the first code, -1, stands for no label.
    groups = (pools.codes.astype(np.int64) + 1) * (len(models.values) + 1) + models.codes + 1
    for column, resource in enumerate(nodes.axis.names):
        capacity = nodes.allocatable[:, column]
        if not nodes.accelerators.is_accelerator(resource) or not capacity.any():
            continue
        used = np.clip(snapshot.used[:, column], 0, capacity)
        unused = capacity - used
        promised = np.where(is_open, np.minimum(unused, reserved[:, column]), 0)
        free = np.where(is_open, unused - promised, 0)
        for group in np.unique(groups[capacity > 0]).tolist():
            in_group = groups == group
            pool, model = divmod(group, len(models.values) + 1)
            yield DeviceUse(
                resource,
                pools.values[pool - 1] if pool else "",
                models.values[model - 1] if model else "",
                used=int(used[in_group].sum()),
                kept=int(promised[in_group].sum()),
                free=int(free[in_group].sum()),
                closed=int(unused[in_group & ~is_open].sum()),
                scattered=int(free[in_group & (used > 0)].sum()),
                weight=nodes.accelerators.weight(resource),
            )


def open_nodes(nodes: NodeTable) -> BoolArray:
    """Return which nodes are ready, not being deleted and not cordoned, shape (nodes,)."""
    return nodes.accepts & ~np.array([node.is_cordoned for node in nodes.nodes], dtype=np.bool_)


def places_for_holds(snapshot: ClusterSnapshot, holds: Iterable[Hold]) -> IntArray:
    """Return the reservations of ``holds``, shape (nodes, resources); they may still be in use."""
    reserved = np.zeros_like(snapshot.nodes.allocatable)
    for hold in holds:
        if hold.reservation is not None:
            placement = hold.reservation.placement
            np.add.at(reserved, *usage_of(hold.gang, placement, snapshot.nodes.axis))
    return reserved
