"""Placing gangs whose pods have rules about other pods, which no placer of a policy knows.

Replica after replica goes where the rules let it go now, as kube-scheduler would do, in several
orders until one works. Greedy, not exhaustive.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.gangs import Gang, PodKind, SpreadLimit, Task
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity, Placement, keeps_affinity, make_placement, pods_at
from bireme.core.pod_rules import (
    NODE,
    attracts,
    conflicts,
    counted,
    domains_of,
    has_domains,
    matches,
    same_domain,
)
from bireme.core.resources import BoolArray, IntArray
from bireme.core.running import summed

_MAX_DOMAINS = 16
"""Domains in which a gang that must be near itself is tried."""


def keeps_rules(gang: Gang, placement: Placement, capacity: FreeCapacity) -> bool:
    """Return whether ``placement`` keeps the rules of all its pods, and of those that are there.

    Affinity and spread are kept if the pods can come in some order, each allowed at its turn, and
    spread also once all are there: kube-scheduler takes them in an order of its own, and what it
    refuses at its turn has to be allowed after the others.
    """
    nodes = capacity.nodes
    pods = pods_at(gang, placement)
    if any(one.kind.volumes for one in pods):
        rows, used = summed(*capacity.usage(gang, placement))
        if bool(((used > capacity.free[rows]) & (used > 0)).any()):
            return False
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
    has_order = any(one.kind.near or one.kind.spread for one in pods)
    return not has_order or _has_order(gang, placement, capacity)


def _has_order(gang: Gang, placement: Placement, capacity: FreeCapacity) -> bool:
    """Return whether there is an order in which every pod is allowed at its turn."""
    by_name = {task.task: task for task in placement.tasks}
    turns = _Turns(gang.tasks, capacity)
    waiting = [
        (at, row)
        for at, task in enumerate(gang.tasks)
        for row in by_name[task.name].rows_by_replica().tolist()
    ]
    while waiting:
        blocked = []
        for at, row in waiting:
            if turns.allowed(at)[row]:
                turns.put(at, row)
            else:
                blocked.append((at, row))
        if len(blocked) == len(waiting):
            return False
        waiting = blocked
    return all(
        turns.keeps_spread(at, by_name[task.name].rows) for at, task in enumerate(gang.tasks)
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

    Each is given as the nodes of every such task, by its name, shape (nodes,).
    """
    own = [task.pod for task in gang.tasks if task.pod is not None]
    near = [
        (task, at)
        for at, task in enumerate(gang.tasks)
        if task.pod is not None and task.pod.near
        if any(attracts(other, task.pod) for other in own)
    ]
    keys = dict.fromkeys(
        term.key for task, _ in near if task.pod is not None for term in task.pod.near
    )
    for key in keys:
        tasks = [
            (task, at) for task, at in near if any(t.key == key for t in (task.pod or own[0]).near)
        ]
        codes = domains_of(key, capacity.nodes)
        has_domain = codes >= 0
        fits = np.ones(int(codes.max(initial=-1)) + 1, dtype=np.bool_)
        total = np.zeros(len(fits), dtype=np.int64)
        for task, at in tasks:
            held = np.bincount(codes[has_domain], room[at][has_domain], len(fits)).astype(np.int64)
            fits &= held >= task.replicas
            total += held
        found = np.flatnonzero(fits)
        for code in found[np.argsort(total[found], kind="stable")][:_MAX_DOMAINS].tolist():
            inside = codes == code
            yield {task.name: inside for task, _ in tasks}


