"""Node floor: the number of nodes that a pool should have now, and the target of its scaling.

The floor is the largest of four numbers, within the pool's bounds: the forecast until a newly
requested node is ready, the need of running and planned gangs, the scale-up for waiting gangs, and
the present demand with its free headroom. A forecast raises the target by a limited number of nodes
an hour and never lowers it. Only empty nodes lower it, once they have been empty for long enough,
if scale-in is allowed. An old, broken or missing forecast is ignored, with a message.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from bireme.core.decision import Decision
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import NodeTable, ScaledPool, feasible, in_pool
from bireme.core.obstacles import configuration_fault
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import HOUR, duration

STALE_AFTER_SECONDS: Final = 26 * HOUR
"""Forecasts are made nightly; two hours allow for a late night."""

Raised: TypeAlias = tuple[tuple[float, int], ...]
"""Moments at which a forecast raised a target, POSIX seconds, with the number of nodes."""

_MIN_PATIENCE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class HourForecast:
    """The nodes' worth of demand expected in the hour from ``start``, POSIX seconds.

    ``p50`` is exceeded half the time; ``upper`` is the quantile by which the pool is scaled.
    """

    start: float
    p50: float
    upper: float


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """Bounds set by the owner of a pool.

    Attributes:
        minimum, maximum: Nodes.
        max_step: The limit on nodes by which a forecast may raise the target in an hour.
        lead_seconds: The time until a new node is ready: the forecast is followed that far ahead.
        scale_in: Whether empty nodes may go, each after ``cool_down_seconds``.
        headroom: Nodes' worth that stays free beyond the demand, for later gangs.
    """

    minimum: int
    maximum: int
    max_step: int = 10
    lead_seconds: int = 600
    scale_in: bool = False
    cool_down_seconds: int = 1800
    headroom: float = 0.0

    @property
    def patience_seconds(self) -> int:
        """Longest time a node may take to come before its pool is late."""
        return max(_MIN_PATIENCE_SECONDS, 2 * self.lead_seconds)


@dataclass(frozen=True, slots=True)
class PoolState:
    """The state of a pool.

    Attributes:
        replicas: The nodes that its target requests, the base of ``gang_nodes``.
        needed: Nodes that must stay: pods are bound or planned there, or a waiting gang counts on
            them.
        gang_nodes: Nodes for waiting gangs, from :func:`nodes_for_gangs`.
        coming: Requested nodes that are not ready yet.
        empty_since: For each ready, empty node that may go: since when, POSIX seconds.
        forecast: Hours in ascending order, possibly some that are over.
        forecast_made: POSIX seconds; None for never.
        raised: Steps by which the forecast raised the target, at least of the last hour.
        demand: The demand on the pool, in nodes; see :func:`pool_demand`.
    """

    replicas: int
    needed: int
    gang_nodes: int = 0
    coming: int = 0
    empty_since: tuple[float, ...] = ()
    forecast: tuple[HourForecast, ...] = ()
    forecast_made: float | None = None
    raised: Raised = ()
    demand: float = 0.0

    @property
    def gangs_need(self) -> int:
        """Nodes for gangs that run or wait."""
        return max(self.needed, self.gang_nodes)


@dataclass(frozen=True, slots=True)
class FloorDecision:
    """The decision on one pool.

    Attributes:
        floor: The least nodes it should have.
        replicas: Nodes that its target should request; unchanged if nothing is to be done.
        message: The reason for people.
        step: Nodes by which the forecast alone raises the target; see :func:`with_step`.
    """

    floor: int
    replicas: int
    reason: Reason
    message: str
    step: int = 0


def nodes_for_gangs(pool: str, replicas: int, decision: Decision) -> int:
    """Return the target of ``pool`` for gangs, if it now requests ``replicas``.

    0 if no gang waits for nodes of the pool.
    """
    requests = [request.nodes for request in decision.node_requests if request.pool == pool]
    # A request of 0 nodes counts too: the coming nodes are enough, and the pool must keep them.
    return replicas + sum(requests) if requests else 0


def with_step(raised: Raised, step: int, now: float) -> Raised:
    """Return ``raised`` with a ``step`` made ``now``, without steps older than an hour."""
    return (*_lately(raised, now), (now, step)) if step else raised


def floor(bounds: PoolBounds, state: PoolState, now: float) -> FloorDecision:
    """Return the floor of a pool at ``now``, POSIX seconds, and the target of its scaling."""
    expected, forecast_note = _forecast_nodes(bounds, state, now)
    allowed = _within_step(expected, bounds, state, now)
    with_headroom = _with_headroom(bounds, state)
    reactive = _clamp(max(state.gangs_need, with_headroom), bounds)
    level = max(reactive, _clamp(allowed, bounds))
    if allowed < expected:  # a broken forecast must not buy a whole pool at once
        forecast_note = f"{forecast_note}, but maxStep allows {bounds.max_step} more nodes an hour"
    target, reason = _target(
        bounds, state, now, level, max(expected, state.gangs_need, with_headroom)
    )
    step = max(0, target - max(state.replicas, reactive))
    return FloorDecision(
        level, target, reason, _message(bounds, state, target, reason, forecast_note), step
    )


def _clamp(nodes: int, bounds: PoolBounds) -> int:
    return min(max(nodes, bounds.minimum), bounds.maximum)


def _with_headroom(bounds: PoolBounds, state: PoolState) -> int:
    """Return the nodes for the demand and the headroom; 0 without a headroom."""
    if not bounds.headroom:
        return 0
    # Demand is a sum of fractions: rounding recovers whole numbers that lost their last bits.
    return math.ceil(round(state.demand + bounds.headroom, 6))


def _forecast_nodes(bounds: PoolBounds, state: PoolState, now: float) -> tuple[int, str]:
    """Return the largest forecast until a newly requested node is ready, with a note."""
    made_at, until = state.forecast_made, now + bounds.lead_seconds
    # Others may write the status with the forecast, so every number may be wrong.
    if made_at is None or not math.isfinite(made_at) or not state.forecast:
        return 0, "there is no forecast"
    if not now - STALE_AFTER_SECONDS <= made_at <= now + HOUR:
        age = f"{duration(now - made_at)} old" if made_at < now else "from the future"
        return 0, f"the forecast is {age} and is not used"
    hours = [hour for hour in state.forecast if hour.start < until and now < hour.start + HOUR]
    if not hours:
        return 0, f"the forecast does not cover the next {duration(bounds.lead_seconds)}"
    if not all(0 <= hour.upper < math.inf for hour in hours):  # nor NaN
        return 0, "the forecast is not a number of nodes and is not used"
    peak = math.ceil(max(hour.upper for hour in hours))
    return peak, f"the forecast for the next {duration(bounds.lead_seconds)} is at most {peak}"


def _within_step(expected: int, bounds: PoolBounds, state: PoolState, now: float) -> int:
    """Return ``expected``, within the forecast's remaining steps of this hour."""
    spent = sum(nodes for _, nodes in _lately(state.raised, now))
    return min(expected, state.replicas + max(0, bounds.max_step - spent))


