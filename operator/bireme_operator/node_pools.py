"""Node pools: which of them a decision may grow, and what each is asked for after it.

A decision sees the nodes that its gangs may ask for (``ClusterSnapshot.growable``) and no room on
nodes that are about to go. After it, each pool's floor is worked out by
:func:`bireme.core.node_floor.floor`, for which the facts are gathered here, and submitted to its
target (:mod:`bireme_operator.scale_requests`). Nothing here waits for an answer.

Nodes go only while nothing is coming and no replica waits to be bound in the pool, because the
autoscaler that removes them chooses which, and a node with only a plan looks empty to it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from bireme.core.decision import Decision
from bireme.core.gangs import Key
from bireme.core.node_floor import (
    FloorDecision,
    HourForecast,
    PoolBounds,
    PoolState,
    Raised,
    floor,
    nodes_for_gangs,
    nodes_to_keep,
    pool_demand,
    with_step,
)
from bireme.core.nodes import GrowablePool, Node, NodeTable, ScaledPool, in_pool
from bireme.core.reasons import Reason
from bireme.core.resources import BoolArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import HOUR
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers, PoolFacts, template_of
from bireme.kube.scale import ScaleFault, ScaleTargets
from bireme_operator.metrics import PoolMetrics
from bireme_operator.scale_requests import ScaleOrder, ScaleRequester
from bireme_operator.workqueue import WorkQueue

Born = Callable[[str], str | None]
"""Gives the time at which the node of a name was created, as the API server writes times."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolInventory:
    """The nodes of one pool, worked out once per table of nodes.

    Attributes:
        mask: Which nodes it has, shape (nodes,).
        template: What one more would offer; None where that is not known.
        unfinished: When its nodes were created that stay and are not ready, or ready and not yet
            what one more would be: some taints go and some resources come later. POSIX seconds.
    """

    table: NodeTable
    mask: BoolArray
    template: Node | None
    unfinished: tuple[float, ...]

    @classmethod
    def of(
        cls, name: str, spec: NodePoolScalerSpec, table: NodeTable, born: Born
    ) -> "PoolInventory":
        """Return the nodes of ``table`` that ``spec`` selects."""
        mask = in_pool(spec.node_selector.match_labels, table)
        all_nodes = [table.nodes[row] for row in np.flatnonzero(mask)]
        ready = [node for node in all_nodes if node.is_ready and not node.is_leaving]
        model = max(ready, key=lambda n: (*_finished(n), born(n.name) or "", n.name), default=None)
        template = template_of(name, spec, model)
        unfinished = tuple(
            quantities.parse_timestamp(born(node.name)) or 0.0
            for node in all_nodes
            if not node.is_leaving
            if not node.is_ready or (template is not None and not _offers_what(template, node))
        )
        return cls(table, mask, template, unfinished)

    @property
    def count(self) -> int:
        return int(self.mask.sum())

    @property
    def ready(self) -> int:
        return int((self.mask & self.table.accepts).sum())


def _finished(node: Node) -> tuple[int, int]:
    """Rank a node by how far it has come: it starts with taints to lose and resources to get."""
    return -len(node.taints), sum(amount > 0 for amount in node.allocatable.values())


def _offers_what(template: Node, node: Node) -> bool:
    asked = (name for name, amount in template.allocatable.items() if amount > 0)
    has_all = all(node.allocatable.get(name, 0) > 0 for name in asked)
    return has_all and set(node.taints) <= set(template.taints)


# After a longer time without an observation, the demand in between is not known.
_MAX_SECONDS: Final = 120.0
# Hours kept while they cannot be written.
_MAX_HOURS: Final = 48


@dataclass(slots=True)
class HourlyDemand:
    """Mean demand on one pool and jobs finished, by hour. All times are POSIX seconds.

    The mean of an hour weighs every value by how long it held. An hour of which less than half was
    seen, because an operator began or ended in it, is left out and stays a gap.

    Attributes:
        over: Hours to be written, by when they began: mean demand in nodes, jobs finished.
    """

    over: dict[float, tuple[float, float]] = field(default_factory=dict)
    _begin: float = 0.0
    _seen_at: float = float("-inf")
    _demand: float = 0.0
    _sum: float = 0.0
    _seconds: float = 0.0
    _finished: int = 0

    def observe(self, now: float, demand: float, finished: int) -> None:
        """``demand`` holds from now on, and so many jobs have finished since the last call."""
        known_until = now if 0 <= now - self._seen_at <= _MAX_SECONDS else self._seen_at
        end = self._begin + HOUR
        self._add(min(known_until, end) - self._seen_at)
        if not self._begin <= now < end:
            self._end_hour()
            self._begin = now - now % HOUR
            self._add(known_until - max(self._begin, self._seen_at))
        self._seen_at, self._demand = now, demand
        self._finished += finished

    def _add(self, seconds: float) -> None:
        """Add the last value, which held for so long."""
        if seconds > 0:
            self._sum += self._demand * seconds
            self._seconds += seconds

    def _end_hour(self) -> None:
        if self._seconds >= HOUR / 2:
            rate = HOUR / self._seconds
            self.over[self._begin] = (self._sum / self._seconds, self._finished * rate)
            while len(self.over) > _MAX_HOURS:
                del self.over[min(self.over)]
        self._sum = self._seconds = 0.0
        self._finished = 0


