"""RLPTO's environment: tasks with a low gain lose workers, and the agent hands them out.

A cluster of parameter servers runs one task per server; the other nodes are workers. After every
period each running task with a gain in accuracy below beta per iteration loses a worker. With its
last worker it has converged, and its server takes the next task. While a worker is free the agent
moves workers one at a time (section VI.A, listing). Action 0 does nothing and lets time pass, ``i``
gives a free worker to the task at server ``i``, ``N + i`` takes one from it. Time also passes
without a free worker, or after twice as many moves as workers.

Lu et al., "RLPTO", IEEE TPDS 2023, sections V to VII; tables II, III and V.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, log
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme_lab.encoders.rlpto import TaskStates, context_features, task_features
from bireme_lab.heuristics.rlpto_queues import URGENT, apply_requests
from bireme_lab.simulator.physics.laws import DL2_LAWS, OptimusLaw
from bireme_lab.simulator.traces.papers import RLPTO_IMAGES, RLPTO_PRIORITIES
from bireme_lab.training.vec_env import Actions, Array, EnvStep, Observation, check_choices

# --- training: seconds, loss and accuracy in closed forms, with the source of each number --------
#
#     seconds of a step    Optimus' law of synchronous training with one server
#     loss                 1 / (b e + c) + d
#     accuracy yet to come SPAN / (1 + e / pace)^2, and each iteration loses a share of its gain,
#                          PER_WORKER for every worker
#
# ``e`` counts iterations: passes over the data. RLPTO publishes neither curves nor speeds, only
# final accuracies and total times (tables II and III). These forms are calibrated to them.
#
# * Speed (measured, DL2): ``dssm``, the only one of eight fitted laws in which more workers still
#   help beside a single server, as in figure 9. The batch of 1024 is assumed; with it FS and FCFS
#   take 8807 and 14700 s, published 8498 and 14333.
# * Shape (measured, Pollux): validation accuracy of ResNet-18 on CIFAR-10 over epochs, batches 128
#   to 1024, fits ``top - span / (1 + e / pace)^2`` to 1.4 to 1.8 points, span 0.48 to 0.58.
# * Pace (calibrated): so that accuracy between beta 1e-3 and 1e-4 differs by about a point, most
#   with small data (figure 8). Large data needs fewer passes.
# * Accuracy lost per worker (paper): FCFS with 10 workers is 1.1 points under FS with 3 or 4, with
#   12 it is 1.7 points under (tables II and III): 0.16 to 0.19 points each. The loss as a share of
#   every iteration's gain is assumed, because a worker sees only a part of the data.
# * Tops (calibrated) to FS' 87.6 %; their difference by size is assumed. With these numbers the
#   simple rule for RLPTO has 88.05 to 87.18 % in 9306 to 4482 s; RLPTO's published numbers are
#   88.13 to 87.23 % in 8882 to 4515 s. SLAQ is 0.8 points lower than published, Dolphin 17 %
#   slower.
# * Loss (form: Optimus, EuroSys 2018, section 3.1; assumed numbers): from ln 10 towards 0.3.

BATCH: Final = 1024
"""Images of a step over all workers."""
LAW: Final = OptimusLaw(DL2_LAWS["dssm"].theta, BATCH)
MAX_WORKERS: Final = 64
_STEP_SECONDS: Final[FloatArray] = np.array(
    [1 / LAW.steps_per_second({"worker": n, "ps": 1}, 1) for n in range(1, MAX_WORKERS + 1)]
)
SPAN: Final = 0.5
"""Accuracy from before the first iteration to the best."""
PER_WORKER: Final = 0.0018 / SPAN
TOPS: Final = {120_000: 0.901, 60_000: 0.887, 40_000: 0.873}
PACES: Final = {120_000: 2.0, 60_000: 4.0, 40_000: 9.0}
"""Iterations, by the number of images."""
FIRST_LOSS: Final = log(10)
"""The loss of a guess among ten classes."""
LAST_LOSS: Final = 0.3


def step_seconds(workers: IntArray) -> FloatArray:
    """Return seconds of a step with ``workers``, any shape; 0 workers count as one."""
    return np.asarray(_STEP_SECONDS[np.maximum(workers, 1) - 1])


def to_come(pace: FloatArray, iterations: FloatArray) -> FloatArray:
    """Return the accuracy yet to come with one worker, SPAN to 0; any one shape."""
    return np.asarray(SPAN / (1 + iterations / pace) ** 2)


def to_come_at(pace: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the accuracy yet to come when an iteration of one worker gains ``gain``."""
    return np.asarray(SPAN * (pace * gain / (2 * SPAN)) ** (2 / 3))


