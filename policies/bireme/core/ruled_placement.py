"""Placing gangs whose pods have rules about other pods, which the placers of policies ignore.

Replicas are placed one after another where the rules allow it at that moment, as kube-scheduler
does, in several orders until one works. The search is greedy, not exhaustive.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement, keeps_affinity, make_placement, pods_at
from bireme.core.pod_constraints import PodKind, SpreadLimit
from bireme.core.pod_rules import (
    NODE,
    attracts,
    conflicts,
    domains_of,
    has_domains,
    matches,
    same_domain,
    spread_nodes,
)
from bireme.core.resources import BoolArray, IntArray
from bireme.core.running import sum_by_row

_MAX_DOMAINS = 16
"""The limit on domains that are tried for a gang with affinity to itself."""


def keeps_rules(gang: Gang, placement: Placement, capacity: FreeCapacity) -> bool:
    """Return whether ``placement`` keeps the rules of all its pods, and of present pods.

    Affinity and spread hold if the pods can come in some order, each allowed at its turn. Spread
    must hold once all are present, too. kube-scheduler chooses an order of its own: if it refuses a
    pod at its turn, the pod must be allowed after the others.
    """
    nodes = capacity.nodes
    pods = pods_at(gang, placement)
    if any(one.kind.volumes for one in pods):
        rows, used = sum_by_row(*capacity.usage(gang, placement))
        if bool(((used > capacity.free[rows]) & (used > 0)).any()):
            return False
    for index, one in enumerate(pods):
        if capacity.occupants.conflict_nodes(one.kind, nodes)[one.rows].any():
            return False
        for key in conflicts(one.kind, one.kind):
            domains = domains_of(key, nodes)[one.rows]
            domains = domains[domains >= 0]
            if len(np.unique(domains)) < len(domains):
                return False
        for other in pods[index + 1 :]:
            for key in conflicts(one.kind, other.kind):
                if same_domain(key, one.rows, nodes)[other.rows].any():
                    return False
    has_order = any(one.kind.near or one.kind.spread for one in pods)
    return not has_order or _has_order(gang, placement, capacity)


def _has_order(gang: Gang, placement: Placement, capacity: FreeCapacity) -> bool:
    """Return whether some order of the pods exists in which each is allowed at its turn."""
    by_name = {task.task: task for task in placement.tasks}
    turns = _Turns(gang.tasks, capacity)
    waiting = [
        (index, row)
        for index, task in enumerate(gang.tasks)
        for row in by_name[task.name].rows_by_replica().tolist()
    ]
    while waiting:
        blocked = []
        for index, row in waiting:
            if turns.open_nodes(index)[row]:
                turns.put(index, row)
            else:
                blocked.append((index, row))
        if len(blocked) == len(waiting):
            return False
        waiting = blocked
    return all(
        turns.keeps_spread(index, by_name[task.name].rows) for index, task in enumerate(gang.tasks)
    )


def place(gang: Gang, capacity: FreeCapacity) -> Placement | None:
    """Return places for all replicas of ``gang`` by its rules, or None."""
    room = [np.minimum(capacity.replicas(task), task.replicas) for task in gang.tasks]
    if any(int(r.sum()) < t.replicas for r, t in zip(room, gang.tasks, strict=True)):
        return None
    order = sorted(gang.tasks, key=lambda task: (-capacity.nodes.devices(task), task.name))
    for within in (None, *_homes(gang, capacity, room)):
        for tasks, choose in (
            (order, _nearest),
            (order[::-1], _nearest),
            (gang.tasks, _first),
        ):
            filling = _Filling(tasks, capacity, choose, within)
            if filling.fill() and filling.keeps_spread():
                placement = make_placement(gang, capacity.nodes, filling.counts)
                if keeps_affinity(gang, placement.tasks, capacity.nodes):
                    return placement
    return None


def _homes(
    gang: Gang, capacity: FreeCapacity, room: Sequence[IntArray]
) -> Iterator[dict[str, BoolArray]]:
    """Yield domains that hold all replicas that must be near each other, the smallest first.

    Each is a mask of the nodes by name of every such task, shape (nodes,).
    """
    kinds = [task.pod for task in gang.tasks if task.pod is not None]
    attracted = [
        (task, index)
        for index, task in enumerate(gang.tasks)
        if task.pod is not None and task.pod.near
        if any(attracts(other, task.pod) for other in kinds)
    ]
    keys = dict.fromkeys(
        term.key for task, _ in attracted if task.pod is not None for term in task.pod.near
    )
    for key in keys:
        tasks = [
            (task, index)
            for task, index in attracted
            if any(t.key == key for t in (task.pod or kinds[0]).near)
        ]
        codes = domains_of(key, capacity.nodes)
        has_domain = codes >= 0
        fits = np.ones(int(codes.max(initial=-1)) + 1, dtype=np.bool_)
        total = np.zeros(len(fits), dtype=np.int64)
        for task, index in tasks:
            capacity_of = np.bincount(codes[has_domain], room[index][has_domain], len(fits)).astype(
                np.int64
            )
            fits &= capacity_of >= task.replicas
            total += capacity_of
        fitting = np.flatnonzero(fits)
        for code in fitting[np.argsort(total[fitting], kind="stable")][:_MAX_DOMAINS].tolist():
            inside = codes == code
            yield {task.name: inside for task, _ in tasks}


class _Turns:
    """The nodes on which a gang's rules allow one more pod of each task, pod after pod."""

    def __init__(self, tasks: Sequence[Task], capacity: FreeCapacity) -> None:
        self._nodes = capacity.nodes
        self._kinds = [task.pod for task in tasks]
        self._effects: dict[int, _Effects] = {}
        self._open = [np.ones(len(self._nodes), dtype=np.bool_) for _ in tasks]
        self._near: dict[int, _Near] = {}
        self._spread: dict[int, list[_Spread]] = {}
        for index, task in enumerate(tasks):
            if (kind := task.pod) is None:
                continue
            self._open[index] = ~capacity.occupants.conflict_nodes(kind, self._nodes)
            self._open[index] &= has_domains(kind, self._nodes)
            if not (kind.near or kind.spread):
                continue
            groups = list(capacity.occupants.about(kind))
            if kind.near:
                self._near[index] = _Near.of(kind, self._nodes)
                for group in groups:
                    if attracts(group.kind, kind):
                        self._near[index].put(group.rows)
            self._spread[index] = []
            for limit in kind.spread:
                counts = spread_nodes(kind, limit, task.constraints, self._nodes)
                if capacity.present is not None:
                    counts &= capacity.present
                state = _Spread.of(kind, limit, self._nodes, counts)
                for group in groups:
                    if matches(limit.pods, group.kind) and not group.are_leaving:
                        state.put(group.rows)
                self._spread[index].append(state)

    def open_nodes(self, index: int, has_room: BoolArray | None = None) -> BoolArray:
        """Return which nodes take one more pod of task ``index`` now, shape (nodes,).

        With ``has_room``, a soft spread rotates through the domains that are not full.
        """
        mask = self._open[index]
        if index in self._near:
            mask = mask & self._near[index].open_nodes()
        is_open = None if has_room is None else mask & has_room
        for state in self._spread.get(index, ()):
            mask = mask & state.open_nodes(is_open if state.limit.is_soft else None)
        return mask

    def keeps_spread(self, index: int, rows: IntArray) -> bool:
        """Return whether the pods of task ``index`` on ``rows`` keep its spread.

        Later pods may count for a spread that they do not have themselves.
        """
        return all(s.holds(rows) for s in self._spread.get(index, ()) if not s.limit.is_soft)

    def put(self, index: int, row: int) -> None:
        """Put one pod of task ``index`` on ``row``."""
        effects = self._effects.get(index)
        if effects is None:
            effects = self._effects[index] = self._effects_of(index)
        rows = np.array([row])
        for other, key in effects.closes:
            self._close(other, key, row)
        for affinity in effects.attracts:
            affinity.put(rows)
        for state in effects.counts:
            state.put(rows)

    def _effects_of(self, index: int) -> "_Effects":
        effects = _Effects()
        if (kind := self._kinds[index]) is None:
            return effects
        for other, looking in enumerate(self._kinds):
            if looking is None:
                continue
            effects.closes += ((other, key) for key in conflicts(kind, looking))
            if other in self._near and attracts(kind, looking):
                effects.attracts.append(self._near[other])
            effects.counts += (
                state for state in self._spread.get(other, ()) if matches(state.limit.pods, kind)
            )
        return effects

    def _close(self, index: int, key: str, row: int) -> None:
        """Close the domain of ``row`` to further replicas of a task."""
        if key == NODE:
            self._open[index][row] = False
        else:
            codes = domains_of(key, self._nodes)
            self._open[index] &= (codes != codes[row]) | (codes < 0)


