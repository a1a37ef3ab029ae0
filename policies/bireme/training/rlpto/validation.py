"""How a policy does beside the simple rule while it learns, on worlds that it does not learn in."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.training.episodes import play
from bireme.training.policies import ActorCritic, predict
from bireme.training.rlpto.rewards import BETAS_A_MINUTE
from bireme.training.rlpto.rules import share_among_gaining
from bireme.training.rlpto.settings import BETAS, SETTINGS
from bireme.training.rlpto.views import seen
from bireme.training.rlpto.world import RlptoWorld
from bireme.training.worlds import Actions, Observation

TABLES: Final = ("table-2", "table-3")
_FIRST_SEED: Final = 1_000_000
"""A multiple of all settings and betas, far from the seeds of evaluations, which begin at 0."""


class Validation:
    """The time that a policy saves, as a share of the rule's, over both tables and all betas.

    Accuracy counts at the price of the reward: what it gains over the rule is time saved.
    """

    def __init__(self, policy: ActorCritic, count: int, note: Callable[[str, float], None]) -> None:
        """``count`` worlds of each table and beta; ``note`` is told of both measures."""
        self._policy, self._note = policy, note
        settings = [SETTINGS[name] for name in TABLES]
        worlds = count * len(settings) * len(BETAS)
        self._world = RlptoWorld(worlds, settings, BETAS, seen)
        rule = RlptoWorld(worlds, settings, BETAS)
        self._rule = _played(rule, share_among_gaining)

    def __call__(self) -> float:
        """Above 0 it is better than the rule."""
        accuracy, minutes = _played(self._world, partial(predict, self._policy))
        rule_accuracy, rule_minutes = self._rule
        better = accuracy.sum(axis=1) - rule_accuracy.sum(axis=1)
        saved = rule_minutes - minutes + better / (BETAS_A_MINUTE * self._world.beta)
        self._note("points_above_the_rule", 100 * float((accuracy - rule_accuracy).mean()))
        self._note("time_ratio", float((minutes / rule_minutes).mean()))
        return float((saved / rule_minutes).mean())


def _played(
    world: RlptoWorld, act: Callable[[Observation], Actions]
) -> tuple[FloatArray, FloatArray]:
    """Final accuracies, shape (worlds, tasks), and minutes, shape (worlds,)."""
    play(world, range(_FIRST_SEED, _FIRST_SEED + world.count), act)
    return world.cluster.accuracy, world.cluster.clock / 60
