"""The line of gangs that are past their wait bound: it holds at most a share of what they wait for.

Gangs past their bound that all went before the others would make the others wait past theirs, and
so on: in the end nobody starts by the policy's order. So the line is short. It has the gangs that
passed their bound first, whether they wait or run by now, as long as together they ask for at most
``overdue_share`` of the nodes that they may use, and of each limit of their queues. The first one
may be larger: it has the line for itself. All other gangs, overdue or not, keep the policy's order.
With a share of 0 nobody goes before others for having waited.

Nobody starves. A gang is counted with those alone that passed their bound before it did. These
become fewer, because no gang that comes later can be one of them. Once they have ended, the gang is
the first of the line, whatever its size.

A gang that runs passed its bound before it started, or is not overdue. It is known by its arrival
and by its start, so a new leader finds the same line.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.nodes import feasible
from bireme.core.queue_tree import QueueTree
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, add
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


class OverdueLine:
    """The gangs of a snapshot that go before all others because they are past their wait bound.

    Args:
        snapshot: Its running gangs may be in the line as well.
        waiting: Gangs that wait without a configuration fault.
        queues: As they are before anything is decided.
        obstacle: Returns why a gang of this size would not start in an empty cluster, or None.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        waiting: Iterable[Gang],
        queues: QueueTree,
        obstacle: Callable[[Gang], object | None],
    ) -> None:
        self._snapshot, self._waits, self._queues = snapshot, waiting, queues
        self._obstacle = obstacle

    def seconds(self, gang: Gang) -> float:
        """Return how long ``gang``, which waits, is past its bound; 0 outside the line.

        One that lost a node needs no line: it goes before all others, by how late it is.
        """
        late = self._snapshot.overdue_seconds(gang)
        return late if late > 0 and (gang.displaced or gang.uid in self.waiting) else 0.0

    @cached_property
    def seconds_at_start(self) -> FloatArray:
        """How long running gangs of the line were past their bound at their start, (gangs,).

        0 outside the line, and for a gang that is being stopped.
        """
        table = self._snapshot.running_table
        is_in_line = np.fromiter(
            (held.gang.uid in self._members[1] for held in table.gangs), np.bool_, len(table.gangs)
        )
        return np.where(is_in_line, self._late_at_start, 0.0)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Uids of the gangs in the line that wait."""
        # Most snapshots have none, and the running gangs need not be looked at.
        return self._members[0] if self._waiting_overdue else frozenset()

    @cached_property
    def _waiting_overdue(self) -> list[tuple[float, Gang]]:
        """Gangs that wait past their bound, with the moment at which they passed it."""
        snapshot = self._snapshot
        if not snapshot.settings.overdue_share:
            return []
        # A gang that is parked would keep the line closed to gangs that could start.
        late = (
            (snapshot.overdue_seconds(gang), gang)
            for gang in self._waits
            if gang.parked is None and gang.uncounted_since is None and not gang.displaced
        )
        return [(snapshot.now - seconds, gang) for seconds, gang in late if seconds > 0]

    @cached_property
    def _late_at_start(self) -> FloatArray:
        table = self._snapshot.running_table
        bounds = [self._snapshot.overdue_after_seconds(held.gang) for held in table.gangs]
        late = np.maximum(0.0, table.started - table.arrived - np.array(bounds, dtype=np.float64))
        is_off = table.is_leaving | (self._snapshot.settings.overdue_share == 0)
        return np.where(is_off, 0.0, late)

    @cached_property
    def _members(self) -> tuple[frozenset[str], frozenset[str]]:
        """Uids of the gangs in the line that wait, and of those that run."""
        table, late = self._snapshot.running_table, self._late_at_start
        asks: list[tuple[float, str, Gang, RunningGang | None]] = [
            (due, gang.uid, gang, None) for due, gang in self._waiting_overdue
        ]
        for at in np.flatnonzero(late > 0).tolist():
            runs = table.gangs[at]
            asks.append((runs.started - float(late[at]), runs.gang.uid, runs.gang, runs))
        shares = _Shares(self._snapshot, self._queues, [gang for _, _, gang, _ in asks])
        waiting, running = set[str](), set[str]()
        for _, uid, gang, held in sorted(asks, key=lambda ask: ask[:2]):
            # A gang that cannot start would keep the others from the line for ever.
            can_start = partial(self._can_start, gang, held)
            if shares.admit(gang, held, can_start):
                (waiting if held is None else running).add(uid)
        return frozenset(waiting), frozenset(running)

    def _can_start(self, gang: Gang, held: RunningGang | None) -> bool:
        return held is not None or self._obstacle(gang.at_minimum) is None


@dataclass(eq=False)
class _NodeScope:
    """The nodes that some gangs may use, shape (nodes,), with what the line asks of them."""

    nodes: BoolArray
    allowed: FloatArray
    """The share of what all of them offer that the line may ask for, shape (resources,)."""
    asked: IntArray
    gangs: int = 0
    is_closed: bool = False


@dataclass(eq=False)
class _QueueScope:
    """A queue with a limit, with what the line asks of it."""

    limit: Amounts
    asked: dict[str, int] = field(default_factory=dict)
    gangs: int = 0
    is_closed: bool = False


class _Shares:
    """What the gangs of the line, one after another, ask of nodes and of queues with a limit."""

    def __init__(self, snapshot: ClusterSnapshot, queues: QueueTree, gangs: list[Gang]) -> None:
        self._snapshot, self._queues = snapshot, queues
        share = snapshot.settings.overdue_share
        # All of them, not as many as ask for all there is: more may wait than there is room for.
        self._share = share if share < 1 else math.inf
        self._queue_scopes: dict[str, _QueueScope] = {}
        self._node_scopes: dict[bytes, _NodeScope] = {}
        self._scope_of_shape: dict[object, _NodeScope] = {}
        for gang in gangs:
            self._scope(gang)

    def admit(self, gang: Gang, held: RunningGang | None, can_start: Callable[[], bool]) -> bool:
        """Return whether the line has room for ``gang``, which holds ``held`` if it runs.

        One that waits and does not fit ends the line where it waits. ``can_start`` is costly, and
        asked only where its answer changes something.
        """
        now = gang.at_minimum if held is None else held.current
        scope, limits = self._scope(gang), list(self._limits(gang.queue))
        usage = self._snapshot.nodes.axis.usage(now.demand)
        full: list[_QueueScope | _NodeScope] = [s for s in limits if self._is_over(s, now.demand)]
        if scope.is_closed or bool(
            scope.gangs and (usage > 0)[scope.asked + usage > scope.allowed].any()
        ):
            full.extend(self._overlapping(scope.nodes))
        if not full:
            if not can_start():
                return False
            self._count(now, held, scope, limits, usage)
            return True
        if held is None and not all(each.is_closed for each in full) and can_start():
            for each in full:
                each.is_closed = True
        return False

    def _is_over(self, scope: _QueueScope, demand: Amounts) -> bool:
        return scope.is_closed or bool(
            scope.gangs
            and any(
                demand.get(name, 0)
                and scope.asked.get(name, 0) + demand[name] > max(most, 1) * self._share
                for name, most in scope.limit.items()
            )
        )

    def _count(
        self,
        gang: Gang,
        held: RunningGang | None,
        scope: _NodeScope,
        limits: list[_QueueScope],
        usage: IntArray,
    ) -> None:
        for each in limits:
            each.asked, each.gangs = add(each.asked, gang.demand), each.gangs + 1
        if held is None:
            # It may go to any of its nodes, so it counts in full wherever others may use one.
            for other in self._overlapping(scope.nodes):
                other.asked, other.gangs = other.asked + usage, other.gangs + 1
            return
        rows, used = held.usage(self._snapshot.nodes.axis)
        for other in self._node_scopes.values():
            is_there = other.nodes[rows]
            other.asked = other.asked + used[is_there].sum(axis=0)
            other.gangs += bool(is_there.any())

    def _overlapping(self, nodes: BoolArray) -> Iterator[_NodeScope]:
        return (each for each in self._node_scopes.values() if bool((each.nodes & nodes).any()))

    def _limits(self, queue: str) -> Iterator[_QueueScope]:
        for name in self._queues.path(queue):
            known = self._snapshot.queues.get(name)
            if known is not None and known.limit:
                yield self._queue_scopes.setdefault(name, _QueueScope(known.limit))

    def _scope(self, gang: Gang) -> _NodeScope:
        found = self._scope_of_shape.get(gang.shape)
        if found is None:
            nodes = self._snapshot.nodes
            usable = np.zeros(len(nodes), dtype=np.bool_)
            for task in gang.tasks:
                request = nodes.axis.request(task.request)
                if request is not None:
                    fits = (nodes.allocatable >= request).all(axis=1)
                    usable |= feasible(task.constraints, nodes) & fits
            key = usable.tobytes()
            if key not in self._node_scopes:
                most = nodes.allocatable[usable].sum(axis=0)
                asked = np.zeros(len(nodes.axis), dtype=np.int64)
                allowed = np.maximum(most, 1) * self._share
                self._node_scopes[key] = _NodeScope(usable, allowed, asked)
            found = self._scope_of_shape[gang.shape] = self._node_scopes[key]
        return found
