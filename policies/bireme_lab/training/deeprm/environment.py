"""DeepRM's environment, batched: one machine with two resources, and a queue.

In every step of the clock a policy chooses jobs one by one until it chooses the void. Then the
clock advances. A chosen job starts at once, so it must fit the free slots. The void is forbidden
while the machine is empty and a job waits, or a policy could wait for ever. If no waiting job fits,
the clock runs to the next arrival or finish by itself.

The reward of a period is minus the sum, over its steps and the jobs in the system, of
``1 / duration + completion_weight``, divided by the number of arrival steps. So the return of an
episode is minus the slowdowns of all jobs, plus their weighted completion times, per arrival step.
Without the second term waits grow (the first is the paper's).

Sources: Liang et al., "Data centers job scheduling with deep reinforcement learning", PAKDD 2020,
sections 3.1 and 4.2; Mao et al., HotNets 2016, sections 3.2 and 3.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme_lab.encoders import a2c as encoder
from bireme_lab.training.vec_env import Actions, EnvStep, Observation, check_choices

# --- the jobs of a seed: at most one a step, mostly short, with one main resource ---------------
#
# Four of five jobs run 1 to 3 steps, the others 10 to 15. A job requests 5 to 10 slots of its main
# resource, drawn at random, and 1 or 2 of the other one. The paper of A2cScheduler does not state
# these numbers; they are those of Mao et al., HotNets 2016, section 4.1, from its public program.

RESOURCES = 2
SLOTS = 10
"""The machine's capacity of each resource."""
SHORT = (1, 3)
LONG = (10, 15)
SHORT_SHARE = 0.8
MAIN = (5, 10)
OTHER = (1, 2)


@dataclass(frozen=True, slots=True)
class DeepRmEnvConfig:
    """One size of the environment.

    Attributes:
        rates: Probabilities of an arrival in a step; each env draws one by its seed.
        queue_slots: The number of waiting jobs that can be chosen, the earliest first.
        arrival_steps: Steps in which jobs arrive; then the env is drained.
        completion_weight: Cost of a job in the system per step, beside one over its duration.
    """

    rates: tuple[float, ...] = (0.7,)
    queue_slots: int = 10
    arrival_steps: int = 50
    completion_weight: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class DeepRmJobs:
    """The jobs of several envs; job ``j`` of an env arrives at step ``j``, if it exists.

    Shapes: (envs, arrival steps); ``demands``, in slots, has the resources as a third axis.
    """

    exists: BoolArray
    durations: IntArray
    demands: IntArray

    def some(self, envs: BoolArray) -> "DeepRmJobs":
        return DeepRmJobs(self.exists[envs], self.durations[envs], self.demands[envs])


def draw(config: DeepRmEnvConfig, seeds: Sequence[int]) -> DeepRmJobs:
    """Draw the jobs of one env per seed; equal seeds give equal jobs."""
    exists, durations, demands = zip(*(_draw(config, seed) for seed in seeds), strict=True)
    return DeepRmJobs(np.stack(exists), np.stack(durations), np.stack(demands))


def _draw(config: DeepRmEnvConfig, seed: int) -> tuple[BoolArray, IntArray, IntArray]:
    # Draw in the same order at every rate: each job at a low rate also comes at a higher one, if
    # both envs have a single rate.
    chance, steps = np.random.default_rng(seed), config.arrival_steps
    rate = config.rates[chance.integers(len(config.rates))]
    exists = chance.random(steps) < rate
    is_short = chance.random(steps) < SHORT_SHARE
    durations = np.where(is_short, _between(chance, SHORT, steps), _between(chance, LONG, steps))
    main = chance.integers(RESOURCES, size=steps)
    demands = np.where(
        main[:, None] == np.arange(RESOURCES),
        _between(chance, MAIN, steps)[:, None],
        _between(chance, OTHER, steps)[:, None],
    )
    return exists, durations, demands


def _between(chance: np.random.Generator, span: tuple[int, int], count: int) -> IntArray:
    """Draw ``count`` whole numbers from ``span``, both ends included."""
    return chance.integers(*span, size=count, endpoint=True)


