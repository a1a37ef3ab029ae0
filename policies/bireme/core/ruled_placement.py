"""Placing gangs whose pods have rules about each other, which no placer of a policy knows.

Replica after replica goes where the rules let it go now, as kube-scheduler would do, in several
orders until one works. Greedy, not exhaustive.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, Placement, keeps_affinity, make_placement, pods_at
from bireme.core.pod_rules import NODE, conflicts, domains_of, same_domain
from bireme.core.resources import BoolArray, IntArray


def keeps_rules(gang: Gang, placement: Placement, capacity: FreeCapacity) -> bool:
    """Return whether ``placement`` keeps the rules of all its pods, and of those that are there."""
    nodes = capacity.nodes
    pods = pods_at(gang, placement)
    for at, one in enumerate(pods):
        if capacity.occupants.refused(one.kind, nodes)[one.rows].any():
            return False
        for key in conflicts(one.kind, one.kind):
            domains = domains_of(key, nodes)[one.rows]
            domains = domains[domains >= 0]
            if len(np.unique(domains)) < len(domains):
                return False
        for other in pods[at + 1 :]:
            for key in conflicts(one.kind, other.kind):
                if same_domain(key, one.rows, nodes)[other.rows].any():
                    return False
    return True


def place(gang: Gang, capacity: FreeCapacity) -> Placement | None:
    """Return places for all replicas of ``gang`` by its rules, or None."""
    room = [np.minimum(capacity.replicas(task), task.replicas) for task in gang.tasks]
    if any(int(r.sum()) < t.replicas for r, t in zip(room, gang.tasks, strict=True)):
        return None
    order = sorted(gang.tasks, key=lambda task: (-task.devices, task.name))
    for tasks, choose in (
        (order, _nearest),
        (order[::-1], _nearest),
        (gang.tasks, _first),
    ):
        filling = _Filling(tasks, capacity, choose)
        if filling.fill():
            placement = make_placement(gang, capacity.nodes, filling.counts)
            if keeps_affinity(gang, placement.tasks, capacity.nodes):
                return placement
    return None


class _Filling:
    """One gang on its way to the nodes, replica after replica."""

    def __init__(
        self,
        tasks: Sequence[Task],
        capacity: FreeCapacity,
        choose: Callable[["_Filling", BoolArray], int],
    ) -> None:
        self.capacity = capacity
        self.nodes = capacity.nodes
        self._tasks = tasks
        self._choose = choose
        self._free = capacity.free.copy()
        self._requests = [self.nodes.axis.usage(task.request) for task in tasks]
        # Where one more replica of each task may go.
        self._open = [capacity.replicas(task) > 0 for task in tasks]
        self.counts = {task.name: np.zeros(len(self.nodes), dtype=np.int64) for task in tasks}
        self.used: IntArray = np.zeros(len(self.nodes), dtype=np.int64)

    def fill(self) -> bool:
        """Place all replicas; return whether that worked."""
        missing = [task.replicas for task in self._tasks]
        # What waits for another task's pods gets its turn again after them.
        while any(missing):
            before = sum(missing)
            for at in range(len(self._tasks)):
                while missing[at] and self._place_one(at):
                    missing[at] -= 1
            if sum(missing) == before:
                return False
        return True

    def _place_one(self, at: int) -> bool:
        may = self._open[at]
        if not may.any():
            return False
        self._put(at, self._choose(self, may))
        return True

    def _put(self, at: int, row: int) -> None:
        self.counts[self._tasks[at].name][row] += 1
        self.used[row] += 1
        self._free[row] -= self._requests[at]
        kind = self._tasks[at].pod
        for other, task in enumerate(self._tasks):
            request = self._requests[other]
            if ((self._free[row] < request) & (request > 0)).any():
                self._open[other][row] = False
            if kind is not None and task.pod is not None:
                for key in conflicts(kind, task.pod):
                    self._close(other, key, row)

    def _close(self, at: int, key: str, row: int) -> None:
        """Close the domain of ``row`` to further replicas of a task."""
        if key == NODE:
            self._open[at][row] = False
        else:
            codes = domains_of(key, self.nodes)
            self._open[at] &= (codes != codes[row]) | (codes < 0)


def _first(_: _Filling, may: BoolArray) -> int:
    """Return the first row, as a scheduler does that looks at nodes by name."""
    return int(may.argmax())


def _nearest(filling: _Filling, may: BoolArray) -> int:
    """Return the tightest row in the narrowest domain that has replicas already."""
    used = np.flatnonzero(filling.used)
    for codes in filling.nodes.domains if len(used) else ():
        near = may & (codes >= 0) & np.isin(codes, codes[used])
        if near.any():
            may = near
            break
    rows = np.flatnonzero(may)
    return int(rows[np.argmin(filling.capacity.tightness[rows])])
