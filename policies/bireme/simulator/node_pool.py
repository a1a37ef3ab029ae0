"""One node pool of a simulation: which of its nodes are there, come and may go.

Every node that a pool may ever have is a row of the table from the start; those that are not there
offer nothing, so that the rows of placements stay what they are. How many there should be is
:func:`bireme.core.pool_floor.floor`, as in the operator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import TypeAlias

import numpy as np

from bireme.core.pool_floor import (
    HourForecast,
    PoolBounds,
    PoolState,
    Raised,
    floor,
    with_step,
)
from bireme.core.pools import GrowablePool, ScaledPool, in_pool
from bireme.core.resources import BoolArray
from bireme.core.times import HOUR
from bireme.kube.names import GPU
from bireme.kube.pool_history import NO_HISTORY, PoolHistory
from bireme.simulator import steps
from bireme.simulator.cluster import Cluster
from bireme.simulator.errors import SimulationError
from bireme.simulator.machines import DELAY_SECONDS, POOL_LABEL
from bireme.simulator.outcome import PoolSeries
from bireme.simulator.recorder import Recorder

Forecast: TypeAlias = Callable[[float, PoolHistory], Sequence[HourForecast]]
"""What is expected, by the present moment and what was recorded until then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePool:
    """Nodes that come and go; as many as ``bounds.minimum`` are there at the start.

    Attributes:
        name: The value of :data:`POOL_LABEL` on its nodes, of which there are ``bounds.maximum``.
        delay_seconds: From asking for a node until it is there.
        forecast: Asked every night; None to ask for nodes once gangs wait for them, not before.
        history: What was recorded before the start of the simulation, which is at 0.
    """

    name: str
    bounds: PoolBounds
    delay_seconds: float = DELAY_SECONDS
    forecast: Forecast | None = None
    history: PoolHistory = NO_HISTORY


class Pool:
    """A pool as it stands.

    Attributes:
        replicas: Nodes asked for in all, there or not.
        wanted: What gangs that wait want ``replicas`` to be; 0 for nothing.
        coming: Names of nodes that are asked for and not there.
    """

    def __init__(self, spec: NodePool, cluster: Cluster) -> None:
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
        self._forecast: tuple[HourForecast, ...] = ()
        self._forecast_made: float | None = None
        self._raised: Raised = ()
        self._demand = 0.0
        self._recorder = Recorder(3)
        self.record(0.0)

    def growable(self) -> GrowablePool:
        """What a cycle may ask of it."""
        room = max(0, self.spec.bounds.maximum - self.replicas)
        asked_at = self._asked_at if self.coming else None
        return GrowablePool(
            self.spec.name,
            self._template,
            room,
            len(self.coming),
            asked_at,
            patience_seconds=self.spec.bounds.patience_seconds,
        )

    def state(self) -> PoolState:
        """What the floor depends on."""
        return PoolState(
            replicas=self.replicas,
            needed=self._needed,
            wanted=self.wanted,
            coming=len(self.coming),
            empty_since=tuple(self._empty_since.values()),
            forecast=self._forecast,
            forecast_made=self._forecast_made,
            raised=self._raised,
        )

    def scale(self, now: float) -> tuple[list[str], list[str]]:
        """Take the size the core says; the nodes to ask for, and those that go."""
        decided = floor(self.spec.bounds, self.state(), now)
        self._raised = with_step(self._raised, decided.step, now)
        more, self.replicas = decided.replicas - self.replicas, decided.replicas
        spare = [n for n in self.names if n in self._cluster.away and n not in self.coming]
        asked = spare[: max(0, more)]
        gone = sorted(self._empty_since, key=lambda name: (self._empty_since[name], name))
        gone = gone[: max(0, -more)]
        if asked and not self.coming:
            self._asked_at = now
        self.coming.update(asked)
        for name in gone:
            del self._empty_since[name]
        return asked, gone

    def arrive(self, name: str, now: float) -> None:
        """A node that was asked for is there."""
        self.coming.remove(name)
        self._asked_at = now

    def see(self, needed: BoolArray, demand: float, now: float) -> bool:
        """What is in use or kept, shape (nodes,), and asked for; whether a node became empty."""
        self._needed, self._demand = int(needed[self._rows].sum()), demand
        is_ready = self._cluster.table.is_ready
        idle = [
            name
            for name, row in zip(self.names, self._rows.tolist(), strict=True)
            if is_ready[row] and not needed[row]
        ]
        before = self._empty_since
        self._empty_since = {name: before.get(name, now) for name in idle}
        return not self._empty_since.keys() <= before.keys()

    def record(self, now: float) -> None:
        """What holds from ``now`` on."""
        there = self.replicas - len(self.coming)
        self._recorder.record(now, self._demand, there, self.replicas)

    def close_hour(self, now: float) -> None:
        """The hour before ``now`` is over; its mean demand is recorded."""
        times, values = self._recorder.points()
        mean = steps.mean_between(times, values[:, 0], now - HOUR, now)
        self._history = self._history.with_hour(now - HOUR, mean, nan)

    def look_ahead(self, now: float) -> None:
        """Make the forecast of the night."""
        if self.spec.forecast is not None:
            self._forecast = tuple(self.spec.forecast(now, self._history))
            self._forecast_made = now

    def series(self) -> PoolSeries:
        """What became of it."""
        times, values = self._recorder.points()
        gpus = self._template.allocatable.get(GPU, 0)
        return PoolSeries(self.spec.name, gpus, len(self.names), times, *values.T)
