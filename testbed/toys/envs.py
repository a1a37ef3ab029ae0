"""Echo: repeat what is shown. Late: be paid later. Target: come near. Pair: all at once.

Episodes differ in length where a seed says so, and an env that is over forbids every choice.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme_lab.training.vec_env import Actions, EnvStep, Observation

CHOICES = 4
"""Number of choices of Echo, Late and Pair."""


class Echo:
    """Each step shows a choice, and pays 1 for repeating it.

    An env lasts ``steps`` steps and up to ``ragged - 1`` more, by its seed.
    """

    def __init__(self, count: int = 8, steps: int = 2, ragged: int = 1) -> None:
        self.count, self._steps, self._ragged = count, steps, ragged

    def reset(self, seeds: Sequence[int]) -> Observation:
        self._lengths = self._steps + np.array(seeds) % self._ragged
        most = self._steps + self._ragged
        draws = [np.random.default_rng(seed).integers(CHOICES, size=most) for seed in seeds]
        self._asked = np.stack(draws)
        self._at = 0
        return self._seen()

    def step(self, actions: Actions) -> EnvStep:
        ran = self._at < self._lengths
        rewards = self._paid(actions) * ran
        self._at += 1
        times = np.minimum(self._at, self._lengths).astype(float)
        return EnvStep(self._seen(), rewards, self._at >= self._lengths, times)

    def _paid(self, actions: Actions) -> FloatArray:
        return np.asarray(actions == self._now(), dtype=float)

    def _now(self) -> IntArray:
        return np.asarray(self._asked[:, min(self._at, self._asked.shape[1] - 1)])

    def _seen(self) -> Observation:
        runs = self._at < self._lengths
        mask = np.broadcast_to(runs[:, None], (self.count, CHOICES))
        return {"asked": np.eye(CHOICES)[self._now()], "mask": mask}


class Late(Echo):
    """The first step shows a choice, and repeating it is paid after the second."""

    def __init__(self, count: int = 8) -> None:
        super().__init__(count, steps=2)

    def _paid(self, actions: Actions) -> FloatArray:
        if self._at == 0:
            self._was_right = super()._paid(actions)
            return np.zeros(self.count)
        return self._was_right


class Target:
    """One step: come near what is shown, in ``dims`` numbers; pays less the square of the miss."""

    def __init__(self, count: int = 32, dims: int = 2) -> None:
        self.count, self._dims = count, dims

    def reset(self, seeds: Sequence[int]) -> Observation:
        draws = [np.random.default_rng(seed).uniform(-1, 1, self._dims) for seed in seeds]
        self._wanted = np.stack(draws)
        self._is_over = False
        return {"wanted": self._wanted}

    def step(self, actions: Actions) -> EnvStep:
        rewards = -np.square(np.asarray(actions) - self._wanted).sum(axis=1) * (not self._is_over)
        self._is_over = True
        every = np.ones(self.count)
        return EnvStep({"wanted": self._wanted}, rewards, every.astype(bool), every)


class Pair(Echo):
    """Two agents: ``choice`` repeats what is asked, ``level`` comes near its number, from 0 to 3.

    In odd steps the level is not asked for.
    """

    def _paid(self, actions: Actions) -> FloatArray:
        if not isinstance(actions, Mapping):
            raise TypeError("Pair takes the actions of two agents")
        missed: FloatArray = np.square(actions["level"][:, 0] - self._now())
        return super()._paid(actions["choice"]) - missed * (self._at % 2 == 0)

    def _seen(self) -> Observation:
        return {**super()._seen(), "is_odd": np.full(self.count, self._at % 2 == 1)}