# --- the environment ----------------------------------------------------------------------------

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class DeepRmState:
    """Several envs at one moment, before a choice.

    Attributes:
        clock: Elapsed steps, shape (envs,).
        started: Start of each job; -1 before; shape (envs, jobs).
        waiting: Whether each job waits, shape (envs, jobs).
        queue: The jobs that can be chosen, the earliest first; -1 for an empty slot; shape (envs,
            queue slots).
        free: Free slots, shape (envs, resources).
        fits: Whether each job of the queue fits, shape (envs, queue slots).
    """

    config: DeepRmEnvConfig
    jobs: DeepRmJobs
    clock: IntArray
    started: IntArray
    waiting: BoolArray
    queue: IntArray
    free: IntArray
    fits: BoolArray

    @property
    def ends(self) -> IntArray:
        """End of each started job; 0 before its start; shape (envs, jobs)."""
        return np.where(self.started >= 0, self.started + self.jobs.durations, 0)

    @property
    def is_over(self) -> BoolArray:
        """Whether each env has finished all its jobs, shape (envs,)."""
        is_done = (self.started >= 0) & (self.ends <= self.clock[:, None])
        return np.asarray((is_done | ~self.jobs.exists).all(axis=1))

    @property
    def allowed(self) -> BoolArray:
        """Allowed choices, the void last, shape (envs, queue slots + 1)."""
        is_empty = (self.free == SLOTS).all(axis=1)
        void = ~(is_empty & self.fits.any(axis=1))
        return np.concatenate([self.fits, void[:, None]], axis=1)

    def of_queue(self, values: IntArray) -> IntArray:
        """Return ``values`` of jobs, (envs, jobs, ...), for the queue; 0 for empty slots."""
        of_slots = values[np.arange(len(values))[:, None], self.queue]
        is_there = (self.queue >= 0).reshape(*self.queue.shape, *[1] * (values.ndim - 2))
        return np.where(is_there, of_slots, 0)


View: TypeAlias = Callable[[DeepRmState], Observation]


def masks(state: DeepRmState) -> Observation:
    """Return only ``mask``, the allowed choices."""
    return {"mask": state.allowed}


class DeepRmEnv:
    """``count`` environments of one configuration, seen through ``view``; see the module."""

    def __init__(self, count: int, config: DeepRmEnvConfig, view: View = masks) -> None:
        self.count = count
        self.config = config
        self.view = view
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        clock = np.zeros(self.count, dtype=np.int64)
        started = np.full((self.count, self.config.arrival_steps), -1, dtype=np.int64)
        self.state = _state_of(self.config, draw(self.config, seeds), clock, started)
        self._pass_idle_time()
        return self.view(self.state)

    def step(self, actions: Actions) -> EnvStep:
        """Choose a queue slot, or the void (the last action), in environments that are not over."""
        choices = np.asarray(actions)
        state, slots = self.state, self.config.queue_slots
        live = ~state.is_over
        check_choices(choices, state.allowed, live)
        rows = np.flatnonzero(live & (choices < slots))
        started = state.started.copy()
        started[rows, state.queue[rows, choices[rows]]] = state.clock[rows]
        pause = np.where(live & (choices == slots), 1, 0)
        rewards = -pause * _cost(state)
        self.state = _state_of(self.config, state.jobs, state.clock + pause, started)
        rewards += self._pass_idle_time()
        clock = self.state.clock.astype(np.float64)
        return EnvStep(self.view(self.state), rewards, self.state.is_over, clock)

    def _pass_idle_time(self) -> FloatArray:
        """Let time pass in envs without a choice; return the rewards, shape (envs,)."""
        # Work only on idle envs, as most of a batch has a choice.
        part, clock = self.state, self.state.clock.copy()
        rows, rewards = np.arange(self.count), np.zeros(self.count)
        while (idle := ~part.fits.any(axis=1) & ~part.is_over).any():
            pause = _until_next_event(part)
            rows, price = rows[idle], pause * _cost(part)
            rewards[rows] -= price[idle]
            clock[rows] += pause[idle]
            part = _state_of(self.config, part.jobs.some(idle), clock[rows], part.started[idle])
        if part is not self.state:
            self.state = _state_of(self.config, self.state.jobs, clock, self.state.started)
        return rewards


def _cost(state: DeepRmState) -> FloatArray:
    """Return the cost of a step without arrivals and ends, above 0, shape (envs,)."""
    rates = 1.0 / state.jobs.durations + state.config.completion_weight
    is_present = state.waiting | (state.ends > state.clock[:, None])
    return np.asarray((rates * is_present).sum(axis=1) / state.config.arrival_steps)


