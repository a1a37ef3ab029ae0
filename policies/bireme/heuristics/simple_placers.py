"""Simple placements: the first node, the fullest node, the least loaded node, a node by lot."""

from typing import Annotated

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import PODS, FloatArray, IntArray
from bireme.heuristics.packing import RulePlacer, by_tightness, descend, fill, place_by
from bireme.heuristics.simple_orderers import ticket


class FirstFit(RulePlacer):
    """The first nodes by name that have room.

    Source: Johnson, Near-Optimal Bin Packing Algorithms, 1973; FF in the paper on DAS.
    """

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """By name, as rows are in name order."""
        return fill(room, task.replicas, np.arange(len(room)))


class BestFit(RulePlacer):
    """The nodes with the least free capacity that have room, devices counting most.

    Source: Johnson, Near-Optimal Bin Packing Algorithms, 1973.
    """

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """By free capacity."""
        return fill(room, task.replicas, by_tightness(capacity))


class LoadBalance(RulePlacer):
    """Every replica on the node that is least loaded with it.

    The load of a node is the largest used part of any resource that the task requests.
    Source: Graham, SIAM J. Appl. Math. 17(2), 1969; LB in the paper on DAS.
    """

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """By load."""
        nodes = capacity.nodes
        request = nodes.axis.usage(task.request)
        names = [name for name, _ in task.request if name != PODS] or [PODS]
        columns = [nodes.axis.names.index(name) for name in names]
        offered = np.maximum(nodes.allocatable[:, columns], 1)
        used = nodes.allocatable[:, columns] - capacity.free[:, columns]

        def cost(rows: IntArray, placed_counts: IntArray) -> FloatArray:
            load = (used[rows] + (placed_counts[:, None] + 1) * request[columns]) / offered[rows]
            return np.asarray(load.max(axis=1), dtype=np.float64)

        return descend(cost, room, task.replicas, capacity.tightness)


class RandomPlacement:
    """Replicas on places drawn by lot, each free place with the same chance.

    A node has at most as many places for a gang as the gang has replicas.
    Source: the usual lower baseline, as the "random" scheme of the Tiresias simulator.
    """

    def __init__(self, seed: Annotated[int, Within(0), "another seed is another draw"] = 0) -> None:
        """Another ``seed`` is another draw."""
        self._seed = seed

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return nodes, or None; the same gang on the same capacity goes the same way."""
        lot = np.random.default_rng(ticket(gang.uid, self._seed))
        return place_by(
            gang,
            capacity,
            lambda task, room, _: lot.multivariate_hypergeometric(room, task.replicas),
        )
