"""Many clusters of parameter servers at once: tasks that wait, train, are interrupted and end.

Nothing here decides how many workers a task has, or when it is good enough. Time moves in periods:
the longest iteration among running tasks (section VI.E of the paper), cut short where a task comes
or reaches its last iteration. A task that gets a server gets one worker with it, a free one or one
of the task that has most, as every contender gives to all what they need before anybody gets more.

With RLPTO's queues, where no server is free an urgent task takes that of the normal task that
started last, which is the first to go on, is not interrupted again, and keeps what it has learned
(section V.B). Shapes: worlds W, tasks K.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.heuristics.rlpto_queues import URGENT, changed
from bireme.training.rlpto import curves
from bireme.training.rlpto.settings import Setting
from bireme.training.rlpto.tasks import draw

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
