"""What DAS sees of jobs and machines, as formulas that training and serving share.

Everything is a function of what an operator knows: demands, stated estimates, waits, free GPUs,
labels. All numbers are of the order of one on clusters of any size, so that the same weights serve
eight machines and five hundred.
"""

from typing import Final

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray

JOB_FEATURES: Final = 6
MACHINE_FEATURES: Final = 8

ACROSS_RACKS: Final = 0.5
"""Adjacency of machines in different racks; 1 within one."""

_MINUTE: Final = 60.0


def job_features(
    gpus: IntArray,
    estimated_seconds: FloatArray,
    waited_seconds: FloatArray,
    free_gpus: IntArray,
    all_gpus: IntArray,
) -> FloatArray:
    """Features of waiting jobs, float64 of the broadcast shape (..., 6).

    Size, estimate, wait, service, share of the cluster, and how often it fits into the free GPUs.
    """
    size = np.maximum(gpus, 1)
    minutes = estimated_seconds / _MINUTE
    return np.stack(
        np.broadcast_arrays(
            gpus / 16,
            np.log1p(minutes) / 8,
            np.log1p(waited_seconds / _MINUTE) / 8,
            np.log1p(gpus * minutes) / 12,
            gpus / np.maximum(all_gpus, 1),
            np.minimum(free_gpus / size, 4) / 4,
        ),
        axis=-1,
    )


def machine_features(
    free: IntArray,
    capacity: IntArray,
    speed: FloatArray,
    dollars_per_hour: FloatArray,
    rack_free: FloatArray,
    rack_capacity: FloatArray,
    alike_free: FloatArray,
) -> FloatArray:
    """Features of machines, float64 of shape (..., machines, 8).

    Args:
        free, capacity: GPUs, shape (..., machines).
        speed, dollars_per_hour: Of the GPU model, same shape.
        rack_free, rack_capacity: GPUs of all machines of the rack, same shape.
        alike_free: Those of the rack's machines with the same GPU model, same shape.
    """
    return np.stack(
        [
            free / 8,
            free / np.maximum(capacity, 1),
            speed,
            dollars_per_hour / 4,
            rack_free / np.maximum(rack_capacity, 1),
            np.minimum(rack_free / 16, 1),
            np.minimum(alike_free / 16, 1),
            (free == capacity) & (capacity > 0),
        ],
        axis=-1,
    )


def share_of_rack(racks: IntArray) -> BoolArray:
    """Whether two machines share a rack, shape (..., machines, machines); negative is no rack."""
    same = (racks[..., :, None] == racks[..., None, :]) & (racks[..., :, None] >= 0)
    return np.asarray(same | np.eye(racks.shape[-1], dtype=np.bool_))


def adjacency(same_rack: BoolArray) -> FloatArray:
    """How near machines are: 1 within a rack, :data:`ACROSS_RACKS` beyond; same shape."""
    return np.where(same_rack, 1.0, ACROSS_RACKS)
