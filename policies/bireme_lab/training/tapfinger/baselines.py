"""TapFinger's baselines: rules without learning, and the expert of the warm start.

A rule maps the observation to the choice of every pool, like an agent. Random and Min are the
authors': each pool takes any visible job, even one that does not fit, and the later pool loses a
conflict. The greedy rules and shortest first see all pools at once and avoid conflicts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, TypeAlias

import numpy as np

from bireme.core.gangs import Gang, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, FloatArray, IntArray, request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.encoders.tapfinger import LOST, VOID, winners
from bireme_lab.encoders.tapfinger_scene import NONE, Scene
from bireme_lab.heuristics.measured_sizers import Optimus
from bireme_lab.training.tapfinger.environment import (
    SIZE,
    SLOT,
    WINDOW,
    TapFingerEnvConfig,
    TapFingerPools,
    TapFingerView,
)
from bireme_lab.training.tapfinger.laws import TapFingerLaw
from bireme_lab.training.vec_env import Array, Observation

Rule: TypeAlias = Callable[[Observation], dict[str, Array]]
"""Maps the observation of n environments to the actions in each."""


def at_random(seed: int, *, takes_least: bool) -> Rule:
    """Make the rule of any visible job, with the minimum or any possible amount, 0 included."""
    rng = np.random.default_rng(seed)

    def choose(observation: Observation) -> dict[str, Array]:
        slot = np.where(
            observation["pending_mask"], rng.random(observation["job"].shape), -1.0
        ).argmax(axis=2)
        job = _at(observation["job"], slot)
        won = winners(job, np.ones(job.shape), np.zeros(job.shape))
        minimum, top = (
            _at(observation["least"], slot),
            np.minimum(observation["free"], observation["most"]),
        )
        choices = np.maximum(top - minimum + 1, 1)
        # nothing is as likely as each other amount
        is_nothing = rng.random(job.shape) * (choices.prod(axis=2) + 1) < 1
        random_amount = minimum + (rng.random(top.shape) * choices).astype(np.int64)
        gets = _at(observation["fits"], slot) & won
        if not takes_least:
            gets &= ~(is_nothing & observation["may_wait"][:, None])
        amount = np.where(gets[..., None], minimum if takes_least else random_amount, 0)
        return {"slot": slot, "won": won, "amount": amount}

    return choose


@dataclass(frozen=True, slots=True)
class Greedy:
    """First come, first served, each job in the pool that suits it.

    A job that gains by more GPUs goes to the pool with most free GPUs. It gets all free ones up to
    ``max_gpus``, if these are at least ``min_gpus``. Any other job gets the minimum, in the pool
    with fewest free GPUs. With 10 GPUs a sensitive job of the synthetic law takes 2 steps, with 4
    it takes 5. If ``is_frugal``, GPUs that do not save a step are left to others.
    """

    law: TapFingerLaw
    max_gpus: int = 10
    min_gpus: int = 4
    is_frugal: bool = True

    def __call__(self, observation: Observation) -> dict[str, Array]:
        kind, minimum, free = (
            observation["kind"],
            observation["least"],
            observation["free"][:, :, None, 1],
        )
        frugal = self.law.frugal_gpus
        gains = (frugal[kind, -1] > self.law.least[1]) & observation["pending_mask"]
        gpus = np.minimum(np.minimum(self.max_gpus, observation["most"][:, :, None, 1]), free)
        if self.is_frugal:
            gpus = frugal[kind, gpus]
        gpus = np.where(gains, gpus, minimum[..., 1])
        order = (
            np.where(gains, free, -free) - 1e3 * observation["job"]
        )  # arrival counts before room
        amount = np.stack([minimum[..., 0], gpus], axis=-1)
        return best_pairs(
            observation, order, amount, gpus >= np.minimum(self.min_gpus, frugal[kind, -1])
        )


def shortest_first(law: TapFingerLaw) -> Rule:
    """Make the rule of shortest first, with the minimum amount, in the pool with most free GPUs."""
    length = law.steps[:, law.least[0], law.least[1]]

    def choose(observation: Observation) -> dict[str, Array]:
        order = (
            -1e6 * length[observation["kind"]]
            - 1e3 * observation["job"]
            + observation["free"][:, :, None, 1]
        )
        return best_pairs(observation, order, observation["least"], observation["fits"])

    return choose


def best_pairs(
    observation: Observation, scores: FloatArray, amounts: IntArray, may: BoolArray
) -> dict[str, Array]:
    """Choose the pairs of a job and a pool with the highest scores, each job and pool once.

    Args:
        scores: Shape (W, N, P).
        amounts: Amount for each job, shape (W, N, P, 2).
        may: Whether each may start if it fits, shape (W, N, P).
    """
    job, fits = observation["job"], observation["fits"]
    is_open = fits & may
    # while no job runs, a pool must start one
    stuck = ~observation["may_wait"] & ~is_open.any(axis=(1, 2))
    is_open = np.where(stuck[:, None, None], fits, is_open)
    envs, slots = np.arange(len(job)), job.shape[2]
    slot, won = np.zeros(job.shape[:2], np.int64), np.zeros(job.shape[:2], np.bool_)
    for _ in range(job.shape[1]):
        best = np.where(is_open, scores, -np.inf).reshape(len(job), -1).argmax(axis=1)
        pair = envs, best // slots, best % slots
        is_pair = is_open[pair]
        slot[pair[0][is_pair], pair[1][is_pair]], won[pair[0][is_pair], pair[1][is_pair]] = (
            pair[2][is_pair],
            True,
        )
        is_open = is_open & (job != job[pair][:, None, None])
        is_open[envs[is_pair], pair[1][is_pair]] = False
    return {"slot": slot, "won": won, "amount": np.where(won[..., None], _at(amounts, slot), 0)}


def _at(values: Array, slot: IntArray) -> Array:
    """Return ``values``, shape (W, N, P, ...), of the chosen slots, shape (W, N)."""
    index = slot.reshape(*slot.shape, *[1] * (values.ndim - 2))
    return np.take_along_axis(values, index, axis=2)[:, :, 0]


def rules(law: TapFingerLaw, seed: int) -> Mapping[str, Rule]:
    """Return all rules, with shortest first if no job gains by GPUs; ``seed`` is for Random."""
    by_name: dict[str, Rule] = {
        "random": at_random(seed, takes_least=False),
        "min": at_random(seed, takes_least=True),
        "tuned": Greedy(law, is_frugal=False),
        "frugal": Greedy(law),
    }
    if (law.frugal_gpus[:, -1] == law.least[1]).all():
        by_name["sjf"] = shortest_first(law)
    return by_name


# --- the expert: every pool looks ahead on its own ----------------------------------------------

_SAVES_STEPS: Final = 1.0
_RARE: Final = 1e6
_QUICK: Final = 1e3
"""Weights of the first and second criterion; arrival is the last one."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The first rule of TapFinger's agents, as slots and sizes of the view.

    A pool starts a job with its best free size on two conditions. No other pool would finish it
    sooner. Waiting for the end of a running job, in any of its pools, would save at most one step.
    Among such jobs, those with the fewest possible pools come first, then the quickest. Jobs
    without a gain from a larger size are left to the pool with the most room. A job that several
    pools choose goes to the pool with the most room, and the others choose again.

    Attributes:
        heeds_reach: Whether jobs with the fewest possible pools come first.
        heeds_room: Whether jobs without a gain go only to the pool with the most room. If pools
            start one job at a time, that would keep some pools from any start.
    """

    heeds_reach: bool = True
    heeds_room: bool = True

    def __call__(self, view: TapFingerView) -> dict[str, Array]:
        scene, raw = view.scene, view.raw
        now, anywhere, later = scene.prospects()
        may = np.isfinite(now) & raw["pending_mask"]
        starts = may & (now <= anywhere) & (now <= later + _SAVES_STEPS)
        if self.heeds_room:
            starts &= _gains(scene) | (scene.contention()[1] == 0)
        stuck = ~raw["may_wait"] & ~starts.any(axis=(1, 2))
        starts = np.where(stuck[:, None, None], may, starts)
        order = _QUICK * np.where(may, now, 0.0) + np.arange(now.shape[2])
        if self.heeds_reach:
            order = order + _RARE * raw["connects"].sum(-1)
        # pools without a start still name a fitting slot, for the size VOID
        acts = starts.any(-1)
        slot = np.where(starts, -order, -np.inf).argmax(-1)
        slot = np.where(acts, slot, may.argmax(-1))
        job, room = _at(raw["job"], slot), _at(view.room, slot)
        won = winners(np.where(acts, job, LOST), np.ones(job.shape), room)
        nothing = np.where(raw["may_wait"], VOID, LOST)[:, None]
        quickest = np.where(scene.fits, scene.times[..., None, :, :], np.inf).argmin(-1)
        size = 1 + _at(scene.of_slots(quickest), slot)
        return {SLOT: slot, SIZE: np.where(acts, np.where(won, size, LOST), nothing)}


def _gains(scene: Scene) -> BoolArray:
    """Return whether the job in each slot is quicker in a larger size, (W, N, P)."""
    by_kind = scene.times.min(-1) < scene.times[..., 0]
    by_pool = np.broadcast_to(by_kind[..., None, :], scene.fits.shape[:-1])
    return np.asarray(scene.of_slots(by_pool), dtype=np.bool_)


def expert_for(config: TapFingerEnvConfig) -> Lookahead:
    """Return the best such rule for a config; if sizes have no effect, the quickest is first."""
    cpus, gpus = config.law.least
    steps = config.law.steps
    is_sized = bool((steps.min(axis=(1, 2)) < steps[:, cpus, gpus]).any())
    return Lookahead(heeds_reach=is_sized, heeds_room=is_sized and config.is_multi)


# --- Optimus and Tiresias, which change the allocation of running jobs ---------------------------
#
# Both are the variants of TapFinger's authors. Every pool with room for the smallest size admits
# the first visible job that no earlier pool has taken. Then it divides its capacity among its jobs
# again. In single mode that happens once per step of time. Shapes: R pools of all environments
# together, at most L jobs of each, CPUs and GPUs last.


@dataclass(frozen=True, slots=True, eq=False)
class PoolJobs:
    """The jobs that share each pool, shape (R, L); ``capacity`` is (R, 2).

    Attributes:
        is_job: Whether an entry is a job.
        started: The step in which each started; the present one for new jobs.
        served: GPUs times steps so far.
    """

    is_job: BoolArray
    kind: IntArray
    progress: FloatArray
    started: IntArray
    served: FloatArray
    capacity: IntArray


Division: TypeAlias = Callable[[TapFingerEnvConfig, PoolJobs], IntArray]
"""Maps the jobs of pools to amounts, shape (R, L, 2); 0 for entries without a job."""
Speed: TypeAlias = Callable[[TapFingerLaw, IntArray, IntArray], FloatArray]
"""Maps kinds (R, L) and amounts (R, L, 2) to the assumed gain of a step, shape (R, L)."""

_FITTED: Final = {
    ("insensitive", "sensitive"): np.array(
        [
            [7.2192845, 1.80059404, 0.02472268, 0.11913512, 0.00825633],
            [3.19917462, 1.09159214, 0.99308727, -0.02712496, -0.0435844],
        ]
    )
}
"""Least-squares fit of Optimus' curve in the authors' program. It interchanges CPUs and GPUs of the
points by mistake, so their Optimus expects gains from CPUs, and is twice as slow."""


def exact_speed(law: TapFingerLaw, kind: IntArray, amount: IntArray) -> FloatArray:
    """Return the gain of the first step of a job."""
    return law.gains(kind, amount, np.zeros(kind.shape))


def authors_speed(law: TapFingerLaw, kind: IntArray, amount: IntArray) -> FloatArray:
    """Return the authors' fit of Optimus' curve; the exact gain for laws without a fit.

    Peng et al., Optimus, EuroSys 2018, equation 4, with CPUs as parameter servers.
    """
    if law.kinds not in _FITTED:
        return exact_speed(law, kind, amount)
    a, b, c, d, e = np.moveaxis(_FITTED[law.kinds][kind], -1, 0)
    cpus, gpus = np.moveaxis(np.maximum(amount, 1e-3), -1, 0)
    return np.asarray(1 / (a / gpus + b + c * gpus / cpus + d * gpus + e * cpus))


_CPU: Final = "bireme.dev/cpu"
_GPU: Final = "bireme.dev/gpu"


@dataclass(frozen=True, slots=True, eq=False)
class _PoolSpeed:
    """The assumed gain of a step by CPUs and GPUs, as a gang's speed."""

    table: FloatArray

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Return the progress of one step of time; a pool is one node."""
        return float(self.table[sizes["cpu"], sizes["gpu"]])


def optimus(
    config: TapFingerEnvConfig, pool_jobs: PoolJobs, speed: Speed = authors_speed
) -> IntArray:
    """Divide every pool by :class:`bireme_lab.heuristics.measured_sizers.Optimus`.

    The variant of TapFinger's authors: CPUs stand for parameter servers and GPUs for workers, and
    one more of them costs what the job already has of it, instead of its dominant share.
    """
    sizer = Optimus(price=lambda allotment, task: allotment.sizes[task.name])
    tables = _speeds(config.law, speed)
    amount = np.zeros((*pool_jobs.is_job.shape, 2), dtype=np.int64)
    for row, capacity in enumerate(pool_jobs.capacity.tolist()):
        jobs = np.flatnonzero(pool_jobs.is_job[row]).tolist()
        gangs = [_gang(config.law, pool_jobs, row, job, tables) for job in jobs]
        nodes = NodeTable([Node("pool", dict(zip((_CPU, _GPU), capacity, strict=True)))], ())
        snapshot = ClusterSnapshot(0.0, nodes, np.zeros_like(nodes.allocatable), (), {})
        sizes = sizer.sizes([Ranked(gang, 0.0) for gang in gangs], snapshot)
        for job in jobs:
            size = sizes[str(job)]
            amount[row, job] = size["cpu"], size["gpu"]
    return amount


def _gang(
    law: TapFingerLaw, jobs: PoolJobs, row: int, job: int, tables: Sequence[_PoolSpeed]
) -> Gang:
    """Return a job as an elastic gang; its unit of work is its whole progress."""
    (cpus, gpus), (most_cpus, most_gpus) = law.least, law.most
    return Gang(
        uid=str(job),
        name=str(job),
        namespace="tapfinger",
        queue="default",
        tasks=(
            Task("cpu", cpus, request_of({_CPU: 1}), min_replicas=cpus, max_replicas=most_cpus),
            Task("gpu", gpus, request_of({_GPU: 1}), min_replicas=gpus, max_replicas=most_gpus),
        ),
        arrived=0.0,
        is_elastic=True,
        speed=tables[int(jobs.kind[row, job])],
        remaining_steps=1.0 - float(jobs.progress[row, job]),
    )


@lru_cache(maxsize=8)
def _speeds(law: TapFingerLaw, speed: Speed) -> tuple[_PoolSpeed, ...]:
    """Tabulate ``speed`` by kind; smaller amounts have the speed of the minimum."""
    kind, amount = law.every_amount()
    return tuple(map(_PoolSpeed, speed(law, kind, np.maximum(amount, law.least))))


def tiresias(config: TapFingerEnvConfig, jobs: PoolJobs) -> IntArray:
    """Give GPU after GPU to the half of the jobs with less service, in order of their starts.

    Gu et al., Tiresias, NSDI 2019, in the variant of TapFinger's authors: two queues, split at the
    median and not at a threshold (:class:`bireme.heuristics.tiresias.TiresiasLas`), and elastic in
    GPUs in multi mode; CPUs are shared out evenly. In single mode every job has the least.
    """
    law = config.law
    if not config.is_multi:
        return np.where(jobs.is_job[..., None], np.array(law.least), 0)
    gpus = np.zeros(jobs.is_job.shape, dtype=np.int64)
    rows, sizes = np.arange(len(gpus)), jobs.is_job.sum(axis=1)
    for count in range(int(jobs.capacity[:, 1].max(initial=0))):
        may = jobs.is_job & (gpus < law.most[1]) & (count < jobs.capacity[:, 1])[:, None]
        service = np.where(jobs.is_job & (gpus < law.most[1]), jobs.served + gpus, np.inf)
        rank = service.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        is_high = rank < (sizes // 2)[:, None]
        # by queue, then start, then rank, as one number
        order = np.where(is_high, 0, 10**12) + jobs.started * 1000 + rank
        best = np.where(may, order, np.iinfo(np.int64).max).argmin(axis=1)
        gets = may[rows, best]
        gpus[rows[gets], best[gets]] += 1
    return np.stack([_share_out(law, jobs.capacity[:, 0], gpus > 0), gpus], axis=-1)


def _share_out(law: TapFingerLaw, cpus: IntArray, gets: BoolArray) -> IntArray:
    """Share out ``cpus`` evenly, one more for the first jobs, up to the maximum; shape (R, L)."""
    count = np.maximum(gets.sum(axis=1), 1)
    place = gets.cumsum(axis=1) - 1
    even = (cpus // count)[:, None] + (place < (cpus % count)[:, None])
    return np.where(gets, np.minimum(even, law.most[0]), 0)


DIVISIONS: Final[Mapping[str, Division]] = {
    "optimus": optimus,
    "optimus-exact": partial(optimus, speed=exact_speed),
    "tiresias": tiresias,
}


def divide_always(
    division: Division, config: TapFingerEnvConfig, seeds: Sequence[int]
) -> TapFingerPools:
    """Play whole episodes, one environment per seed; return the state at their end."""
    pools = TapFingerPools(config, seeds)
    served = np.zeros(pools.progress.shape)
    while not pools.is_over.all():
        starts = _divide(pools, division, served)
        passing = np.flatnonzero(~pools.is_over & ~(starts & config.is_multi))
        served[passing] += pools.amount[passing, :, 1]
        pools.advance(passing)
    return pools


def _divide(pools: TapFingerPools, division: Division, served: FloatArray) -> BoolArray:
    """Admit and divide once; return in which environments a job has started, shape (W,)."""
    running, new = pools.first(pools.running_in(), pools.slots), _admit(pools)
    jobs = np.concatenate([running, new[:, :, None]], axis=2)
    grid = np.indices(jobs.shape)
    envs, pool = grid[0], grid[1]
    flat, is_job = (-1, jobs.shape[2]), jobs != NONE
    started = pools.started[envs, jobs]
    pool_jobs = PoolJobs(
        is_job.reshape(flat),
        pools.jobs.kind[envs, jobs].reshape(flat),
        pools.progress[envs, jobs].reshape(flat),
        np.where(started == NONE, pools.now[:, None, None], started).reshape(flat),
        served[envs, jobs].reshape(flat),
        np.tile(pools.capacity, (len(jobs), 1)),
    )
    # the last column are new jobs, all others run already
    amount = division(pools.config, pool_jobs).reshape(*jobs.shape, 2)
    old, fresh = is_job.copy(), is_job & (amount > 0).any(axis=3)
    old[:, :, -1], fresh[:, :, :-1] = False, False
    pools.allocate(envs[old], jobs[old], amount[old])
    pools.start(envs[fresh], pool[fresh], jobs[fresh], amount[fresh])
    return np.asarray(fresh.any(axis=(1, 2)))


def _admit(pools: TapFingerPools) -> IntArray:
    """Return the job that each pool admits, shape (W, N), or NONE."""
    waiting, max_jobs = (
        pools.first(pools.in_sight, WINDOW),
        pools.capacity // pools.config.law.least,
    )
    has_room = pools.running_in().sum(axis=2) < max_jobs.min(axis=1)
    new = np.full(has_room.shape, NONE)
    for pool in range(new.shape[1]):
        jobs = waiting[:, pool]
        is_free = (jobs != NONE) & ~(jobs[:, :, None] == new[:, None, :pool]).any(axis=2)
        first = np.take_along_axis(jobs, is_free.argmax(axis=1)[:, None], axis=1)[:, 0]
        new[:, pool] = np.where(has_room[:, pool] & is_free.any(axis=1), first, NONE)
    return new