# For so long nodes that may go, and have not gone, take no plans: the autoscaler chooses which of
# the empty ones it removes.
_LEAVING_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Leaving:
    """Nodes are given up: ``order`` is for so many fewer that ``nodes`` stay.

    The autoscaler may remove them until ``until``, even where more are asked for again before.
    """

    order: ScaleOrder
    nodes: int
    until: float
    is_written: bool = False


@dataclass(slots=True)
class ManagedPool:
    """One node pool with a valid NodePoolScaler: nodes, demand, decision. Times are POSIX seconds.

    Attributes:
        requester: Asks the target for nodes; None where nothing is to be asked for.
        fault: Why there is no requester although there should be.
        decided: The latest decision; None before the first.
        needed: Nodes that must stay, as of then.
        littered: Nodes that would go, were there not pods on them that have ended.
        demand: Nodes' worth that was asked for when it was last measured.
    """

    facts: PoolFacts
    spec: NodePoolScalerSpec
    nodes: PoolInventory
    requester: ScaleRequester | None = None
    fault: ScaleFault | None = None
    hourly: HourlyDemand = field(default_factory=HourlyDemand)
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
        """Replicas of the target; None where it cannot be scaled."""
        return None if self.requester is None else self.requester.replicas

    @property
    def scaled(self) -> ScaledPool:
        """The pool in the form in which its demand is measured."""
        selector = self.spec.node_selector.match_labels
        return ScaledPool(self.facts.name, selector, self.nodes.template, self.spec.max)

    def coming(self, now: float) -> int:
        """Count nodes asked for that are not there, or there and too young to be ready."""
        if self.replicas is None:
            return 0
        patience_seconds = self._bounds().patience_seconds
        young = sum(now - born < patience_seconds for born in self.nodes.unfinished)
        staying = self.nodes.count
        if self._leaving is not None and self._leaving.is_written:
            staying = min(staying, self._leaving.nodes)
        return max(0, self.replicas - staying) + young

    def growable(self, now: float) -> GrowablePool | None:
        """Return the pool as gangs may grow it; None where they may not."""
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
        """Return whether nodes were given up that may be there still: any of the empty ones."""
        leaving, requester = self._leaving, self.requester
        if leaving is None or requester is None:
            return False
        self._count_written(now)
        is_under_way = leaving.is_written or requester.is_busy
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
        """Work out the floor, and submit an order to the target where one is due.

        Args:
            needed: Which of all nodes must stay.
            decision: What the cycle decided, for the nodes that gangs wait for.
            is_settled: Whether no plan, made or being made, waits for pods on nodes of the pool.
            ended: Names of nodes on which pods have ended and still lie.
        """
        mine = needed & self.nodes.mask
        self.needed = int(mine.sum())
        self._watch_empty(~needed & self.nodes.mask & self.nodes.table.accepts, now)
        self._count_written(now)
        replicas = self.nodes.count if self.replicas is None else self.replicas
        bare = self._bare(ended, now)
        may_go = is_settled and self._leaving is None
        self.decided = floor(
            self._bounds(),
            PoolState(
                replicas=replicas,
                needed=self.needed,
                gang_nodes=nodes_for_gangs(self.facts.name, replicas, decision),
                coming=self.coming(now),
                empty_since=tuple(bare.values()) if may_go else (),
                forecast=self.forecast,
                forecast_made=self.forecast_made,
                raised=self._raised,
                demand=self.demand,
            ),
            now,
        )
        cool = self.spec.scale_in.cool_down_seconds
        self._ask(self.decided, [name for name, since in bare.items() if now - since >= cool], now)
        return self.decided

    def _ask(self, decided: FloorDecision, leaving: Sequence[str], now: float) -> None:
        replicas = self.replicas
        if self.requester is None:
            return
        if replicas is None or decided.replicas == replicas:
            self.requester.submit(None)
            return
        is_fewer = decided.replicas < replicas
        order = ScaleOrder(decided.replicas, decided.step, tuple(leaving) if is_fewer else ())
        is_begun = self.requester.submit(order)
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
            headroom=spec.headroom,
        )

    def _watch_empty(self, empty: BoolArray, now: float) -> None:
        names = (self.nodes.table.names[row] for row in np.flatnonzero(empty))
        self._empty_since = {name: self._empty_since.get(name, now) for name in names}

    def _bare(self, ended: Collection[str], now: float) -> dict[str, float]:
        """Return empty nodes without ended pods, and since when they are empty.

        An autoscaler may see no difference between pods that have ended and that run.
        """
        occupied = self.requester.occupied if self.requester is not None else ()
        lying = {name for name in self._empty_since if name in ended or name in occupied}
        cool = self.spec.scale_in.cool_down_seconds
        self.littered = sum(now - self._empty_since[name] >= cool for name in lying)
        return {name: at for name, at in self._empty_since.items() if name not in lying}

    def _count_written(self, now: float) -> None:
        """Count orders that were carried out: replicas that a forecast raised, nodes that go."""
        if self.requester is None:
            return
        if self._leaving is not None and self._leaving.order in self.requester.written:
            self._leaving.is_written = True
        for order in self.requester.written:
            self._raised = with_step(self._raised, order.step, now)
        self.requester.written.clear()

    @property
    def forecast_made(self) -> float | None:
        """Time at which the nightly job wrote the forecast, POSIX seconds."""
        return quantities.parse_timestamp(self.facts.status.get("forecastTime"))

    @property
    def forecast(self) -> tuple[HourForecast, ...]:
        """Hours that the nightly job has forecast, read once, without those that cannot be read."""
        given = self.facts.status.get("forecast")
        if given is not self._forecast_of:
            self._forecast_of = given
            self._forecast = tuple(
                HourForecast(start, float(entry["p50"]), float(entry["upper"]))
                for entry in given or ()
                if (start := quantities.parse_timestamp(entry.get("hour"))) is not None
            )
        return self._forecast

    def expected(self, now: float) -> dict[str, float]:
        """Return the demand forecast for the hour of ``now``, in nodes, by quantile."""
        hours = [hour for hour in self.forecast if hour.start <= now < hour.start + HOUR]
        upper = f"{self.spec.quantile_percent / 100:g}"
        return {"0.5": hours[0].p50, upper: hours[0].upper} if hours else {}


