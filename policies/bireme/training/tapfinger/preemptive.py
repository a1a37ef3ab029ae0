"""Optimus and Tiresias in TapFinger's pools, which change the allocation of jobs that run.

Both are the authors' variants. Every pool admits the first job in sight that no pool before it
has taken, if it has room for one more in the smallest size, and divides all it has among its jobs
anew. In single mode that happens once per step of time, and a job whose allocation changed makes
half a step's progress (:mod:`bireme.training.tapfinger.settings`).

Shapes: R pools of all worlds together, L jobs of each at most, CPUs and GPUs last.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Protocol, TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.training.tapfinger.laws import Law
from bireme.training.tapfinger.pools import NONE, Pools
from bireme.training.tapfinger.settings import WINDOW, Setting


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The jobs among which pools are divided.

    Attributes:
        there: Which entries are jobs, shape (R, L).
        kind: Shape (R, L).
        progress: Shape (R, L).
        started: The step in which each started; of new ones the present one; shape (R, L).
        served: GPUs times steps so far, shape (R, L).
        capacity: Shape (R, 2).
    """

    there: BoolArray
    kind: IntArray
    progress: FloatArray
    started: IntArray
    served: FloatArray
    capacity: IntArray


class Division(Protocol):
    """How pools are divided."""

    def __call__(self, setting: Setting, held: Held) -> IntArray:
        """Amounts, shape (R, L, 2); 0 for entries that are no jobs."""
        ...


Speed: TypeAlias = Callable[[Law, IntArray, IntArray], FloatArray]
"""From kinds (R, L) and amounts (R, L, 2) to what a step is believed to add, shape (R, L)."""

_FITTED: Final = {
    ("insensitive", "sensitive"): np.array(
        [
            [7.2192845, 1.80059404, 0.02472268, 0.11913512, 0.00825633],
            [3.19917462, 1.09159214, 0.99308727, -0.02712496, -0.0435844],
        ]
    )
}
"""What least squares give for Optimus' curve in the authors' program, where CPUs and GPUs of the
points are interchanged by mistake: their Optimus then believes in CPUs, and is twice as slow."""


def exact_speed(law: Law, kind: IntArray, amount: IntArray) -> FloatArray:
    """What the law has for the first step of a job."""
    return law.gains(kind, amount, np.zeros(kind.shape))


def authors_speed(law: Law, kind: IntArray, amount: IntArray) -> FloatArray:
    """The authors' fit of Optimus' curve; laws that it is not known for are taken as they are.

    Peng et al., Optimus, EuroSys 2018, equation 4, with CPUs as parameter servers.
    """
    if law.kinds not in _FITTED:
        return exact_speed(law, kind, amount)
    a, b, c, d, e = np.moveaxis(_FITTED[law.kinds][kind], -1, 0)
    cpus, gpus = np.moveaxis(np.maximum(amount, 1e-3), -1, 0)
    return np.asarray(1 / (a / gpus + b + c * gpus / cpus + d * gpus + e * cpus))


def optimus(setting: Setting, held: Held, speed: Speed = authors_speed) -> IntArray:
    """One unit after the other to whom it saves most time, over what he has of it.

    Peng et al., Optimus, EuroSys 2018, section 4.1, with CPUs in place of parameter servers and
    GPUs in place of workers.
    """
    law = setting.law
    amount = np.where(held.there[..., None], np.array(law.least), 0)
    left, rows = held.capacity - amount.sum(axis=1), np.arange(len(amount))
    todo = np.where(held.there, 1.0 - held.progress, 0.0)[..., None]
    savings = _savings(law, speed)
    while True:
        worth = todo * savings[held.kind, amount[..., 0], amount[..., 1]] * (left > 0)[:, None, :]
        best = worth.reshape(len(amount), -1).argmax(axis=1)
        job, axis = best // 2, best % 2
        grows = worth[rows, job, axis] > 0
        if not grows.any():
            return amount
        amount[rows[grows], job[grows], axis[grows]] += 1
        left[rows[grows], axis[grows]] -= 1


@lru_cache(maxsize=8)
def _savings(law: Law, speed: Speed) -> FloatArray:
    """What one more CPU, or GPU, saves of a run, over what there is; (kinds, CPUs, GPUs, 2)."""
    kind, amount = law.every_amount()
    amount = np.maximum(amount, law.least)
    saved = []
    for axis in (0, 1):
        more = np.minimum(amount + (np.arange(2) == axis), law.most)
        now, then = speed(law, kind, amount), speed(law, kind, more)
        saved.append((1 / now - 1 / then) / amount[..., axis])
    return np.stack(saved, axis=-1)