@dataclass(slots=True)
class _Effects:
    """Effects of a pod of one kind on further pods of all tasks, wherever it is put."""

    closes: list[tuple[int, str]] = field(default_factory=list)
    """Tasks, and the topology key of the domain that closes for them."""
    attracts: list["_Near"] = field(default_factory=list)
    counts: list["_Spread"] = field(default_factory=list)


@dataclass(slots=True)
class _Near:
    """The domains in which required affinity of a kind holds.

    ``has_pods`` marks, for each term, the domains with a pod that it selects, shape (domains,).
    """

    codes: list[IntArray]
    has_pods: list[BoolArray]
    may_be_first: bool
    """A pod of the kind matches its own terms, so the first may go anywhere."""
    is_first: bool = True

    @classmethod
    def of(cls, kind: PodKind, nodes: NodeTable) -> "_Near":
        codes = [domains_of(term.key, nodes) for term in kind.near]
        # One more entry, for code -1: nodes without the label are in no domain.
        none = [
            np.zeros(int(term_codes.max(initial=-1)) + 2, dtype=np.bool_) for term_codes in codes
        ]
        return cls(codes, none, attracts(kind, kind))

    def put(self, rows: IntArray) -> None:
        for codes, has_pods in zip(self.codes, self.has_pods, strict=True):
            has_pods[codes[rows]] = True
            has_pods[-1] = False
            self.is_first = self.is_first and not has_pods.any()

    def open_nodes(self) -> BoolArray:
        mask = np.full(len(self.codes[0]), self.is_first and self.may_be_first)
        if not self.is_first:
            mask[:] = True
            for codes, has_pods in zip(self.codes, self.has_pods, strict=True):
                mask &= has_pods[codes]
        return mask


