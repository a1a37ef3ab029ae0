"""Learned places: a gang's replicas on the nodes that a network likes best.

The network judges nodes for one task at a time. That a gang starts whole, that its roles meet where
they must, and what fits, stays with the rules (:mod:`bireme.heuristics.greedy`).
"""

from typing import Final

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import Placement
from bireme.core.resources import IntArray
from bireme.heuristics.greedy import fill, place_by
from bireme.rl.checkpoints import Checkpoint
from bireme.rl.errors import CheckpointError

LIMIT_SECONDS: Final = 0.5
"""How long the judgement of one task may take; the rules place that gang after that."""


class LearnedPlacer:
    """Each task on the nodes of highest affinity, filled one after the other.

    Ties: the node with the least free capacity, then by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` places nothing."""
        if checkpoint.placer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no placer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.placer

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None. Raises AnswerError where the network gives no answer."""
        taken: dict[Role, IntArray] = {}

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            affinities = self._part.affinities(gang, task, capacity, taken, LIMIT_SECONDS)
            order = np.lexsort((capacity.tightness.round(9), -affinities))
            counts = fill(room, task.replicas, order)
            rows = np.repeat(np.arange(len(counts)), counts)
            taken[task.role] = np.concatenate([taken.get(task.role, rows[:0]), rows])
            return counts

        return place_by(gang, capacity, divide)
