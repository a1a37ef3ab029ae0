"""The settings of TapFinger's worlds: pools, arrivals, what arrives, and how decisions are made.

Numbers are those of the paper (Li et al., sections 5.1 to 5.4) where the authors' published
configurations agree. They differ in one: the figures on several jobs per step were made with 3
arrivals per step, not 2.

In single mode a pool starts at most one job per step, and changing a running job's allocation costs
half a step's progress; in multi mode it starts as many as it likes, and changes are free.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray

# How fast jobs of TapFinger's worlds progress with the CPUs and GPUs that they were given.
#
# Progress runs from 0 to 1; a job is over after the step in which it reaches 1. What one step adds
# depends on the kind of job, the allocation, and the progress p so far:
#
#     base + weight sqrt(1.2 - p) + power(p)
#
# The synthetic kinds (Li et al., section 5.1, with numbers from the authors' program) have a weight
# tanh(GPUs / 16), or none and a base of 1/4; CPUs beyond the minimum do nothing. For the kinds
# measured on a machine see :mod:`bireme.training.tapfinger.settings`.

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


# Jobs measured on a machine, by CPUs and GPUs: the published measurements of TapFinger.
#
# A file ``trace.csv.gz``, which a person names (it has no licence and is not part of this package):
# kind, CPUs, GPUs, completion time in seconds, then pairs of elapsed seconds and validation loss.
# Steps have 10 seconds. There are two readings:
#
# * :func:`measured`: a job takes as long as it took.
# * :func:`doubling`: as the authors' program reads it, which the paper's figures are made with. A
#   curve ``scale * steps ** power`` is fitted to the fall of the loss, and in each step progress
#   grows by the *value* of the curve one step on, not by its increase. So it about doubles in every
#   step, jobs last 3 to 7 steps, and resources hardly matter. Speech recognition, which has no
#   curve, gets five times its speed. Kept to compare with the paper; it says little of real jobs.

FILE: Final = "trace.csv.gz"
STEP_SECONDS: Final = 10.0
KINDS: Final = ("mnist", "lm", "audio")
LEAST: Final = (2, 1)
_MOST: Final = (16, 8)
_AUDIO: Final = KINDS.index("audio")
_AUDIO_SHARE: Final = 5.0
"""Progress of an audio job per step, times its completion time in seconds [authors' program]."""
_NOISE: Final = 0.1
_POWERS: Final = np.linspace(0.05, 5.0, 991)


@lru_cache(maxsize=4)
def measured(data: Path | None) -> Law:
    """Every step adds its share of the completion time; SettingError without the file."""
    base = STEP_SECONDS / _seconds(data)
    return plain(KINDS, LEAST, list(base), list(np.zeros_like(base)))


@lru_cache(maxsize=4)
def doubling(data: Path | None) -> Law:
    """As the authors' program has it; SettingError without the file."""
    seconds = _seconds(data)
    base, scale, power = np.zeros_like(seconds), np.zeros_like(seconds), np.ones_like(seconds)
    base[_AUDIO] = _AUDIO_SHARE / seconds[_AUDIO]
    for kind, cpus, gpus, row in _rows(data):
        if kind != _AUDIO:
            scale[kind, cpus, gpus], power[kind, cpus, gpus] = _fit(row)
    noise = np.where(np.arange(len(KINDS)) == _AUDIO, 0.0, _NOISE)
    return Law(KINDS, LEAST, base, np.zeros_like(base), scale, power, noise)


def _seconds(data: Path | None) -> FloatArray:
    """Completion times, shape (kinds, CPUs, GPUs); infinite where none was measured."""
    seconds = np.full((len(KINDS), _MOST[0] + 1, _MOST[1] + 1), np.inf)
    for kind, cpus, gpus, row in _rows(data):
        seconds[kind, cpus, gpus] = float(row[3])
    return seconds


def _rows(data: Path | None) -> Iterator[tuple[int, int, int, list[str]]]:
    """Kind, CPUs, GPUs and the row; of runs with the same three the last one counts."""
    if data is None or not (data / FILE).is_file():
        raise SettingError(
            f"data is {'missing' if data is None else str(data)!r}; trace settings need the folder "
            f"with TapFinger's published {FILE}, for example --opt data=FOLDER"
        )
    with gzip.open(data / FILE, "rt", encoding="utf-8") as file:
        for row in csv.reader(file):
            yield KINDS.index(row[0]), int(row[1]), int(row[2]), row


def _fit(row: list[str]) -> tuple[float, float]:
    """Scale and power that are nearest to the fall of the loss, 0 at its height, 1 at its end."""
    pairs = np.array([[float(part) for part in pair.strip("()").split(",")] for pair in row[4:]])
    steps, loss = pairs[:, 0] / STEP_SECONDS, pairs[:, 1]
    fall = (loss - loss.max()) / (loss.min() - loss.max())
    curves = steps ** _POWERS[:, None]
    scales = (curves @ fall) / (curves**2).sum(axis=1)
    errors = ((fall - scales[:, None] * curves) ** 2).sum(axis=1)
    best = int(errors.argmin())
    return float(scales[best]), float(_POWERS[best])


WINDOW: Final = 10
"""How many waiting jobs a pool can choose from."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One kind of world.

    Attributes:
        capacity: CPUs and GPUs of each pool.
        law: How fast jobs are.
        arrivals_per_step: Mean of a Poisson distribution.
        jobs: Per episode.
        is_multi: Whether a pool may start several jobs in a step.
    """

    capacity: tuple[tuple[int, int], ...]
    law: Law
    arrivals_per_step: float
    jobs: int
    is_multi: bool

    @property
    def change_share(self) -> float:
        """What is left of a step's progress in which a running job's allocation changed."""
        return 1.0 if self.is_multi else 0.5


_Made: TypeAlias = Callable[[Path | None], Law]
_SIXTEEN: Final = (16, 16)
_LARGE: Final = (32, 16)
_UNEVEN: Final = tuple((size, size) for size in (4, 8, 12, 16, 24, 32))


def _synthetic(_: Path | None) -> Law:
    return synthetic()


def _noisy(_: Path | None) -> Law:
    return synthetic(noise=0.1)


def _pointer(_: Path | None) -> Law:
    return pointer()


_KINDS: Final[Mapping[str, tuple[tuple[tuple[int, int], ...], _Made, float, int, bool]]] = {
    "single-3": ((_SIXTEEN,) * 3, _synthetic, 2.0, 192, False),
    "single-6": ((_SIXTEEN,) * 6, _synthetic, 4.0, 384, False),
    "single-3-noisy": ((_SIXTEEN,) * 3, _noisy, 2.0, 192, False),
    "single-6-noisy": ((_SIXTEEN,) * 6, _noisy, 4.0, 384, False),
    "single-6-rate-3": ((_SIXTEEN,) * 6, _synthetic, 3.0, 384, False),
    "single-6-rate-2": ((_SIXTEEN,) * 6, _synthetic, 2.0, 384, False),
    "multi-3": ((_SIXTEEN,) * 3, _synthetic, 3.0, 192, True),
    "hetero-6": (_UNEVEN, _synthetic, 6.0, 384, True),
    "pointer": ((_SIXTEEN,) * 3, _pointer, 3.0, 192, True),
    "trace-3": ((_LARGE,) * 3, doubling, 1.5, 1000, False),
    "trace-6": ((_LARGE,) * 6, doubling, 3.0, 2000, False),
    "measured-3": ((_LARGE,) * 3, measured, 1.5, 1000, False),
}

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "single-3": "3 equal pools, one start per pool and step, 2 arrivals per step",
        "single-6": "6 equal pools, one start per pool and step, 4 arrivals per step",
        "single-3-noisy": "single-3 with the noise of the paper's figures",
        "single-6-noisy": "single-6 with the noise of the paper's figures",
        "single-6-rate-3": "single-6 with 3 arrivals per step",
        "single-6-rate-2": "single-6 with 2 arrivals per step",
        "multi-3": "3 equal pools, any number of starts, 3 arrivals per step",
        "hetero-6": "6 pools of 4 to 32 GPUs, any number of starts, 6 arrivals per step",
        "pointer": "3 equal pools, any number of starts; jobs of 1 or 10 steps",
        "trace-3": "3 pools, jobs measured on a machine as the authors' program runs them",
        "trace-6": "6 pools, the same",
        "measured-3": "3 pools, the same jobs in the time that they really took",
    }
)
"""What they are; those of the trace need the folder of the published measurements."""


def make_setting(name: str, data: Path | None = None, jobs: int | None = None) -> Setting:
    """The setting called ``name``.

    Args:
        data: The folder with the published measurements; trace settings need it.
        jobs: Per episode, instead of the setting's own number.

    Raises:
        SettingError: there is no such setting, or it needs ``data``.
    """
    if name not in _KINDS:
        raise SettingError(f"setting is {name!r}; write one of {', '.join(_KINDS)}")
    capacity, law, rate, own_jobs, is_multi = _KINDS[name]
    if jobs is not None and jobs < 1:
        raise SettingError(f"jobs is {jobs}; write 1 or more")
    return Setting(capacity, law(data), rate, jobs or own_jobs, is_multi)