class _Turns:
    """Where the rules of a gang allow one more pod of each task, pod after pod."""

    def __init__(self, tasks: Sequence[Task], capacity: FreeCapacity) -> None:
        self._nodes = capacity.nodes
        self._kinds = [task.pod for task in tasks]
        self._effects: dict[int, _Effects] = {}
        self._open = [np.ones(len(self._nodes), dtype=np.bool_) for _ in tasks]
        self._near: dict[int, _Near] = {}
        self._spread: dict[int, list[_Spread]] = {}
        for at, task in enumerate(tasks):
            if (kind := task.pod) is None:
                continue
            self._open[at] = ~capacity.occupants.refused(kind, self._nodes)
            self._open[at] &= has_domains(kind, self._nodes)
            if not (kind.near or kind.spread):
                continue
            there = list(capacity.occupants.about(kind))
            if kind.near:
                self._near[at] = _Near.of(kind, self._nodes)
                for group in there:
                    if attracts(group.kind, kind):
                        self._near[at].put(group.rows)
            self._spread[at] = []
            for limit in kind.spread:
                counts = counted(kind, limit, task.constraints, self._nodes)
                if capacity.present is not None:
                    counts &= capacity.present
                state = _Spread.of(kind, limit, self._nodes, counts)
                for group in there:
                    if matches(limit.pods, group.kind) and not group.are_leaving:
                        state.put(group.rows)
                self._spread[at].append(state)

    def allowed(self, at: int, has_room: BoolArray | None = None) -> BoolArray:
        """Return which nodes take one more pod of task ``at`` now, shape (nodes,).

        A soft spread goes round the domains that are not full, where ``has_room`` is given.
        """
        mask = self._open[at]
        if at in self._near:
            mask = mask & self._near[at].allowed()
        is_open = None if has_room is None else mask & has_room
        for state in self._spread.get(at, ()):
            mask = mask & state.allowed(is_open if state.limit.is_soft else None)
        return mask

    def keeps_spread(self, at: int, rows: IntArray) -> bool:
        """Return whether the pods of task ``at`` on ``rows`` keep its spread, with all that is put.

        Pods that come later may count for a spread that they do not have themselves.
        """
        return all(s.holds(rows) for s in self._spread.get(at, ()) if not s.limit.is_soft)

    def put(self, at: int, row: int) -> None:
        """Put one pod of task ``at`` on ``row``."""
        effects = self._effects.get(at)
        if effects is None:
            effects = self._effects[at] = self._effects_of(at)
        rows = np.array([row])
        for other, key in effects.closes:
            self._close(other, key, row)
        for near in effects.attracts:
            near.put(rows)
        for state in effects.counts:
            state.put(rows)

    def _effects_of(self, at: int) -> "_Effects":
        effects = _Effects()
        if (kind := self._kinds[at]) is None:
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

    def _close(self, at: int, key: str, row: int) -> None:
        """Close the domain of ``row`` to further replicas of a task."""
        if key == NODE:
            self._open[at][row] = False
        else:
            codes = domains_of(key, self._nodes)
            self._open[at] &= (codes != codes[row]) | (codes < 0)


@dataclass(slots=True)
class _Effects:
    """What a pod of one kind changes for further pods of all tasks, wherever it is put."""

    closes: list[tuple[int, str]] = field(default_factory=list)
    """Tasks, and the topology key of the domain that is closed to them."""
    attracts: list["_Near"] = field(default_factory=list)
    counts: list["_Spread"] = field(default_factory=list)


@dataclass(slots=True)
class _Near:
    """Where required affinity of a kind is kept.

    ``has_pods`` are the domains of each term that have a pod it wants near, shape (domains,).
    """

    codes: list[IntArray]
    has_pods: list[BoolArray]
    may_be_first: bool
    """It is such a pod itself, so that the first of them may go anywhere."""
    is_first: bool = True

    @classmethod
    def of(cls, kind: PodKind, nodes: NodeTable) -> "_Near":
        codes = [domains_of(term.key, nodes) for term in kind.near]
        # One entry more, for code -1: nodes without the label are in no domain.
        none = [np.zeros(int(each.max(initial=-1)) + 2, dtype=np.bool_) for each in codes]
        return cls(codes, none, attracts(kind, kind))

    def put(self, rows: IntArray) -> None:
        for codes, has_pods in zip(self.codes, self.has_pods, strict=True):
            has_pods[codes[rows]] = True
            has_pods[-1] = False
            self.is_first = self.is_first and not has_pods.any()

    def allowed(self) -> BoolArray:
        mask = np.full(len(self.codes[0]), self.is_first and self.may_be_first)
        if not self.is_first:
            mask[:] = True
            for codes, has_pods in zip(self.codes, self.has_pods, strict=True):
                mask &= has_pods[codes]
        return mask


