"""RLPTO's world: workers are taken from tasks that hardly gain, and the agent gives them away.

After every period each running task whose accuracy grew by less than beta per iteration loses a
worker; with the last one it has converged, and its server takes the next task. Where a worker is
free the agent then moves workers one at a time (section VI.A, listing): 0 does nothing and lets
time pass, ``i`` gives a free worker to the task at server ``i``, ``N + i`` takes one from it. Time
also passes when nobody has anything to give, or after twice as many moves as there are workers.

Rewards, of the periods until the next decision, are those of :mod:`~bireme.training.rlpto.rewards`.

Lu et al., "RLPTO", IEEE TPDS 2023, section VI.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.training.rlpto import curves
from bireme.training.rlpto.rewards import Period, Reward, equation_5
from bireme.training.rlpto.servers import Cluster
from bireme.training.rlpto.settings import MOST_SERVERS, Setting
from bireme.training.worlds import Actions, Array, Observation, Step

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
        missing = curves.to_come_at(cluster.tasks.pace, self.beta[:, None])
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
