"""How fast jobs of TapFinger's worlds progress with the CPUs and GPUs that they were given.

Progress runs from 0 to 1; a job is over after the step in which it reaches 1. What one step adds
depends on the kind of job, the allocation, and the progress p so far:

    base + weight sqrt(1.2 - p) + power(p)

The synthetic kinds (Li et al., section 5.1, with numbers from the authors' program) have a weight
tanh(GPUs / 16), or none and a base of 1/4; CPUs beyond the minimum do nothing. For the kinds
measured on a machine see :mod:`bireme.training.tapfinger.measurements`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray

LONGEST_STEPS: Final = 1000
"""Jobs that need more steps count as never ending."""
_AHEAD: Final = 1.2
_SCALE_GPUS: Final = 16.0


# no slots: the tables below are worked out once
@dataclass(frozen=True, eq=False)
class Law:
    """What a step adds; all arrays have shape (kinds, most CPUs + 1, most GPUs + 1).

    Attributes:
        kinds: Names; a job draws each as likely.
        least: The smallest allocation, CPUs and GPUs; below it there is no progress.
        base: Added whatever the progress is.
        weight: Times sqrt(1.2 - progress).
        scale, power: Of a curve ``scale * steps ** power``; scale 0: none. A step adds what the
            curve is worth one step after the one at which it is worth the progress so far. That
            is more than its increase, and what the authors' program does.
        noise: By kind, how far chance moves what a step adds, either way; shape (kinds,).
    """

    kinds: tuple[str, ...]
    least: tuple[int, int]
    base: FloatArray
    weight: FloatArray
    scale: FloatArray
    power: FloatArray
    noise: FloatArray

    @property
    def most(self) -> tuple[int, int]:
        """The largest allocation to one job, CPUs and GPUs."""
        return self.base.shape[1] - 1, self.base.shape[2] - 1

    def gains(
        self, kind: IntArray, amount: IntArray, progress: FloatArray, luck: FloatArray | float = 0.0
    ) -> FloatArray:
        """What one step adds, shape (...).

        Args:
            kind: Shape (...).
            amount: CPUs and GPUs, shape (..., 2), at most :attr:`most`.
            progress: Shape (...), 0 to 1.
            luck: How much of the noise, -1 to 1, shape (...).
        """
        at = kind, amount[..., 0], amount[..., 1]
        scale, power = self.scale[at], self.power[at]
        known = np.where(scale > 0, scale, 1.0)
        ahead = scale * ((progress / known) ** (1 / power) + 1) ** power
        gained = self.base[at] + self.weight[at] * np.sqrt(np.maximum(_AHEAD - progress, 0)) + ahead
        gained = np.maximum(gained + self.noise[kind] * luck, 0.0)
        return np.asarray(np.where((amount >= np.array(self.least)).all(axis=-1), gained, 0.0))

    def every_amount(self) -> tuple[IntArray, IntArray]:
        """Kind, and CPUs and GPUs, of each entry of the tables; the latter (..., 2)."""
        grid = np.indices(self.base.shape)
        return grid[0], np.moveaxis(grid[1:], 0, -1)

    @cached_property
    def steps(self) -> IntArray:
        """Steps from start to end by allocation, without noise; LONGEST_STEPS: there is no end."""
        kind, amount = self.every_amount()
        progress = np.zeros(self.base.shape)
        steps = np.full(self.base.shape, LONGEST_STEPS)
        going = self.gains(kind, amount, progress) > 0
        taken = 0
        while going.any() and taken < LONGEST_STEPS:
            taken += 1
            progress = np.where(going, progress + self.gains(kind, amount, progress), progress)
            steps[going & (progress >= 1)] = taken
            going &= progress < 1
        return steps

    @cached_property
    def frugal_gpus(self) -> IntArray:
        """The fewest GPUs as fast as this many, with the fewest CPUs; (kinds, most GPUs + 1)."""
        steps = self.steps[:, self.least[0]]
        is_faster = np.diff(np.minimum.accumulate(steps, axis=1), axis=1, prepend=LONGEST_STEPS) < 0
        return np.maximum.accumulate(np.where(is_faster, np.arange(steps.shape[1]), 0), axis=1)


def synthetic(noise: float = 0.0) -> Law:
    """Kinds "insensitive", 4 steps however large, and "sensitive", 21 down to 2.

    Args:
        noise: The paper says 0.1; its figures on single mode are with it, the others without.
    """
    gpus = np.tanh(np.arange(17) / _SCALE_GPUS) * np.ones((17, 1))
    none = np.zeros_like(gpus)
    return plain(("insensitive", "sensitive"), (2, 1), [none + 0.25, none], [none, gpus], noise)


def pointer() -> Law:
    """Kinds "short" and "long", 1 and 10 steps however large, of at least 3 CPUs and 3 GPUs."""
    table = np.ones((17, 17))
    return plain(("short", "long"), (3, 3), [table, 0.1 * table], [0 * table, 0 * table])


def plain(
    kinds: tuple[str, ...],
    least: tuple[int, int],
    base: list[FloatArray],
    weight: list[FloatArray],
    noise: float = 0.0,
) -> Law:
    """A law without curves; tables of shape (most CPUs + 1, most GPUs + 1), by kind."""
    tables = np.stack(base)
    no_curve = np.zeros_like(tables), np.ones_like(tables)
    return Law(kinds, least, tables, np.stack(weight), *no_curve, np.full(len(kinds), noise))
