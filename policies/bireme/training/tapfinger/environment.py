"""The world of TapFinger, batched: each pool chooses a waiting job and what it gives to it.

All pools choose at once; who wins where several chose the same job is settled before
(:mod:`bireme.rl.encoders.tapfinger`), and told with the actions, because the density of what
a loser did has no part for the allocation. In single mode a step of the world is a step of time. In
multi mode time passes when no pool starts anything; all that starts before that starts at the same
time. Where no pool can start anything time passes by itself.

The reward of a step of time is minus the number of jobs in the system, so that an episode's sum is
minus the sum of all completion times. The paper's counts a waiting job once for every pool that it
waits at, which is not what it is judged by.

While nothing runs in any pool somebody has to start, or a policy could wait for ever.

Shapes: worlds W, pools N, waiting jobs P in sight of each, running jobs K at most in each. The last
axis of amounts is CPUs, GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.simulator.traces.papers import poisson_steps
from bireme.training.tapfinger.settings import WINDOW, Setting
from bireme.training.worlds import Actions, Array, Observation, Step

# What happens to TapFinger's pools: jobs that arrive and the pools they can reach, by seed.
#
# A sample is drawn once and read twice: by the batched world, and as a trace by the simulator.

LUCK_STEPS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """The jobs of several worlds, in order of arrival.

    Attributes:
        arrival: The step before which each arrives, int64, shape (worlds, jobs).
        kind: Index into the kinds of the law, int64, same shape.
        reaches: Which pools can run it, shape (worlds, pools, jobs).
        luck: In each step of its run, -1 to 1, shape (worlds, jobs, LUCK_STEPS); then as at first.
            Without steps where the law has no noise.
    """

    arrival: IntArray
    kind: IntArray
    reaches: BoolArray
    luck: FloatArray


def draw(setting: Setting, seeds: Sequence[int]) -> Jobs:
    """The jobs of one world per seed; equal seeds give equal jobs."""
    parts = [_draw(setting, seed) for seed in seeds]
    return Jobs(*(np.stack(part) for part in zip(*parts, strict=True)))


def _draw(setting: Setting, seed: int) -> tuple[IntArray, IntArray, BoolArray, FloatArray]:
    """A job reaches k pools, k and the pools drawn uniformly [authors' program]."""
    rng, jobs, pools = np.random.default_rng(seed), setting.jobs, len(setting.capacity)
    arrival = poisson_steps(rng, setting.arrivals_per_step, jobs)
    kind = rng.integers(len(setting.law.kinds), size=jobs)
    rank = rng.random((pools, jobs)).argsort(axis=0).argsort(axis=0)
    reaches = rank < rng.integers(1, pools + 1, size=jobs)
    steps = LUCK_STEPS if setting.law.noise.any() else 0
    return arrival, kind, reaches, rng.uniform(-1, 1, (jobs, steps))


# Many systems of node pools at once: jobs that wait, run and end. Nothing here decides.
#
# A job waits at all pools that it reaches, runs in one, and progresses by the law of its setting.
# A pool can choose from WINDOW of the jobs that wait there. Who is in sight stays in sight; places
# that get free go to jobs that have just arrived, then to those that came first [authors' program].
#
# Only the jobs between the first that has not ended and the last that has arrived are looked at, so
# that long episodes cost no more per step than short ones.
#
# Shapes: worlds W, pools N, jobs J; resources are CPUs and GPUs.

NONE = -1
"""In place of a job, a pool, or a step that has not come."""


class Pools:
    """The state of W systems of pools.

    Attributes:
        now: The step that comes next, int64, shape (W,).
        free: Int64, shape (W, N, 2).
        pool: Where each job runs or ran, shape (W, J); NONE before.
        amount: What each was given, shape (W, J, 2); 0 before and after.
        started: The step in which each started, shape (W, J); NONE before.
        ended: The step before which each was over, shape (W, J); NONE before.
        progress: Shape (W, J).
        window: The jobs that are in any of the systems, as a slice of the J.
    """

    def __init__(self, setting: Setting, seeds: Sequence[int]) -> None:
        self.setting, self.jobs = setting, draw(setting, seeds)
        shape = self.jobs.arrival.shape
        self.now = np.zeros(shape[0], dtype=np.int64)
        self.capacity = np.array(setting.capacity, dtype=np.int64)
        self.free = np.repeat(self.capacity[None], shape[0], axis=0)
        self.pool, self.started, self.ended = (np.full(shape, NONE) for _ in range(3))
        self.amount = np.zeros((*shape, 2), dtype=np.int64)
        self.progress = np.zeros(shape)
        self._changed = np.zeros(shape, dtype=np.bool_)
        self.window = slice(0, 0)
        self._sees = np.zeros_like(self.jobs.reaches)
        self._move_window()
        self._let_in(np.arange(shape[0]))

    @property
    def is_over(self) -> BoolArray:
        """Which systems have no job left, shape (W,)."""
        return np.asarray((self.ended >= 0).all(axis=1))

    @property
    def present(self) -> BoolArray:
        """Which jobs of the window have arrived and not ended, shape (W, window)."""
        here = self.jobs.arrival[:, self.window] <= self.now[:, None]
        return np.asarray(here & (self.ended[:, self.window] < 0))

    @property
    def running(self) -> BoolArray:
        """Which jobs of the window run, shape (W, window)."""
        return np.asarray((self.pool[:, self.window] >= 0) & (self.ended[:, self.window] < 0))

    @property
    def waiting(self) -> BoolArray:
        """Which jobs of the window wait, at each pool, shape (W, N, window)."""
        waits = self.present & (self.pool[:, self.window] < 0)
        return waits[:, None, :] & self.jobs.reaches[:, :, self.window]

    @property
    def in_sight(self) -> BoolArray:
        """Which of them each pool can choose, at most WINDOW, shape (W, N, window)."""
        return np.asarray(self.waiting & self._sees[:, :, self.window])

    def running_in(self) -> BoolArray:
        """Which jobs of the window run, in each pool, shape (W, N, window)."""
        pools = np.arange(len(self.capacity))[None, :, None]
        return np.asarray(self.running[:, None, :] & (self.pool[:, None, self.window] == pools))

    def first(self, which: BoolArray, slots: int) -> IntArray:
        """The first ``slots`` jobs of ``which``, shape (W, N, slots), NONE where there are fewer.

        Args:
            which: Jobs of the window, shape (W, N, window).
        """
        place = which.cumsum(axis=2) - 1
        worlds, pools, columns = np.nonzero(which & (place < slots))
        found = np.full((*which.shape[:2], slots), NONE)
        found[worlds, pools, place[worlds, pools, columns]] = columns + self.window.start
        return found

    def start(self, worlds: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Job ``jobs[i]`` of ``worlds[i]`` starts in ``pools[i]`` with ``amount[i]``."""
        self.pool[worlds, jobs], self.started[worlds, jobs] = pools, self.now[worlds]
        self.amount[worlds, jobs] = amount
        np.subtract.at(self.free, (worlds, pools), amount)

    def allocate(self, worlds: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Running jobs get another ``amount``, shape (i, 2); it costs where it changes."""
        more = amount - self.amount[worlds, jobs]
        self._changed[worlds, jobs] = (more != 0).any(axis=1)
        self.amount[worlds, jobs] = amount
        np.subtract.at(self.free, (worlds, self.pool[worlds, jobs]), more)

    def advance(self, worlds: IntArray) -> None:
        """One step passes in ``worlds``: what runs progresses, what is done ends, jobs arrive."""
        rows, columns = np.nonzero(self.running[worlds])
        rows, jobs = worlds[rows], columns + self.window.start
        at = rows, jobs
        law, state = self.setting.law, (self.jobs.kind[at], self.amount[at], self.progress[at])
        gained = law.gains(*state, self._luck(rows, jobs))
        self.progress[at] += np.where(self._changed[at], self.setting.change_share, 1.0) * gained
        self._changed[at] = False
        self.now[worlds] += 1
        done = self.progress[at] >= 1
        self._end(rows[done], jobs[done])
        self._move_window()
        self._let_in(worlds)

    def _luck(self, worlds: IntArray, jobs: IntArray) -> FloatArray | float:
        """Of the step that passes, shape of both."""
        steps = self.jobs.luck.shape[2]
        if not steps:
            return 0.0
        age = self.now[worlds] - self.started[worlds, jobs]
        return np.asarray(self.jobs.luck[worlds, jobs, age % steps])

    def _end(self, worlds: IntArray, jobs: IntArray) -> None:
        self.ended[worlds, jobs] = self.now[worlds]
        np.add.at(self.free, (worlds, self.pool[worlds, jobs]), self.amount[worlds, jobs])
        self.amount[worlds, jobs] = 0

    def _let_in(self, worlds: IntArray) -> None:
        """Fill the places that are free in sight of each pool."""
        waits = self.waiting[worlds]
        sees = self.in_sight[worlds]
        is_new = (self.jobs.arrival[:, self.window] == self.now[:, None])[worlds][:, None]
        for group in (waits & ~sees & is_new, waits & ~sees & ~is_new):
            places = WINDOW - sees.sum(axis=2, keepdims=True)
            sees = sees | group & (group.cumsum(axis=2) <= places)
        self._sees[worlds, :, self.window] = sees

    def _move_window(self) -> None:
        going = np.flatnonzero((self.ended[:, self.window] < 0).any(axis=0))
        start = self.window.start + int(going[0]) if len(going) else self.window.stop
        stop = self.window.stop
        while stop < self.jobs.arrival.shape[1] and (self.jobs.arrival[:, stop] <= self.now).any():
            stop += 1
        self.window = slice(start, stop)


# What the pools of TapFinger see: WINDOW jobs that wait at each, what runs there, what is free.
#
# Every pool is an agent that sees all of them; which job waits at several is in ``connects``.
# Shapes:
# worlds W, pools N, waiting jobs P in sight of each, running jobs K at most in each.


def observe(pools: Pools, is_done: BoolArray) -> dict[str, Array]:
    """All arrays by name; see :class:`~bireme.training.tapfinger.environment.TapWorld`.

    ``is_done`` are pools that may start nothing more in this step, shape (W, N).
    """
    law, shape = pools.setting.law, pools.free.shape
    job = pools.first(pools.in_sight, WINDOW)
    there = job != NONE
    has_room = (pools.free >= np.array(law.least)).all(axis=-1) & ~is_done
    fits = there & has_room[:, :, None]
    return {
        "job": job,
        "kind": np.where(there, _of(pools.jobs.kind, job), NONE),
        "waited": np.where(there, pools.now[:, None, None] - _of(pools.jobs.arrival, job), 0),
        "pending_mask": there,
        "fits": fits,
        "connects": connects(job),
        "least": np.where(there[..., None], np.array(law.least), 0),
        "free": pools.free.copy(),
        "most": np.broadcast_to(np.minimum(pools.capacity, law.most), shape).copy(),
        "waiting": pools.waiting.sum(axis=2),
        "can_start": fits.any(axis=2),
        "is_done": is_done.copy(),
        "may_wait": pools.running.any(axis=1),
        **_running(pools),
    }


def connects(job: IntArray) -> BoolArray:
    """Whether the job in a slot of one pool is in sight of another, shape (W, N, P, N).

    Args:
        job: Numbers of jobs, shape (W, N, P); below 0 is none.
    """
    same = job[:, :, :, None, None] == job[:, None, None, :, :]
    return np.asarray(same.any(axis=4) & (job >= 0)[..., None])


def _running(pools: Pools) -> dict[str, Array]:
    law = pools.setting.law
    slots = int((pools.capacity // law.least).min(axis=1).max())
    job = pools.first(pools.running_in(), slots)
    there, kind, amount = job != NONE, _of(pools.jobs.kind, job), _of(pools.amount, job)
    elapsed = pools.now[:, None, None] - _of(pools.started, job)
    left = law.steps[kind, amount[..., 0], amount[..., 1]] - elapsed
    return {
        "run_amount": np.where(there[..., None], amount, 0),
        "run_left": np.where(there, np.maximum(left, 1), NONE),
    }


def _of(values: Array, job: IntArray) -> Array:
    """``values``, shape (W, jobs, ...), of ``job``, shape (W, N, slots)."""
    return np.asarray(values[np.arange(len(values))[:, None, None], job])


class TapWorld:
    """A batch of systems of pools; a World of :mod:`bireme.training.worlds`.

    Observations; -1 is none, and padding is 0 elsewhere:

    * ``job`` int64 (W, N, P), equal numbers are the same job; ``kind`` int64, ``waited`` int64 in
      steps, ``pending_mask`` bool, ``fits`` bool, whether the smallest allocation fits, all
      (W, N, P); ``connects`` bool (W, N, P, N), whether another pool sees it too; ``least`` int64
      (W, N, P, 2), the smallest allocation.
    * ``run_left`` int64 (W, N, K), steps to the end as the law has it; ``run_amount`` int64
      (W, N, K, 2).
    * ``free`` and ``most``, the largest allocation to one job, int64 (W, N, 2);
      ``waiting`` int64 (W, N), jobs in line; ``can_start`` bool (W, N).
    * ``may_wait`` bool (W,): whether all pools may start nothing.

    Actions are a mapping: ``slot`` int64 (W, N), the place of the chosen job among those in sight;
    ``won`` bool (W, N); ``amount`` int64 (W, N, 2), what winners give to it, 0 for nothing.

    Attributes:
        pools: The state, for rules and metrics; agents see the observation alone.
    """

    def __init__(self, count: int, setting: Setting, *, retries: bool = False) -> None:
        """``retries``: pools that lost a job choose again in the same step, also in single mode."""
        self.count, self.setting, self.retries = count, setting, retries
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all systems anew, one seed each."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} worlds; give one for each")
        self.pools = Pools(self.setting, seeds)
        self._has_started = np.zeros(self.pools.free.shape[:2], dtype=np.bool_)
        self._look()
        self._run_on()
        return self._seen

    def step(self, actions: Actions) -> Step:
        """Start what winners chose in every world that is not over."""
        if not isinstance(actions, Mapping):
            raise TypeError("actions of TapFinger are a mapping with slot, won and amount")
        live = ~self.pools.is_over
        amount = np.asarray(actions["amount"])
        starts = live[:, None] & actions["won"] & (amount > 0).any(axis=2)
        worlds, pools = np.nonzero(starts)
        slot = np.clip(np.asarray(actions["slot"]), 0, self._seen["job"].shape[2] - 1)
        jobs = self._seen["job"][worlds, pools, slot[worlds, pools]]
        self._check(worlds, pools, jobs, amount[worlds, pools])
        acts = starts.any(axis=1)
        if (stuck := live & ~acts & ~self._seen["may_wait"]).any():
            raise ValueError(f"world {int(stuck.argmax())} starts nothing while nothing runs")
        self.pools.start(worlds, pools, jobs, amount[worlds, pools])
        self._has_started[worlds, pools] = not self.setting.is_multi
        goes_on = self.setting.is_multi or self.retries
        rewards = self._pass(np.flatnonzero(live & ~acts if goes_on else live))
        self._look()
        rewards += self._run_on()
        times = self.pools.now.astype(np.float64)
        return Step(self._seen, rewards, self.pools.is_over, times)

    def _pass(self, worlds: IntArray) -> FloatArray:
        """A step of time in ``worlds``; the rewards, shape (W,)."""
        rewards = np.zeros(self.count)
        rewards[worlds] = -self.pools.present.sum(axis=1)[worlds]
        self.pools.advance(worlds)
        self._has_started[worlds] = False
        return rewards

    def _run_on(self) -> FloatArray:
        """Let time pass until some pool can start something, or all is over; the rewards."""
        rewards = np.zeros(self.count)
        while (idle := ~self._seen["can_start"].any(axis=1) & ~self.pools.is_over).any():
            rewards += self._pass(np.flatnonzero(idle))
            self._look()
        return rewards

    def _look(self) -> None:
        self._seen: dict[str, Array] = observe(self.pools, self._has_started)

    def _check(self, worlds: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        law, free = self.setting.law, self.pools.free[worlds, pools]
        fine = (jobs != NONE) & (amount >= law.least).all(axis=1)
        fine &= (amount <= np.minimum(free, law.most)).all(axis=1)
        fine &= _is_first(worlds, jobs)
        if not fine.all():
            at = int(fine.argmin())
            raise ValueError(
                f"pool {int(pools[at])} of world {int(worlds[at])} cannot give "
                f"{amount[at].tolist()} of its free {free[at].tolist()} to what it chose; choose "
                "a job that is there, that no other pool starts, and a possible amount"
            )


def _is_first(worlds: IntArray, jobs: IntArray) -> BoolArray:
    """Whether no earlier entry has the same world and job, shape of both."""
    first = np.zeros(len(jobs), dtype=np.bool_)
    pairs = np.stack([worlds, jobs], axis=1)
    first[np.unique(pairs, axis=0, return_index=True)[1]] = True
    return first