@dataclass(slots=True)
class _Spread:
    """Pods that one spread limit of a kind counts.

    ``pods`` is their number by domain, shape (domains,); ``is_counted`` are the nodes on which pods
    count, shape (nodes,), ``is_domain`` the domains these are in.
    """

    limit: SpreadLimit
    codes: IntArray
    is_counted: BoolArray
    is_domain: BoolArray
    pods: IntArray
    own: int
    """1 if a pod of the kind counts itself."""

    @classmethod
    def of(
        cls, kind: PodKind, limit: SpreadLimit, nodes: NodeTable, is_counted: BoolArray
    ) -> "_Spread":
        codes = domains_of(limit.key, nodes)
        size = int(codes.max(initial=-1)) + 2  # one more for nodes without the label
        is_domain = np.zeros(size, dtype=np.bool_)
        is_domain[codes[is_counted]] = True
        own = int(matches(limit.pods, kind))
        none = np.zeros(size, dtype=np.int64)
        return cls(limit, codes, is_counted, is_domain, none, own)

    def put(self, rows: IntArray) -> None:
        np.add.at(self.pods, self.codes[rows[self.is_counted[rows]]], 1)

    def allowed(self, is_open: BoolArray | None = None) -> BoolArray:
        is_domain = self.is_domain
        if is_open is not None:
            is_domain = np.zeros_like(is_domain)
            is_domain[self.codes[is_open & self.is_counted]] = True
        has_room = self.pods + self.own - self._fewest(is_domain) <= self.limit.most_skew
        has_room[-1] = False
        return has_room[self.codes]

    def holds(self, rows: IntArray) -> bool:
        """Return whether the domains of ``rows`` are within the limit, with the pods there."""
        most = int(self.pods[self.codes[rows]].max(initial=0))
        return most - self._fewest(self.is_domain) <= self.limit.most_skew

    def _fewest(self, is_domain: BoolArray) -> int:
        is_enough = np.count_nonzero(is_domain) >= max(1, self.limit.least_domains)
        return int(self.pods[is_domain].min()) if is_enough else 0


class _Filling:
    """One gang on its way to the nodes, replica after replica."""

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
        # The volumes of each task, which are attached once to a node.
        self._volumes = [task.pod.volumes if task.pod is not None else () for task in tasks]
        self._have_volume = {
            volume: capacity.occupants.have_volume(volume, self.nodes)
            for volumes in self._volumes
            for volume in volumes
        }
        # Where one more replica of each task has room, shape (tasks, nodes).
        self._has_room = np.array([capacity.replicas(task) > 0 for task in tasks])
        for task, has_room in zip(tasks, self._has_room, strict=True):
            if within is not None and task.name in within:
                has_room &= within[task.name]
        self.counts = {task.name: np.zeros(len(self.nodes), dtype=np.int64) for task in tasks}
        # Of each topology level the domains that have replicas; one entry more, for code -1.
        self._levels = [
            (codes, np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.bool_))
            for codes in self.nodes.domains
        ]
        self._is_empty = True

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

    def keeps_spread(self) -> bool:
        """Return whether the spread of every task holds with all replicas in place."""
        rows = (np.flatnonzero(self.counts[task.name]) for task in self._tasks)
        return all(self._turns.keeps_spread(at, each) for at, each in enumerate(rows))

    def _place_one(self, at: int) -> bool:
        has_room = self._has_room[at]
        may = has_room & self._turns.allowed(at, has_room)
        if not may.any():
            return False
        self._put(at, self._choose(self, may))
        return True

    def near(self, may: BoolArray) -> BoolArray:
        """Return which of ``may`` are in the narrowest domain that has replicas already."""
        for codes, is_used in () if self._is_empty else self._levels:
            near: BoolArray = may & is_used[codes]
            if near.any():
                return near
        return may

    def _put(self, at: int, row: int) -> None:
        self.counts[self._tasks[at].name][row] += 1
        self._is_empty = False
        for codes, is_used in self._levels:
            is_used[codes[row]] = codes[row] >= 0
        self._free[row] -= self._needed(row)[at]
        for volume in self._volumes[at]:
            self._have_volume[volume][row] = True
        self._turns.put(at, row)
        needed = self._needed(row)
        lacks = ((self._free[row] < needed) & (needed > 0)).any(axis=1)
        self._has_room[lacks, row] = False

    def _needed(self, row: int) -> IntArray:
        """Return what one replica of each task takes on ``row``, shape (tasks, resources).

        With the volumes that it would bring there.
        """
        if not self._have_volume:
            return self._requests
        needed = self._requests.copy()
        for at, volumes in enumerate(self._volumes):
            new = Counter(v[0] for v in volumes if not self._have_volume[v][row])
            if new:
                needed[at] += self.nodes.axis.usage(new)
        return needed


def _first(_: _Filling, may: BoolArray) -> int:
    """Return the first row, as a scheduler does that looks at nodes by name."""
    return int(may.argmax())


def _nearest(filling: _Filling, may: BoolArray) -> int:
    """Return the tightest row in the narrowest domain that has replicas already."""
    rows = np.flatnonzero(filling.near(may))
    return int(rows[np.argmin(filling.capacity.tightness[rows])])
