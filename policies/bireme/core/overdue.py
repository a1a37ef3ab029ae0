"""The line of gangs that are past their wait bound, limited to a share of the capacity.

If all overdue gangs went before the others, the others would in turn pass their bound. In the end
no gang would start in the policy's order. So the line is short. It holds the gangs that passed
their bound first, waiting or running, while together they request at most ``overdue_share`` of the
nodes that they may use, and of each limit of their queues. Gangs that passed it at one moment
join in the order of their arrival. The first gang may be larger: it then has the line for itself.
All other gangs, overdue or not, keep the policy's order. With a share of 0, no gang gains priority
by waiting.

No gang starves. Only gangs that passed their bound before a gang count against it. Their number
falls, because no later gang can join them. Once they have ended, the gang is the first of the line,
whatever its size.

A running gang is overdue only if it passed its bound before it started. Its arrival and its start
determine this, so a new leader computes the same line.
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
    """The gangs of a snapshot that precede all others because they are past their wait bound.

    Args:
        snapshot: Its running gangs may be in the line as well.
        waiting: Gangs that wait without a configuration fault.
        queues: The queues before any decision of this cycle.
        obstacle: Returns why a gang of this size could not start in an empty cluster, or None.
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
        """Return the seconds that ``gang``, which waits, is past its bound; 0 outside the line.

        A gang that lost a node needs no line: it precedes all others, ordered by its overdue time.
        """
        overdue = self._snapshot.overdue_seconds(gang)
        return overdue if overdue > 0 and (gang.displaced or gang.uid in self.waiting) else 0.0

    @cached_property
    def seconds_at_start(self) -> FloatArray:
        """Seconds that running gangs of the line were past their bound at their start, (gangs,).

        0 outside the line, and for a stopping gang.
        """
        table = self._snapshot.running_table
        is_in_line = np.fromiter(
            (running.gang.uid in self._members[1] for running in table.gangs),
            np.bool_,
            len(table.gangs),
        )
        return np.where(is_in_line, self._overdue_at_start, 0.0)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Uids of the gangs in the line that wait."""
        # Most snapshots have none, and then the running gangs need no check.
        return self._members[0] if self._waiting_overdue else frozenset()

    @cached_property
    def _waiting_overdue(self) -> list[tuple[float, Gang]]:
        """Gangs that wait past their bound, with the moment at which they passed it."""
        snapshot = self._snapshot
        if not snapshot.settings.overdue_share:
            return []
        # A parked gang would keep the line closed to gangs that could start.
        overdue = (
            (snapshot.overdue_seconds(gang), gang)
            for gang in self._waits
            if gang.parked is None and gang.uncounted_since is None and not gang.displaced
        )
        return [(snapshot.now - seconds, gang) for seconds, gang in overdue if seconds > 0]

    @cached_property
    def _overdue_at_start(self) -> FloatArray:
        table = self._snapshot.running_table
        bounds = [self._snapshot.overdue_after_seconds(running.gang) for running in table.gangs]
        overdue = np.maximum(
            0.0, table.started - table.arrived - np.array(bounds, dtype=np.float64)
        )
        is_off = table.is_leaving | (self._snapshot.settings.overdue_share == 0)
        return np.where(is_off, 0.0, overdue)

    @cached_property
    def _members(self) -> tuple[frozenset[str], frozenset[str]]:
        """Uids of the waiting and of the running gangs in the line."""
        table, overdue = self._snapshot.running_table, self._overdue_at_start
        asks: list[tuple[tuple[float, float, str], Gang, RunningGang | None]] = [
            ((due, gang.arrived, gang.uid), gang, None) for due, gang in self._waiting_overdue
        ]
        for index in np.flatnonzero(overdue > 0).tolist():
            runs = table.gangs[index]
            due = runs.started - float(overdue[index])
            asks.append(((due, runs.gang.arrived, runs.gang.uid), runs.gang, runs))
        shares = _Shares(self._snapshot, self._queues, [gang for _, gang, _ in asks])
        waiting, running = set[str](), set[str]()
        for _, gang, running_gang in sorted(asks, key=lambda ask: ask[0]):
            # A gang that cannot start would exclude the others from the line for ever.
            can_start = partial(self._can_start, gang, running_gang)
            if shares.admit(gang, running_gang, can_start):
                (waiting if running_gang is None else running).add(gang.uid)
        return frozenset(waiting), frozenset(running)

    def _can_start(self, gang: Gang, running: RunningGang | None) -> bool:
        return running is not None or self._obstacle(gang.at_minimum) is None


@dataclass(eq=False)
class _NodeScope:
    """The nodes that some gangs may use, shape (nodes,), with the line's demand for them."""

    nodes: BoolArray
    allowed: FloatArray
    """The share of their total capacity that the line may request, shape (resources,)."""
    demand: IntArray
    gangs: int = 0
    is_closed: bool = False


