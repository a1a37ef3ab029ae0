"""One node pool: what is seen of it, what was decided about it, and what its target is asked for.

The decision is :func:`bireme.core.pool_floor.floor`; here the facts for it are gathered. Nodes go
only while nothing is coming and no replica waits to be bound in the pool, because whoever removes
them chooses which, and a node with a plan alone looks empty to him.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bireme.core.decision import Decision
from bireme.core.pool_floor import (
    FloorDecision,
    HourForecast,
    PoolBounds,
    PoolState,
    floor,
)
from bireme.core.pools import GrowablePool, ScaledPool
from bireme.core.resources import BoolArray
from bireme.kube import timestamps
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.node_pool_scalers import PoolFacts
from bireme.kube.pool_history import HOUR
from bireme.kube.scale_targets import ScaleFault
from bireme_operator.pool_hours import HourMeter
from bireme_operator.pool_nodes import PoolNodes
from bireme_operator.pool_targets import Order, Target

_LEAVING_SECONDS: Final = 60.0
"""How long plans keep off nodes that may go, while they have not gone."""
_LEAST_PATIENCE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Nodes were given up: the target asks for ``replicas``, and ``nodes`` should stay."""

    replicas: int
    nodes: int
    until: float


@dataclass(slots=True)
class Pool:
    """What the operator remembers of one NodePoolScaler with a valid spec. Times are POSIX seconds.

    Attributes:
        target: What is asked for nodes; None where nothing is to be.
        fault: Why there is no target although there should be.
        decided: The latest decision; None before the first.
        needed: Nodes that must stay, as of then.
        demand: Nodes' worth that was asked for when it was last measured.
    """

    facts: PoolFacts
    spec: NodePoolScalerSpec
    nodes: PoolNodes
    target: Target | None = None
    fault: ScaleFault | None = None
    meter: HourMeter = field(default_factory=HourMeter)
    decided: FloorDecision | None = None
    needed: int = 0
    demand: float = 0.0
    _forecast: tuple[HourForecast, ...] = ()
    _forecast_of: Any = None
    _raised: tuple[tuple[float, int], ...] = ()
    _empty_since: dict[str, float] = field(default_factory=dict)
    _asked_at: float | None = None
    _ready_before: int = 0
    _leaving: _Leaving | None = None

    @property
    def replicas(self) -> int | None:
        """What the target asks for; None where it cannot be asked for anything."""
        return None if self.target is None else self.target.replicas

    @property
    def scaled(self) -> ScaledPool:
        """The pool as its demand is measured."""
        selector = self.spec.node_selector.match_labels
        return ScaledPool(self.facts.name, selector, self.nodes.template, self.spec.max)

    @property
    def _patience_seconds(self) -> int:
        return max(_LEAST_PATIENCE_SECONDS, 2 * self.spec.lead_seconds)

    def coming(self, now: float) -> int:
        """Nodes asked for that are not there, or there and too young to be ready."""
        if self.replicas is None:
            return 0
        young = sum(now - born < self._patience_seconds for born in self.nodes.not_ready)
        return max(0, self.replicas - self.nodes.count) + young

    def growable(self, now: float) -> GrowablePool | None:
        """The pool as gangs may grow it; None where they may not."""
        if self.replicas is None or self.nodes.template is None:
            return None
        coming, before = self.coming(now), self._ready_before
        self._ready_before = self.nodes.ready
        if not coming:
            self._asked_at = None
        elif self._asked_at is None or self.nodes.ready > before:
            self._asked_at = now
        return GrowablePool(
            self.facts.name,
            self.nodes.template,
            room=max(0, self.spec.max - self.replicas),
            coming=coming,
            asked_at=self._asked_at,
            patience_seconds=self._patience_seconds,
        )

    def is_shrinking(self, now: float) -> bool:
        """Whether nodes were given up that may be there still: any of those that are empty."""
        leaving, target = self._leaving, self.target
        if leaving is None or target is None:
            return False
        is_asked = target.is_busy or target.replicas == leaving.replicas
        if not is_asked or self.nodes.count <= leaving.nodes or now >= leaving.until:
            self._leaving = None
        return self._leaving is not None

    def decide(
        self, needed: BoolArray, decision: Decision, is_settled: bool, now: float
    ) -> FloorDecision:
        """The floor, and its order to the target where one is due.

        Args:
            needed: Which of all nodes must stay.
            decision: What the cycle decided, for the nodes that gangs wait for.
            is_settled: Whether no plan, made or being made, waits for pods on nodes of the pool.
        """
        mine = needed & self.nodes.mask
        self.needed = int(mine.sum())
        self._watch_empty(~needed & self.nodes.mask & self.nodes.table.is_ready, now)
        self._count_written(now)
        replicas = self.nodes.count if self.replicas is None else self.replicas
        grown = [g.nodes for g in decision.growth if g.pool == self.facts.name]
        may_go = is_settled and self._leaving is None and not self.coming(now)
        self.decided = floor(
            self._bounds(),
            PoolState(
                replicas=replicas,
                needed=self.needed,
                wanted=replicas + sum(grown) if grown else 0,
                empty_since=tuple(self._empty_since.values()) if may_go else (),
                forecast=self.forecast,
                forecast_made=timestamps.parse(self.facts.status.get("forecastTime")),
                raised=self._raised,
            ),
            now,
        )
        self._ask(self.decided, now)
        return self.decided

    def _ask(self, decided: FloorDecision, now: float) -> None:
        replicas = self.replicas
        if self.target is None:
            return
        if replicas is None or decided.replicas == replicas:
            self.target.offer(None)
            return
        is_begun = self.target.offer(Order(decided.replicas, decided.step))
        if is_begun and decided.replicas < replicas:
            stay = self.nodes.count - (replicas - decided.replicas)
            self._leaving = _Leaving(decided.replicas, stay, now + _LEAVING_SECONDS)

    def _bounds(self) -> PoolBounds:
        spec = self.spec
        return PoolBounds(
            minimum=spec.min,
            maximum=spec.max,
            max_step=spec.max_step,
            lead_seconds=spec.lead_seconds,
            scale_in=spec.scale_in.policy == "WhenEmpty",
            cool_down_seconds=spec.scale_in.cool_down_seconds,
        )

    def _watch_empty(self, empty: BoolArray, now: float) -> None:
        names = (self.nodes.table.names[row] for row in np.flatnonzero(empty))
        self._empty_since = {name: self._empty_since.get(name, now) for name in names}

    def _count_written(self, now: float) -> None:
        """What a forecast has raised within the hour, with the orders carried out since."""
        if self.target is None:
            return
        fresh = [(now, order.step) for order in self.target.written if order.step]
        self.target.written.clear()
        self._raised = tuple(each for each in (*self._raised, *fresh) if now - each[0] < HOUR)

    @property
    def forecast(self) -> tuple[HourForecast, ...]:
        """What the nightly job has written, read once; hours that cannot be read are left out."""
        given = self.facts.status.get("forecast")
        if given is not self._forecast_of:
            self._forecast_of = given
            self._forecast = tuple(
                HourForecast(start, float(entry["p50"]), float(entry["upper"]))
                for entry in given or ()
                if (start := timestamps.parse(entry.get("hour"))) is not None
            )
        return self._forecast

    def expected(self, now: float) -> dict[str, float]:
        """The demand forecast for the hour of ``now``, in nodes, by quantile; empty for none."""
        hours = [hour for hour in self.forecast if hour.start <= now < hour.start + HOUR]
        upper = f"{self.spec.quantile_percent / 100:g}"
        return {"0.5": hours[0].p50, upper: hours[0].upper} if hours else {}
