"""What happens to TapFinger's pools: jobs that arrive and the pools they can reach, by seed.

A sample is drawn once and read twice: by the batched world, and as a trace by the simulator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.simulator.traces.papers import poisson_steps
from bireme.training.tapfinger.settings import Setting

LUCK_STEPS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """The jobs of several worlds, in order of arrival.

    Attributes:
        arrival: The step before which each arrives, int64, shape (worlds, jobs).
        kind: Index into the kinds of the law, int64, same shape.
        reaches: Which pools can run it, shape (worlds, pools, jobs).
        luck: In each step of its run, -1 to 1, shape (worlds, jobs, LUCK_STEPS); then as at first.
            Without steps where the law has no noise.
    """

    arrival: IntArray
    kind: IntArray
    reaches: BoolArray
    luck: FloatArray


def draw(setting: Setting, seeds: Sequence[int]) -> Jobs:
    """The jobs of one world per seed; equal seeds give equal jobs."""
    parts = [_draw(setting, seed) for seed in seeds]
    return Jobs(*(np.stack(part) for part in zip(*parts, strict=True)))


def _draw(setting: Setting, seed: int) -> tuple[IntArray, IntArray, BoolArray, FloatArray]:
    """A job reaches k pools, k and the pools drawn uniformly [authors' program]."""
    rng, jobs, pools = np.random.default_rng(seed), setting.jobs, len(setting.capacity)
    arrival = poisson_steps(rng, setting.arrivals_per_step, jobs)
    kind = rng.integers(len(setting.law.kinds), size=jobs)
    rank = rng.random((pools, jobs)).argsort(axis=0).argsort(axis=0)
    reaches = rank < rng.integers(1, pools + 1, size=jobs)
    steps = LUCK_STEPS if setting.law.noise.any() else 0
    return arrival, kind, reaches, rng.uniform(-1, 1, (jobs, steps))
