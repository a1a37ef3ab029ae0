"""Node pools that grow and shrink while a simulation runs.

The core decides the size, as in the operator after every cycle. The size follows the demand of
waiting gangs and the floor of each pool (:func:`bireme.core.node_floor.floor`). The floor is
computed again when time alone may change it: with a new forecast, at each hour and the lead time
before it, and after an empty node's cool-down. Requested nodes come after a delay. Empty nodes go
at once, the longest empty first.

Events of :attr:`EventKind.POOL` carry the name of a new node. A timer event has no name; its
version is the :class:`_Timer` that is due.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import nan
from typing import Final, TypeAlias

import numpy as np

from bireme.core import node_floor
from bireme.core.accelerators import DEFAULT
from bireme.core.decision import Decision
from bireme.core.nodes import GrowablePool, ScaledPool, in_pool
from bireme.core.pool_history import NO_HISTORY, PoolHistory
from bireme.core.resources import BoolArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import DAY, HOUR, moment_at
from bireme_lab.simulator import metrics
from bireme_lab.simulator.cluster import SimulatedCluster
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.events import Event, EventKind, EventQueue
from bireme_lab.simulator.machines import DELAY_SECONDS, POOL_LABEL
from bireme_lab.simulator.outcome import PoolSeries, Recorder

Forecast: TypeAlias = Callable[[float, PoolHistory], Sequence[node_floor.HourForecast]]
"""Forecasts from the present moment and the history recorded until then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePool:
    """The settings of a pool; ``bounds.minimum`` nodes are ready at the start.

    Attributes:
        name: The value of :data:`POOL_LABEL` on its ``bounds.maximum`` nodes.
        delay_seconds: From the request of a node until it is ready.
        forecast: Called every night; None to request nodes only for waiting gangs.
        history: Demand before the start of the simulation, which is at 0.
    """

    name: str
    bounds: node_floor.PoolBounds
    delay_seconds: float = DELAY_SECONDS
    forecast: Forecast | None = None
    history: PoolHistory = NO_HISTORY


class SimulatedPool:
    """One pool: its nodes, its demand history and its forecast.

    Attributes:
        replicas: All requested nodes, ready or coming.
        wanted: The ``replicas`` that waiting gangs need; 0 for none.
        coming: Names of requested nodes that are not ready yet.
    """

    def __init__(self, spec: NodePool, cluster: SimulatedCluster) -> None:
        table, selector = cluster.table, {POOL_LABEL: spec.name}
        self.spec, self._cluster = spec, cluster
        self._rows = np.flatnonzero(in_pool(selector, table))
        if len(self._rows) != spec.bounds.maximum or not len(self._rows):
            raise SimulationError(
                f"pool {spec.name!r} has {len(self._rows)} nodes with label {POOL_LABEL} and a "
                f"maximum of {spec.bounds.maximum}; give it as many nodes as its maximum, 1 or more"
            )
        self.names = [table.names[row] for row in self._rows]
        self._template = table.nodes[self._rows[0]]
        self.scaled = ScaledPool(spec.name, selector, self._template, spec.bounds.maximum)
        self.replicas = spec.bounds.minimum
        self.wanted = 0
        self.coming: set[str] = set()
        self._asked_at: float | None = None
        self._needed = 0
        self._empty_since = dict.fromkeys(self.names[: self.replicas], 0.0)
        self._history = spec.history
        self._forecast: tuple[node_floor.HourForecast, ...] = ()
        self._forecast_made: float | None = None
        self._raised: node_floor.Raised = ()
        self._demand = 0.0
        self._recorder = Recorder(3)
        self.record(0.0)

    def growable(self) -> GrowablePool:
        """Return the nodes that a cycle may request."""
        return GrowablePool(
            self.spec.name,
            self._template,
            max(0, self.spec.bounds.maximum - self.replicas),
            len(self.coming),
            self._asked_at if self.coming else None,
            patience_seconds=self.spec.bounds.patience_seconds,
        )

    def state(self) -> node_floor.PoolState:
        """Return the inputs of the decision about the number of nodes."""
        return node_floor.PoolState(
            replicas=self.replicas,
            needed=self._needed,
            gang_nodes=self.wanted,
            coming=len(self.coming),
            empty_since=tuple(self._empty_since.values()),
            forecast=self._forecast,
            forecast_made=self._forecast_made,
            raised=self._raised,
            demand=self._demand,
        )

    def scale(self, now: float) -> tuple[list[str], list[str]]:
        """Set the size that the core decides; return the nodes to request and to remove."""
        decided = node_floor.floor(self.spec.bounds, self.state(), now)
        self._raised = node_floor.with_step(self._raised, decided.step, now)
        more, self.replicas = decided.replicas - self.replicas, decided.replicas
        spare = [n for n in self.names if n in self._cluster.away and n not in self.coming]
        to_add = spare[: max(0, more)]
        to_remove = sorted(self._empty_since, key=lambda name: (self._empty_since[name], name))
        to_remove = to_remove[: max(0, -more)]
        if to_add and not self.coming:  # lateness counts from the oldest open request
            self._asked_at = now
        self.coming.update(to_add)
        for name in to_remove:
            del self._empty_since[name]
        return to_add, to_remove

    def arrive(self, name: str, now: float) -> None:
        """Note that a requested node is ready."""
        self.coming.remove(name)
        self._asked_at = now

    def observe(self, needed: BoolArray, demand: float, now: float) -> bool:
        """Record the use of the cluster; return whether a node became empty.

        ``needed`` are the nodes in use or reserved, shape (nodes,); ``demand`` is in nodes.
        """
        self._needed, self._demand = int(needed[self._rows].sum()), demand
        is_ready = self._cluster.table.is_ready
        # A node that stays empty keeps its timestamp; a node that was used gets a new one.
        idle = [
            name
            for name, row in zip(self.names, self._rows.tolist(), strict=True)
            if is_ready[row] and not needed[row]
        ]
        previous = self._empty_since
        self._empty_since = {name: previous.get(name, now) for name in idle}
        return not self._empty_since.keys() <= previous.keys()

    def record(self, now: float) -> None:
        """Record demand and size from ``now`` on."""
        ready_nodes = self.replicas - len(self.coming)
        self._recorder.record(now, self._demand, ready_nodes, self.replicas)

    def close_hour(self, now: float) -> None:
        """Add the mean demand of the hour before ``now`` to the history."""
        times, values = self._recorder.points()
        mean = metrics.mean_between(times, values[:, 0], now - HOUR, now)
        self._history = self._history.with_hour(now - HOUR, mean, nan)

    def make_forecast(self, now: float) -> None:
        """Make the nightly forecast."""
        if self.spec.forecast is not None:
            self._forecast = tuple(self.spec.forecast(now, self._history))
            self._forecast_made = now

    def series(self) -> PoolSeries:
        """Return its size and demand over time."""
        times, values = self._recorder.points()
        gpus = DEFAULT.count(self._template.allocatable)
        return PoolSeries(self.spec.name, gpus, len(self.names), times, *values.T)


