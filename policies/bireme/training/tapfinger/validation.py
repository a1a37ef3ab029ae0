"""How TapFinger's agents do beside the rule they start from, on worlds they do not learn in."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from bireme.training.episodes import play
from bireme.training.policies import ActorCritic, predict
from bireme.training.tapfinger.turns import TapTurns, taught
from bireme.training.worlds import Actions, Observation

_FIRST_SEED: Final = 500_000
"""Trainings draw at random from 2^31 seeds, evaluations count from 0: neither meets these."""


class Validation:
    """Mean completion times as ratios to those of the worlds' teachers."""

    def __init__(
        self,
        policy: ActorCritic,
        worlds: Mapping[str, TapTurns],
        note: Callable[[str, float], None],
    ) -> None:
        """``worlds`` are those of each setting, with a teacher; ``note`` is told every mean."""
        self._policy, self._worlds, self._note = policy, worlds, note
        self._of_teacher = {name: _mean_steps(world, taught) for name, world in worlds.items()}

    def __call__(self) -> float:
        """The geometric mean of all ratios; 1 is the teachers'."""
        logs = []
        for name, world in self._worlds.items():
            found = _mean_steps(world, partial(predict, self._policy))
            self._note(f"{name}_jct_steps", found)
            logs.append(np.log(found / self._of_teacher[name]))
        return float(np.exp(np.mean(logs)))


def _mean_steps(world: TapTurns, act: Callable[[Observation], Actions]) -> float:
    """The mean completion time: rewards are minus the jobs that are there, step by step."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + world.count)
    return -float(play(world, seeds, act).mean()) / world.world.setting.jobs