@dataclass(slots=True)
class CompletionCounter:
    """Counts gangs that finished, by the pool they ran in. One that waits again has not."""

    state: ClusterState
    _running: dict[str, tuple[Key, str]] = field(default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot, pools: Mapping[str, BoolArray]) -> Counter[str]:
        """Count gangs that finished since the last call; ``pools`` are masks over the nodes."""
        known, self._running = self._running, {}
        for running in snapshot.running:
            gang = running.gang
            if gang.uid in known:
                self._running[gang.uid] = known.pop(gang.uid)
            else:
                self._running[gang.uid] = (gang.key, _pool_of(running, pools))
        waiting = {gang.uid for gang in snapshot.waiting}
        return Counter(
            pool
            for uid, (key, pool) in known.items()
            if pool and uid not in waiting and self._is_finished(key, uid)
        )

    def _is_finished(self, key: Key, uid: str) -> bool:
        """Return whether a gang that runs no longer has finished; a PodGroup without a plan has."""
        job = self.state.jobs.get(key)
        if job is not None and job.uid == uid:
            return job.is_finished
        group = self.state.groups.get(key)
        return group is not None and group.uid == uid and group.plan is None


def _pool_of(running: RunningGang, pools: Mapping[str, BoolArray]) -> str:
    """Return the pool of its first replica; empty for none."""
    rows = [row for task in running.placement.tasks for row in task.rows[:1]]
    return next((name for name, mask in pools.items() if rows and mask[rows[0]]), "")


# Demand is measured no more often: it sums over all gangs, and its unit is the hour.
_MEASURE_SECONDS: Final = 1.0