@dataclass(slots=True)
class _Spread:
    """Pods that count for one spread limit of a kind.

    ``pods`` is their number by domain, shape (domains,). ``is_counted`` marks the nodes on which
    pods count, shape (nodes,), and ``is_domain`` the domains of these nodes.
    """

    limit: SpreadLimit
    codes: IntArray
    is_counted: BoolArray
    is_domain: BoolArray
    pods: IntArray
    self_match: int
    """1 if a pod of the kind counts itself."""

    @classmethod
    def of(
        cls, kind: PodKind, limit: SpreadLimit, nodes: NodeTable, is_counted: BoolArray
    ) -> "_Spread":
        codes = domains_of(limit.key, nodes)
        size = int(codes.max(initial=-1)) + 2  # one more for nodes without the label
        is_domain = np.zeros(size, dtype=np.bool_)
        is_domain[codes[is_counted]] = True
        self_match = int(matches(limit.pods, kind))
        none = np.zeros(size, dtype=np.int64)
        return cls(limit, codes, is_counted, is_domain, none, self_match)

    def put(self, rows: IntArray) -> None:
        np.add.at(self.pods, self.codes[rows[self.is_counted[rows]]], 1)

    def open_nodes(self, is_open: BoolArray | None = None) -> BoolArray:
        is_domain = self.is_domain
        if is_open is not None:
            is_domain = np.zeros_like(is_domain)
            is_domain[self.codes[is_open & self.is_counted]] = True
        has_room = self.pods + self.self_match - self._fewest(is_domain) <= self.limit.most_skew
        has_room[-1] = False
        return has_room[self.codes]

    def holds(self, rows: IntArray) -> bool:
        """Return whether the domains of ``rows`` are within the limit, with all present pods."""
        max_pods = int(self.pods[self.codes[rows]].max(initial=0))
        return max_pods - self._fewest(self.is_domain) <= self.limit.most_skew

    def _fewest(self, is_domain: BoolArray) -> int:
        is_enough = np.count_nonzero(is_domain) >= max(1, self.limit.least_domains)
        return int(self.pods[is_domain].min()) if is_enough else 0


