"""One gang on free nodes and as few new ones as may be.

Replicas fill what is free, the fullest nodes first, then the new nodes one after another. For a
gang with one kind of replica that takes the least number of new nodes. Where fewer might do for
another, or its required affinity is not kept, the placer is asked, by bisection.
"""

import numpy as np

from bireme.core.capacity import FreeCapacity, Take
from bireme.core.gangs import Gang
from bireme.core.placement import CLUSTER_LEVEL, Placement, TaskPlacement, keeps_affinity
from bireme.core.policy import Placer
from bireme.core.resources import BoolArray, IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


def fewest(
    gang: Gang, room: FreeCapacity, placer: Placer, there: IntArray, new: IntArray = _NONE
) -> Placement | None:
    """Where ``gang`` goes on rows ``there`` and as few rows ``new`` as possible, first ones first.

    None where it does not fit on all of them. ``room`` has other rows, too.
    """
    if len(gang.tasks) == 1:
        return _filled(gang, room, there, new)
    low = _least(gang, room, there, new)
    if low is None:
        return None
    placement = _filled(gang, room, there, new) or _place(gang, room, placer, there, new)
    if placement is None:
        return None
    high = _used(placement, room, new)
    while low < high:
        middle = (low + high) // 2
        found = _place(gang, room, placer, there, new[:middle])
        if found is None:
            low = middle + 1
        else:
            placement, high = found, _used(found, room, new)
    return placement


def _filled(gang: Gang, room: FreeCapacity, there: IntArray, new: IntArray) -> Placement | None:
    """Task after task, those with the most devices first; None where that fails."""
    takes: list[Take] = []
    tasks = []
    for task in sorted(gang.tasks, key=lambda task: (-task.devices, task.name)):
        counts = room.replicas(task, takes)
        useful = there[counts[there] > 0]
        useful = useful[np.argsort(counts[useful], kind="stable")]
        rows = np.concatenate([useful, new])
        each = np.minimum(counts[rows], task.replicas)
        filled = np.cumsum(each)
        if not len(rows) or filled[-1] < task.replicas:
            return None
        last = int(np.searchsorted(filled, task.replicas))
        each[last] -= filled[last] - task.replicas
        placed = np.zeros_like(counts)
        placed[rows[: last + 1]] = each[: last + 1]
        takes.append(Take(room.nodes.axis.usage(task.request), placed))
        at = np.flatnonzero(placed)
        tasks.append(TaskPlacement(task.name, at, placed[at]))
    if not keeps_affinity(gang, tasks, room.nodes):
        return None
    return Placement(tuple(tasks), CLUSTER_LEVEL, "")


def _least(gang: Gang, room: FreeCapacity, there: IntArray, new: IntArray) -> int | None:
    """A lower bound on the new nodes it takes; None where all of them are too few."""
    least = 0
    for task in gang.tasks:
        counts = np.minimum(room.replicas(task), task.replicas)
        missing = task.replicas - int(counts[there].sum())
        if missing > 0:
            filled = np.cumsum(counts[new])
            if not len(new) or filled[-1] < missing:
                return None
            least = max(least, int(np.searchsorted(filled, missing)) + 1)
    return least


def _place(
    gang: Gang, room: FreeCapacity, placer: Placer, there: IntArray, new: IntArray
) -> Placement | None:
    mask = np.zeros(len(room.nodes), dtype=np.bool_)
    mask[there] = mask[new] = True
    return placer.place(gang, room.inside(mask))


def _used(placement: Placement, room: FreeCapacity, new: IntArray) -> int:
    """How many of ``new`` there must be for the placement: up to the last one it uses."""
    at = np.flatnonzero(used_rows(placement, len(room.nodes))[new])
    return int(at[-1]) + 1 if len(at) else 0


def used_rows(placement: Placement, nodes: int) -> BoolArray:
    """Whether the placement uses a node, shape (nodes,)."""
    used = np.zeros(nodes, dtype=np.bool_)
    for task in placement.tasks:
        used[task.rows] = True
    return used
