"""Jobs measured on a machine, by CPUs and GPUs: the published measurements of TapFinger.

A file ``trace.csv.gz``, which a person names (it has no licence and is not part of this package):
kind, CPUs, GPUs, completion time in seconds, then pairs of elapsed seconds and validation loss.
Steps have 10 seconds. There are two readings:

* :func:`measured`: a job takes as long as it took.
* :func:`doubling`: as the authors' program reads it, which the paper's figures are made with. A
  curve ``scale * steps ** power`` is fitted to the fall of the loss, and in each step progress
  grows by the *value* of the curve one step on, not by its increase. So it about doubles in every
  step, jobs last 3 to 7 steps, and resources hardly matter. Speech recognition, which has no
  curve, gets five times its speed. Kept to compare with the paper; it says little of real jobs.
"""

import csv
import gzip
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme.training.tapfinger.laws import Law, plain

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
