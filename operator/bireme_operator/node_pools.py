"""Node pools: the pools that a decision may grow, and the size requested of each after it.

A decision sees the nodes that its gangs may request (``ClusterSnapshot.growable``) and no room on
nodes that are about to leave. After it, this module gathers the facts of each pool, computes its
floor (:func:`bireme.core.node_floor.floor`) and submits that to the pool's target
(:mod:`bireme_operator.scale_requests`). It never waits for an answer.

A pool shrinks only while no node is coming and no replica waits to be bound in it: the autoscaler
chooses the nodes to remove, and a node with only a plan looks empty to it.
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
"""Returns the creation time of the named node, as the API server writes it."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolInventory:
    """The nodes of one pool, computed once per table of nodes.

    Attributes:
        mask: Nodes of the pool, bool, shape (nodes,).
        template: A new node of the pool; None if unknown.
        unfinished: Creation times of staying nodes that are still initialising: not ready, or
            with extra taints or missing resources compared with ``template``. POSIX seconds.
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
        model = max(
            ready, key=lambda n: (*_readiness_rank(n), born(n.name) or "", n.name), default=None
        )
        template = template_of(name, spec, model)
        unfinished = tuple(
            quantities.parse_timestamp(born(node.name)) or 0.0
            for node in all_nodes
            if not node.is_leaving
            if not node.is_ready or (template is not None and not _offers_all_of(template, node))
        )
        return cls(table, mask, template, unfinished)

    @property
    def count(self) -> int:
        return int(self.mask.sum())

    @property
    def ready(self) -> int:
        return int((self.mask & self.table.accepts).sum())


def _readiness_rank(node: Node) -> tuple[int, int]:
    """Rank a node by its initialisation: it loses taints and gains resources."""
    return -len(node.taints), sum(amount > 0 for amount in node.allocatable.values())


def _offers_all_of(template: Node, node: Node) -> bool:
    names = (name for name, amount in template.allocatable.items() if amount > 0)
    has_all = all(node.allocatable.get(name, 0) > 0 for name in names)
    return has_all and set(node.taints) <= set(template.taints)


# The demand is unknown over a longer time without an observation.
_MAX_SECONDS: Final = 120.0
# Hours kept while they cannot be written.
_MAX_HOURS: Final = 48


@dataclass(slots=True)
class HourlyDemand:
    """Mean demand on one pool and number of finished jobs, by hour. Times are POSIX seconds.

    The mean of an hour weighs every value by its duration. An hour stays a gap if less than half of
    it was observed, because an operator began or ended in it.

    Attributes:
        over: Hours to be written, by their start: mean demand in nodes, finished jobs.
    """

    over: dict[float, tuple[float, float]] = field(default_factory=dict)
    _begin: float = 0.0
    _seen_at: float = float("-inf")
    _demand: float = 0.0
    _sum: float = 0.0
    _seconds: float = 0.0
    _readiness_rank: int = 0

    def observe(self, now: float, demand: float, finished: int) -> None:
        """Set ``demand`` from now on; ``finished`` counts the jobs since the last call."""
        known_until = now if 0 <= now - self._seen_at <= _MAX_SECONDS else self._seen_at
        end = self._begin + HOUR
        self._add(min(known_until, end) - self._seen_at)
        if not self._begin <= now < end:
            self._end_hour()
            self._begin = now - now % HOUR
            self._add(known_until - max(self._begin, self._seen_at))
        self._seen_at, self._demand = now, demand
        self._readiness_rank += finished

    def _add(self, seconds: float) -> None:
        """Add the last demand, which lasted ``seconds``."""
        if seconds > 0:
            self._sum += self._demand * seconds
            self._seconds += seconds

    def _end_hour(self) -> None:
        if self._seconds >= HOUR / 2:
            rate = HOUR / self._seconds
            self.over[self._begin] = (self._sum / self._seconds, self._readiness_rank * rate)
            while len(self.over) > _MAX_HOURS:
                del self.over[min(self.over)]
        self._sum = self._seconds = 0.0
        self._readiness_rank = 0


# Nodes that the autoscaler may remove take no plans for this long: it chooses among the empty ones.
_LEAVING_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Leaving:
    """A scale-in: ``order`` reduces the pool to ``nodes`` nodes.

    The autoscaler may remove nodes until ``until``, even if the pool is raised again before.
    """

    order: ScaleOrder
    nodes: int
    until: float
    is_written: bool = False


@dataclass(slots=True)
class ManagedPool:
    """One node pool with a valid NodePoolScaler: nodes, demand, decision. Times are POSIX seconds.

    Attributes:
        requester: Writes the scale of the target; None without a target to scale.
        fault: Fault that prevents a requester.
        decided: The latest decision; None before the first.
        needed: Number of nodes that must stay, by the latest decision.
        blocked_by_finished_pods: Number of idle nodes that finished pods keep from removal.
        demand: Latest measured demand, in nodes.
    """

    facts: PoolFacts
    spec: NodePoolScalerSpec
    nodes: PoolInventory
    requester: ScaleRequester | None = None
    fault: ScaleFault | None = None
    hourly: HourlyDemand = field(default_factory=HourlyDemand)
    decided: FloorDecision | None = None
    needed: int = 0
    blocked_by_finished_pods: int = 0
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
        """Replicas of the target; None if it cannot be scaled."""
        return None if self.requester is None else self.requester.replicas

    @property
    def demand_pool(self) -> ScaledPool:
        """The pool in the form for the measurement of demand."""
        selector = self.spec.node_selector.match_labels
        return ScaledPool(self.facts.name, selector, self.nodes.template, self.spec.max)

    def coming(self, now: float) -> int:
        """Count requested nodes that are missing, or too young to be ready."""
        if self.replicas is None:
            return 0
        patience_seconds = self._bounds().patience_seconds
        young_count = sum(now - born < patience_seconds for born in self.nodes.unfinished)
        staying = self.nodes.count
        if self._leaving is not None and self._leaving.is_written:
            staying = min(staying, self._leaving.nodes)
        return max(0, self.replicas - staying) + young_count

    def growable(self, now: float) -> GrowablePool | None:
        """Return the pool for gangs to grow; None if they may not."""
        if self.replicas is None or self.nodes.template is None:
            return None
        coming, previous_ready = self.coming(now), self._ready_before
        self._ready_before = self.nodes.ready
        if not coming:
            self._asked_at = None
        elif self._asked_at is None or self.nodes.ready > previous_ready:
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
        """Return whether the autoscaler may still remove nodes, which may be any empty ones."""
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
        finished_pod_nodes: Collection[str] = (),
    ) -> FloorDecision:
        """Compute the floor, and submit an order to the target if one is due.

        Args:
            needed: Mask of all nodes that must stay.
            decision: Decision of the cycle, for the nodes that gangs wait for.
            is_settled: True if no plan, written or in progress, waits for pods in the pool.
            finished_pod_nodes: Names of nodes with pods that have ended and still exist.
        """
        pool_needed = needed & self.nodes.mask
        self.needed = int(pool_needed.sum())
        self._watch_empty(~needed & self.nodes.mask & self.nodes.table.accepts, now)
        self._count_written(now)
        replicas = self.nodes.count if self.replicas is None else self.replicas
        idle_nodes = self._idle_nodes(finished_pod_nodes, now)
        may_go = is_settled and self._leaving is None
        self.decided = floor(
            self._bounds(),
            PoolState(
                replicas=replicas,
                needed=self.needed,
                gang_nodes=nodes_for_gangs(self.facts.name, replicas, decision),
                coming=self.coming(now),
                empty_since=tuple(idle_nodes.values()) if may_go else (),
                forecast=self.forecast,
                forecast_made=self.forecast_made,
                raised=self._raised,
                demand=self.demand,
            ),
            now,
        )
        cool_down_seconds = self.spec.scale_in.cool_down_seconds
        self._ask(
            self.decided,
            [name for name, since in idle_nodes.items() if now - since >= cool_down_seconds],
            now,
        )
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
            node_count = self.nodes.count - (replicas - decided.replicas)
            self._leaving = _Leaving(order, node_count, now + _LEAVING_SECONDS)

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

    def _idle_nodes(self, finished_pod_nodes: Collection[str], now: float) -> dict[str, float]:
        """Return the empty nodes without finished pods, and since when they are empty.

        An autoscaler may not distinguish finished pods from running ones.
        """
        occupied = self.requester.nodes_in_use if self.requester is not None else ()
        blocked = {
            name for name in self._empty_since if name in finished_pod_nodes or name in occupied
        }
        cool_down_seconds = self.spec.scale_in.cool_down_seconds
        self.blocked_by_finished_pods = sum(
            now - self._empty_since[name] >= cool_down_seconds for name in blocked
        )
        return {name: since for name, since in self._empty_since.items() if name not in blocked}

    def _count_written(self, now: float) -> None:
        """Count completed orders: replicas that a forecast raised, nodes that leave."""
        if self.requester is None:
            return
        if self._leaving is not None and self._leaving.order in self.requester.finished_orders:
            self._leaving.is_written = True
        for order in self.requester.finished_orders:
            self._raised = with_step(self._raised, order.step, now)
        self.requester.finished_orders.clear()

    @property
    def forecast_made(self) -> float | None:
        """Time at which the nightly job wrote the forecast, POSIX seconds."""
        return quantities.parse_timestamp(self.facts.status.get("forecastTime"))

    @property
    def forecast(self) -> tuple[HourForecast, ...]:
        """Hours of the nightly job's forecast, parsed once, without unreadable ones."""
        entries = self.facts.status.get("forecast")
        if entries is not self._forecast_of:
            self._forecast_of = entries
            self._forecast = tuple(
                HourForecast(start, float(entry["p50"]), float(entry["upper"]))
                for entry in entries or ()
                if (start := quantities.parse_timestamp(entry.get("hour"))) is not None
            )
        return self._forecast

    def forecast_demand(self, now: float) -> dict[str, float]:
        """Return the demand forecast for the hour of ``now``, in nodes, by quantile."""
        hours = [hour for hour in self.forecast if hour.start <= now < hour.start + HOUR]
        upper = f"{self.spec.quantile_percent / 100:g}"
        return {"0.5": hours[0].p50, upper: hours[0].upper} if hours else {}


