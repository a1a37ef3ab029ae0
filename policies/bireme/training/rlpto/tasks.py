"""The twelve tasks of a run, as drawn by its seed.

Tasks of one size differ a little in how fast and how far they train; a published row is the mean
of 20 runs, and this is what makes runs differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.simulator.traces.papers import RLPTO_IMAGES
from bireme.training.rlpto import curves
from bireme.training.rlpto.settings import Setting

TOP_SPREAD: Final = 0.002
"""Standard deviation of the best accuracy among tasks of one size (assumed)."""
PACE_SPREAD: Final = 0.1
"""Standard deviation of the logarithm of the pace among tasks of one size (assumed)."""
_ASKED: Final = (-1.0, 0.0, 1.0, 1.0)
"""What owners of waiting tasks ask for at every turn: one of these, each as likely (assumed)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Tasks by number, the order in which they are submitted; shapes (worlds, tasks).

    Attributes:
        images: Of the data.
        top, pace: As in :mod:`~bireme.training.rlpto.curves`.
        arrived: Seconds.
        priority: What it was submitted with, 1 to 5.
        asked: Requests for a higher priority, or a lower one (-1), at each turn of its owner.
    """

    images: IntArray
    top: FloatArray
    pace: FloatArray
    arrived: FloatArray
    priority: FloatArray
    asked: FloatArray


def draw(settings: Sequence[Setting], seeds: Sequence[int]) -> Tasks:
    """Those of one world per setting and seed."""
    drawn = [_draw(setting, seed) for setting, seed in zip(settings, seeds, strict=True)]
    return Tasks(*(np.stack([getattr(one, each.name) for one in drawn]) for each in fields(Tasks)))


def _draw(setting: Setting, seed: int) -> Tasks:
    chance = np.random.default_rng(seed)
    count = len(RLPTO_IMAGES)
    mixed = chance.permutation(count)
    images = np.array(RLPTO_IMAGES)[np.arange(count) if setting.priorities else mixed]
    tops = np.array([curves.TOPS[size] for size in images.tolist()])
    paces = np.array([curves.PACES[size] for size in images.tolist()])
    return Tasks(
        images=images,
        top=tops + TOP_SPREAD * chance.standard_normal(count),
        pace=paces * np.exp(PACE_SPREAD * chance.standard_normal(count)),
        arrived=np.sort(chance.random(count)) * setting.spread_seconds,
        priority=np.array(setting.priorities or [1] * count, dtype=np.float64),
        asked=chance.choice(_ASKED, count),
    )