def _lately(raised: Raised, now: float) -> Raised:
    return tuple(entry for entry in raised if now - entry[0] < HOUR)


def _target(
    bounds: PoolBounds, state: PoolState, now: float, level: int, demand: int
) -> tuple[int, Reason]:
    if state.replicas > bounds.maximum:
        # Somebody set it on purpose: a bound that was lowered later stops no nodes.
        return state.replicas, Reason.ABOVE_MAX
    if level > state.replicas:
        return level, Reason.RAISED
    cool = sum(now - since >= bounds.cool_down_seconds for since in state.empty_since)
    # While nodes are coming the target stays: a lower one could take back those instead.
    if bounds.scale_in and cool and not state.coming and level < state.replicas:
        return max(level, state.replicas - cool), Reason.LOWERED
    if demand > bounds.maximum == state.replicas:
        return state.replicas, Reason.AT_MAX
    return state.replicas, Reason.AT_FLOOR


def _message(
    bounds: PoolBounds, state: PoolState, target: int, reason: Reason, forecast_note: str
) -> str:
    parts = [f"{state.needed} in use or kept"]
    if state.gang_nodes:
        parts.append(f"{state.gang_nodes} needed by waiting gangs")
    if bounds.headroom:
        parts.append(f"{state.demand:.3g} needed in all and {bounds.headroom:g} kept free")
    details = ", ".join((*parts, forecast_note))
    match reason:
        case Reason.ABOVE_MAX:
            return (
                f"the target asks for {state.replicas} nodes, above max {bounds.maximum}, and is "
                f"not changed; {details}"
            )
        case Reason.AT_MAX:
            return f"{target} nodes, the maximum: {details}"
        case Reason.AT_FLOOR:
            return f"{target} nodes: {details}"
    return f"from {state.replicas} to {target} nodes: {details}"


# --- demand on pools, in nodes ---