@dataclass(slots=True)
class CompletionCounter:
    """Counts finished gangs by the pool in which they ran. A gang that waits again has not."""

    state: ClusterState
    _running: dict[str, tuple[Key, str]] = field(default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot, pools: Mapping[str, BoolArray]) -> Counter[str]:
        """Return the gangs finished since the last call; ``pools`` are masks over the nodes."""
        previous, self._running = self._running, {}
        for running in snapshot.running:
            gang = running.gang
            if gang.uid in previous:
                self._running[gang.uid] = previous.pop(gang.uid)
            else:
                self._running[gang.uid] = (gang.key, _pool_of(running, pools))
        waiting = {gang.uid for gang in snapshot.waiting}
        return Counter(
            pool
            for uid, (key, pool) in previous.items()
            if pool and uid not in waiting and self._is_finished(key, uid)
        )

    def _is_finished(self, key: Key, uid: str) -> bool:
        """Return whether a stopped gang has finished; a PodGroup has if it has no plan."""
        job = self.state.objects.jobs.get(key)
        if job is not None and job.uid == uid:
            return job.is_finished
        group = self.state.objects.groups.get(key)
        return group is not None and group.uid == uid and group.plan is None


def _pool_of(running: RunningGang, pools: Mapping[str, BoolArray]) -> str:
    """Return the pool of the gang's first replica; empty for none."""
    rows = [row for task in running.placement.tasks for row in task.rows[:1]]
    return next((name for name, mask in pools.items() if rows and mask[rows[0]]), "")