def accuracy_gain(
    pace: FloatArray, since: FloatArray, until: FloatArray, workers: IntArray
) -> FloatArray:
    """Return the gain in accuracy of iterations ``since`` to ``until``; any one shape."""
    brought = to_come(pace, since) - to_come(pace, until)
    return np.asarray(brought * (1 - PER_WORKER * workers))


def loss_rate(pace: FloatArray) -> FloatArray:
    """Return the ``b`` of the loss, per iteration: halfway down after ``pace`` iterations."""
    return 1 / ((FIRST_LOSS - LAST_LOSS) * pace)


def training_loss(pace: FloatArray, iterations: FloatArray) -> FloatArray:
    """Return the training loss, any one shape."""
    first = 1 / (FIRST_LOSS - LAST_LOSS)
    return np.asarray(1 / (loss_rate(pace) * iterations + first) + LAST_LOSS)


# --- the experiments -----------------------------------------------------------------------------

BETAS: Final = (1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
"""Minimum gains of accuracy per iteration, from 0 to 1, of the evaluation (tables II and III)."""
PAPER_BETAS: Final = (5e-5, *BETAS)
"""All betas of the paper's tables."""
MIX_BETA: Final = 3e-4
"""The beta of the priority mixes (section VII.B.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlptoEnvConfig:
    """One experiment: the size of the cluster, and its tasks.

    Attributes:
        servers: Parameter servers, at most SLOTS; as many tasks run at a time.
        nodes: Workers of all tasks together, at most MAX_WORKERS.
        slowdown: Factor on the time of a step, because all nodes are containers of one machine.
        priorities: Priority of each task, 1 to 5, in the order of ``RLPTO_IMAGES``. Without them
            all have 1, in an order drawn by the seed.
        spread_seconds: The period from the start in which tasks arrive at random times.
        request_seconds: The time between requests of a waiting task's owner for another priority;
            the kind of request is drawn.
    """

    servers: int = 3
    nodes: int = 10
    slowdown: float = 1.0
    priorities: tuple[int, ...] = ()
    spread_seconds: float = 0.0
    request_seconds: float = inf


# The paper's 12 nodes are 3 servers and 10 workers by its rows of FS, (3, 3, 4), and FCFS, 10;
# 12 minus 3 would be 9. Its 16 nodes are 4 servers and 12 workers.
_TWELVE: Final = RlptoEnvConfig()
CONFIGS: Final[Mapping[str, RlptoEnvConfig]] = MappingProxyType(
    {
        "table-2": _TWELVE,
        # 1.12 lies between the values of FS (1.18) and of FCFS (1.06).
        "table-3": RlptoEnvConfig(servers=4, nodes=12, slowdown=1.12),
        **{
            f"mix-{number}": replace(_TWELVE, priorities=mix)
            for number, mix in enumerate(RLPTO_PRIORITIES, 1)
        },
        "arrivals": replace(
            _TWELVE, priorities=RLPTO_PRIORITIES[3], spread_seconds=3600.0, request_seconds=600.0
        ),
    }
)
"""Experiments by name. ``arrivals`` is not in the paper; it interrupts tasks and moves queues."""


# Tasks of one size differ a little in pace and final accuracy. A published row is the mean of 20
# runs; this spread makes runs differ.

TOP_SPREAD: Final = 0.002
"""Standard deviation of the best accuracy among tasks of one size (assumed)."""
PACE_SPREAD: Final = 0.1
"""Standard deviation of the logarithm of the pace among tasks of one size (assumed)."""
_REQUESTS: Final = (-1.0, 0.0, 1.0, 1.0)
"""Requests of the owner of a waiting task: one of these, equally likely (assumed)."""


@dataclass(frozen=True, slots=True, eq=False)
class RlptoTaskSet:
    """Tasks by number, the order in which they are submitted; shapes (envs, tasks).

    Attributes:
        images: Number of images.
        top, pace: Final accuracy, and iterations until a quarter of :data:`SPAN` is left.
        arrived: Seconds.
        priority: Priority at submission, 1 to 5.
        requests: Change that its owner requests each time: 1, 0 or -1.
    """

    images: IntArray
    top: FloatArray
    pace: FloatArray
    arrived: FloatArray
    priority: FloatArray
    requests: FloatArray


def draw(configs: Sequence[RlptoEnvConfig], seeds: Sequence[int]) -> RlptoTaskSet:
    """Draw the tasks of one environment per configuration and seed."""
    task_sets = [_draw(config, seed) for config, seed in zip(configs, seeds, strict=True)]
    return RlptoTaskSet(
        *(
            np.stack([getattr(one, field.name) for one in task_sets])
            for field in fields(RlptoTaskSet)
        )
    )


def _draw(config: RlptoEnvConfig, seed: int) -> RlptoTaskSet:
    chance = np.random.default_rng(seed)
    count = len(RLPTO_IMAGES)
    mixed = chance.permutation(count)
    images = np.array(RLPTO_IMAGES)[np.arange(count) if config.priorities else mixed]
    tops = np.array([TOPS[size] for size in images.tolist()])
    paces = np.array([PACES[size] for size in images.tolist()])
    return RlptoTaskSet(
        images=images,
        top=tops + TOP_SPREAD * chance.standard_normal(count),
        pace=paces * np.exp(PACE_SPREAD * chance.standard_normal(count)),
        arrived=np.sort(chance.random(count)) * config.spread_seconds,
        priority=np.array(config.priorities or [1] * count, dtype=np.float64),
        requests=chance.choice(_REQUESTS, count),
    )


# --- clusters of parameter servers: tasks wait, train, are interrupted and end --------------------

_TOLERANCE = 1e-9
"""Rounding of a sum of periods, in iterations."""


class RlptoClusters:
    """The state of W clusters of parameter servers, without decisions about workers.

    Time moves in periods: the longest iteration among running tasks (section VI.E of the paper),
    cut when a task comes or reaches its last iteration. With RLPTO's queues, an urgent task without
    a free server takes the server of the normal task that started last. The interrupted task is the
    first to continue, is not interrupted again, and keeps its progress (section V.B).

    Shapes: environments W, tasks K.

    Attributes:
        clock: Seconds since the start, shape (W,).
        nodes: Workers of each task, 0 if it does not run, shape (W, K).
        done, interrupted, is_urgent: Shape (W, K).
        priority: Present priority after its owner's requests, shape (W, K).
        started, finished: Seconds; NaN before, shape (W, K).
        iterations: Passes over the data so far, shape (W, K).
        accuracy: From 0 to 1, shape (W, K).
        gain: Gain in accuracy per iteration of the last period; 1 before, shape (W, K).
    """

    def __init__(
        self,
        configs: Sequence[RlptoEnvConfig],
        seeds: Sequence[int],
        most_iterations: float,
        next_task: "NextTask | None" = None,
    ) -> None:
        """Make one cluster per config and seed, with the first tasks just started.

        By default RLPTO's queues order tasks; with ``next_task`` no task is interrupted.
        """
        self.tasks = draw(configs, seeds)
        self.servers = np.array([config.servers for config in configs])
        self.total = np.array([config.nodes for config in configs])
        self.most_iterations = most_iterations
        self._next_task, self._interrupts = next_task or by_queues, next_task is None
        self._slowdown = np.array([config.slowdown for config in configs])[:, None]
        self._request_seconds = np.array([config.request_seconds for config in configs])[:, None]
        shape = self.tasks.images.shape
        self.clock = np.zeros(len(configs))
        self.nodes: IntArray = np.zeros(shape, dtype=np.int64)
        self.done, self.interrupted = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.priority, self.is_urgent = self.tasks.priority.copy(), self.tasks.priority >= URGENT
        self.started, self.finished = np.full(shape, np.nan), np.full(shape, np.nan)
        self.iterations, self.gain = np.zeros(shape), np.ones(shape)
        self.accuracy = self.tasks.top - SPAN
        self.start()

    @property
    def running(self) -> BoolArray:
        """Whether each task has workers, shape (W, K)."""
        return self.nodes > 0

    @property
    def waiting(self) -> BoolArray:
        """Whether each task has arrived and waits for a server, shape (W, K)."""
        return (self.tasks.arrived <= self.clock[:, None]) & ~self.done & ~self.running

    @property
    def free(self) -> IntArray:
        """Free workers, shape (W,)."""
        return np.asarray(self.total - self.nodes.sum(axis=1))

    @property
    def is_over(self) -> BoolArray:
        """Whether each cluster has finished all tasks, shape (W,)."""
        return np.asarray(self.done.all(axis=1))

    @property
    def loss(self) -> FloatArray:
        """Training loss, shape (W, K)."""
        return training_loss(self.tasks.pace, self.iterations)

    @property
    def worst_loss(self) -> FloatArray:
        """The largest training loss so far, shape (W, K)."""
        # Losses fall, so it is the first.
        return training_loss(self.tasks.pace, np.zeros_like(self.iterations))

    @property
    def steps(self) -> FloatArray:
        """Steps of an iteration, shape (W, K)."""
        return np.asarray(self.tasks.images / BATCH)

    @property
    def iteration_seconds(self) -> FloatArray:
        """Seconds of an iteration, with one worker for tasks without workers; shape (W, K)."""
        return np.asarray(self.steps * self._slowdown * step_seconds(self.nodes))

    def advance(self, envs: BoolArray) -> FloatArray:
        """Let a period pass in ``envs``, which are not over; return its seconds, shape (W,).

        Tasks that reach their last iteration end.
        """
        seconds = np.where(envs, self._period(), 0.0)
        previous, clock = self.iterations, self.clock
        done = np.where(self.running, seconds[:, None] / self.iteration_seconds, 0.0)
        self.clock, self.iterations = clock + seconds, previous + done
        added = accuracy_gain(self.tasks.pace, previous, self.iterations, self.nodes)
        self.accuracy = self.accuracy + added
        np.divide(added, done, out=self.gain, where=done > 0)
        self._ask(clock)
        self.end(self.running & (self.iterations >= self.most_iterations - _TOLERANCE))
        return seconds

    def end(self, tasks: BoolArray) -> None:
        """End the tasks of the mask (W, K) and free their workers."""
        self.done |= tasks
        self.nodes = np.where(tasks, 0, self.nodes)
        self.finished = np.where(tasks, self.clock[:, None], self.finished)

    def start(self) -> None:
        """Give servers to the next tasks, one by one, until no server is free or no task waits."""
        while (able := self._make_room()).any():
            rows = np.flatnonzero(able.any(axis=1))
            tasks = np.where(able, self._next_task(self), -np.inf)[rows].argmax(axis=1)
            # Under every policy each task gets one worker before any gets more: without a free
            # worker, the task with most workers gives one.
            short = rows[self.free[rows] == 0]
            self.nodes[short, self.nodes[short].argmax(axis=1)] -= 1
            self.nodes[rows, tasks] = 1
            self.started[rows, tasks] = self.clock[rows]

    def _make_room(self) -> BoolArray:
        """Return whether each waiting task can start, (W, K); urgent tasks interrupt others."""
        waiting, has_server = self.waiting, self.running.sum(axis=1) < self.servers
        urgent, victims = waiting & self.is_urgent, self.running & ~self.is_urgent
        victims &= ~self.interrupted
        is_wanted = self._interrupts & urgent.any(axis=1) & ~has_server & victims.any(axis=1)
        rows = np.flatnonzero(is_wanted)
        if len(rows):
            last = np.where(victims, self.started, -np.inf)[rows].argmax(axis=1)
            self.nodes[rows, last], self.interrupted[rows, last] = 0, True
        return np.asarray((waiting & has_server[:, None]) | (urgent & is_wanted[:, None]))

    def _period(self) -> FloatArray:
        """Return the seconds until the period ends, shape (W,)."""
        running, seconds = self.running, self.iteration_seconds
        max_seconds = np.where(running, seconds, 0.0).max(axis=1)
        remaining = np.where(running, (self.most_iterations - self.iterations) * seconds, np.inf)
        comes = self.tasks.arrived - self.clock[:, None]
        comes = np.where(comes > 0, comes, np.inf).min(axis=1)
        look = np.where(running.any(axis=1), max_seconds, np.inf)
        return np.asarray(np.minimum(np.minimum(look, remaining.min(axis=1)), comes))

    def _ask(self, since: FloatArray) -> None:
        """Apply the priority requests of the owners of waiting tasks."""
        then, now = (
            np.floor((clock[:, None] - self.tasks.arrived) / self._request_seconds)
            for clock in (since, self.clock)
        )
        requests = np.where(self.waiting, self.tasks.requests * (now - np.maximum(then, 0)), 0.0)
        self.priority, self.is_urgent = apply_requests(self.priority, self.is_urgent, requests)


NextTask: TypeAlias = Callable[[RlptoClusters], FloatArray]
"""Ranks of waiting tasks, shape (W, K): the highest is next, ties to the first submitted."""


def by_queues(clusters: RlptoClusters) -> FloatArray:
    """Rank interrupted tasks first, then urgent ones, then by priority (section V.B)."""
    return np.asarray(100.0 * clusters.interrupted + 10.0 * clusters.is_urgent + clusters.priority)


def by_arrival(clusters: RlptoClusters) -> FloatArray:
    """Rank all equally, so that the first submitted is next."""
    return np.zeros(clusters.nodes.shape)


# --- the environment ------------------------------------------------------------------------------

SLOTS: Final = 16
"""Servers in the observation, N; servers beyond the config's stay empty."""
MAX_ITERATIONS: Final = 200.0
"""The iterations after which a task ends in any case (assumed; the paper states none)."""
RUN_PRICE: Final = 3.0
TASK_PRICE: Final = 0.5
"""Price of a minute, in betas: for the whole run, and for every task not yet done."""
# From one beta to the next the simple rule gives up 2.4 to 3.4 betas of accuracy, summed over the
# twelve tasks, for every minute that it saves. A higher price would optimise only time.
_MINUTE: Final = 60.0
POWER: Final = 0.000625
"""kw of equation 5, the mean power of a worker in a period."""
Pays: TypeAlias = Literal["priced", "equation-5"]
"""The kind of reward of a period."""


class RlptoEnv:
    """A :class:`~bireme_lab.training.vec_env.VecEnv` of clusters of parameter servers.

    The environment of seed ``s`` has configuration ``s % len(configs)`` and the beta of index
    ``s // len(configs)``, modulo their number. So seeds from 0 on cover all pairs.

    The reward of a period is the accuracy of its ended tasks above their accuracy at a gain of
    beta, minus the price of the time, both in betas: with a larger beta time is worth more. With
    ``pays`` "equation-5" it is the paper's.

    Observations, shape (envs, SLOTS) for tasks by their server:
        ``tasks``, ``context``: features, by the formulas of the serving encoder.
        ``present`` bool: whether a slot has a task; ``mask`` bool: allowed moves, (envs,
            2 SLOTS + 1).
        ``nodes``, ``gain``: as in :class:`RlptoClusters`, 0 without a task.
        ``free``: workers, shape (envs,); ``beta``: the minimum gain, shape (envs,).

    Attributes:
        clusters: The state, for rules and metrics; networks see only the observation.
        task_of_slot: Number of the task at each server; -1 without one; shape (envs, SLOTS).
        seen: The last observation.
    """

    # The paper's reward (equation 5) is, summed over running tasks,
    #
    #     gain + sign(gain - beta) * T * w * kw,    T minutes, w workers, kw = 0.000625
    #
    # While a task gains, that rewards every minute of every worker, so a policy that maximises it
    # is slow. This environment rewards accuracy at the end of a task, relative to the accuracy at a
    # gain of beta. An immediate reward would hide the effect of a move behind the great gains of
    # early iterations, which every task makes.

    def __init__(
        self,
        count: int,
        configs: Sequence[RlptoEnvConfig],
        betas: Sequence[float],
        pays: Pays = "priced",
    ) -> None:
        self.count, self._pays = count, pays
        self._configs, self._betas = configs, betas
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        kinds, betas = len(self._configs), len(self._betas)
        configs = [self._configs[int(seed) % kinds] for seed in seeds]
        self.beta = np.array([self._betas[int(seed) // kinds % betas] for seed in seeds])
        self.clusters = RlptoClusters(configs, seeds, MAX_ITERATIONS)
        self.task_of_slot: IntArray = np.full((self.count, SLOTS), -1, dtype=np.int64)
        self._moves: IntArray = np.zeros(self.count, dtype=np.int64)
        self._assign_slots()
        self.seen = self._observe()
        return self.seen

    def step(self, actions: Actions) -> EnvStep:
        """Move a worker, or none, in every environment that is not over."""
        moves, live = np.asarray(actions), ~self.clusters.is_over
        check_choices(moves, self.seen["mask"], live)
        self._move(np.where(live, moves, 0))
        spent = self._moves >= 2 * self.clusters.total
        rewards = self._pass_time(live & ((moves == 0) | spent | (self.clusters.free == 0)))
        self.seen = self._observe()
        return EnvStep(self.seen, rewards, self.clusters.is_over, self.clusters.clock.copy())

    def _move(self, moves: IntArray) -> None:
        rows = np.flatnonzero(moves)
        slots, takes = (moves[rows] - 1) % SLOTS, moves[rows] > SLOTS
        self.clusters.nodes[rows, self.task_of_slot[rows, slots]] += np.where(takes, -1, 1)
        self._moves[rows] += 1

    def _pass_time(self, envs: BoolArray) -> FloatArray:
        """Let time pass in ``envs`` until a worker is free; return the rewards, shape (W,)."""
        clusters, rewards = self.clusters, np.zeros(self.count)
        self._moves[envs] = 0
        while envs.any():
            was_done, nodes, accuracy = clusters.done.copy(), clusters.nodes, clusters.accuracy
            minutes = clusters.advance(envs) / _MINUTE
            if self._pays == "equation-5":
                rewards += self._equation_5(clusters.accuracy - accuracy, nodes, minutes)
            self._take_workers(envs)
            if self._pays == "priced":
                price = (RUN_PRICE + TASK_PRICE * (~was_done).sum(axis=1)) * minutes
                rewards += self._results(was_done).sum(axis=1) / self.beta - price
            clusters.start()
            able = (clusters.free > 0) & clusters.running.any(axis=1)
            envs = envs & ~able & ~clusters.is_over
        self._assign_slots()
        return rewards

    def _equation_5(self, added: FloatArray, nodes: IntArray, minutes: FloatArray) -> FloatArray:
        """Return the paper's reward of a period, summed over its running tasks, (W,)."""
        # The paper states no unit of time; in seconds the second term would dominate the first. The
        # sign uses the gain per iteration, the unit of beta.
        sign = np.sign(self.clusters.gain - self.beta[:, None])
        return np.asarray((added + sign * minutes[:, None] * nodes * POWER).sum(axis=1))

    def _results(self, was_done: BoolArray) -> FloatArray:
        """Return accuracies of just ended tasks above those at a gain of beta, (W, tasks)."""
        clusters = self.clusters
        missing = to_come_at(clusters.tasks.pace, self.beta[:, None])
        better = clusters.accuracy - (clusters.tasks.top - missing)
        return np.where(clusters.done & ~was_done, better, 0.0)

    def _take_workers(self, envs: BoolArray) -> None:
        """Take a worker of every task with a low gain; a task with one worker has converged."""
        clusters = self.clusters
        short = envs[:, None] & clusters.running & (clusters.gain < self.beta[:, None])
        is_last = short & (clusters.nodes == 1)
        clusters.end(is_last)
        clusters.nodes = clusters.nodes - (short & ~is_last)

    def _assign_slots(self) -> None:
        """Give free slots to new tasks; the others keep theirs."""
        rows = np.arange(self.count)[:, None]
        stays = (self.task_of_slot >= 0) & self.clusters.running[rows, self.task_of_slot]
        self.task_of_slot = np.where(stays, self.task_of_slot, -1)
        is_assigned = np.zeros_like(self.clusters.running)
        envs, slots = np.nonzero(stays)
        is_assigned[envs, self.task_of_slot[envs, slots]] = True
        for env, task in np.argwhere(self.clusters.running & ~is_assigned).tolist():
            self.task_of_slot[env, int((self.task_of_slot[env] < 0).argmax())] = task

    def _observe(self) -> dict[str, Array]:
        clusters, present = self.clusters, self.task_of_slot >= 0

        def of_slots(values: Array) -> Array:
            by_slot = np.take_along_axis(values, np.maximum(self.task_of_slot, 0), axis=1)
            return np.where(present, by_slot, np.zeros((), values.dtype))

        nodes, iterations = of_slots(clusters.nodes), of_slots(clusters.iterations)
        gain, free = of_slots(clusters.gain), clusters.free
        # A running task keeps one worker.
        more, less = present & (free > 0)[:, None], nodes > 1
        facts = TaskStates(
            done=iterations,
            loss=of_slots(clusters.loss / clusters.worst_loss),
            accuracy=of_slots(clusters.accuracy),
            gain=np.where(iterations > 0, gain, np.nan),
            seconds=of_slots(clusters.iteration_seconds),
            nodes=nodes.astype(np.float64),
            share=nodes / clusters.total[:, None],
            may_grow=more,
            may_shrink=less,
            is_there=present,
            free=free / clusters.total,
            waiting=clusters.waiting.sum(axis=1).astype(np.float64),
            beta=self.beta,
        )
        none = np.ones((self.count, 1), np.bool_)
        return {
            "tasks": task_features(facts),
            "context": context_features(facts),
            "present": present,
            "mask": np.concatenate([none, more, less], axis=1),
            "nodes": nodes,
            "gain": gain,
            "free": free,
            "beta": self.beta,
        }
