"""Encoder of TapFinger: ``tapfinger-pools/1``, node pools as agents and waiting gangs as tasks.

All pools choose a gang and a size at once. Conflicts are resolved as in training. The started gangs
take their capacity, and all pools choose again until no gang starts. The free capacity of a pool is
the sum over its ready nodes; the placer finds the nodes for a size. Running gangs keep their
allocation, as in TapFinger.

A gang waits at the pools that could hold its smallest size when empty. The rules decide on a gang
that no pool could hold.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity
from bireme.core.resources import PODS, BoolArray, FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import CapacityPool, Sizes, bounds, demand_of, seconds_for, steps_left
from bireme.onnx.sessions import Array, Ask, Shape
from bireme.rl.encoders import UNKNOWN_SECONDS
from bireme.rl.protocols import Choices
from bireme_lab.encoders.tapfinger_scene import (
    NONE,
    PENDING_FEATURES,
    POOL_FEATURES,
    RUNNING_FEATURES,
    SIZE_FEATURES,
    SLOTS,
    Scene,
)

# --- 1. sizes ---------------------------------------------------------------------------------
#
# The speed of a gang without a measurement is proportional to its replicas, up to its request; more
# replicas gain nothing. Sizes hardly faster than smaller ones are left out.

MAX_SIZES: Final = 8
_MIN_GAIN: Final = 0.02
"""The minimum share of the time that a larger size must save."""


@dataclass(frozen=True, slots=True, eq=False)
class SizeOptions:
    """The sizes of one gang, the smallest first.

    Attributes:
        sizes: Replicas by task name.
        seconds: Run time at each size, (sizes,), falling.
        demand: Demand in the units of the nodes, int64 (sizes, resources).
    """

    gang: Gang
    sizes: tuple[Sizes, ...]
    seconds: FloatArray
    demand: IntArray


def options_of(
    gang: Gang, pool: CapacityPool, snapshot: ClusterSnapshot, typical: float
) -> SizeOptions:
    """Return the sizes of ``gang``; ``typical`` seconds stand in for a missing estimate."""
    low, high = bounds(gang)
    requested = {task.name: task.replicas for task in gang.tasks}
    if gang.speed is None:  # the gain of more replicas is unknown
        high = {name: max(low[name], min(size, requested[name])) for name, size in high.items()}
    sizes: list[Sizes] = []
    seconds: list[float] = []
    for candidate in _ladder(low, high):
        time = seconds_at(gang, candidate, pool, snapshot, typical)
        if not sizes:
            sizes.append(candidate)
            seconds.append(max(time if math.isfinite(time) else UNKNOWN_SECONDS, 1.0))
        elif time < (1 - _MIN_GAIN) * seconds[-1]:
            sizes.append(candidate)
            seconds.append(max(time, 1e-3))
    axis = snapshot.nodes.axis
    demand = [axis.usage(tuple(demand_of(gang, candidate).items())) for candidate in sizes]
    return SizeOptions(gang, tuple(sizes), np.array(seconds), np.stack(demand))


def typical_seconds(gangs: tuple[Gang, ...]) -> float:
    """Return the median of the known estimates, or an hour."""
    estimates = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds]
    return float(np.median(estimates)) if estimates else UNKNOWN_SECONDS


def seconds_at(
    gang: Gang, sizes: Sizes, pool: CapacityPool, snapshot: ClusterSnapshot, typical: float
) -> float:
    """Return the remaining run time at ``sizes``; infinite if it cannot run."""
    requested = {task.name: task.replicas for task in gang.tasks}
    estimate = snapshot.remaining_seconds(gang) if gang.estimated_seconds else typical
    if gang.speed is None:
        return float(estimate or 1.0) * gang.replicas / max(1, sum(sizes.values()))
    speed, steps = pool.steps_per_second(gang, sizes), steps_left(gang, snapshot)
    if math.isfinite(steps):
        return seconds_for(steps, speed)
    # the work is unknown: the estimate is for the requested replicas
    usual = pool.steps_per_second(gang, requested)
    return seconds_for(float(estimate or 1.0) * usual, speed) if usual else math.inf


def _ladder(low: Sizes, high: Sizes) -> list[dict[str, int]]:
    """Return all sizes from ``low`` to ``high``, or MAX_SIZES in growing steps."""
    span = max((high[name] - low[name] for name in low), default=0)
    rungs = range(span + 1) if span < MAX_SIZES else _rungs(span)
    return [
        {name: low[name] + round((high[name] - low[name]) * rung / max(span, 1)) for name in low}
        for rung in rungs
    ]


@cache
def _rungs(span: int) -> tuple[int, ...]:
    """Return at most MAX_SIZES numbers from 0 to ``span``."""
    rungs = {round((span + 1) ** (rung / (MAX_SIZES - 1))) - 1 for rung in range(MAX_SIZES)}
    return tuple(sorted(rungs))


# --- 2. conflicts -----------------------------------------------------------------------------
#
# If several pools choose the same job, the pool n with the highest Pr(n | job) wins. By Bayes'
# theorem that is proportional to Pr(job | n) Pr(n). Pr(n) grows with the number of such jobs that
# fit the free capacity of the pool. The other pools start nothing in this step. Training shares
# this code.
#
# Source: Li et al., "Task placement and resource allocation for edge machine learning", equation
# 11; the authors' program defines Pr(n) as the softmax of the room over the contenders.


def room(free: IntArray, demand: IntArray) -> FloatArray:
    """Return how many times ``demand`` fits into ``free``, shape (...) from (..., resources)."""
    needed = np.maximum(demand, 1)
    return np.asarray(np.where(demand > 0, free / needed, np.inf).min(axis=-1))


def winners(jobs: IntArray, scores: FloatArray, rooms: FloatArray) -> BoolArray:
    """Return which pools may start their chosen job, shape (envs, pools).

    Args:
        jobs: The chosen job of each pool, shape (envs, pools); a negative one never wins.
        scores: Pr(job | pool), 0 or more, same shape.
        rooms: Results of :func:`room`, same shape.
    """
    with np.errstate(divide="ignore"):
        weights = np.log(scores) + rooms  # all contenders have the same denominator
    contend = (jobs[:, :, None] == jobs[:, None, :]) & (jobs >= 0)[:, :, None]
    is_ahead = weights[:, None, :] > weights[:, :, None]
    pools = np.arange(jobs.shape[1])
    is_first = (weights[:, None, :] == weights[:, :, None]) & (pools[None, :] < pools[:, None])
    return np.asarray((jobs >= 0) & ~(contend & (is_ahead | is_first)).any(axis=2))


# --- 3. gangs and pools as arrays -------------------------------------------------------------
#
# The capacity of a pool is the sum over its ready nodes. Shares of it have two columns: the
# scarcest resource other than devices, and devices. A pool without devices has equal columns.

MAX_RUNS: Final = 16
"""The maximum number of running gangs that a pool sees, the first to end."""
_BEYOND: Final = 10.0
"""The cap of shares of a pool."""


def first_of(which: BoolArray, slots: int) -> IntArray:
    """Return the columns of the first ``slots`` in ``which``, (..., slots), padded with NONE."""
    place = which.cumsum(axis=-1) - 1
    *rows, columns = np.nonzero(which & (place < slots))
    first = np.full((*which.shape[:-1], slots), NONE)
    first[(*rows, place[(*rows, columns)])] = columns
    return first


@dataclass(frozen=True, slots=True, eq=False)
class PoolCapacity:
    """Capacity and free resources of the pools of a cluster.

    Attributes:
        codes: Pool of every node, (nodes,); NONE for nodes that are not ready.
        capacity, free: Int64 (pools, resources).
        devices, non_devices: Columns of the resources.
    """

    codes: IntArray
    capacity: IntArray
    free: IntArray
    devices: IntArray
    non_devices: IntArray

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "PoolCapacity":
        """Sum over the ready nodes of every pool; the caller may write to ``free``."""
        nodes, codes = snapshot.nodes, snapshot.node_pools
        count = int(codes.max(initial=0)) + 1
        ready = np.where(nodes.accepts, codes, count)  # row ``count`` is dropped below

        def total(amounts: IntArray) -> IntArray:
            sums = np.zeros((count + 1, amounts.shape[1]), dtype=np.int64)
            np.add.at(sums, ready, np.maximum(amounts, 0))
            return sums[:count]

        names = nodes.axis.names
        devices = np.flatnonzero(["/" in name for name in names])
        non_devices = np.flatnonzero(["/" not in name and name != PODS for name in names])
        free = total(nodes.allocatable - snapshot.used)
        codes = np.where(ready < count, ready, NONE)
        return cls(codes, total(nodes.allocatable), free, devices, non_devices)

    def shares(self, amounts: IntArray) -> FloatArray:
        """Return amounts (pools, ..., resources) as shares of capacity, (pools, ..., 2)."""
        capacity = self.capacity.reshape(len(self.capacity), *[1] * (amounts.ndim - 2), -1)
        share = np.where(amounts > 0, amounts / np.maximum(capacity, 1), 0.0)
        share = np.where((amounts > 0) & (capacity <= 0), _BEYOND, np.minimum(share, _BEYOND))
        other = share[..., self.non_devices].max(-1, initial=0.0)
        device = share[..., self.devices].max(-1, initial=0.0)
        has_devices = (capacity[..., self.devices] > 0).any(-1)
        return np.stack([other, np.where(has_devices, device, np.maximum(other, device))], axis=-1)

    def holds(self, option: SizeOptions, room: FreeCapacity) -> BoolArray:
        """Return whether the nodes of each pool have places for each size, (pools, sizes)."""
        fits = np.ones((len(self.capacity), len(option.sizes)), dtype=np.bool_)
        is_ready = self.codes != NONE
        for task in option.gang.tasks:
            counts = np.array([size[task.name] for size in option.sizes])
            replicas = np.minimum(room.replicas(task), counts.max())[is_ready]
            total = np.bincount(self.codes[is_ready], replicas, minlength=len(self.capacity))
            fits &= total[:, None] >= counts  # each task alone: the placer may still refuse
        return fits


@dataclass(slots=True, eq=False)
class ChoiceState:
    """Gangs and pools after the choices so far in a cycle.

    Attributes:
        options: Sizes of each gang.
        pools: Capacity of the pools; ``free`` falls with every start.
        demand: Int64 (gangs, sizes, resources).
        seconds: (gangs, sizes), infinite after the last size of a gang.
        shares: Shares of the pools' capacity, (pools, gangs, sizes, 2).
        places: Whether the pool had nodes for the size at first, bool (pools, gangs, sizes).
        reaches: Whether the empty pool could hold the smallest size, bool (pools, gangs).
        waits: Whether no pool has started the gang, bool (gangs,).
        waited: Seconds, (gangs,).
        run_shares, run_left: Shares and remaining seconds of running gangs, (pools, runs, 2) and
            (pools, runs).
        can_void: Whether a gang runs, so that all pools may start nothing.
    """

    options: tuple[SizeOptions, ...]
    pools: PoolCapacity
    demand: IntArray
    seconds: FloatArray
    shares: FloatArray
    places: BoolArray
    reaches: BoolArray
    waits: BoolArray
    waited: FloatArray
    run_shares: FloatArray
    run_left: FloatArray
    can_void: bool

    @classmethod
    def of(cls, gangs: tuple[Gang, ...], snapshot: ClusterSnapshot) -> "ChoiceState":
        """Return the state at the start of a cycle."""
        nodes, whole, pools = snapshot.nodes, CapacityPool((), snapshot), PoolCapacity.of(snapshot)
        typical = typical_seconds(gangs)
        options = tuple(options_of(gang, whole, snapshot, typical) for gang in gangs)
        demand = np.stack([_pad(option.demand, 0) for option in options])
        now, empty = FreeCapacity(nodes, snapshot.used), FreeCapacity(nodes, nodes.fixed)
        whole_demand = np.broadcast_to(demand, (len(pools.capacity), *demand.shape))
        run_shares, run_left = _runs(pools, whole, snapshot, typical)
        return cls(
            options=options,
            pools=pools,
            demand=demand,
            seconds=np.stack([_pad(option.seconds, np.inf) for option in options]),
            shares=pools.shares(whole_demand),
            places=np.stack([_pad(pools.holds(o, now).T, False).T for o in options], axis=1),
            reaches=np.stack([pools.holds(o, empty)[:, 0] for o in options], axis=1),
            waits=np.ones(len(gangs), dtype=np.bool_),
            waited=np.array([snapshot.wait_seconds(gang) for gang in gangs]),
            run_shares=run_shares,
            run_left=run_left,
            can_void=bool(snapshot.running),
        )

    @property
    def fits(self) -> BoolArray:
        """Sizes that could start now, bool (pools, gangs, sizes)."""
        is_free = (self.demand <= self.pools.free[:, None, None, :]).all(-1)
        may = self.reaches & self.waits
        return np.asarray(is_free & self.places & may[:, :, None])

    def start(self, gang: int, pool: int, size: int) -> None:
        """Start ``gang`` in ``pool`` with the size in that row."""
        self.waits[gang], self.can_void = False, True
        self.pools.free[pool] -= self.demand[gang, size]

    def observation(self) -> dict[str, NDArray[Any]]:
        """Return the observation for the network; see section 4."""
        waits = self.reaches & self.waits
        job = first_of(waits, SLOTS)
        has_job, rows = job != NONE, np.maximum(job, 0)
        visible = np.zeros(self.reaches.shape, dtype=np.bool_)
        visible[np.nonzero(has_job)[0], job[has_job]] = True
        kinds = np.flatnonzero(visible.any(axis=0))  # skip gangs that no pool sees
        kind = np.where(has_job, np.searchsorted(kinds, job), NONE)
        scene = Scene(
            kind=kind,
            waited=np.where(has_job, self.waited[rows], 0.0),
            meets=visible.T[rows] & has_job[..., None],
            queued=waits.sum(axis=1),
            free=1.0 - self.pools.shares(self.pools.capacity - self.pools.free),
            shares=self.shares[:, kinds],
            fits=self.fits[:, kinds],
            times=self.seconds[kinds],
            run_shares=self.run_shares,
            run_left=self.run_left,
        )
        return {
            **scene.inputs(),
            "kind": kind,
            "job": job,
            "room": room(self.pools.free[:, None, :], self.demand[rows, 0]),
            "can_void": np.asarray(self.can_void),
        }


def _pad(rows: NDArray[Any], fill: float) -> NDArray[Any]:
    """Pad ``rows`` to MAX_SIZES rows."""
    whole = np.full((MAX_SIZES, *rows.shape[1:]), fill, rows.dtype)
    whole[: len(rows)] = rows
    return whole


def _runs(
    pools: PoolCapacity, whole: CapacityPool, snapshot: ClusterSnapshot, typical: float
) -> tuple[FloatArray, FloatArray]:
    """Return shares and remaining seconds of the first gangs to end in each pool; below 0: none."""
    runs_by_pool: list[list[tuple[float, IntArray]]] = [[] for _ in pools.capacity]
    for running in snapshot.running:
        rows = running.placement.node_rows()
        if len(rows) and (pool := int(pools.codes[rows[0]])) != NONE:
            remaining = seconds_at(running.gang, running.sizes, whole, snapshot, typical)
            remaining = remaining if np.isfinite(remaining) else typical
            runs_by_pool[pool].append(
                (remaining, running.usage(snapshot.nodes.axis)[1].sum(axis=0))
            )
    runs = max(1, min(MAX_RUNS, max(map(len, runs_by_pool))))
    amounts = np.zeros((len(runs_by_pool), runs, len(snapshot.nodes.axis)), dtype=np.int64)
    seconds = np.full((len(runs_by_pool), runs), float(NONE))
    for pool, parts in enumerate(runs_by_pool):
        for place, (remaining, usage) in enumerate(sorted(parts, key=lambda part: part[0])[:runs]):
            seconds[pool, place], amounts[pool, place] = remaining, usage
    return pools.shares(amounts), seconds


# --- 4. question and answer -------------------------------------------------------------------
#
# An observation is one moment of all pools: the inputs of
# :class:`~bireme_lab.encoders.tapfinger_scene.Scene`, ``kind`` and ``job`` (int64, (pools, slots)),
# ``room`` (pools, slots) and ``can_void``, whether all pools may start nothing. The answer has, for
# every slot of every pool, the pointer's score, the score of no size, and the score of each size.

VOID: Final = 0
"""The size of a gang that does not start."""
LOST: Final = -1
"""The size of a pool without a start: another pool has the task, or nothing could start."""
INPUTS: Final[Mapping[str, Shape]] = {
    "pending": ("pools", "slots", PENDING_FEATURES),
    "running": ("pools", "runs", RUNNING_FEATURES),
    "pools": ("pools", POOL_FEATURES),
    "sizes": ("pools", "slots", "sizes", SIZE_FEATURES),
}

Observation = Mapping[str, NDArray[Any]]


def question(observation: Observation) -> tuple[dict[str, Array], int]:
    """Return arrays of the shapes of INPUTS, and the length of the answer."""
    kind = np.maximum(observation["kind"], 0)
    sizes = np.take_along_axis(observation["sizes"], kind[:, :, None, None], axis=1)
    arrays = {name: observation[name] for name in INPUTS} | {"sizes": sizes}
    return arrays, kind.size * (2 + sizes.shape[2])


def decide(
    observation: Observation,
    sizes: Array,
    logits: FloatArray,
    *,
    turns: int = 1,
    draws: np.random.Generator | None = None,
) -> tuple[IntArray, IntArray]:
    """Return the likeliest slot and size of every pool, (pools,) each, without conflicts.

    Sizes count from 1. ``sizes`` is the array of :func:`question`. With more ``turns``, losing
    pools choose again among the remaining jobs by the same answer; training asks the network again.
    With ``draws`` slot and size are drawn by their probabilities, as in training.
    """
    kind, pools = observation["kind"], np.arange(len(observation["kind"]))
    scores = logits.reshape(*kind.shape, -1)
    fits = sizes[..., 0] > 0
    may_void = np.full((*kind.shape, 1), observation["can_void"])
    allowed = np.concatenate([may_void, fits], axis=-1)
    best = _choice(np.where(allowed, scores[..., 1:], -np.inf), draws)
    is_open = fits[..., 0] & (kind != NONE)
    slot, size = np.zeros(len(pools), np.int64), np.full(len(pools), LOST)
    for _ in range(turns):
        chosen_slot, won = _won(observation, scores[..., 0], is_open, best, draws)
        slot[won], size[won] = chosen_slot[won], best[pools, chosen_slot][won]
        started_jobs = observation["job"][pools, chosen_slot][won & (size > VOID)]
        is_open = is_open & ~won[:, None] & ~np.isin(observation["job"], started_jobs)
        if not is_open.any():
            break
    return slot, size


def _won(
    observation: Observation,
    scores: FloatArray,
    is_open: BoolArray,
    best: IntArray,
    draws: np.random.Generator | None,
) -> tuple[IntArray, BoolArray]:
    """Return the open slot that each pool chooses, and whether it wins its job, (pools,) each.

    A pool whose ``best`` size for a job is none does not contend for it.
    """
    pools, is_busy = np.arange(len(scores)), np.asarray(is_open.any(-1))
    open_scores = np.where(is_open | ~is_busy[:, None], scores, -np.inf)
    slot = _choice(open_scores, draws)
    shares = np.exp(
        open_scores - open_scores.max(-1, keepdims=True)
    )  # softmax, as training samples
    chance = (shares / shares.sum(-1, keepdims=True))[pools, slot]
    voids = best[pools, slot] == VOID
    job = np.where(is_busy & ~voids, observation["job"][pools, slot], NONE)
    room = observation["room"][pools, slot]
    return slot, winners(job[None], chance[None], room[None])[0] | (is_busy & voids)


def _choice(scores: FloatArray, draws: np.random.Generator | None) -> IntArray:
    """Return the argmax of the last axis, or with ``draws`` a draw from its softmax."""
    # The argmax with Gumbel noise is such a draw (Maddison et al., A* sampling, NeurIPS 2014).
    noise = 0.0 if draws is None else draws.gumbel(size=scores.shape)
    return np.asarray((scores + noise).argmax(-1))


# --- 5. the encoder ---------------------------------------------------------------------------

MAX_GANGS: Final = 32
"""Gangs considered in a cycle, by arrival; later ones wait for another cycle."""
MAX_ROUNDS: Final = 16
"""The maximum number of rounds of choices in a cycle."""
_TURNS: Final = 64
"""The maximum number of choices by one answer of the network, for pools that lost a gang."""


class TapfingerPools:
    """``tapfinger-pools/1``: chooses gangs, their sizes and their node pools."""

    inputs: Mapping[str, Shape] = INPUTS

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """Choose among the first of ``gangs``."""
        state = ChoiceState.of(tuple(gangs[:MAX_GANGS]), snapshot)
        order: list[str] = []
        sizes: dict[str, Mapping[str, int]] = {}
        pools: dict[str, BoolArray] = {}
        for _ in range(MAX_ROUNDS):
            started = _round(ask, state) if state.fits[..., 0].any() else []
            for gang, pool, size in started:
                option = state.options[gang]
                order.append(option.gang.uid)
                sizes[option.gang.uid] = option.sizes[size]
                pools[option.gang.uid] = snapshot.node_pools == pool
                state.start(gang, pool, size)
            if not started:
                break
        return Choices(tuple(order), sizes, pools)


def _round(ask: Ask, state: ChoiceState) -> list[tuple[int, int, int]]:
    """Return rows of gangs, pools and sizes that start now; a pool starts at most one."""
    observation = state.observation()
    arrays, count = question(observation)
    slot, size = decide(observation, arrays["sizes"], ask(arrays, count), turns=_TURNS)
    starts = np.flatnonzero(size > VOID)
    gangs = observation["job"][starts, slot[starts]]
    return list(zip(gangs.tolist(), starts.tolist(), (size[starts] - 1).tolist(), strict=True))