_NIGHT: Final = HOUR // 2
"""Seconds from midnight until forecasts are made; a simulation starts at midnight."""


class _Timer(IntEnum):
    """The purpose of an event without a node name."""

    FLOOR = 0
    HOUR = 1
    NIGHT = 2


_REPEATING_TIMERS: Final = 2
"""HOUR and NIGHT, which repeat."""


class SimulatedPools:
    """All node pools of a simulation; there may be none."""

    def __init__(
        self, pools: Sequence[NodePool], cluster: SimulatedCluster, events: EventQueue
    ) -> None:
        self._cluster, self._events = cluster, events
        self._pools = {pool.name: SimulatedPool(pool, cluster) for pool in pools}
        self._scaled = [pool.scaled for pool in self._pools.values()]
        if pools:
            away = [n for pool in self._pools.values() for n in pool.names[pool.replicas :]]
            cluster.remove_nodes(away)
            events.push(Event(_NIGHT, EventKind.POOL, "", _Timer.NIGHT))
            events.push(Event(HOUR, EventKind.POOL, "", _Timer.HOUR))

    def __len__(self) -> int:
        return len(self._pools)

    def growable(self) -> tuple[GrowablePool, ...]:
        """Return the nodes of every pool that a cycle may request."""
        return tuple(pool.growable() for pool in self._pools.values())

    def handle(self, event: Event, now: float) -> bool:
        """Apply ``event``; return whether it can change a decision."""
        if event.name:
            self._cluster.add_node(event.name)
            next(p for p in self._pools.values() if event.name in p.coming).arrive(event.name, now)
            return True
        for pool in self._pools.values():
            if event.version == _Timer.HOUR:
                pool.close_hour(now)
            elif event.version == _Timer.NIGHT:
                pool.make_forecast(now)
            self._scale(pool, now)
        # Stop when only the other timer remains, so that the simulation ends.
        if event.version == _Timer.FLOOR or len(self._events) < _REPEATING_TIMERS:
            return False
        self._events.push(
            event._replace(time=now + (HOUR if event.version == _Timer.HOUR else DAY))
        )
        if event.version == _Timer.HOUR:
            for lead_seconds in {pool.spec.bounds.lead_seconds for pool in self._pools.values()}:
                # At the lead itself the next hour does not count yet.
                look_at = now + HOUR - lead_seconds % HOUR + 1
                self._events.push(Event(look_at, EventKind.POOL, "", _Timer.FLOOR))
        return False

    def scale_all(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Set the size of every pool for the cluster after ``decision``."""
        demand = node_floor.pool_demand(snapshot, self._scaled)
        needed = node_floor.nodes_to_keep(snapshot, decision.kept_nodes)
        for name, pool in self._pools.items():
            pool.wanted = node_floor.nodes_for_gangs(name, pool.replicas, decision)
            if pool.observe(needed, demand[name], snapshot.now):
                cool_at = moment_at(snapshot.now, pool.spec.bounds.cool_down_seconds)
                self._events.push(Event(cool_at, EventKind.POOL, "", _Timer.FLOOR))
            self._scale(pool, snapshot.now)

    def series(self) -> tuple[PoolSeries, ...]:
        """Return size and demand of every pool over time."""
        return tuple(pool.series() for pool in self._pools.values())

    def _scale(self, pool: SimulatedPool, now: float) -> None:
        to_add, to_remove = pool.scale(now)
        for name in to_add:
            self._events.push(Event(now + pool.spec.delay_seconds, EventKind.POOL, name))
        if to_remove:
            self._cluster.remove_nodes(to_remove)
        pool.record(now)
