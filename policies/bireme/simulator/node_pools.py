"""Node pools that grow and shrink while a simulation runs.

Decided is by the core, as in the operator: growth for gangs that wait, at once; the floor of each
pool with it, every hour, after every forecast, and when an empty node's cool-down is over. Here it
is carried out: nodes asked for come after a delay, empty ones go at once, the longest empty first.

Events of :attr:`Kind.POOL` carry the name of a node that has come, or none and what is due.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from bireme.core.decision import Decision
from bireme.core.pool_demand import needed_nodes, pool_demand
from bireme.core.pool_floor import HOUR
from bireme.core.pools import GrowablePool
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.cluster import Cluster
from bireme.simulator.events import Event, EventQueue, Kind, moment_at
from bireme.simulator.node_pool import NodePool, Pool
from bireme.simulator.outcome import PoolSeries

DAY: Final = 24 * HOUR
NIGHT: Final = HOUR // 2
"""Forecasts are made so many seconds after midnight; a simulation starts at one."""


class Due(IntEnum):
    """What an event without a node's name is for."""

    COOL_DOWN = 0
    HOUR = 1
    NIGHT = 2


_EVERY_SECONDS: Final = {Due.HOUR: HOUR, Due.NIGHT: DAY}


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
        every_seconds = _EVERY_SECONDS.get(Due(event.version))
        if every_seconds and self._events:  # the clock alone keeps no simulation going
            self._events.push(event._replace(time=event.time + every_seconds))
        return False

    def obey(self, decision: Decision, now: float) -> None:
        """Ask for the nodes that waiting gangs want, and keep those that they count on."""
        for name, pool in self._pools.items():
            nodes = [growth.nodes for growth in decision.growth if growth.pool == name]
            pool.wanted = pool.replicas + sum(nodes) if nodes else 0
            pool.kept = decision.kept
            if pool.wanted > pool.replicas:
                self._scale(pool, now)

    def take_stock(self, snapshot: ClusterSnapshot) -> None:
        """Write down what is asked for, and since when nodes are empty."""
        demand = pool_demand(snapshot, self._scaled)
        for name, pool in self._pools.items():
            if pool.see(needed_nodes(snapshot, pool.kept), demand[name], snapshot.now):
                cool_at = moment_at(snapshot.now, pool.spec.bounds.cool_down_seconds)
                self._events.push(Event(cool_at, Kind.POOL, "", Due.COOL_DOWN))

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