@dataclass(slots=True)
class ManagedPools:
    """Every NodePoolScaler that can be read, and the pool it manages.

    Args:
        scalers: The objects as they are watched.
        targets: Reads and writes the scale of targets.
        clock: Monotonic seconds.
        on_change: Called when a target has answered with news.
    """

    scalers: NodePoolScalers
    state: ClusterState
    work: WorkQueue
    targets: ScaleTargets
    metrics: PoolMetrics
    clock: Callable[[], float]
    on_change: Callable[[], None]
    known: dict[str, ManagedPool] = field(default_factory=dict)
    _completions: CompletionCounter = field(init=False)
    _measured_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._completions = CompletionCounter(self.state)

    def applied_to(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return ``snapshot`` with pools that gangs may grow; nodes about to go count as full."""
        self._refresh(snapshot)
        pools, now = self.known.values(), snapshot.now
        growable = tuple(each for pool in pools if (each := pool.growable(now)) is not None)
        going = [pool.nodes.mask for pool in pools if pool.is_shrinking(now)]
        if not (growable or going):
            return snapshot
        used = snapshot.used
        if going:
            used = used.copy()
            empty = ~nodes_to_keep(snapshot, ()) & np.logical_or.reduce(going)
            # Which of them goes is the autoscaler's choice: a gang placed there could lose its
            # node.
            used[empty] = snapshot.nodes.allocatable[empty]
        return replace(snapshot, growable=growable, used=used)

    def observe(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Work out every floor, for the cluster as it is in ``snapshot`` after ``decision``."""
        if not self.known:
            return
        self._measure(snapshot)
        needed = nodes_to_keep(snapshot, decision.kept_nodes)
        planned = self._planned(snapshot.nodes, decision)
        ended = {pod.node for pod in self.state.members.values() if pod.is_terminal}
        for pool in self.known.values():
            is_settled = not (planned & pool.nodes.mask).any()
            pool.decide(needed, decision, is_settled, snapshot.now, ended)

    async def close(self) -> None:
        for pool in self.known.values():
            if pool.requester is not None:
                await pool.requester.close()

    def _refresh(self, snapshot: ClusterSnapshot) -> None:
        """Keep one pool for every scaler that can be read, with what is remembered of it."""
        before, self.known = self.known, {}
        for name, facts in sorted(self.scalers.known.items()):
            if facts.spec is not None:
                pool = self._pool(before.get(name), facts, facts.spec, snapshot.nodes)
                self.known[name] = pool
        for name, pool in before.items():
            if self.known.get(name) is not pool and pool.requester is not None:
                pool.requester.stop()

    def _pool(
        self,
        known: ManagedPool | None,
        facts: PoolFacts,
        spec: NodePoolScalerSpec,
        table: NodeTable,
    ) -> ManagedPool:
        if known is not None and known.facts.uid != facts.uid:
            known = None  # another object of the same name
        is_edited = known is None or known.facts.demand != facts.demand
        if known is None or is_edited or known.nodes.table is not table:
            nodes = PoolInventory.of(facts.name, spec, table, self.state.node_created.get)
            known = known or ManagedPool(facts, spec, nodes)
            known.nodes = nodes
        known.facts, known.spec = facts, spec
        self._aim(known, is_edited)
        return known

    def _aim(self, pool: ManagedPool, is_edited: bool) -> None:
        """Give ``pool`` its requester, unless an older scaler has the target; an edit resets it."""
        facts, target = pool.facts, pool.spec.scale_target_ref
        first = self.scalers.first_of_target(facts) if facts.applies_to is not None else None
        pool.fault = None
        if first is not None and first.uid != facts.uid:
            words = f"NodePoolScaler {first.name} is older and scales it; delete one of them"
            pool.fault = ScaleFault(Reason.TARGET_SHARED, words)
        may_scale = first is not None and first.uid == facts.uid and target is not None
        if pool.requester is not None and (is_edited or not may_scale):
            pool.requester.stop()
            pool.requester = None
        if pool.requester is None and may_scale and target is not None:
            pool.requester = ScaleRequester(
                facts.name, target, self.targets, self.metrics, self.clock, self.on_change
            )

    def _measure(self, snapshot: ClusterSnapshot) -> None:
        """Measure demand and count finished jobs, into the hours and the metrics."""
        if self.clock() - self._measured_at < _MEASURE_SECONDS:
            return
        self._measured_at = self.clock()
        demand = pool_demand(snapshot, [pool.scaled for pool in self.known.values()])
        masks = {name: pool.nodes.mask for name, pool in self.known.items()}
        finished = self._completions.observe(snapshot, masks)
        for name, pool in self.known.items():
            pool.demand = demand[name]
            pool.hourly.observe(snapshot.now, pool.demand, finished[name])

    def _planned(self, table: NodeTable, decision: Decision) -> BoolArray:
        """Return nodes for which a plan is made or waits for its pods; bool, shape (nodes,)."""
        planned = np.zeros(len(table), dtype=np.bool_)
        if all(pool.spec.scale_in.policy == "Never" for pool in self.known.values()):
            return planned  # not needed
        views = self.state.views()
        unbound = [(view, {node for node, _ in view.usage()}) for _, view in views]
        assumed = self.work.assumed_plans().values()
        is_anywhere = any(nodes and view.plan.mode == "Score" for view, nodes in unbound)
        if is_anywhere or assumed or decision.admitted or decision.resized:
            return ~planned
        rows = [table.row[name] for _, nodes in unbound for name in nodes if name in table.row]
        planned[rows] = True
        return planned
