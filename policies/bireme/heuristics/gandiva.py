"""Gandiva's placement: nodes are kept for replicas of one size.

Gandiva gives every node an affinity, the number of GPUs its jobs ask for, and places a job first on
nodes of its own affinity, then on idle ones, then on others. A placer here does not see which gangs
run where, so the affinity of a node is read from its devices in use: the replica's own size,
doubled as long as that divides them. To a pair, six devices in use look like pairs and eight like a
group of eight; the closest match comes first. What Gandiva is best known for, sharing a GPU by
measured utilisation and migrating, needs shared devices and is not part of this.

Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI'18, section 4.
"""

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import FloatArray, IntArray
from bireme.heuristics.packing import descend, device_column, place_by
from bireme.heuristics.ranking import device_of

_IDLE, _OTHER = 63.0, 64.0
"""Costs of an idle node and of one used in another size: above those of all matching ones."""


class GandivaPlacement:
    """Nodes in use by replicas of the same size first, then idle ones, then the others.

    Among equals the node with the least free capacity.
    Source: Xiao et al., Gandiva, OSDI'18, section 4 (placement only).
    """

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None."""
        return place_by(gang, capacity, _by_size)


def _by_size(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
    size = device_of(task)[1]
    column = device_column(task, capacity.nodes)

    def cost(rows: IntArray, held: IntArray) -> FloatArray:
        if column is None or not size:
            return np.zeros(len(rows))
        in_use = capacity.nodes.allocatable[rows, column] - capacity.free[rows, column]
        return _distance(in_use + held * size, size)

    return descend(cost, room, task.replicas, capacity.tightness)


def _distance(in_use: IntArray, size: int) -> FloatArray:
    """How far the size a node is used in lies above ``size``, in doublings, shape (rows,)."""
    times = np.maximum(in_use // size, 1)
    doublings = np.log2(times & -times)
    matching = np.where(in_use == 0, _IDLE, doublings)
    return np.where(in_use % size == 0, matching, _OTHER)
