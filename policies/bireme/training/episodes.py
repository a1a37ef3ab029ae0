"""Episodes: a world played from reset to the end, with worlds that end earlier left out.

All worlds start together; when the last one is over, the next episode begins with new seeds, each
of which goes to ``replicas`` worlds side by side. Seeds and the actions since the reset are kept,
so that an episode broken off in the middle can be restored exactly, in any world.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.training.worlds import Actions, Array, Observation, Step, World, take

LONGEST_EPISODE: Final = 100_000
_MOST_SEEDS: Final = 2**31


class Episodes:
    """The episodes of one world, one after the other.

    Attributes:
        seeds: Of the worlds in this episode, shape (worlds,).
        is_over: Shape (worlds,); all true before the first episode.
        times: The worlds' clocks, shape (worlds,).
        last_return: Of the last whole episode: the sum of rewards, mean over the worlds.

    Raises:
        SettingError: the worlds cannot be shared out evenly over the replicas.
    """

    def __init__(self, world: World, seed: int, replicas: int = 1) -> None:
        if replicas < 1 or world.count % replicas:
            raise SettingError(
                f"replicas: {world.count} worlds cannot be {replicas} copies each; make the "
                "number of worlds a multiple of it"
            )
        self.world, self.replicas = world, replicas
        self._draws = np.random.default_rng(seed)
        self.seeds: IntArray = np.zeros(world.count, np.int64)
        self.is_over = np.ones(world.count, np.bool_)
        self.times = np.zeros(world.count)
        self.last_return: float | None = None
        self._seen: Observation = {}
        self._history: list[Actions] = []
        self._returns = np.zeros(world.count)

    def begin(self) -> None:
        """Start the next episode, if this one is over."""
        if self.is_over.all():
            distinct = self._draws.integers(_MOST_SEEDS, size=self.world.count // self.replicas)
            self._start(np.repeat(distinct, self.replicas))

    @property
    def rows(self) -> IntArray:
        """The worlds in which there is something to decide."""
        return np.flatnonzero(~self.is_over)

    def seen(self) -> Observation:
        """What is seen of the worlds that are not over, in the order of :attr:`rows`."""
        return self.seen_of(self.rows)

    def seen_of(self, rows: IntArray) -> Observation:
        """What is seen of ``rows``."""
        return self._seen if len(rows) == self.world.count else take(self._seen, rows)

    def step(self, actions: Actions) -> Step:
        """Act in the worlds that are not over, in the order of :attr:`rows`."""
        return self._step(_spread(actions, self.rows, self.world.count))

    def state_dict(self) -> dict[str, Any]:
        """All it takes to go on from here."""
        state: dict[str, Any] = {
            "draws": self._draws.bit_generator.state,
            "last_return": self.last_return,
        }
        if not self.is_over.all():
            state |= {"seeds": self.seeds.tolist(), "history": _stacked(self._history)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken: play the same actions again."""
        self._draws.bit_generator.state = state["draws"]
        self.last_return = state["last_return"]
        self.is_over[:] = True
        if "seeds" in state:
            self._start(np.array(state["seeds"], np.int64))
            for actions in _unstacked(state["history"]):
                self._step(actions)

    def _start(self, seeds: IntArray) -> None:
        self._seen = self.world.reset(seeds.tolist())
        self.seeds, self._history, self._returns = seeds, [], np.zeros(len(seeds))
        self.is_over, self.times = np.zeros_like(self.is_over), np.zeros_like(self.times)

    def _step(self, actions: Actions) -> Step:
        step = self.world.step(actions)
        self._seen, self.times = step.observation, step.times
        self.is_over = step.is_over.copy()
        self._returns += step.rewards
        self._history.append(actions)
        if self.is_over.all():
            self._history, self.last_return = [], float(self._returns.mean())
        return step


def play(
    world: World,
    seeds: Sequence[int],
    act: Callable[[Observation], Actions],
    longest: int = LONGEST_EPISODE,
) -> FloatArray:
    """One whole episode: the sum of rewards, shape (worlds,).

    Args:
        act: From what is seen of the worlds that are not over to what is done in them.
        longest: After how many steps an episode that does not end is an error.
    """
    episodes = Episodes(world, 0)
    episodes._start(np.array(seeds, np.int64))
    for _ in range(longest):
        episodes.step(act(episodes.seen()))
        if episodes.is_over.all():
            return episodes._returns
    raise never_ends(int(episodes.rows[0]), longest)


def never_ends(world: int, steps: int) -> SettingError:
    """The error for a world that is not over after ``steps``."""
    return SettingError(
        f"world {world} is not over after {steps} steps; let the world forbid actions that "
        "never lead on, or allow longer episodes"
    )


def _spread(actions: Actions, rows: IntArray, count: int) -> Actions:
    """Actions of ``rows`` as those of all worlds, 0 elsewhere."""
    if isinstance(actions, Mapping):
        return {agent: _spread_one(action, rows, count) for agent, action in actions.items()}
    return _spread_one(actions, rows, count)


def _spread_one(action: Array, rows: IntArray, count: int) -> Array:
    if len(rows) == count:
        return action
    spread = np.zeros((count, *action.shape[1:]), action.dtype)
    spread[rows] = action
    return spread


def _stacked(history: Sequence[Actions]) -> dict[str, Tensor]:
    """By agent, shape (steps, worlds, ...); under the empty name where there is one agent."""
    rows = [a if isinstance(a, Mapping) else {"": a} for a in history]
    return {
        agent: torch.from_numpy(np.stack([row[agent] for row in rows]))
        for agent in (rows[0] if rows else ())
    }


def _unstacked(history: Mapping[str, Tensor]) -> list[Actions]:
    if "" in history:
        return list(np.asarray(history[""]))
    steps = {agent: np.asarray(actions) for agent, actions in history.items()}
    return [dict(zip(steps, at, strict=True)) for at in zip(*steps.values(), strict=True)]