class _Filling:
    """The placement of one gang, replica after replica."""

    def __init__(
        self,
        tasks: Sequence[Task],
        capacity: FreeCapacity,
        choose: Callable[["_Filling", BoolArray], int],
        within: dict[str, BoolArray] | None = None,
    ) -> None:
        self.capacity = capacity
        self.nodes = capacity.nodes
        self._tasks = tasks
        self._choose = choose
        self._turns = _Turns(tasks, capacity)
        self._free = capacity.free.copy()
        # Shape (tasks, resources).
        self._requests = np.array([self.nodes.axis.usage(task.request) for task in tasks])
        # The volumes of each task, which a node attaches only once.
        self._volumes = [task.pod.volumes if task.pod is not None else () for task in tasks]
        self._have_volume = {
            volume: capacity.occupants.have_volume(volume, self.nodes)
            for volumes in self._volumes
            for volume in volumes
        }
        # The nodes with room for one more replica of each task, shape (tasks, nodes).
        self._has_room = np.array([capacity.replicas(task) > 0 for task in tasks])
        for task, has_room in zip(tasks, self._has_room, strict=True):
            if within is not None and task.name in within:
                has_room &= within[task.name]
        self.counts = {task.name: np.zeros(len(self.nodes), dtype=np.int64) for task in tasks}
        # The domains with replicas at each topology level; one more entry, for code -1.
        self._levels = [
            (codes, np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.bool_))
            for codes in self.nodes.domains
        ]
        self._is_empty = True

    def fill(self) -> bool:
        """Place all replicas; return whether that worked."""
        missing = [task.replicas for task in self._tasks]
        # A pod that waits for another task's pods has its turn again after them.
        while any(missing):
            previous = sum(missing)
            for index in range(len(self._tasks)):
                while missing[index] and self._place_one(index):
                    missing[index] -= 1
            if sum(missing) == previous:
                return False
        return True

    def keeps_spread(self) -> bool:
        """Return whether the spread of every task holds with all replicas in place."""
        rows = (np.flatnonzero(self.counts[task.name]) for task in self._tasks)
        return all(
            self._turns.keeps_spread(index, task_rows) for index, task_rows in enumerate(rows)
        )

    def _place_one(self, index: int) -> bool:
        has_room = self._has_room[index]
        may = has_room & self._turns.open_nodes(index, has_room)
        if not may.any():
            return False
        self._put(index, self._choose(self, may))
        return True

    def near(self, may: BoolArray) -> BoolArray:
        """Return the part of ``may`` in the narrowest domain that already has replicas."""
        for codes, is_used in () if self._is_empty else self._levels:
            nearest: BoolArray = may & is_used[codes]
            if nearest.any():
                return nearest
        return may

    def _put(self, index: int, row: int) -> None:
        self.counts[self._tasks[index].name][row] += 1
        self._is_empty = False
        for codes, is_used in self._levels:
            is_used[codes[row]] = codes[row] >= 0
        self._free[row] -= self._requests_on(row)[index]
        for volume in self._volumes[index]:
            self._have_volume[volume][row] = True
        self._turns.put(index, row)
        needed = self._requests_on(row)
        lacks = ((self._free[row] < needed) & (needed > 0)).any(axis=1)
        self._has_room[lacks, row] = False

    def _requests_on(self, row: int) -> IntArray:
        """Return the usage of one replica of each task on ``row``, shape (tasks, resources).

        It includes the volumes that the replica would attach there.
        """
        if not self._have_volume:
            return self._requests
        needed = self._requests.copy()
        for index, volumes in enumerate(self._volumes):
            new = Counter(v[0] for v in volumes if not self._have_volume[v][row])
            if new:
                needed[index] += self.nodes.axis.usage(new)
        return needed


def _first(_: _Filling, may: BoolArray) -> int:
    """Return the first row, as a scheduler would that tries nodes by name."""
    return int(may.argmax())


def _nearest(filling: _Filling, may: BoolArray) -> int:
    """Return the tightest row in the narrowest domain that already has replicas."""
    rows = np.flatnonzero(filling.near(may))
    return int(rows[np.argmin(filling.capacity.tightness[rows])])
