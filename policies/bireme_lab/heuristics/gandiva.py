"""Gandiva's placement: nodes are kept for replicas of one size.

Gandiva gives every node an affinity, the number of GPUs that its jobs request. It places a job
first on nodes of its own affinity, then on idle ones, then on others. A placer here does not see
which gangs run where, so the affinity of a node is read from its devices in use: the replica's
own size, doubled as long as that divides them. To a pair, six devices in use look like pairs and
eight like a group of eight; the closest match comes first. Gandiva's best known features need
shared devices and are left out: sharing a GPU by measured utilisation, and migration.

Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI'18, section 4.
"""

import numpy as np

from bireme.core.gangs import Task
from bireme.core.placement import FreeCapacity
from bireme.core.resources import FloatArray, IntArray
from bireme.heuristics.packing import RulePlacer, descend, device_column

_IDLE, _OTHER = 63.0, 64.0
"""Costs of an idle node and of a node used in another size: above those of all matching nodes."""


class GandivaPlacement(RulePlacer):
    """Nodes in use by replicas of the same size first, then idle ones, then the others.

    Among equals the node with the least free capacity.
    Source: Xiao et al., Gandiva, OSDI'18, section 4 (placement only).
    """

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """Divide by the size in which nodes are used."""
        name = capacity.nodes.accelerators.largest(task.request)
        size = dict(task.request).get(name, 0)
        column = device_column(task, capacity.nodes)

        def cost(rows: IntArray, placed_counts: IntArray) -> FloatArray:
            if column is None or not size:
                return np.zeros(len(rows))
            in_use = capacity.nodes.allocatable[rows, column] - capacity.free[rows, column]
            return _distance(in_use + placed_counts * size, size)

        return descend(cost, room, task.replicas, capacity.tightness)


def _distance(in_use: IntArray, size: int) -> FloatArray:
    """Return how far a node's size of use lies above ``size``, in doublings, shape (rows,)."""
    times = np.maximum(in_use // size, 1)
    doublings = np.log2(times & -times)
    matching = np.where(in_use == 0, _IDLE, doublings)
    return np.where(in_use % size == 0, matching, _OTHER)