def tiresias(setting: Setting, held: Held) -> IntArray:
    """GPU after GPU to the half of the jobs with less service, in order of their starts.

    Gu et al., Tiresias, NSDI 2019, with two queues that are split at the median and, as the
    authors of TapFinger have it, elastic in GPUs in multi mode; CPUs are shared out evenly. In
    single mode every job has the least.
    """
    law = setting.law
    if not setting.is_multi:
        return np.where(held.there[..., None], np.array(law.least), 0)
    gpus = np.zeros(held.there.shape, dtype=np.int64)
    rows, sizes = np.arange(len(gpus)), held.there.sum(axis=1)
    for given in range(int(held.capacity[:, 1].max(initial=0))):
        may = held.there & (gpus < law.most[1]) & (given < held.capacity[:, 1])[:, None]
        service = np.where(held.there & (gpus < law.most[1]), held.served + gpus, np.inf)
        rank = service.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        is_high = rank < (sizes // 2)[:, None]
        order = np.where(is_high, 0, _LATE) + held.started * _SLOTS + rank
        best = np.where(may, order, np.iinfo(np.int64).max).argmin(axis=1)
        gets = may[rows, best]
        gpus[rows[gets], best[gets]] += 1
    return np.stack([_shared(law, held.capacity[:, 0], gpus > 0), gpus], axis=-1)


_SLOTS: Final = 1000
_LATE: Final = 10**12


def _shared(law: Law, cpus: IntArray, gets: BoolArray) -> IntArray:
    """``cpus`` shared out evenly, the first ones one more, none above the most; shape (R, L)."""
    count = np.maximum(gets.sum(axis=1), 1)
    place = gets.cumsum(axis=1) - 1
    even = (cpus // count)[:, None] + (place < (cpus % count)[:, None])
    return np.where(gets, np.minimum(even, law.most[0]), 0)


DIVISIONS: Final[Mapping[str, Division]] = {
    "optimus": optimus,
    "optimus-exact": partial(optimus, speed=exact_speed),
    "tiresias": tiresias,
}


def divide_always(division: Division, setting: Setting, seeds: Sequence[int]) -> Pools:
    """Whole episodes, one world per seed; the state at their end."""
    pools = Pools(setting, seeds)
    served = np.zeros(pools.progress.shape)
    while not pools.is_over.all():
        starts = _divide(pools, division, served)
        passing = np.flatnonzero(~pools.is_over & ~(starts & setting.is_multi))
        running = pools.amount[passing, :, 1]
        served[passing] += running
        pools.advance(passing)
    return pools


def _divide(pools: Pools, division: Division, served: FloatArray) -> BoolArray:
    """Admit and divide once; in which worlds a job has started, shape (W,)."""
    law = pools.setting.law
    slots = int((pools.capacity // law.least).min(axis=1).max())
    running, new = pools.first(pools.running_in(), slots), _admitted(pools)
    jobs = np.concatenate([running, new[:, :, None]], axis=2)
    grid = np.indices(jobs.shape)
    worlds, at = grid[0], grid[1]
    held = _held(pools, jobs, served)
    amount = division(pools.setting, held).reshape(*jobs.shape, 2)
    old, fresh = jobs != NONE, (jobs != NONE) & (amount > 0).any(axis=3)
    old[:, :, -1], fresh[:, :, :-1] = False, False
    pools.allocate(worlds[old], jobs[old], amount[old])
    pools.start(worlds[fresh], at[fresh], jobs[fresh], amount[fresh])
    return np.asarray(fresh.any(axis=(1, 2)))


def _admitted(pools: Pools) -> IntArray:
    """What each pool admits, shape (W, N); NONE: nothing."""
    waiting, most = pools.first(pools.in_sight, WINDOW), pools.capacity // pools.setting.law.least
    has_room = pools.running_in().sum(axis=2) < most.min(axis=1)
    new = np.full(has_room.shape, NONE)
    for pool in range(new.shape[1]):
        seen = waiting[:, pool]
        is_free = (seen != NONE) & ~(seen[:, :, None] == new[:, None, :pool]).any(axis=2)
        first = np.take_along_axis(seen, is_free.argmax(axis=1)[:, None], axis=1)[:, 0]
        new[:, pool] = np.where(has_room[:, pool] & is_free.any(axis=1), first, NONE)
    return new


def _held(pools: Pools, jobs: IntArray, served: FloatArray) -> Held:
    rows, there = np.arange(len(jobs))[:, None, None], jobs != NONE
    started = pools.started[rows, jobs]
    started = np.where(started == NONE, pools.now[:, None, None], started)
    flat = (-1, jobs.shape[2])
    return Held(
        there.reshape(flat),
        pools.jobs.kind[rows, jobs].reshape(flat),
        pools.progress[rows, jobs].reshape(flat),
        started.reshape(flat),
        served[rows, jobs].reshape(flat),
        np.tile(pools.capacity, (len(jobs), 1)),
    )