def pool_demand(snapshot: ClusterSnapshot, pools: Sequence[ScaledPool]) -> dict[str, float]:
    """Return the demand on each of ``pools`` by name, in nodes; names are different.

    An amount counts as a fraction of nodes, by the pool's scarcest resource. A waiting gang counts
    at its smallest size, if its queue could admit it beside the earlier gangs. Each of its tasks
    counts for the pool whose template takes its replicas with the fewest nodes. A node may be in
    several pools. A pool without a template has no demand.
    """
    measured = [pool for pool in sorted(pools, key=lambda pool: pool.name) if pool.template]
    # One empty node per pool, under the pool's name.
    nodes = [
        replace(pool.template, name=pool.name, is_ready=True, is_cordoned=False, is_leaving=False)
        for pool in measured
        if pool.template is not None
    ]
    templates = snapshot.nodes.with_nodes(nodes)
    demand = np.array([_usage_in_nodes(snapshot, pool, templates) for pool in measured])
    max_nodes = np.array([pool.most for pool in measured])
    worth: dict[object, FloatArray] = {}
    for gang in _admissible(snapshot) if measured else ():
        for task in gang.tasks:
            kind = (task.request, task.constraints)
            if kind not in worth:
                worth[kind] = _worth(task, templates)
            needed = worth[kind] * task.replicas
            needed = np.where(needed <= max_nodes, needed, np.inf)
            best = int(np.argmin(needed))
            if np.isfinite(needed[best]):
                demand[best] += needed[best]
    counted = dict(zip((pool.name for pool in measured), demand.tolist(), strict=True))
    return {pool.name: counted.get(pool.name, 0.0) for pool in pools}


def _usage_in_nodes(snapshot: ClusterSnapshot, pool: ScaledPool, templates: NodeTable) -> float:
    """Return the usage of ``pool`` by bound and planned pods, in nodes, without permanent pods."""
    nodes, row = snapshot.nodes, templates.row[pool.name]
    members = in_pool(pool.selector, nodes)
    # Permanent pods are no demand: each new node brings its own.
    used = np.maximum(snapshot.used[members] - nodes.fixed[members], 0).sum(axis=0)
    by_name = dict(zip(nodes.axis.names, used.tolist(), strict=True))
    usage = np.array([by_name.get(name, 0) for name in templates.axis.names], dtype=np.float64)
    return float(_shares(usage, templates)[row])


def _shares(amounts: FloatArray, templates: NodeTable) -> FloatArray:
    """Return ``amounts``, shape (resources,), in nodes of every template, shape (pools,)."""
    offers = (templates.allocatable - templates.fixed).astype(np.float64)
    shares = np.divide(amounts, offers, out=np.zeros_like(offers), where=offers > 0)
    return np.asarray(shares.max(axis=1), dtype=np.float64)


def _worth(task: Task, templates: NodeTable) -> FloatArray:
    """Return one replica in nodes of each pool, shape (pools,); infinite if it may not run
    there.
    """
    request = templates.axis.request(task.request)
    if request is None:
        return np.full(len(templates), np.inf)
    fits = (request <= templates.allocatable - templates.fixed).all(axis=1)
    fits &= feasible(task.constraints, templates)
    return np.where(fits, _shares(request.astype(np.float64), templates), np.inf)


def _admissible(snapshot: ClusterSnapshot) -> Iterator[Gang]:
    """Yield waiting gangs by arrival, as far as their queues could admit them together."""
    queues = QueueTree(
        snapshot.queues, snapshot.queue_usage, snapshot.total, snapshot.nodes.accelerators
    )
    # By arrival: demand is recorded for a forecast and must not depend on the policy.
    for whole in sorted(snapshot.waiting, key=lambda gang: (gang.arrived, gang.uid)):
        gang = whole.at_minimum
        if configuration_fault(gang, snapshot, queues) is not None:
            continue
        if queues.excess(gang.queue, gang.demand) is None:
            queues.take(gang.queue, gang.demand)
            yield gang


def nodes_to_keep(snapshot: ClusterSnapshot, kept_names: Collection[str]) -> BoolArray:
    """Return which nodes must stay, shape (nodes,): in use, planned, or named in ``kept_names``.

    The decision's ``kept_nodes`` are the names.
    """
    # Permanent pods (DaemonSets) do not count as use.
    needed = np.asarray((snapshot.used > snapshot.nodes.fixed).any(axis=1), dtype=np.bool_)
    row = snapshot.nodes.row
    needed[[row[name] for name in kept_names if name in row]] = True
    return needed