def _state_of(
    config: DeepRmEnvConfig, jobs: DeepRmJobs, clock: IntArray, started: IntArray
) -> DeepRmState:
    """Return the state at ``clock`` of envs whose jobs started at ``started``."""
    has_come = np.arange(config.arrival_steps) <= clock[:, None]
    waiting = jobs.exists & has_come & (started < 0)
    place = waiting.cumsum(axis=1) - 1
    rows, columns = np.nonzero(waiting & (place < config.queue_slots))
    queue = np.full((len(clock), config.queue_slots), -1, dtype=np.int64)
    queue[rows, place[rows, columns]] = columns
    runs = (started >= 0) & (started + jobs.durations > clock[:, None])
    free = SLOTS - np.einsum("wj,wjr->wr", runs, jobs.demands)
    demands = jobs.demands[np.arange(len(clock))[:, None], queue]
    fits = (queue >= 0) & (demands <= free[:, None, :]).all(axis=2)
    return DeepRmState(config, jobs, clock, started, waiting, queue, free, fits)


def _until_next_event(state: DeepRmState) -> IntArray:
    """Return the steps until a job arrives or ends, shape (envs,); at least 1 before the end."""
    steps = np.arange(state.config.arrival_steps)
    comes = np.where(state.jobs.exists & (steps > state.clock[:, None]), steps, NEVER)
    ends = np.where(state.ends > state.clock[:, None], state.ends, NEVER)
    return np.asarray(np.minimum(comes, ends).min(axis=1) - state.clock)


# --- measures of an episode ---------------------------------------------------------------------


def measure(state: DeepRmState) -> dict[str, FloatArray]:
    """Return the measures of finished envs, by name; times are in steps, shape (envs,).

    ``slowdown`` (completion time over duration), ``completion_steps`` (from arrival to finish) and
    ``waiting_steps`` (to start) are means over the jobs; ``longest_wait_steps`` is the maximum.

    Raises:
        ValueError: an env is not over, or had no jobs.
    """
    exists, durations = state.jobs.exists, state.jobs.durations
    # A mean without unfinished jobs would favour a policy that starves them.
    if not state.is_over.all():
        env = int((~state.is_over).argmax())
        raise ValueError(f"env {env} has jobs that have not finished; measure it when over")
    if not exists.any(axis=1).all():
        env = int((~exists.any(axis=1)).argmax())
        raise ValueError(f"env {env} had no jobs, so that it has no means; take another seed")
    waits = state.started - np.arange(exists.shape[1])
    completions = waits + durations
    means = {
        "slowdown": completions / durations,
        "completion_steps": completions,
        "waiting_steps": waits,
    }
    measures = {name: np.mean(values, axis=1, where=exists) for name, values in means.items()}
    max_wait = np.max(waits, axis=1, where=exists, initial=0)
    return measures | {"longest_wait_steps": max_wait.astype(np.float64)}


# --- views, by the formulas of the serving encoder ----------------------------------------------


def as_set(state: DeepRmState) -> Observation:
    """Return the features of every job of the queue, and the context.

    ``jobs`` float32, shape (envs, queue slots, features); ``context`` float32, shape (envs,
    features); ``mask`` bool, shape (envs, queue slots + 1), the allowed choices; ``present`` bool,
    shape (envs, queue slots), the slots with a job in them.
    """
    clock = state.clock[:, None]
    free = state.free / SLOTS
    ends = clock + np.array(encoder.HORIZON_STEPS)
    still_runs = state.ends[:, None, :] > ends[:, :, None]
    later = (SLOTS - np.einsum("wtj,wjr->wtr", still_runs, state.jobs.demands)) / SLOTS
    waits = np.where(state.queue >= 0, clock - state.queue, 0)
    jobs = encoder.job_features(
        state.of_queue(state.jobs.demands) / SLOTS,
        free,
        np.maximum(state.of_queue(state.jobs.durations), 1),
        waits,
    )
    context = encoder.context_features(free, later, state.waiting.sum(axis=1))
    return {"jobs": jobs, "context": context, "mask": state.allowed, "present": state.queue >= 0}


def as_image(state: DeepRmState) -> Observation:
    """Return the paper's image.

    ``image`` float32, shape (envs, 1, horizon steps, columns), by
    :func:`bireme_lab.encoders.a2c.paint`; ``mask`` as in :func:`as_set`.
    """
    coming = state.clock[:, None] + np.arange(encoder.IMAGE_HORIZON_STEPS)
    runs = state.ends[:, None, :] > coming[:, :, None]
    come = state.jobs.exists & (np.arange(state.config.arrival_steps) <= state.clock[:, None])
    last = np.where(come, np.arange(state.config.arrival_steps), -encoder.IMAGE_HORIZON_STEPS)
    image = encoder.paint(
        np.einsum("wtj,wjr->wtr", runs, state.jobs.demands),
        state.of_queue(state.jobs.durations),
        state.of_queue(state.jobs.demands),
        np.maximum(state.waiting.sum(axis=1) - state.config.queue_slots, 0),
        state.clock - last.max(axis=1),
    )
    return {"image": image, "mask": state.allowed}
