"""What past runs tell of machines: where each was, and how fast it was for what was stated.

X_t and Y_t of the paper's Gaussian process, from nothing but what an operator knows: a run's
normalised speed is its stated estimate over the time it took, over the speed of the slowest GPU
model it was on. The rest is noise of the estimate, spread, neighbours, and the machines' health.
"""

from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.training.das.cloud import Clouds
from bireme.training.worlds import Array

MOST: Final = 2.0
"""Logarithms of normalised speeds are clipped to this, up and down."""


def normalised_speed(
    estimated_seconds: FloatArray, elapsed_seconds: FloatArray, slowest: FloatArray
) -> FloatArray:
    """log(estimate / elapsed / speed of the slowest GPU model), clipped; any one shape."""
    ratio = np.maximum(estimated_seconds, 1.0) / np.maximum(elapsed_seconds, 1.0) / slowest
    return np.asarray(np.clip(np.log(ratio), -MOST, MOST))


class Memory:
    """The last T runs that ended in each of W clouds, in no particular order."""

    def __init__(self, clouds: Clouds, runs: int) -> None:
        worlds, machines = clouds.capacity.shape
        self._clouds = clouds
        self._shares = np.zeros((worlds, runs, machines), dtype=np.float32)
        self._speeds = np.zeros((worlds, runs), dtype=np.float32)
        self._count = np.zeros(worlds, dtype=np.int64)

    def add(self, worlds: IntArray, jobs: IntArray) -> None:
        """Runs that have ended; worlds ascend, and may be named more than once."""
        while len(worlds):
            is_first = np.diff(worlds, prepend=-1) > 0
            self._add(worlds[is_first], jobs[is_first])
            worlds, jobs = worlds[~is_first], jobs[~is_first]

    def _add(self, worlds: IntArray, jobs: IntArray) -> None:
        clouds = self._clouds
        places = clouds.places[worlds, jobs]
        slowest = np.where(places > 0, clouds.model_speed[worlds], np.inf).min(axis=1)
        elapsed = clouds.finished[worlds, jobs] - clouds.started[worlds, jobs]
        at = self._count[worlds] % self._speeds.shape[1]
        self._shares[worlds, at] = places / places.sum(axis=1, keepdims=True)
        self._speeds[worlds, at] = normalised_speed(
            clouds.estimated_seconds[worlds, jobs], elapsed, slowest
        )
        self._count[worlds] += 1

    def observation(self) -> dict[str, Array]:
        """past_shares (W, T, M), past_speeds (W, T), past_mask (W, T)."""
        mask = np.arange(self._speeds.shape[1]) < self._count[:, None]
        return {
            "past_shares": self._shares.copy(),
            "past_speeds": self._speeds.copy(),
            "past_mask": mask,
        }
