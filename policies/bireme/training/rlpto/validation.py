"""How a policy does beside the simple rule while it learns, on worlds that it does not learn in."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.training.episodes import play
from bireme.training.policies import ActorCritic, predict
from bireme.training.rlpto.rewards import priced
from bireme.training.rlpto.rules import share_among_gaining
from bireme.training.rlpto.settings import BETAS, SETTINGS
from bireme.training.rlpto.views import seen
from bireme.training.rlpto.world import RlptoWorld, raw
from bireme.training.worlds import Actions, Observation

TABLES: Final = ("table-2", "table-3")
_FIRST_SEED: Final = 1_000_000
"""A multiple of all settings and betas, far from the seeds of evaluations, which begin at 0."""


class Validation:
    """How much more than the rule a policy earns, over both tables and all betas.

    By the reward of the training, per minute of the rule's run.
    """

    def __init__(self, policy: ActorCritic, count: int, note: Callable[[str, float], None]) -> None:
        """``count`` worlds of each table and beta; ``note`` is told of accuracy and time."""
        self._policy, self._note = policy, note
        settings = [SETTINGS[name] for name in TABLES]
        worlds = count * len(settings) * len(BETAS)
        self._world = RlptoWorld(worlds, settings, BETAS, seen, priced)
        rule = RlptoWorld(worlds, settings, BETAS, raw, priced)
        self._rule = _played(rule, share_among_gaining)

    def __call__(self) -> float:
        """Above 0 it is better than the rule."""
        found = _played(self._world, partial(predict, self._policy))
        earned, accuracy, minutes = (
            np.subtract(own, rule) for own, rule in zip(found, self._rule, strict=True)
        )
        rule_minutes = self._rule[2]
        self._note("points_above_the_rule", 100 * float(accuracy.mean()))
        self._note("time_ratio", 1 + float((minutes / rule_minutes).mean()))
        return float((earned / rule_minutes).mean())


def _played(
    world: RlptoWorld, act: Callable[[Observation], Actions]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of every world what it earned, its mean accuracy, and its minutes, shape (worlds,)."""
    earned = play(world, range(_FIRST_SEED, _FIRST_SEED + world.count), act)
    return earned, world.cluster.accuracy.mean(axis=1), world.cluster.clock / 60
