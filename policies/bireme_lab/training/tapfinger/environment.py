"""TapFinger's environment: every node pool chooses a waiting job and its allocation.

All pools choose at once. Conflicts are resolved before (:mod:`bireme_lab.encoders.tapfinger`), and
the actions name the winners, because the density of a loser's choice has no part for the
allocation. In single mode a pool starts at most one job per step of time, a step of the environment
is a step of time, and a change of a running job's allocation costs half a step's progress. In multi
mode a pool starts any number of jobs, changes are free, and time passes when no pool starts a job.
If no pool can start a job, time passes by itself.

The reward of a step of time is minus the number of jobs in the system, so that an episode's sum is
minus the sum of all completion times. The paper's reward counts a waiting job once for every pool
in which it waits, which is not the metric of its evaluation.

Numbers are those of the paper (Li et al., sections 5.1 to 5.4) where the authors' published
configurations agree. They differ in one: the figures on several jobs per step were made with 3
arrivals per step, not 2. Shapes: environments W, pools N, jobs J, waiting jobs P in sight of each
pool, running jobs K at most in each; the last axis of amounts is CPUs, GPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme_lab.encoders.tapfinger import LOST, VOID, first_of, room
from bireme_lab.encoders.tapfinger_scene import NONE, Scene
from bireme_lab.encoders.tapfinger_types import type_inputs
from bireme_lab.simulator.traces.papers import poisson_steps
from bireme_lab.training.tapfinger.laws import (
    MAX_STEPS,
    TapFingerLaw,
    doubling,
    measured,
    pointer,
    synthetic,
)
from bireme_lab.training.vec_env import Actions, Array, EnvStep, Observation

# --- configurations -----------------------------------------------------------------------------

WINDOW: Final = 10
"""Waiting jobs that a pool can choose from."""


@dataclass(frozen=True, slots=True)
class TapFingerEnvConfig:
    """One configuration of the environment.

    Attributes:
        capacity: CPUs and GPUs of each pool.
        law: Speed of jobs.
        arrivals_per_step: Mean of a Poisson distribution.
        jobs: Jobs per episode.
        is_multi: Whether a pool may start several jobs in a step.
    """

    capacity: tuple[tuple[int, int], ...]
    law: TapFingerLaw
    arrivals_per_step: float
    jobs: int
    is_multi: bool


_LAWS: Final[Mapping[str, Callable[[Path | None], TapFingerLaw]]] = {
    "synthetic": lambda _: synthetic(),
    "noisy": lambda _: synthetic(noise=0.1),
    "pointer": lambda _: pointer(),
    "doubling": doubling,
    "measured": measured,
}
_THREE: Final = ((16, 16),) * 3
_SIX: Final = ((16, 16),) * 6
_UNEVEN: Final = tuple((size, size) for size in (4, 8, 12, 16, 24, 32))
_LARGE: Final = (32, 16)
_CONFIGS: Final[Mapping[str, tuple[tuple[tuple[int, int], ...], str, float, int, bool]]] = {
    "single-3": (_THREE, "synthetic", 2.0, 192, False),
    "single-6": (_SIX, "synthetic", 4.0, 384, False),
    "single-3-noisy": (_THREE, "noisy", 2.0, 192, False),
    "single-6-noisy": (_SIX, "noisy", 4.0, 384, False),
    "single-6-rate-3": (_SIX, "synthetic", 3.0, 384, False),
    "single-6-rate-2": (_SIX, "synthetic", 2.0, 384, False),
    "multi-3": (_THREE, "synthetic", 3.0, 192, True),
    "hetero-6": (_UNEVEN, "synthetic", 6.0, 384, True),
    "pointer": (_THREE, "pointer", 3.0, 192, True),
    "trace-3": ((_LARGE,) * 3, "doubling", 1.5, 1000, False),
    "trace-6": ((_LARGE,) * 6, "doubling", 3.0, 2000, False),
    "measured-3": ((_LARGE,) * 3, "measured", 1.5, 1000, False),
}
SETTINGS: Final[Mapping[str, str]] = {
    "single-3": "3 equal pools, one start per pool and step, 2 arrivals per step",
    "single-6": "6 equal pools, one start per pool and step, 4 arrivals per step",
    "single-3-noisy": "single-3 with the noise of the paper's figures",
    "single-6-noisy": "single-6 with the noise of the paper's figures",
    "single-6-rate-3": "single-6 with 3 arrivals per step",
    "single-6-rate-2": "single-6 with 2 arrivals per step",
    "multi-3": "3 equal pools, any number of starts, 3 arrivals per step",
    "hetero-6": "6 pools of 4 to 32 GPUs, any number of starts, 6 arrivals per step",
    "pointer": "3 equal pools, any number of starts; jobs of 1 or 10 steps",
    "trace-3": "3 pools, jobs measured on a machine as the authors' program runs them",
    "trace-6": "6 pools, the same",
    "measured-3": "3 pools, the same jobs in the time that they really took",
}
"""Descriptions; those of the trace need the folder of the published measurements."""


def make_config(name: str, data: Path | None = None, jobs: int | None = None) -> TapFingerEnvConfig:
    """Return the config called ``name``, with ``jobs`` per episode instead of its own number.

    Raises:
        SettingError: there is no such config, or it needs ``data``, the published measurements.
    """
    if name not in SETTINGS:
        raise SettingError(f"setting is {name!r}; write one of {', '.join(SETTINGS)}")
    capacity, law, rate, own_jobs, is_multi = _CONFIGS[name]
    if jobs is not None and jobs < 1:
        raise SettingError(f"jobs is {jobs}; write 1 or more")
    return TapFingerEnvConfig(capacity, _LAWS[law](data), rate, jobs or own_jobs, is_multi)


# --- the jobs of a seed -------------------------------------------------------------------------

LUCK_STEPS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class TapFingerJobs:
    """The jobs of several environments, in order of arrival.

    Attributes:
        arrival: The step before which each arrives, int64, shape (envs, jobs).
        kind: Index into the kinds of the law, int64, same shape.
        reaches: Whether a pool can run it, shape (envs, pools, jobs).
        luck: Luck in each step of its run, -1 to 1, shape (envs, jobs, LUCK_STEPS), cyclic; 0 steps
            for a law without noise.
    """

    arrival: IntArray
    kind: IntArray
    reaches: BoolArray
    luck: FloatArray


def draw(config: TapFingerEnvConfig, seeds: Sequence[int]) -> TapFingerJobs:
    """Draw the jobs of one environment per seed; equal seeds give equal jobs."""
    jobs, pools = config.jobs, len(config.capacity)
    steps = LUCK_STEPS if config.law.noise.any() else 0
    parts = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        arrival = poisson_steps(rng, config.arrivals_per_step, jobs)
        kind = rng.integers(len(config.law.kinds), size=jobs)
        # a job reaches k pools, k and the pools drawn uniformly [authors' program]
        rank = rng.random((pools, jobs)).argsort(axis=0).argsort(axis=0)
        reaches = rank < rng.integers(1, pools + 1, size=jobs)
        parts.append((arrival, kind, reaches, rng.uniform(-1, 1, (jobs, steps))))
    return TapFingerJobs(*(np.stack(part) for part in zip(*parts, strict=True)))


# --- the pools ----------------------------------------------------------------------------------


class TapFingerPools:
    """The state of W systems of node pools, without decisions.

    A job waits at all pools that it reaches, runs in one, and progresses by the law. A pool can
    choose from WINDOW of its waiting jobs. A visible job stays visible. Free places go to jobs that
    have just arrived, then to the earliest jobs [authors' program].

    Attributes:
        now: The next step, int64, shape (W,).
        free: Int64, shape (W, N, 2).
        pool: The pool of each job, shape (W, J); NONE before its start.
        amount: The allocation of each job, shape (W, J, 2); 0 before and after its run.
        started: The step in which each started, shape (W, J); NONE before.
        ended: The step before which each was over, shape (W, J); NONE before.
        progress: Shape (W, J).
        window: Slice of the J from the first job that has not ended to the last that has arrived.
        slots: The maximum number of jobs that run in a pool.
    """

    def __init__(self, config: TapFingerEnvConfig, seeds: Sequence[int]) -> None:
        self.config, self.jobs = config, draw(config, seeds)
        shape = self.jobs.arrival.shape
        self.now = np.zeros(shape[0], dtype=np.int64)
        self.capacity = np.array(config.capacity, dtype=np.int64)
        self.free = np.repeat(self.capacity[None], shape[0], axis=0)
        self.pool, self.started, self.ended = (np.full(shape, NONE) for _ in range(3))
        self.amount = np.zeros((*shape, 2), dtype=np.int64)
        self.progress = np.zeros(shape)
        self._changed = np.zeros(shape, dtype=np.bool_)
        self.slots = int((self.capacity // config.law.least).min(axis=1).max())
        self.window = slice(0, 0)  # so that long episodes cost no more per step than short ones
        self._sees = np.zeros_like(self.jobs.reaches)
        self._move_window()
        self._let_in(np.arange(shape[0]))

    @property
    def is_over(self) -> BoolArray:
        """Whether each system has no job left, shape (W,)."""
        return np.asarray((self.ended >= 0).all(axis=1))

    @property
    def present(self) -> BoolArray:
        """Jobs of the window that have arrived and not ended, bool, shape (W, window)."""
        has_arrived = self.jobs.arrival[:, self.window] <= self.now[:, None]
        return np.asarray(has_arrived & (self.ended[:, self.window] < 0))

    @property
    def running(self) -> BoolArray:
        """Jobs of the window that run, bool, shape (W, window)."""
        return np.asarray((self.pool[:, self.window] >= 0) & (self.ended[:, self.window] < 0))

    @property
    def waiting(self) -> BoolArray:
        """Jobs of the window that wait at each pool, bool, shape (W, N, window)."""
        waits = self.present & (self.pool[:, self.window] < 0)
        return waits[:, None, :] & self.jobs.reaches[:, :, self.window]

    @property
    def in_sight(self) -> BoolArray:
        """Waiting jobs that each pool can choose, at most WINDOW, bool, shape (W, N, window)."""
        return np.asarray(self.waiting & self._sees[:, :, self.window])

    def running_in(self) -> BoolArray:
        """Return which jobs of the window run, in each pool, shape (W, N, window)."""
        pools = np.arange(len(self.capacity))[None, :, None]
        return np.asarray(self.running[:, None, :] & (self.pool[:, None, self.window] == pools))

    def first(self, which: BoolArray, slots: int) -> IntArray:
        """Return the first ``slots`` jobs of ``which``, shape (W, N, slots); NONE behind the last.

        ``which`` are jobs of the window, shape (W, N, window).
        """
        columns = first_of(which, slots)
        return np.where(columns == NONE, NONE, columns + self.window.start)

    def start(self, envs: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Start job ``jobs[i]`` of ``envs[i]`` in ``pools[i]`` with ``amount[i]``."""
        self.pool[envs, jobs], self.started[envs, jobs] = pools, self.now[envs]
        self.amount[envs, jobs] = amount
        np.subtract.at(self.free, (envs, pools), amount)  # a pool may occur more than once

    def allocate(self, envs: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Give running jobs another ``amount``, shape (i, 2); a change has a cost."""
        more = amount - self.amount[envs, jobs]
        self._changed[envs, jobs] = (more != 0).any(axis=1)
        self.amount[envs, jobs] = amount
        np.subtract.at(self.free, (envs, self.pool[envs, jobs]), more)

    def advance(self, envs: IntArray) -> None:
        """Pass one step in ``envs``: running jobs progress or end, jobs arrive."""
        rows, columns = np.nonzero(self.running[envs])
        rows, jobs = envs[rows], columns + self.window.start
        index = rows, jobs
        law, state = (
            self.config.law,
            (self.jobs.kind[index], self.amount[index], self.progress[index]),
        )
        gained = law.gains(*state, self._luck(rows, jobs))
        # a change of the allocation costs half a step, but not in multi mode
        half = self._changed[index] & (not self.config.is_multi)
        self.progress[index] += np.where(half, 0.5, 1.0) * gained
        self._changed[index] = False
        self.now[envs] += 1
        done = self.progress[index] >= 1
        self._end(rows[done], jobs[done])
        self._move_window()
        self._let_in(envs)

    def _luck(self, envs: IntArray, jobs: IntArray) -> FloatArray | float:
        steps = self.jobs.luck.shape[2]
        if not steps:
            return 0.0
        age = self.now[envs] - self.started[envs, jobs]
        return np.asarray(self.jobs.luck[envs, jobs, age % steps])

    def _end(self, envs: IntArray, jobs: IntArray) -> None:
        self.ended[envs, jobs] = self.now[envs]
        np.add.at(self.free, (envs, self.pool[envs, jobs]), self.amount[envs, jobs])
        self.amount[envs, jobs] = 0

    def _let_in(self, envs: IntArray) -> None:
        waits = self.waiting[envs]
        sees = self.in_sight[envs]
        is_new = (self.jobs.arrival[:, self.window] == self.now[:, None])[envs][:, None]
        # new jobs before those that wait out of sight, as in the authors' program
        for group in (waits & ~sees & is_new, waits & ~sees & ~is_new):
            places = WINDOW - sees.sum(axis=2, keepdims=True)
            sees = sees | group & (group.cumsum(axis=2) <= places)
        self._sees[envs, :, self.window] = sees

    def _move_window(self) -> None:
        going = np.flatnonzero((self.ended[:, self.window] < 0).any(axis=0))
        start = self.window.start + int(going[0]) if len(going) else self.window.stop
        stop = self.window.stop
        while stop < self.jobs.arrival.shape[1] and (self.jobs.arrival[:, stop] <= self.now).any():
            stop += 1
        self.window = slice(start, stop)


# --- the environment ----------------------------------------------------------------------------


def connects(job: IntArray) -> BoolArray:
    """Return whether the ``job`` (W, N, P) in a slot is in sight of another pool, (W, N, P, N)."""
    same = job[:, :, :, None, None] == job[:, None, None, :, :]
    return np.asarray(same.any(axis=4) & (job >= 0)[..., None])


def _of(values: Array, job: IntArray) -> Array:
    """Return ``values``, shape (W, jobs, ...), of ``job``, shape (W, N, slots)."""
    return np.asarray(values[np.arange(len(values))[:, None, None], job])


class TapFingerEnv:
    """Systems of pools as a :class:`~bireme_lab.training.vec_env.VecEnv`.

    While no job runs, a pool must start one, or a policy could wait for ever.

    Observations; -1 is none, and padding is 0 elsewhere:

    * ``job`` int64 (W, N, P), equal numbers are the same job; ``kind`` int64, ``waited`` int64 in
      steps, ``pending_mask`` bool, ``fits`` bool, whether the smallest allocation fits, all
      (W, N, P); ``connects`` bool (W, N, P, N), whether another pool sees it too; ``least`` int64
      (W, N, P, 2), the smallest allocation.
    * ``run_left`` int64 (W, N, K), steps to the end as the law has it; ``run_kind`` and
      ``run_steps``, how long it has run, likewise; ``run_amount`` int64 (W, N, K, 2).
    * ``free`` and ``most``, the largest allocation to one job, int64 (W, N, 2);
      ``waiting`` int64 (W, N), jobs in line; ``can_start`` bool (W, N); ``is_done`` bool (W, N),
      whether it may start nothing more in this step.
    * ``may_wait`` bool (W,): whether all pools may start nothing.

    Actions are a mapping: ``slot`` int64 (W, N), the place of the chosen job among those in sight;
    ``won`` bool (W, N); ``amount`` int64 (W, N, 2), what winners give to it, 0 for nothing.

    Attributes:
        pools: The state, for rules and metrics; agents see only the observation.
    """

    def __init__(self, count: int, config: TapFingerEnvConfig, *, retries: bool = False) -> None:
        """With ``retries`` pools that lost a job choose again in the same step, in any mode."""
        self.count, self.config, self.retries = count, config, retries
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        self.pools = TapFingerPools(self.config, seeds)
        self._has_started = np.zeros(self.pools.free.shape[:2], dtype=np.bool_)
        self._observe()
        self._pass_idle_time()
        return self._seen

    def step(self, actions: Actions) -> EnvStep:
        """Start the choices of winners in every environment that is not over."""
        assert isinstance(actions, Mapping)  # noqa: S101  # slot, won and amount
        live = ~self.pools.is_over
        amount = np.asarray(actions["amount"])
        starts = live[:, None] & actions["won"] & (amount > 0).any(axis=2)
        envs, pools = np.nonzero(starts)
        jobs = self._seen["job"][envs, pools, np.asarray(actions["slot"])[envs, pools]]
        self._check(envs, pools, jobs, amount[envs, pools])
        acts = starts.any(axis=1)
        # time would pass for ever
        if (stuck := live & ~acts & ~self._seen["may_wait"]).any():
            raise ValueError(f"env {int(stuck.argmax())} starts nothing while nothing runs")
        self.pools.start(envs, pools, jobs, amount[envs, pools])
        self._has_started[envs, pools] = not self.config.is_multi
        # if pools may continue in this step, time passes only once no pool starts a job
        goes_on = self.config.is_multi or self.retries
        rewards = self._pass(np.flatnonzero(live & ~acts if goes_on else live))
        self._observe()
        rewards += self._pass_idle_time()
        times = self.pools.now.astype(np.float64)
        return EnvStep(self._seen, rewards, self.pools.is_over, times)

    def _pass(self, envs: IntArray) -> FloatArray:
        """Pass a step of time in ``envs``; return the rewards, shape (W,)."""
        rewards = np.zeros(self.count)
        rewards[envs] = -self.pools.present.sum(axis=1)[envs]
        self.pools.advance(envs)
        self._has_started[envs] = False
        return rewards

    def _pass_idle_time(self) -> FloatArray:
        """Let time pass until some pool can start a job, or all is over; return the rewards."""
        rewards = np.zeros(self.count)
        while (idle := ~self._seen["can_start"].any(axis=1) & ~self.pools.is_over).any():
            rewards += self._pass(np.flatnonzero(idle))
            self._observe()
        return rewards

    def _observe(self) -> None:
        pools, law = self.pools, self.config.law
        job, run = pools.first(pools.in_sight, WINDOW), pools.first(pools.running_in(), pools.slots)
        has_job, runs = job != NONE, run != NONE
        has_room = (pools.free >= np.array(law.least)).all(axis=-1) & ~self._has_started
        fits = has_job & has_room[:, :, None]
        now, amount = pools.now[:, None, None], _of(pools.amount, run)
        steps = law.steps[_of(pools.jobs.kind, run), amount[..., 0], amount[..., 1]]
        age = now - _of(pools.started, run)
        remaining = steps - age
        # copies of what changes in place: an observation is kept while the episode goes on
        self._seen: dict[str, Array] = {
            "job": job,
            "kind": np.where(has_job, _of(pools.jobs.kind, job), NONE),
            "waited": np.where(has_job, now - _of(pools.jobs.arrival, job), 0),
            "pending_mask": has_job,
            "fits": fits,
            "connects": connects(job),
            "least": np.where(has_job[..., None], np.array(law.least), 0),
            "free": pools.free.copy(),
            "most": np.broadcast_to(np.minimum(pools.capacity, law.most), pools.free.shape),
            "waiting": pools.waiting.sum(axis=2),
            "can_start": fits.any(axis=2),
            "is_done": self._has_started.copy(),
            "may_wait": np.asarray(pools.running.any(axis=1)),
            "run_kind": np.where(runs, _of(pools.jobs.kind, run), NONE),
            "run_steps": np.where(runs, age, 0),
            "run_amount": np.where(runs[..., None], amount, 0),
            "run_left": np.where(runs, np.maximum(remaining, 1), NONE),  # noise may make a job late
        }

    def _check(self, envs: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        law, free = self.config.law, self.pools.free[envs, pools]
        fine = (jobs != NONE) & (amount >= law.least).all(axis=1)
        fine &= (amount <= np.minimum(free, law.most)).all(axis=1)
        # the first of equal pairs alone: a job starts once
        first = np.unique(np.stack([envs, jobs], axis=1), axis=0, return_index=True)[1]
        fine &= np.isin(np.arange(len(jobs)), first)
        if not fine.all():
            row = int(fine.argmin())
            raise ValueError(
                f"pool {int(pools[row])} of env {int(envs[row])} cannot give "
                f"{amount[row].tolist()} of its free {free[row].tolist()} to what it chose; choose "
                "a job that is there, that no other pool starts, and a possible amount"
            )


# --- the agents' view of the environment --------------------------------------------------------

SLOT: Final = "slot"
SIZE: Final = "size"
"""Names of actions, int64 (envs, pools): the job's slot, and 1 + the row of its size."""


@dataclass(frozen=True, slots=True, eq=False)
class TapFingerView:
    """The agents' view of a batch of environments, and its source.

    Attributes:
        raw: The environment's observation.
        scene: The observation in shares and times.
        room: Multiples of the smallest size of each slot's job that are free, (envs, pools, slots).
        knows_speeds: Whether agents see the speed of jobs, or only their types.
    """

    raw: Observation
    scene: Scene
    room: FloatArray
    knows_speeds: bool = True

    def observation(self) -> dict[str, Array]:
        """Return the inputs that :mod:`~bireme_lab.encoders.tapfinger` describes."""
        facts, raw = {name: self.raw[name] for name in ("kind", "job")}, self.raw
        if self.knows_speeds:
            inputs = self.scene.inputs()
        else:
            inputs = type_inputs(self.scene, raw["run_kind"], raw["run_steps"])
        return inputs | facts | {"room": self.room, "can_void": self.raw["may_wait"]}


def efficient_sizes(times: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the smallest amounts of two resources for each speed, and their times.

    The longest time comes first. ``times[cpus, gpus]`` is infinite where a task cannot run.
    Shapes (sizes, 2) and (sizes,).
    """
    best = np.minimum.accumulate(np.minimum.accumulate(times, axis=0), axis=1)
    # the best with one CPU or one GPU less
    smaller = np.full(times.shape, np.inf)
    smaller[1:] = best[:-1]
    smaller[:, 1:] = np.minimum(smaller[:, 1:], best[:, :-1])
    amounts = np.argwhere(times < smaller)
    fastest = times[tuple(amounts.T)]
    order = np.lexsort((amounts.sum(-1), -fastest))  # networks take the first for the smallest
    return amounts[order], fastest[order]


def _size_table(law: TapFingerLaw) -> tuple[IntArray, FloatArray]:
    steps = np.where(law.steps >= MAX_STEPS, np.inf, law.steps)
    by_kind = [efficient_sizes(one) for one in steps]
    max_sizes = max(len(amounts) for amounts, _ in by_kind)
    sizes = np.zeros((len(by_kind), max_sizes, 2), dtype=np.int64)
    times = np.full((len(by_kind), max_sizes), np.inf)
    for kind, (amounts, kind_times) in enumerate(by_kind):
        sizes[kind, : len(amounts)], times[kind, : len(kind_times)] = amounts, kind_times
    return sizes, times


def _size_grid(law: TapFingerLaw) -> tuple[IntArray, FloatArray]:
    """Return sizes and times as :func:`_size_table` does, where it is unknown which are of use.

    Every number of GPUs with every doubling of the fewest CPUs; times are 1.
    """
    doublings = int(np.log2(law.most[0] / law.least[0])) + 1
    cpus = law.least[0] * 2 ** np.arange(doublings)
    grid = np.stack(np.meshgrid(cpus, np.arange(law.least[1], law.most[1] + 1)), axis=-1)
    amounts = grid.reshape(-1, 2)  # by GPUs, so that the smallest comes first
    sizes = np.broadcast_to(amounts, (len(law.kinds), *amounts.shape)).copy()
    return sizes, np.ones(sizes.shape[:2])


EXPERT: Final = "expert_"
"""Prefix of the observations that hold what the expert does."""
Expert: TypeAlias = Callable[[TapFingerView], Mapping[str, Array]]
"""A slot and a size for every pool, from the view."""


class TapFingerAgentEnv:
    """A VecEnv around ``env`` in slots and sizes; an ``expert``'s choice is shown too.

    A size is a row of :func:`efficient_sizes`, or of a grid where agents do not know speeds; VOID
    gives a job nothing, and LOST means that another pool won it.

    Attributes:
        sizes: CPUs and GPUs of the sizes of each kind, int64 (kinds, sizes, 2); 0 after the last.
        steps: Run time of each, (kinds, sizes); infinite after the last.
        view: The view of the last observation.
    """

    view: TapFingerView

    def __init__(
        self, env: TapFingerEnv, expert: Expert | None = None, *, knows_speeds: bool = True
    ) -> None:
        self.env, self.count, self._expert = env, env.count, expert
        self._knows_speeds = knows_speeds
        self.sizes, self.steps = (_size_table if knows_speeds else _size_grid)(env.config.law)
        self._capacity = np.array(env.config.capacity, dtype=np.float64)
        self._shares = self.sizes / self._capacity[:, None, None, :]

    def reset(self, seeds: Sequence[int]) -> Observation:
        return self._show(self.env.reset(seeds))

    def step(self, actions: Actions) -> EnvStep:
        assert isinstance(actions, Mapping)  # noqa: S101  # slot and size
        step = self.env.step(self._amounts(actions))
        return replace(step, observation=self._show(step.observation))

    def _show(self, raw: Observation) -> Observation:
        self.view = self._look(raw)
        observation = self.view.observation()
        if self._expert is not None:
            observation |= {EXPERT + name: part for name, part in self._expert(self.view).items()}
        return observation

    def _look(self, raw: Observation) -> TapFingerView:
        free = raw["free"]
        # kinds have different numbers of sizes: steps are infinite behind the last
        may = ~raw["is_done"][:, :, None, None] & np.isfinite(self.steps)
        scene = Scene(
            kind=raw["kind"],
            waited=raw["waited"],
            meets=raw["connects"],
            queued=raw["waiting"],
            free=free / self._capacity,
            shares=self._shares[None],
            fits=(self.sizes <= free[:, :, None, None, :]).all(-1) & may,
            times=self.steps[None],
            run_shares=raw["run_amount"] / self._capacity[:, None, :],
            run_left=raw["run_left"],
            is_single=not self.env.config.is_multi,
        )
        of_slots = room(free[:, :, None, :], raw["least"])
        return TapFingerView(raw, scene, of_slots, self._knows_speeds)

    def _amounts(self, actions: Mapping[str, Array]) -> dict[str, Array]:
        """Convert slots and sizes to actions of ``env``."""
        slot, size = actions[SLOT], actions[SIZE]
        kind = np.take_along_axis(self.view.raw["kind"], slot[..., None], axis=-1)[..., 0]
        won = (size != LOST) & (kind != NONE)
        amount = self.sizes[np.maximum(kind, 0), np.maximum(size - 1, 0)]  # size 1 is row 0
        starts = won & (size > VOID)
        return {"slot": slot, "won": won, "amount": np.where(starts[..., None], amount, 0)}


def expert_actions(observation: Observation) -> Actions:
    """Return the action of the expert of a :class:`TapFingerAgentEnv`, for cloning."""
    return {name: observation[EXPERT + name] for name in (SLOT, SIZE)}


# --- several environments as one ----------------------------------------------------------------

_PADDING: Final[Mapping[str, int]] = {"kind": NONE, "job": NONE, EXPERT + SIZE: LOST}


class MixedEnv:
    """Several environments side by side as one, so that one policy learns in all of them.

    Pools, kinds, sizes and running jobs are padded to the maximum of all parts.
    """

    def __init__(self, parts: Sequence[tuple[TapFingerAgentEnv, float]]) -> None:
        """Join ``parts``: environments, each with a factor for its rewards."""
        ends = np.cumsum([env.count for env, _ in parts])
        self._parts = [
            (env, scale, slice(end - env.count, end))
            for (env, scale), end in zip(parts, ends.tolist(), strict=True)
        ]
        self.count = int(ends[-1])

    def reset(self, seeds: Sequence[int]) -> Observation:
        return _side_by_side([env.reset(seeds[rows]) for env, _, rows in self._parts])

    def step(self, actions: Actions) -> EnvStep:
        assert isinstance(actions, Mapping)  # noqa: S101  # slot and size
        steps, rewards = [], []
        for env, scale, rows in self._parts:
            pools = len(env.env.config.capacity)
            steps.append(env.step({name: part[rows, :pools] for name, part in actions.items()}))
            rewards.append(steps[-1].rewards * scale)
        return EnvStep(
            _side_by_side([step.observation for step in steps]),
            np.concatenate(rewards),
            np.concatenate([step.is_over for step in steps]),
            np.concatenate([step.times for step in steps]),
        )


def _side_by_side(parts: Sequence[Observation]) -> Observation:
    return {name: _pad(name, [part[name] for part in parts]) for name in parts[0]}


def _pad(name: str, parts: Sequence[Array]) -> Array:
    shape = np.max([part.shape[1:] for part in parts], axis=0).astype(np.int64)
    count = sum(len(part) for part in parts)
    whole = np.full((count, *shape), _PADDING.get(name, 0), parts[0].dtype)
    row = 0
    for part in parts:
        whole[(slice(row, row + len(part)), *map(slice, part.shape[1:]))] = part
        row += len(part)
    return whole
