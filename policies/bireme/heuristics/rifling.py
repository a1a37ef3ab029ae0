"""RIFLING: tabular Q-learning of which kind of gang to start next.

Every call plays a few episodes on the forecast of the present queue, learning as it goes, and
then orders the queue greedily by the table. One step starts one gang. Its kind is the action:
distributed or not (what communicates), shorter or longer than the median of the queue. The state
is how many units and how many whole machines are free and which kinds wait. The reward is minus
the completion time of the gang that was started, as a multiple of arrival order's mean.

Only the abstract of the paper is known. Kept: a table, epsilon-greedy exploration, first come
first served (within a kind), computation against communication. Left out: the action to wait,
which an order cannot express, and placements, which are the placer's; here a gang prefers the
machine with the most free units. Its state is the load of every machine, ours a summary of it.
The table lives in a state object: whoever makes the orderer decides how long it remembers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.list_schedule import (
    Forecast,
    Problem,
    arrival_keys,
    costs,
    decoded,
    order_by_search,
)
from bireme.heuristics.parameters import require

_KINDS = 4
_BUCKETS = 4

_Key: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class RiflingState:
    """What has been learnt so far.

    Attributes:
        values: Expected sum of rewards by state, float64, shape (kinds,).
        learnt_from: The time and the gangs of the last lesson; the same ones teach nothing more,
            so that asking twice gives the same answer.
    """

    seed: int = 0
    values: dict[_Key, FloatArray] = field(default_factory=dict)
    learnt_from: object = None
    generator: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def row(self, key: _Key) -> FloatArray:
        """The values of one state, zero where nothing is known; shape (kinds,)."""
        return self.values.setdefault(key, np.zeros(_KINDS))


@dataclass(frozen=True, slots=True)
class Rifling:
    """Order by a table of values learned with Q-learning on the forecast of the queue.

    Source: baseline "RIFLING" of the DAS slides, after its abstract; Watkins and Dayan 1992.
    """

    state: RiflingState = field(default_factory=RiflingState)
    episodes: int = 8
    learning_rate: float = 0.1
    discount: float = 0.95
    exploration: float = 0.1
    """Chance of a random kind per step while learning."""
    window: int = 32
    """Waiting gangs that are ordered by the table; later arrivals follow by arrival."""

    def __post_init__(self) -> None:
        require("episodes", self.episodes, 0)
        require("learning_rate", self.learning_rate, 0, 1)
        require("discount", self.discount, 0, 1)
        require("exploration", self.exploration, 0, 1)
        require("window", self.window, 1)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Learn from the queue, then order it by what is known."""
        lesson = (snapshot.now, frozenset(gang.uid for gang in gangs))

        def search(problem: Problem) -> list[int]:
            if lesson != self.state.learnt_from:
                self.state.learnt_from = lesson
                for _ in range(self.episodes):
                    self._play(problem, self.exploration)
            return self._play(problem, None)

        return order_by_search(gangs, snapshot, self.window, search)

    def _play(self, problem: Problem, exploration: float | None) -> list[int]:
        """One episode; the order it started gangs in. It learns unless ``exploration`` is None."""
        forecast, queues = Forecast(problem, 1), _queues(problem)
        scale = float(costs(problem, *decoded(problem, arrival_keys(problem)[None]))[0, 0])
        order: list[int] = []
        key = _state_of(forecast, queues)
        while len(order) < len(problem):
            kind = self._kind(key, queues, exploration)
            gang = queues[kind].pop(0)
            order.append(gang)
            finish, _ = forecast.start(np.array([gang]), _freest_machine(forecast))
            after = _state_of(forecast, queues)
            if exploration is not None:
                reward = -(float(finish[0]) + float(problem.waited_seconds[gang])) / max(scale, 1.0)
                self._learn(key, kind, reward, after, queues)
            key = after
        return order

    def _kind(self, key: _Key, queues: Sequence[list[int]], exploration: float | None) -> int:
        open_kinds = [kind for kind in range(_KINDS) if queues[kind]]
        generator = self.state.generator
        if exploration is not None and generator.random() < exploration:
            return int(generator.choice(open_kinds))
        row = self.state.row(key)
        return max(open_kinds, key=lambda kind: (row[kind], -queues[kind][0]))

    def _learn(
        self, key: _Key, kind: int, reward: float, after: _Key, queues: Sequence[list[int]]
    ) -> None:
        """Q(s, a) moves towards r + discount * max over open kinds of Q(s', a')."""
        row = self.state.row(after)
        future = max((float(row[k]) for k in range(_KINDS) if queues[k]), default=0.0)
        values = self.state.row(key)
        values[kind] += self.learning_rate * (reward + self.discount * future - values[kind])


def _queues(problem: Problem) -> list[list[int]]:
    """Gangs by kind, in order of arrival."""
    is_long = problem.run_seconds > np.median(problem.run_seconds)
    kinds = 2 * problem.is_distributed + is_long
    return [[int(gang) for gang in np.flatnonzero(kinds == kind)] for kind in range(_KINDS)]


def _by_machine(forecast: Forecast) -> FloatArray:
    """Free units per machine at the moment the next unit is free, shape (machines,)."""
    free_at = forecast.free_at[0]
    is_free = (free_at <= free_at.min()).reshape(forecast.problem.machines, -1)
    return np.asarray(is_free.sum(axis=1), dtype=np.float64)


def _freest_machine(forecast: Forecast) -> IntArray:
    return np.array([np.argmax(_by_machine(forecast))])


def _state_of(forecast: Forecast, queues: Sequence[list[int]]) -> _Key:
    """Free units and wholly free machines, in quarters of all, and which kinds wait, as bits."""
    free = _by_machine(forecast)
    per_machine = forecast.free_at.shape[1] // forecast.problem.machines
    shares = (free.mean() / per_machine, (free == per_machine).mean())
    units, machines = (min(_BUCKETS - 1, int(share * _BUCKETS)) for share in shares)
    return units, machines, sum(1 << kind for kind in range(_KINDS) if queues[kind])
