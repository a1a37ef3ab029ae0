"""How DAS does beside the rule it starts from, on worlds that it does not learn in."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.training.das.rules import best_site
from bireme.training.das.turns import DasTurns
from bireme.training.das.world import DasWorld
from bireme.training.episodes import play
from bireme.training.policies import ActorCritic, predict
from bireme.training.worlds import Actions, Observation

_FIRST_SEED: Final = 500_000
"""Trainings draw at random from 2^31 seeds and evaluations begin there: neither meets these."""
METRICS: Final = ("mean_jct_minutes", "mean_fee_dollars")


class Validation:
    """Ratios to the rule, per setting: completion time and fee, over the same worlds."""

    def __init__(
        self,
        policy: ActorCritic,
        worlds: Mapping[str, int],
        jobs: int,
        note: Callable[[str, float], None],
    ) -> None:
        """``worlds``: how many there are of each setting; ``note`` is told of every ratio."""
        self._policy, self._note = policy, note
        self._worlds = {
            setting: DasTurns(DasWorld(count, (setting,), jobs=jobs))
            for setting, count in worlds.items()
        }
        self._of_rule = {
            setting: _played(world, best_site) for setting, world in self._worlds.items()
        }

    def __call__(self) -> float:
        """The mean of all ratios; 1 is the rule's.

        Each is the geometric mean over worlds, which a few crowded ones do not decide.
        """
        ratios = []
        for setting, world in self._worlds.items():
            found = _played(world, partial(predict, self._policy))
            for metric in METRICS:
                logs = np.log(found[metric] / self._of_rule[setting][metric])
                ratio = float(np.exp(logs.mean()))
                self._note(f"{setting}_{metric.split('_')[1]}_ratio", ratio)
                ratios.append(ratio)
        return sum(ratios) / len(ratios)


def _played(world: DasTurns, act: Callable[[Observation], Actions]) -> dict[str, FloatArray]:
    play(world, range(_FIRST_SEED, _FIRST_SEED + world.count), act)
    return world.world.summary()
