"""RLPTO's world: workers are taken from tasks that hardly gain, and the agent gives them away.

After every period each running task whose accuracy grew by less than beta per iteration loses a
worker; with the last one it has converged, and its server takes the next task. Where a worker is
free the agent then moves workers one at a time (section VI.A, listing): 0 does nothing and lets
time pass, ``i`` gives a free worker to the task at server ``i``, ``N + i`` takes one from it. Time
also passes when nobody has anything to give, or after twice as many moves as there are workers.

Rewards, of the periods until the next decision, are below.

Lu et al., "RLPTO", IEEE TPDS 2023, section VI.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.heuristics.rlpto_queues import URGENT, changed
from bireme.rl.encoders.rlpto import Facts, context_features, task_features
from bireme.training.rlpto import settings as curves
from bireme.training.rlpto.settings import MOST_SERVERS, Setting, draw, to_come_at
from bireme.training.worlds import Actions, Array, Observation, Step

# Many clusters of parameter servers at once: tasks that wait, train, are interrupted and end.
#
# Nothing here decides how many workers a task has, or when it is good enough. Time moves in
# periods:
# the longest iteration among running tasks (section VI.E of the paper), cut short where a task
# comes
# or reaches its last iteration. A task that gets a server gets one worker with it, a free one or
# one
# of the task that has most, as every contender gives to all what they need before anybody gets
# more.
#
# With RLPTO's queues, where no server is free an urgent task takes that of the normal task that
# started last, which is the first to go on, is not interrupted again, and keeps what it has learned
# (section V.B). Shapes: worlds W, tasks K.

_NEARLY = 1e-9
"""Iterations by which a sum of periods may miss the last one."""


class Cluster:
    """The state of W clusters.

    Attributes:
        clock: Seconds since the start, shape (W,).
        nodes: Workers of each task, 0 for those that do not run, shape (W, K).
        done, interrupted, is_urgent: Shape (W, K).
        priority: As its owner's requests have made it, shape (W, K).
        started, finished: Seconds; NaN before, shape (W, K).
        iterations: Passes over the data so far, shape (W, K).
        accuracy: From 0 to 1, shape (W, K).
        gain: What the last period added to the accuracy, per iteration; 1 before, shape (W, K).
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        most_iterations: float,
        turn: "Turn | None" = None,
    ) -> None:
        """One cluster per setting and seed, in which the first tasks have just started.

        ``turn`` says who is next, and then nobody is interrupted: only RLPTO has queues, which say
        so without it.
        """
        self.tasks = draw(settings, seeds)
        self.servers = np.array([setting.servers for setting in settings])
        self.total = np.array([setting.nodes for setting in settings])
        self.most_iterations = most_iterations
        self._turn, self._interrupts = turn or by_queues, turn is None
        self._slowdown = np.array([setting.slowdown for setting in settings])[:, None]
        self._request_seconds = np.array([setting.request_seconds for setting in settings])[:, None]
        shape = self.tasks.images.shape
        self.clock = np.zeros(len(settings))
        self.nodes: IntArray = np.zeros(shape, dtype=np.int64)
        self.done, self.interrupted = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.priority, self.is_urgent = self.tasks.priority.copy(), self.tasks.priority >= URGENT
        self.started, self.finished = np.full(shape, np.nan), np.full(shape, np.nan)
        self.iterations, self.gain = np.zeros(shape), np.ones(shape)
        self.accuracy = self.tasks.top - curves.SPAN
        self.start()

    @property
    def running(self) -> BoolArray:
        """Who has workers, shape (W, K)."""
        return self.nodes > 0

    @property
    def waiting(self) -> BoolArray:
        """Who has come and waits for a server, shape (W, K)."""
        return (self.tasks.arrived <= self.clock[:, None]) & ~self.done & ~self.running

    @property
    def free(self) -> IntArray:
        """Workers that nobody has, shape (W,)."""
        return np.asarray(self.total - self.nodes.sum(axis=1))

    @property
    def is_over(self) -> BoolArray:
        """Where all tasks are done, shape (W,)."""
        return np.asarray(self.done.all(axis=1))

    @property
    def loss(self) -> FloatArray:
        """Training loss, shape (W, K)."""
        return curves.loss(self.tasks.pace, self.iterations)

    @property
    def worst_loss(self) -> FloatArray:
        """The largest training loss so far, which is the first: losses fall; shape (W, K)."""
        return curves.loss(self.tasks.pace, np.zeros_like(self.iterations))

    @property
    def steps(self) -> FloatArray:
        """Steps of an iteration, shape (W, K)."""
        return np.asarray(self.tasks.images / curves.BATCH)

    @property
    def iteration_seconds(self) -> FloatArray:
        """How long an iteration takes; with one worker, for tasks that have none; shape (W, K)."""
        return np.asarray(self.steps * self._slowdown * curves.step_seconds(self.nodes))

    def advance(self, worlds: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Let a period pass in ``worlds``, which are not over, and end who has done enough.

        Seconds that passed, shape (W,), and what was added to accuracies, shape (W, K).
        """
        seconds = np.where(worlds, self._period(), 0.0)
        before, clock = self.iterations, self.clock
        done = np.where(self.running, seconds[:, None] / self.iteration_seconds, 0.0)
        self.clock, self.iterations = clock + seconds, before + done
        added = curves.added(self.tasks.pace, before, self.iterations, self.nodes)
        self.accuracy = self.accuracy + added
        np.divide(added, done, out=self.gain, where=done > 0)
        self._ask(clock)
        self.end(self.running & (self.iterations >= self.most_iterations - _NEARLY))
        return seconds, added

    def end(self, tasks: BoolArray) -> None:
        """Tasks of the mask (W, K) have converged: all they have comes free."""
        self.done |= tasks
        self.nodes = np.where(tasks, 0, self.nodes)
        self.finished = np.where(tasks, self.clock[:, None], self.finished)

    def start(self) -> None:
        """Give servers to who is next, one by one, until none is free or nobody waits."""
        while (able := self._make_room()).any():
            rows = np.flatnonzero(able.any(axis=1))
            tasks = np.where(able, self._turn(self), -np.inf)[rows].argmax(axis=1)
            short = rows[self.free[rows] == 0]
            self.nodes[short, self.nodes[short].argmax(axis=1)] -= 1
            self.nodes[rows, tasks] = 1
            self.started[rows, tasks] = self.clock[rows]

    def _make_room(self) -> BoolArray:
        """Who waits and can have a server, shape (W, K); urgent tasks interrupt others for one."""
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
        """Seconds until the next look, shape (W,)."""
        running, each = self.running, self.iteration_seconds
        longest = np.where(running, each, 0.0).max(axis=1)
        left = np.where(running, (self.most_iterations - self.iterations) * each, np.inf)
        comes = self.tasks.arrived - self.clock[:, None]
        comes = np.where(comes > 0, comes, np.inf).min(axis=1)
        look = np.where(running.any(axis=1), longest, np.inf)
        return np.asarray(np.minimum(np.minimum(look, left.min(axis=1)), comes))

    def _ask(self, since: FloatArray) -> None:
        """Owners of waiting tasks ask for other priorities."""
        then, now = (
            np.floor((clock[:, None] - self.tasks.arrived) / self._request_seconds)
            for clock in (since, self.clock)
        )
        requests = np.where(self.waiting, self.tasks.asked * (now - np.maximum(then, 0)), 0.0)
        self.priority, self.is_urgent = changed(self.priority, self.is_urgent, requests)


Turn: TypeAlias = Callable[[Cluster], FloatArray]
"""Which waiting task is next, shape (W, K): the highest, then the first submitted."""


def by_queues(cluster: Cluster) -> FloatArray:
    """Interrupted tasks, then urgent ones, then by priority (section V.B)."""
    return np.asarray(100.0 * cluster.interrupted + 10.0 * cluster.is_urgent + cluster.priority)


def by_arrival(cluster: Cluster) -> FloatArray:
    """The first submitted."""
    return np.zeros(cluster.nodes.shape)


# What a period is worth: the paper's reward, and the one that training goes by.
#
# Equation (5), over all running tasks:
#
#     gain + sign(gain - beta) * T * w * kw
#
# gain: what the period added to the accuracy; T: its length, in minutes (in seconds the second term
# dwarfs the first, and the paper states no unit); w: the workers; kw = 0.000625. The sign looks at
# the gain per iteration, which is what beta bounds. While a task gains, this pays for every minute
# of every worker, so that slow pays too, and a policy that maximises it is slow.
#
# :func:`priced` is how good tasks have become, less what the time was worth, both in betas: who
# names
# a larger beta means that time is worth more. It is paid when a task ends, beside what it had where
# its gain fell to beta; paid as it comes, the great gains of early iterations, which every task
# makes, would hide what a move did.
#
# Lu et al., "RLPTO", IEEE TPDS 2023, section VI.B.

POWER: Final = 0.000625
"""kw: mean power of a worker in a period."""
RUN_PRICE: Final = 3.0
TASK_PRICE: Final = 0.5
"""What a minute costs, in betas: once for the whole run, and once for every task not yet done. From
one beta to the next the simple rule gives up 2.4 to 3.4 betas of accuracy, added up over the twelve
tasks, for every minute that it saves; with more than that, time is what is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Period:
    """What happened in one.

    Attributes:
        added: To the accuracy of each task, shape (worlds, tasks).
        gain: The same per iteration, shape (worlds, tasks).
        nodes: Workers of each task, shape (worlds, tasks).
        minutes: Its length, shape (worlds,).
        left: Tasks that were not done when it began, shape (worlds,).
        results: Accuracy of each task that ended in it, over what it had where an iteration brought
            beta; 0 for others; shape (worlds, tasks).
        beta: The least gain, shape (worlds,).
    """

    added: FloatArray
    gain: FloatArray
    nodes: IntArray
    minutes: FloatArray
    left: IntArray
    results: FloatArray
    beta: FloatArray


Reward: TypeAlias = Callable[[Period], FloatArray]
"""Of a period, shape (worlds,)."""


def equation_5(period: Period) -> FloatArray:
    """The paper's, summed over tasks."""
    sign = np.sign(period.gain - period.beta[:, None])
    spent = sign * period.minutes[:, None] * period.nodes * POWER
    return np.asarray((period.added + spent).sum(axis=1))


def priced(period: Period) -> FloatArray:
    """What came of the tasks, less what the time was worth, in betas."""
    price = (RUN_PRICE + TASK_PRICE * period.left) * period.minutes
    return np.asarray(period.results.sum(axis=1) / period.beta - price)


SLOTS: Final = MOST_SERVERS
"""Servers that are shown, N; those beyond what a setting has never run anything."""
MOST_ITERATIONS: Final = 200.0
"""After so many a task ends even if it still gains (assumed; the paper's number is not told)."""
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What is known before a move; shapes (worlds, SLOTS) and (worlds,).

    The first seven are the paper's vectors m, e, l, n, a, c and w (section VI.D), the last of them
    as a number of workers.

    Attributes:
        number: Of the task at each server; -1 without one.
        iterations: Passes over the data.
        loss, worst_loss: Now, and the largest so far.
        accuracy: From 0 to 1.
        seconds: Of an iteration with the present workers.
        nodes: Workers.
        gain: What the last period added to the accuracy, per iteration; 1 before the first.
        is_running: Where there is a task.
        free, total: Workers.
        waiting: Tasks that wait.
        beta: The least gain.
        clock: Seconds.
    """

    number: IntArray
    iterations: FloatArray
    loss: FloatArray
    worst_loss: FloatArray
    accuracy: FloatArray
    seconds: FloatArray
    nodes: IntArray
    gain: FloatArray
    is_running: BoolArray
    free: IntArray
    total: IntArray
    waiting: IntArray
    beta: FloatArray
    clock: FloatArray

    @property
    def allowed(self) -> BoolArray:
        """Which moves are allowed, shape (worlds, 2 SLOTS + 1): a running task keeps one worker."""
        more = self.is_running & (self.free > 0)[:, None]
        return np.concatenate([np.ones((len(more), 1), np.bool_), more, self.nodes > 1], axis=1)


View: TypeAlias = Callable[[State], Observation]


def raw(state: State) -> Observation:
    """Every field of the state by its name, and ``mask``, the moves that are allowed."""
    return {name: getattr(state, name) for name in State.__slots__} | {"mask": state.allowed}


class RlptoWorld:
    """``count`` worlds, seen through ``view``; see the module.

    World ``s`` of a seed is of setting ``s % len(settings)``, its beta that of
    ``s // len(settings)`` in the same way, so that seeds from 0 on meet all of both.
    """

    def __init__(
        self,
        count: int,
        settings: Sequence[Setting],
        betas: Sequence[float],
        view: View = raw,
        reward: Reward = equation_5,
    ) -> None:
        self.count, self.view = count, view
        self._settings, self._betas, self._reward = settings, betas, reward
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Begin anew with the tasks of ``seeds``, one per world."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} worlds; give one for each")
        kinds, betas = len(self._settings), len(self._betas)
        chosen = [self._settings[int(seed) % kinds] for seed in seeds]
        self.beta = np.array([self._betas[int(seed) // kinds % betas] for seed in seeds])
        self.cluster = Cluster(chosen, seeds, MOST_ITERATIONS)
        self._tenants: IntArray = np.full((self.count, SLOTS), -1, dtype=np.int64)
        self._moves: IntArray = np.zeros(self.count, dtype=np.int64)
        self._seat()
        return self._look()

    def step(self, actions: Actions) -> Step:
        """Move a worker, or none, in every world that is not over."""
        chosen, live = np.asarray(actions), ~self.cluster.is_over
        self._check(chosen, live)
        self._move(np.where(live, chosen, 0))
        spent = self._moves >= 2 * self.cluster.total
        rewards = self._run_on(live & ((chosen == 0) | spent | (self.cluster.free == 0)))
        clock = self.cluster.clock.copy()
        return Step(self._look(), rewards, self.cluster.is_over, clock)

    def _move(self, chosen: IntArray) -> None:
        rows = np.flatnonzero(chosen)
        slots, takes = (chosen[rows] - 1) % SLOTS, chosen[rows] > SLOTS
        self.cluster.nodes[rows, self._tenants[rows, slots]] += np.where(takes, -1, 1)
        self._moves[rows] += 1

    def _run_on(self, worlds: BoolArray) -> FloatArray:
        """Let time pass in ``worlds`` until there is a worker to give; rewards, shape (W,)."""
        cluster, rewards = self.cluster, np.zeros(self.count)
        self._moves[worlds] = 0
        while worlds.any():
            nodes, was_done = cluster.nodes, cluster.done.copy()
            seconds, added = cluster.advance(worlds)
            self._take_back(worlds)
            period = Period(
                added=added,
                gain=cluster.gain,
                nodes=nodes,
                minutes=seconds / _MINUTE,
                left=(~was_done).sum(axis=1),
                results=self._results(was_done),
                beta=self.beta,
            )
            rewards += self._reward(period)
            cluster.start()
            able = (cluster.free > 0) & cluster.running.any(axis=1)
            worlds = worlds & ~able & ~cluster.is_over
        self._seat()
        return rewards

    def _results(self, was_done: BoolArray) -> FloatArray:
        """How much better tasks have ended than where their gain was beta, shape (W, tasks)."""
        cluster = self.cluster
        missing = to_come_at(cluster.tasks.pace, self.beta[:, None])
        better = cluster.accuracy - (cluster.tasks.top - missing)
        return np.where(cluster.done & ~was_done, better, 0.0)

    def _take_back(self, worlds: BoolArray) -> None:
        """A worker of every task that hardly gains; who has one has converged."""
        cluster = self.cluster
        short = worlds[:, None] & cluster.running & (cluster.gain < self.beta[:, None])
        is_last = short & (cluster.nodes == 1)
        cluster.end(is_last)
        cluster.nodes = cluster.nodes - (short & ~is_last)

    def _seat(self) -> None:
        """Give servers, by number, to tasks that have just started; the others keep theirs."""
        rows = np.arange(self.count)[:, None]
        stays = (self._tenants >= 0) & self.cluster.running[rows, self._tenants]
        self._tenants = np.where(stays, self._tenants, -1)
        is_seated = np.zeros_like(self.cluster.running)
        worlds, slots = np.nonzero(stays)
        is_seated[worlds, self._tenants[worlds, slots]] = True
        for world, task in np.argwhere(self.cluster.running & ~is_seated).tolist():
            self._tenants[world, int((self._tenants[world] < 0).argmax())] = task

    def _look(self) -> Observation:
        cluster, tenants = self.cluster, self._tenants
        is_running = tenants >= 0

        def of_slots(values: Array) -> Array:
            found = np.take_along_axis(values, np.maximum(tenants, 0), axis=1)
            return np.where(is_running, found, np.zeros((), values.dtype))

        self.state = State(
            number=tenants,
            iterations=of_slots(cluster.iterations),
            loss=of_slots(cluster.loss),
            worst_loss=of_slots(cluster.worst_loss),
            accuracy=of_slots(cluster.accuracy),
            seconds=of_slots(cluster.iteration_seconds),
            nodes=of_slots(cluster.nodes),
            gain=of_slots(cluster.gain),
            is_running=is_running,
            free=cluster.free,
            total=cluster.total,
            waiting=cluster.waiting.sum(axis=1),
            beta=self.beta,
            clock=cluster.clock,
        )
        return self.view(self.state)

    def _check(self, actions: IntArray, live: BoolArray) -> None:
        if actions.shape != (self.count,):
            raise ValueError(f"actions have shape {actions.shape}; give ({self.count},)")
        allowed, most = self.state.allowed, 2 * SLOTS
        within = (actions >= 0) & (actions <= most)
        fine = within & allowed[np.arange(self.count), np.clip(actions, 0, most)]
        if (bad := live & ~fine).any():
            world = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"action {int(actions[world])} of world {world} is not allowed; "
                "choose where the mask is true"
            )


# What RLPTO's network sees of the world, by the very formulas of the cluster's encoder.


def seen(state: State) -> dict[str, Array]:
    """``tasks``, ``context``, ``present`` and ``mask``; slots that run nothing are padding."""
    facts = facts_of(state)
    return {
        "tasks": task_features(facts),
        "context": context_features(facts),
        "present": state.is_running,
        "mask": state.allowed,
    }


def seen_and_raw(state: State) -> Observation:
    """The same beside the facts, for a teacher that goes by them."""
    return {**raw(state), **seen(state)}


def facts_of(state: State) -> Facts:
    """The tasks of every world."""
    slots, allowed = state.is_running.shape[1], state.allowed
    return Facts(
        done=state.iterations,
        loss=state.loss / np.maximum(state.worst_loss, 1e-9),
        accuracy=state.accuracy,
        gain=np.where(state.iterations > 0, state.gain, np.nan),
        seconds=state.seconds,
        nodes=state.nodes.astype(np.float64),
        share=state.nodes / state.total[:, None],
        may_grow=allowed[:, 1 : slots + 1],
        may_shrink=allowed[:, slots + 1 :],
        is_there=state.is_running,
        free=state.free / state.total,
        waiting=state.waiting.astype(np.float64),
        beta=state.beta,
    )
