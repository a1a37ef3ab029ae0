"""Speed laws of TapFinger's jobs: the published ones, and those of measured jobs.

Numbers are those of the paper (Li et al., section 5.1) where the authors' published configurations
agree.
"""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray

MAX_STEPS: Final = 1000
"""The maximum steps of a job; a longer job counts as endless."""


# without slots, for the cached properties
@dataclass(frozen=True, eq=False)
class TapFingerLaw:
    """The speed law: the progress of a job per step, from 0 to 1.

    A job is over after the step in which it reaches 1. A step adds, at progress p so far:

        base + weight sqrt(1.2 - p) + power(p)

    All arrays have shape (kinds, most CPUs + 1, most GPUs + 1).

    Attributes:
        kinds: Names of equally likely kinds.
        least: The smallest allocation, CPUs and GPUs; a smaller one gives no progress.
        base: The constant part.
        weight: The factor of sqrt(1.2 - progress).
        scale, power: A curve ``scale * steps ** power``; scale 0: none. A step adds the value of
            the curve one step after the step at which it equals the progress so far.
        noise: By kind, the maximum effect of luck on a step; shape (kinds,).
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
        """Return the progress that one step adds, shape (...).

        ``amount`` has shape (..., 2) and is at most :attr:`most`; ``luck`` is the share of the
        noise, -1 to 1.
        """
        index = kind, amount[..., 0], amount[..., 1]
        scale, power = self.scale[index], self.power[index]
        divisor = np.where(scale > 0, scale, 1.0)  # avoids 0 / 0 where there is no curve
        curve = scale * ((progress / divisor) ** (1 / power) + 1) ** power
        gained = (
            self.base[index] + self.weight[index] * np.sqrt(np.maximum(1.2 - progress, 0)) + curve
        )
        gained = np.maximum(gained + self.noise[kind] * luck, 0.0)
        return np.asarray(np.where((amount >= np.array(self.least)).all(axis=-1), gained, 0.0))

    def every_amount(self) -> tuple[IntArray, IntArray]:
        """Return kind, and CPUs and GPUs, of each entry of the tables; the latter (..., 2)."""
        grid = np.indices(self.base.shape)
        return grid[0], np.moveaxis(grid[1:], 0, -1)

    @cached_property
    def steps(self) -> IntArray:
        """Steps from start to end by allocation, without noise; MAX_STEPS: there is no end."""
        kind, amount = self.every_amount()
        progress = np.zeros(self.base.shape)
        steps = np.full(self.base.shape, MAX_STEPS)
        going = self.gains(kind, amount, progress) > 0
        count = 0
        while going.any() and count < MAX_STEPS:
            count += 1
            progress = np.where(going, progress + self.gains(kind, amount, progress), progress)
            steps[going & (progress >= 1)] = count
            going &= progress < 1
        return steps

    @cached_property
    def frugal_gpus(self) -> IntArray:
        """The fewest GPUs of equal speed, with the fewest CPUs; (kinds, most GPUs + 1)."""
        steps = self.steps[:, self.least[0]]
        is_faster = np.diff(np.minimum.accumulate(steps, axis=1), axis=1, prepend=MAX_STEPS) < 0
        return np.maximum.accumulate(np.where(is_faster, np.arange(steps.shape[1]), 0), axis=1)


def synthetic(noise: float = 0.0) -> TapFingerLaw:
    """Return the law of "insensitive" jobs, 4 steps however large, and "sensitive", 21 down to 2.

    Li et al., section 5.1, with numbers from the authors' program; CPUs beyond the minimum do
    nothing. The paper states a noise of 0.1: its figures on single mode have it, the others not.
    """
    gpus = np.tanh(np.arange(17) / 16.0) * np.ones((17, 1))
    none = np.zeros_like(gpus)
    return plain(("insensitive", "sensitive"), (2, 1), [none + 0.25, none], [none, gpus], noise)


def pointer() -> TapFingerLaw:
    """Return the law of "short" and "long" jobs, 1 and 10 steps, from 3 CPUs and 3 GPUs on."""
    table = np.ones((17, 17))
    return plain(("short", "long"), (3, 3), [table, 0.1 * table])


def plain(
    kinds: tuple[str, ...],
    minimum: tuple[int, int],
    base: list[FloatArray],
    weight: list[FloatArray] | None = None,
    noise: float = 0.0,
) -> TapFingerLaw:
    """Return a law without curves; tables of shape (most CPUs + 1, most GPUs + 1), by kind."""
    tables = np.stack(base)
    none, one = np.zeros_like(tables), np.ones_like(tables)
    weights = none if weight is None else np.stack(weight)
    return TapFingerLaw(kinds, minimum, tables, weights, none, one, np.full(len(kinds), noise))


# --- measured jobs: the published measurements of TapFinger -------------------------------------
#
# Rows of ``trace.csv.gz``, which has no licence and is not part of this package: kind, CPUs, GPUs,
# completion time in seconds, then pairs of elapsed seconds and validation loss.

FILE: Final = "trace.csv.gz"
STEP_SECONDS: Final = 10.0
KINDS: Final = ("mnist", "lm", "audio")
MIN_AMOUNT: Final = (2, 1)
_MAX_AMOUNT: Final = (16, 8)
_AUDIO: Final = KINDS.index("audio")
_AUDIO_SHARE: Final = 5.0
"""Progress of an audio job per step, times its completion time in seconds [authors' program]."""
_NOISE: Final = 0.1
_POWERS: Final = np.linspace(0.05, 5.0, 991)


@lru_cache(maxsize=4)
def measured(data: Path | None) -> TapFingerLaw:
    """Return the law of jobs with measured run times; SettingError without the file."""
    return plain(KINDS, MIN_AMOUNT, list(STEP_SECONDS / _seconds(data)))


@lru_cache(maxsize=4)
def doubling(data: Path | None) -> TapFingerLaw:
    """Return the law of the authors' program, which made the paper's figures.

    A curve ``scale * steps ** power`` is fitted to the fall of the loss. In each step progress
    grows by the *value* of the curve one step later, not by its increase. So it about doubles in
    every step, jobs last 3 to 7 steps, and resources have little effect. Speech recognition has no
    curve and gets five times its speed. This law serves the comparison with the paper; real jobs
    differ. Raises SettingError without the file.
    """
    seconds = _seconds(data)
    base, scale, power = np.zeros_like(seconds), np.zeros_like(seconds), np.ones_like(seconds)
    base[_AUDIO] = _AUDIO_SHARE / seconds[_AUDIO]
    for kind, cpus, gpus, row in _rows(data):
        if kind != _AUDIO:
            scale[kind, cpus, gpus], power[kind, cpus, gpus] = _fit(row)
    noise = np.where(np.arange(len(KINDS)) == _AUDIO, 0.0, _NOISE)
    return TapFingerLaw(KINDS, MIN_AMOUNT, base, np.zeros_like(base), scale, power, noise)


def _seconds(data: Path | None) -> FloatArray:
    """Return completion times, shape (kinds, CPUs, GPUs); infinite where none was measured."""
    seconds = np.full((len(KINDS), _MAX_AMOUNT[0] + 1, _MAX_AMOUNT[1] + 1), np.inf)
    for kind, cpus, gpus, row in _rows(data):
        seconds[kind, cpus, gpus] = float(row[3])
    return seconds


def _rows(data: Path | None) -> Iterator[tuple[int, int, int, list[str]]]:
    """Yield kind, CPUs, GPUs and the row; the last run with equal values counts."""
    if data is None or not (data / FILE).is_file():
        raise SettingError(
            f"data is {'missing' if data is None else str(data)!r}; trace settings need the folder "
            f"with TapFinger's published {FILE}, for example --opt data=FOLDER"
        )
    with gzip.open(data / FILE, "rt", encoding="utf-8") as file:
        for row in csv.reader(file):
            yield KINDS.index(row[0]), int(row[1]), int(row[2]), row


def _fit(row: list[str]) -> tuple[float, float]:
    """Return scale and power nearest to the fall of the loss, 0 at its height, 1 at its end."""
    pairs = np.array([[float(part) for part in pair.strip("()").split(",")] for pair in row[4:]])
    steps, loss = pairs[:, 0] / STEP_SECONDS, pairs[:, 1]
    fall = (loss - loss.max()) / (loss.min() - loss.max())
    curves = steps ** _POWERS[:, None]
    scales = (curves @ fall) / (curves**2).sum(axis=1)
    errors = ((fall - scales[:, None] * curves) ** 2).sum(axis=1)
    best = int(errors.argmin())
    return float(scales[best]), float(_POWERS[best])