# Shortest time between two measurements of demand, which sum over all gangs.
_MEASURE_SECONDS: Final = 1.0


@dataclass(slots=True)
class ManagedPools:
    """The pools of all readable NodePoolScalers.

    Args:
        scalers: The watched objects.
        targets: Reads and writes the scale of targets.
        clock: Monotonic seconds.
        on_change: Called when a target's answer brings a change.
    """

    scalers: NodePoolScalers
    state: ClusterState
    work: WorkQueue
    targets: ScaleTargets
    metrics: PoolMetrics
    clock: Callable[[], float]
    on_change: Callable[[], None]
    by_name: dict[str, ManagedPool] = field(default_factory=dict)
    _completions: CompletionCounter = field(init=False)
    _measured_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._completions = CompletionCounter(self.state)

    def apply(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return ``snapshot`` with growable pools; nodes about to leave count as full."""
        self._refresh(snapshot)
        pools, now = self.by_name.values(), snapshot.now
        growable = tuple(g for pool in pools if (g := pool.growable(now)) is not None)
        leaving = [pool.nodes.mask for pool in pools if pool.is_shrinking(now)]
        if not (growable or leaving):
            return snapshot
        used = snapshot.used
        if leaving:
            used = used.copy()
            empty = ~nodes_to_keep(snapshot, ()) & np.logical_or.reduce(leaving)
            # The autoscaler chooses among these nodes, so a gang placed there could lose its node.
            used[empty] = snapshot.nodes.allocatable[empty]
        return replace(snapshot, growable=growable, used=used)

    def observe(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Compute every floor for the cluster of ``snapshot`` after ``decision``."""
        if not self.by_name:
            return
        self._measure(snapshot)
        needed = nodes_to_keep(snapshot, decision.kept_nodes)
        has_plan = self._nodes_with_plans(snapshot.nodes, decision)
        members = self.state.objects.members.values()
        finished_pod_nodes = {pod.node for pod in members if pod.is_terminal}
        for pool in self.by_name.values():
            is_settled = not (has_plan & pool.nodes.mask).any()
            pool.decide(needed, decision, is_settled, snapshot.now, finished_pod_nodes)

    async def close(self) -> None:
        for pool in self.by_name.values():
            if pool.requester is not None:
                await pool.requester.close()

    def _refresh(self, snapshot: ClusterSnapshot) -> None:
        """Update the pools from all readable scalers; keep the state of existing pools."""
        previous, self.by_name = self.by_name, {}
        for name, facts in sorted(self.scalers.known.items()):
            if facts.spec is not None:
                pool = self._pool(previous.get(name), facts, facts.spec, snapshot.nodes)
                self.by_name[name] = pool
        for name, pool in previous.items():
            if self.by_name.get(name) is not pool and pool.requester is not None:
                pool.requester.stop()

    def _pool(
        self,
        pool: ManagedPool | None,
        facts: PoolFacts,
        spec: NodePoolScalerSpec,
        table: NodeTable,
    ) -> ManagedPool:
        if pool is not None and pool.facts.uid != facts.uid:
            pool = None  # another object of the same name
        is_edited = pool is None or pool.facts.demand != facts.demand
        if pool is None or is_edited or pool.nodes.table is not table:
            nodes = PoolInventory.of(facts.name, spec, table, self.state.nodes.creation_times.get)
            pool = pool or ManagedPool(facts, spec, nodes)
            pool.nodes = nodes
        pool.facts, pool.spec = facts, spec
        self._attach_requester(pool, is_edited)
        return pool

    def _attach_requester(self, pool: ManagedPool, is_edited: bool) -> None:
        """Set the requester of ``pool``, unless an older scaler has its target; edits reset it."""
        facts, target = pool.facts, pool.spec.scale_target_ref
        first = self.scalers.first_of_target(facts) if facts.applies_to is not None else None
        pool.fault = None
        if first is not None and first.uid != facts.uid:
            message = f"NodePoolScaler {first.name} is older and scales it; delete one of them"
            pool.fault = ScaleFault(Reason.TARGET_SHARED, message)
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
        demand = pool_demand(snapshot, [pool.demand_pool for pool in self.by_name.values()])
        masks = {name: pool.nodes.mask for name, pool in self.by_name.items()}
        finished = self._completions.observe(snapshot, masks)
        for name, pool in self.by_name.items():
            pool.demand = demand[name]
            pool.hourly.observe(snapshot.now, pool.demand, finished[name])

    def _nodes_with_plans(self, table: NodeTable, decision: Decision) -> BoolArray:
        """Return the nodes of plans in progress or without all pods; bool, shape (nodes,)."""
        has_plan = np.zeros(len(table), dtype=np.bool_)
        if all(pool.spec.scale_in.policy == "Never" for pool in self.by_name.values()):
            return has_plan  # not needed
        views = self.state.views.of_gangs()
        unbound = [(view, {node for node, _ in view.usage()}) for _, view in views]
        assumed = self.work.assumed_plans().values()
        is_anywhere = any(nodes and view.plan.mode == "Score" for view, nodes in unbound)
        if is_anywhere or assumed or decision.admitted or decision.resized:
            return ~has_plan
        rows = [table.row[name] for _, nodes in unbound for name in nodes if name in table.row]
        has_plan[rows] = True
        return has_plan
