"""The arrays that enter the networks of DAS, put together once for training and serving.

Leading dimensions (...) are those of batched worlds; a cluster has none.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import FloatArray, IntArray
from bireme.rl.encoders import das_features
from bireme.rl.encoders.das_sites import FEE_WEIGHTS, SITE_FEATURES, Machines, Sites
from bireme.rl.encoders.das_walks import Posterior, beliefs

JOB_FEATURES: Final = das_features.JOB_FEATURES + len(FEE_WEIGHTS)
"""Of a job in the queue."""
MACHINE_FEATURES: Final = das_features.MACHINE_FEATURES
"""Of a machine, for the ordering agent."""
PLACED_FEATURES: Final = 4
"""Of the job that is placed."""
PLACE_FEATURES: Final = SITE_FEATURES + 1
"""Of a machine, for the job that is placed."""

_LEAST_WORTH: Final = 0.05
_MINUTE: Final = 60.0

Array32 = NDArray[np.float32]


def job_inputs(features: FloatArray, machines: Machines, need: IntArray) -> Array32:
    """Features of jobs and of the best sites they could have, shape (..., jobs, JOB_FEATURES)."""
    worth = np.log(np.maximum(Sites.of(machines).best(need), _LEAST_WORTH))
    return np.concatenate([features, worth], axis=-1, dtype=np.float32, casting="same_kind")


def placed_inputs(machines: Machines, need: IntArray, seconds: FloatArray) -> Array32:
    """Features of the job that is placed, shape (..., PLACED_FEATURES).

    Its size, its estimate, and how much of the cluster is free, also beside it.
    """
    room, capacity = machines.room.sum(axis=-1), machines.capacity.sum(axis=-1)
    columns = (
        np.log2(np.maximum(need, 1)) / 4,
        np.log1p(seconds / _MINUTE) / 8,
        room / np.maximum(capacity, 1),
        np.minimum(room / np.maximum(need, 1), 4) / 4,
    )
    return np.stack(columns, axis=-1).astype(np.float32)


def place_inputs(machines: Machines, need: IntArray, believed: FloatArray | None) -> Array32:
    """Features of machines for the job that is placed, shape (..., machines, PLACE_FEATURES).

    ``believed`` is what is believed of their health, (..., machines): it counts in their speed,
    and once more on its own. None where nothing is.
    """
    inputs = np.zeros((*machines.speed.shape, PLACE_FEATURES), dtype=np.float32)
    if believed is not None:
        # Rounded, so that machines of which as little is known are equals and not sorted by noise.
        health = believed.round(3)
        machines = replace(machines, speed=machines.speed * np.exp(health))
        inputs[..., -1] = health
    inputs[..., :-1] = Sites.of(machines).features(need)
    return inputs


def believed(
    machines: Machines,
    need: IntArray,
    adjacency: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
) -> Posterior:
    """What finished runs say of machines for a job of size ``need``, shape (...).

    Machines are alike for a job if they are as fast, as dear, and take as much of it. For
    ``adjacency``, ``shares`` and ``speeds`` see :func:`~bireme.rl.encoders.das_walks.beliefs`.
    """
    wanted = np.maximum(need, 1)[..., None]
    taken = np.minimum(machines.room, wanted) / wanted
    features = np.stack([machines.speed, machines.dollars / 2, taken], axis=-1)
    return beliefs(features, adjacency, shares, speeds)
