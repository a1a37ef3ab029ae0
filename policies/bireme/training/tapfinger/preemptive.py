"""Optimus and Tiresias in TapFinger's pools, which change the allocation of jobs that run.

Both are the authors' variants. Every pool admits the first job in sight that no pool before it
has taken, if it has room for one more in the smallest size, and divides all it has among its jobs
anew. In single mode that happens once per step of time, and a job whose allocation changed makes
half a step's progress (:mod:`bireme.training.tapfinger.settings`).

Shapes: R pools of all worlds together, L jobs of each at most, CPUs and GPUs last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

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

    def __call__(self, law: Law, held: Held) -> IntArray:
        """Amounts, shape (R, L, 2); 0 for entries that are no jobs."""
        ...


def optimus(law: Law, held: Held) -> IntArray:
    """One unit after the other to whom it saves most time, over what it has of it.

    Peng et al., Optimus, EuroSys 2018, section 4.1, with CPUs in place of parameter servers and
    GPUs in place of workers. The speed is that of the law at the start of a job; the authors fit
    a curve to the same numbers.
    """
    amount = np.where(held.there[..., None], np.array(law.least), 0)
    left, rows = held.capacity - amount.sum(axis=1), np.arange(len(amount))
    todo = np.where(held.there, 1.0 - held.progress, 0.0)
    while True:
        worth = np.stack([_saved(law, held.kind, amount, axis) for axis in (0, 1)], axis=-1)
        worth *= todo[..., None] * (left > 0)[:, None, :]
        best = worth.reshape(len(amount), -1).argmax(axis=1)
        job, axis = best // 2, best % 2
        grows = worth[rows, job, axis] > 0
        if not grows.any():
            return amount
        amount[rows[grows], job[grows], axis[grows]] += 1
        left[rows[grows], axis[grows]] -= 1


def _saved(law: Law, kind: IntArray, amount: IntArray, axis: int) -> FloatArray:
    """What one more unit saves of a whole run, per unit that the job has; shape (R, L)."""
    unit = np.arange(2) == axis
    more = np.minimum(amount + unit, law.most)
    now, then = (law.gains(kind, each, np.zeros(kind.shape)) for each in (amount, more))
    saved = 1 / np.maximum(now, 1e-9) - 1 / np.maximum(then, 1e-9)
    return np.asarray(np.where(now > 0, saved / np.maximum(amount[..., axis], 1), 0.0))


def tiresias(law: Law, held: Held) -> IntArray:
    """GPU after GPU to the half of the jobs with less service, in order of their starts.

    Gu et al., Tiresias, NSDI 2019, with two queues that are split at the median and, as the
    authors of TapFinger have it, elastic in GPUs. CPUs are shared out evenly.
    """
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


DIVISIONS: Final[Mapping[str, Division]] = {"optimus": optimus, "tiresias": tiresias}


def play(setting: Setting, seeds: Sequence[int], division: Division) -> Pools:
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
    worlds, at, _ = np.indices(jobs.shape)
    held = _held(pools, jobs, served)
    amount = division(law, held).reshape(*jobs.shape, 2)
    old, fresh = jobs != NONE, (jobs != NONE) & (amount > 0).any(axis=3)
    old[:, :, -1], fresh[:, :, :-1] = False, False
    pools.allocate(worlds[old], jobs[old], amount[old])
    pools.start(worlds[fresh], at[fresh], jobs[fresh], amount[fresh])
    return np.asarray(fresh.any(axis=(1, 2)))


def _admitted(pools: Pools) -> IntArray:
    """What each pool admits, shape (W, N); NONE: nothing."""
    waiting, most = pools.first(pools.waiting, WINDOW), pools.capacity // pools.setting.law.least
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
