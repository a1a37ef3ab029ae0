"""One gang on free nodes and as few new ones as may be.

Replicas fill what is free, the fullest nodes first, then the new nodes one after another. For a
gang with one kind of replica that takes the least number of new nodes. Where fewer might do for
another, or its required affinity is not kept, the placer is asked, by bisection.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bireme.core.capacity import FreeCapacity, Take
from bireme.core.gangs import Gang, Task
from bireme.core.placement import CLUSTER_LEVEL, Placement, TaskPlacement, keeps_affinity
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Search:
    """Places for ``gang`` in ``room``, of which each try sees some rows.

    Without ``fills`` the placer alone is asked: for a gang that it refused where it could fill.
    """

    gang: Gang
    room: FreeCapacity
    placer: Placer
    fills: bool = True

    @cached_property
    def _tasks(self) -> list[tuple[Task, IntArray]]:
        """Tasks with the most devices first, and how many replicas every row takes, no more."""
        tasks = sorted(self.gang.tasks, key=lambda task: (-task.devices, task.name))
        return [(task, np.minimum(self.room.replicas(task), task.replicas)) for task in tasks]

    def fewest(
        self, there: IntArray, new: IntArray = _NONE, below: float = math.inf
    ) -> Placement | None:
        """The gang on rows ``there`` and as few rows ``new`` as possible, first ones first.

        None where it does not fit on all of them, or it is clear that fewer than ``below`` of
        ``new`` are too few.
        """
        low = self._least(there, new)
        if low is None or low >= below:
            return None
        placement = self._filled(there, new) if self.fills else None
        if placement is not None and len(self._tasks) == 1:
            return placement
        if placement is None:
            placement = self.place(there, new)
        if placement is None:
            return None
        high = self._used(placement, new)
        while low < high:
            middle = (low + high) // 2
            found = self.place(there, new[:middle])
            if found is None:
                low = middle + 1
            else:
                placement, high = found, self._used(found, new)
        return placement

    def _least(self, there: IntArray, new: IntArray) -> int | None:
        """A lower bound on the new nodes it takes; None where all of them are too few."""
        least = 0
        for task, counts in self._tasks:
            missing = task.replicas - int(counts[there].sum())
            if missing > 0:
                filled = np.cumsum(counts[new])
                if not len(new) or filled[-1] < missing:
                    return None
                least = max(least, int(np.searchsorted(filled, missing)) + 1)
        return least

    def _filled(self, there: IntArray, new: IntArray) -> Placement | None:
        """Task after task on the fullest nodes; None where that fails."""
        takes: list[Take] = []
        tasks = []
        for task, counts in self._tasks:
            if takes:
                counts = np.minimum(self.room.replicas(task, takes), task.replicas)
            useful = there[counts[there] > 0]
            rows = np.concatenate([useful[np.argsort(counts[useful], kind="stable")], new])
            filled = np.cumsum(counts[rows])
            if not len(rows) or filled[-1] < task.replicas:
                return None
            last = int(np.searchsorted(filled, task.replicas))
            placed = np.zeros_like(counts)
            placed[rows[: last + 1]] = counts[rows[: last + 1]]
            placed[rows[last]] -= filled[last] - task.replicas
            takes.append(Take(self.room.nodes.axis.usage(task.request), placed))
            at = np.flatnonzero(placed)
            tasks.append(TaskPlacement(task.name, at, placed[at]))
        if not keeps_affinity(self.gang, tasks, self.room.nodes):
            return None
        return Placement(tuple(tasks), CLUSTER_LEVEL, "")

    def place(self, there: IntArray, new: IntArray = _NONE) -> Placement | None:
        """What the placer says of rows ``there`` and ``new``."""
        mask = np.zeros(len(self.room.nodes), dtype=np.bool_)
        mask[there] = mask[new] = True
        return self.placer.place(self.gang, self.room.inside(mask))

    def _used(self, placement: Placement, new: IntArray) -> int:
        """How many of ``new`` there must be for the placement: up to the last one it uses."""
        at = np.flatnonzero(used_rows(placement, len(self.room.nodes))[new])
        return int(at[-1]) + 1 if len(at) else 0


def used_rows(placement: Placement, nodes: int) -> BoolArray:
    """Whether the placement uses a node, shape (nodes,)."""
    used = np.zeros(nodes, dtype=np.bool_)
    for task in placement.tasks:
        used[task.rows] = True
    return used
