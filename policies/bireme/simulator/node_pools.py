"""Node pools that grow and shrink while a simulation runs.

Decided is by the core, as in the operator after every cycle: what gangs that wait want, and the
floor of each pool with it. The floor is looked at besides when time alone may change it: with a
new forecast, when it is another hour's, or the lead before that, and when an empty node's cool-down
is over. Here it is carried out: nodes asked for come after a delay, empty ones go at once, the
longest empty first.

Events of :attr:`Kind.POOL` carry the name of a node that has come, or none and what is due.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from bireme.core.decision import Decision
from bireme.core.pool_demand import needed_nodes, pool_demand
from bireme.core.pool_floor import wanted_by_gangs
from bireme.core.pools import GrowablePool
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import DAY, HOUR
from bireme.simulator.cluster import Cluster
from bireme.simulator.events import Event, EventQueue, Kind, moment_at
from bireme.simulator.node_pool import NodePool, Pool
from bireme.simulator.outcome import PoolSeries

NIGHT: Final = HOUR // 2
"""Forecasts are made so many seconds after midnight; a simulation starts at one."""


class Due(IntEnum):
    """What an event without a node's name is for."""

    LOOK = 0
    HOUR = 1
    NIGHT = 2


_CLOCKS: Final = 2
"""Events that set themselves again: of the hour and of the night."""


class Pools:
    """The node pools of one simulation; there may be none."""

    def __init__(self, pools: Sequence[NodePool], cluster: Cluster, events: EventQueue) -> None:
        self._cluster, self._events = cluster, events
        self._pools = {pool.name: Pool(pool, cluster) for pool in pools}
        self._scaled = [pool.scaled for pool in self._pools.values()]
        if pools:
            away = [n for pool in self._pools.values() for n in pool.names[pool.replicas :]]
            cluster.send_away(away)
            events.push(Event(NIGHT, Kind.POOL, "", Due.NIGHT))
            events.push(Event(HOUR, Kind.POOL, "", Due.HOUR))

    def __len__(self) -> int:
        return len(self._pools)

    def growable(self) -> tuple[GrowablePool, ...]:
        """What a cycle may ask for."""
        return tuple(pool.growable() for pool in self._pools.values())

    def hear(self, event: Event, now: float) -> bool:
        """Let ``event`` happen; whether it can matter to a decision."""
        if event.name:
            self._cluster.fetch(event.name)
            next(p for p in self._pools.values() if event.name in p.coming).arrive(event.name, now)
            return True
        for pool in self._pools.values():
            if event.version == Due.HOUR:
                pool.close_hour(now)
            elif event.version == Due.NIGHT:
                pool.look_ahead(now)
            self._scale(pool, now)
        if event.version == Due.LOOK or len(self._events) < _CLOCKS:
            return False  # with nothing but the other clock left, nothing more happens
        self._events.push(event._replace(time=now + (HOUR if event.version == Due.HOUR else DAY)))
        if event.version == Due.HOUR:
            for lead_seconds in {pool.spec.bounds.lead_seconds for pool in self._pools.values()}:
                # At the lead itself the next hour does not count yet.
                look_at = now + HOUR - lead_seconds % HOUR + 1
                self._events.push(Event(look_at, Kind.POOL, "", Due.LOOK))
        return False

    def settle(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Give the pools the sizes they should have, for the cluster after ``decision``."""
        demand = pool_demand(snapshot, self._scaled)
        needed = needed_nodes(snapshot, decision.kept)
        for name, pool in self._pools.items():
            pool.wanted = wanted_by_gangs(name, pool.replicas, decision)
            if pool.see(needed, demand[name], snapshot.now):
                cool_at = moment_at(snapshot.now, pool.spec.bounds.cool_down_seconds)
                self._events.push(Event(cool_at, Kind.POOL, "", Due.LOOK))
            self._scale(pool, snapshot.now)

    def series(self) -> tuple[PoolSeries, ...]:
        """What became of every pool."""
        return tuple(pool.series() for pool in self._pools.values())

    def _scale(self, pool: Pool, now: float) -> None:
        asked, gone = pool.scale(now)
        for name in asked:
            self._events.push(Event(now + pool.spec.delay_seconds, Kind.POOL, name))
        if gone:
            self._cluster.send_away(gone)
        pool.record(now)
