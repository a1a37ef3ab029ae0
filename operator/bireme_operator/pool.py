"""One node pool: what is seen of it, what was decided about it, and what its target is asked for.

The decision is :func:`bireme.core.pool_floor.floor`; here the facts for it are gathered. Nodes go
only while nothing is coming and no replica waits to be bound in the pool, because whoever removes
them chooses which, and a node with a plan alone looks empty to him.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bireme.core.decision import Decision
from bireme.core.pool_floor import (
    FloorDecision,
    HourForecast,
    PoolBounds,
    PoolState,
    Raised,
    floor,
    wanted_by_gangs,
    with_step,
)
from bireme.core.pools import GrowablePool, ScaledPool
from bireme.core.resources import BoolArray
from bireme.core.times import HOUR
from bireme.kube import timestamps
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.node_pool_scalers import PoolFacts
from bireme.kube.scale_targets import ScaleFault
from bireme_operator.pool_hours import HourMeter
from bireme_operator.pool_nodes import PoolNodes
from bireme_operator.pool_targets import Order, Target

_LEAVING_SECONDS: Final = 60.0
"""How long plans keep off nodes that may go, while they have not gone."""


@dataclass(slots=True)
class _Leaving:
    """Nodes are given up: ``order`` is for so many fewer that ``nodes`` stay.

    Whoever removes them may do so until ``until``, even where more are asked for again before.
    """

    order: Order
    nodes: int
    until: float
    is_written: bool = False


@dataclass(slots=True)
class Pool:
    """What the operator remembers of one NodePoolScaler with a valid spec. Times are POSIX seconds.

    Attributes:
        target: What is asked for nodes; None where nothing is to be.
        fault: Why there is no target although there should be.
        decided: The latest decision; None before the first.
        needed: Nodes that must stay, as of then.
        littered: Nodes that would go, were there not pods on them that have ended.
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
    littered: int = 0
    demand: float = 0.0
    _forecast: tuple[HourForecast, ...] = ()
    _forecast_of: Any = None
    _raised: Raised = ()
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

    def coming(self, now: float) -> int:
        """Nodes asked for that are not there, or there and too young to be ready."""
        if self.replicas is None:
            return 0
        patience_seconds = self._bounds().patience_seconds
        young = sum(now - born < patience_seconds for born in self.nodes.unfinished)
        staying = self.nodes.count
        if self._leaving is not None and self._leaving.is_written:
            staying = min(staying, self._leaving.nodes)
        return max(0, self.replicas - staying) + young

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
            patience_seconds=self._bounds().patience_seconds,
        )

    def is_shrinking(self, now: float) -> bool:
        """Whether nodes were given up that may be there still: any of those that are empty."""
        leaving, target = self._leaving, self.target
        if leaving is None or target is None:
            return False
        self._count_written(now)
        is_under_way = leaving.is_written or target.is_busy
        if not is_under_way or self.nodes.count <= leaving.nodes or now >= leaving.until:
            self._leaving = None
        return self._leaving is not None

    def decide(
        self,
        needed: BoolArray,
        decision: Decision,
        is_settled: bool,
        now: float,
        ended: Collection[str] = (),
    ) -> FloorDecision:
        """The floor, and its order to the target where one is due.

        Args:
            needed: Which of all nodes must stay.
            decision: What the cycle decided, for the nodes that gangs wait for.
            is_settled: Whether no plan, made or being made, waits for pods on nodes of the pool.
            ended: Names of nodes on which pods have ended and still lie.
        """
        mine = needed & self.nodes.mask
        self.needed = int(mine.sum())
        self._watch_empty(~needed & self.nodes.mask & self.nodes.table.is_ready, now)
        self._count_written(now)
        replicas = self.nodes.count if self.replicas is None else self.replicas
        bare = self._bare(ended, now)
        may_go = is_settled and self._leaving is None
        self.decided = floor(
            self._bounds(),
            PoolState(
                replicas=replicas,
                needed=self.needed,
                wanted=wanted_by_gangs(self.facts.name, replicas, decision),
                coming=self.coming(now),
                empty_since=tuple(bare.values()) if may_go else (),
                forecast=self.forecast,
                forecast_made=self.forecast_made,
                raised=self._raised,
            ),
            now,
        )
        cool = self.spec.scale_in.cool_down_seconds
        self._ask(self.decided, [name for name, since in bare.items() if now - since >= cool], now)
        return self.decided

    def _ask(self, decided: FloorDecision, leaving: Sequence[str], now: float) -> None:
        replicas = self.replicas
        if self.target is None:
            return
        if replicas is None or decided.replicas == replicas:
            self.target.offer(None)
            return
        is_fewer = decided.replicas < replicas
        order = Order(decided.replicas, decided.step, tuple(leaving) if is_fewer else ())
        is_begun = self.target.offer(order)
        if is_begun and is_fewer:
            stay = self.nodes.count - (replicas - decided.replicas)
            self._leaving = _Leaving(order, stay, now + _LEAVING_SECONDS)

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

    def _bare(self, ended: Collection[str], now: float) -> dict[str, float]:
        """Empty nodes without ended pods, and since when they are empty.

        Whoever removes nodes may see no difference between pods that have ended and that run.
        """
        occupied = self.target.occupied if self.target is not None else ()
        lying = {name for name in self._empty_since if name in ended or name in occupied}
        cool = self.spec.scale_in.cool_down_seconds
        self.littered = sum(now - self._empty_since[name] >= cool for name in lying)
        return {name: at for name, at in self._empty_since.items() if name not in lying}

    def _count_written(self, now: float) -> None:
        """Take note of orders that were carried out: what a forecast raised, which nodes go."""
        if self.target is None:
            return
        if self._leaving is not None and self._leaving.order in self.target.written:
            self._leaving.is_written = True
        for order in self.target.written:
            self._raised = with_step(self._raised, order.step, now)
        self.target.written.clear()

    @property
    def forecast_made(self) -> float | None:
        """When the nightly job wrote the forecast, POSIX seconds."""
        return timestamps.parse(self.facts.status.get("forecastTime"))

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
