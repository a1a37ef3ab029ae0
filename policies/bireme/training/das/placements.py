"""Where one gang of one-GPU workers goes, for many clouds at once.

Affinities become places as in the simulator: machines by falling affinity, each as full as it gets.
The two rules give what :mod:`bireme.heuristics.fits` gives one cloud. Shapes: worlds W, machines M.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import FloatArray, IntArray

Divide: TypeAlias = Callable[[IntArray, IntArray, IntArray], IntArray]
"""``divide(gpus, free, used)``: GPUs on each machine, shape (W, M), ``gpus`` (W,) in all."""


def fill(gpus: IntArray, free: IntArray, affinity: FloatArray) -> IntArray:
    """Machines by falling ``affinity``, shape (W, M), ties by index, until ``gpus`` are placed."""
    order = np.argsort(-affinity, axis=1, kind="stable")
    room = np.take_along_axis(free, order, axis=1)
    before = room.cumsum(axis=1) - room
    counts = np.zeros_like(free)
    np.put_along_axis(counts, order, np.clip(gpus[:, None] - before, 0, room), axis=1)
    return counts


def first_fit(gpus: IntArray, free: IntArray, used: IntArray) -> IntArray:
    """The first machines that have room."""
    return fill(gpus, free, np.zeros(used.shape))


def load_balance(gpus: IntArray, free: IntArray, used: IntArray) -> IntArray:
    """Every GPU on the machine that is least loaded with it; ties to the least free, by index."""
    order = np.argsort(free, axis=1, kind="stable")
    room = np.take_along_axis(free, order, axis=1)
    busy = np.take_along_axis(used, order, axis=1)
    held = np.zeros_like(room)
    rows = np.arange(len(room))
    for placed in range(int(gpus.max(initial=0))):
        load = (busy + held + 1) / np.maximum(room + busy, 1)
        best = np.where(held < room, load, np.inf).argmin(axis=1)
        held[rows, best] += placed < gpus
    counts = np.zeros_like(free)
    np.put_along_axis(counts, order, held, axis=1)
    return counts


RULES: Final[Mapping[str, Divide]] = {"first-fit": first_fit, "load-balance": load_balance}
"""Placements that need no affinities, under their names in :mod:`bireme.registry`."""