@dataclass(eq=False)
class _QueueScope:
    """A queue with a limit, with the line's demand for it."""

    limit: Amounts
    demand: dict[str, int] = field(default_factory=dict)
    gangs: int = 0
    is_closed: bool = False


class _Shares:
    """The demand of the line's gangs, one after another, for nodes and for queues with a limit."""

    def __init__(self, snapshot: ClusterSnapshot, queues: QueueTree, gangs: list[Gang]) -> None:
        self._snapshot, self._queues = snapshot, queues
        share = snapshot.settings.overdue_share
        # A share of 1 means no bound: more gangs may wait than fit the capacity.
        self._share = share if share < 1 else math.inf
        self._queue_scopes: dict[str, _QueueScope] = {}
        self._node_scopes: dict[bytes, _NodeScope] = {}
        self._scope_of_shape: dict[object, _NodeScope] = {}
        for gang in gangs:
            self._scope(gang)

    def admit(self, gang: Gang, running: RunningGang | None, can_start: Callable[[], bool]) -> bool:
        """Return whether the line has room for ``gang``, which holds ``running`` if it runs.

        A waiting gang that does not fit closes the line for its nodes and queues. ``can_start`` is
        costly, so it is called only where its answer matters.
        """
        now = gang.at_minimum if running is None else running.current
        scope, limits = self._scope(gang), list(self._limits(gang.queue))
        usage = self._snapshot.nodes.axis.usage(now.demand)
        full: list[_QueueScope | _NodeScope] = [s for s in limits if self._is_over(s, now.demand)]
        if scope.is_closed or bool(
            scope.gangs and (usage > 0)[scope.demand + usage > scope.allowed].any()
        ):
            full.extend(self._overlapping(scope.nodes))
        if not full:
            if not can_start():
                return False
            self._count(now, running, scope, limits, usage)
            return True
        if running is None and not all(blocking.is_closed for blocking in full) and can_start():
            for blocking in full:
                blocking.is_closed = True
        return False

    def _is_over(self, scope: _QueueScope, demand: Amounts) -> bool:
        return scope.is_closed or bool(
            scope.gangs
            and any(
                demand.get(name, 0)
                and scope.demand.get(name, 0) + demand[name] > max(limit, 1) * self._share
                for name, limit in scope.limit.items()
            )
        )

    def _count(
        self,
        gang: Gang,
        running: RunningGang | None,
        scope: _NodeScope,
        limits: list[_QueueScope],
        usage: IntArray,
    ) -> None:
        for queue_scope in limits:
            queue_scope.demand, queue_scope.gangs = (
                add(queue_scope.demand, gang.demand),
                queue_scope.gangs + 1,
            )
        if running is None:
            # It may start on any of its nodes, so it counts in full for each scope that shares one.
            for other in self._overlapping(scope.nodes):
                other.demand, other.gangs = other.demand + usage, other.gangs + 1
            return
        rows, used = running.usage(self._snapshot.nodes.axis)
        for other in self._node_scopes.values():
            is_there = other.nodes[rows]
            other.demand = other.demand + used[is_there].sum(axis=0)
            other.gangs += bool(is_there.any())

    def _overlapping(self, nodes: BoolArray) -> Iterator[_NodeScope]:
        return (scope for scope in self._node_scopes.values() if bool((scope.nodes & nodes).any()))

    def _limits(self, queue: str) -> Iterator[_QueueScope]:
        for name in self._queues.path(queue):
            spec = self._snapshot.queues.get(name)
            if spec is not None and spec.limit:
                yield self._queue_scopes.setdefault(name, _QueueScope(spec.limit))

    def _scope(self, gang: Gang) -> _NodeScope:
        scope = self._scope_of_shape.get(gang.shape)
        if scope is None:
            nodes = self._snapshot.nodes
            usable = np.zeros(len(nodes), dtype=np.bool_)
            for task in gang.tasks:
                request = nodes.axis.request(task.request)
                if request is not None:
                    fits = (nodes.allocatable >= request).all(axis=1)
                    usable |= feasible(task.constraints, nodes) & fits
            key = usable.tobytes()
            if key not in self._node_scopes:
                capacity = nodes.allocatable[usable].sum(axis=0)
                no_demand = np.zeros(len(nodes.axis), dtype=np.int64)
                allowed = np.maximum(capacity, 1) * self._share
                self._node_scopes[key] = _NodeScope(usable, allowed, no_demand)
            scope = self._scope_of_shape[gang.shape] = self._node_scopes[key]
        return scope
