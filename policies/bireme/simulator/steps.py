"""Step functions of time: their means over stretches, exactly.

A step function is given by ascending ``times`` and ``values`` of one shape (points,): value ``i``
holds from ``times[i]`` until ``times[i + 1]``, the last one for ever, and before the first it is 0.
"""

import numpy as np

from bireme.core.resources import FloatArray


def mean_between(times: FloatArray, values: FloatArray, began: float, ended: float) -> float:
    """The mean over the time from ``began`` to ``ended``, which is later."""
    return float(binned(times, values, np.array([began, ended]))[0])


def binned(times: FloatArray, values: FloatArray, edges: FloatArray) -> FloatArray:
    """The means over the bins between ascending ``edges``, shape (edges - 1,)."""
    area = integral(times, values, edges)
    return np.asarray(np.diff(area) / np.diff(edges))


def integral(times: FloatArray, values: FloatArray, at: FloatArray) -> FloatArray:
    """The area under the function from its first step to each time of ``at``, shape of ``at``."""
    if not len(times):
        return np.zeros_like(at)
    areas = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times))))
    beyond = np.maximum(at - times[-1], 0.0) * values[-1]
    # Between two steps the area grows by a straight line, so that interpolation is exact.
    return np.asarray(np.interp(at, times, areas) + beyond)
