"""The step functions of an outcome, written down as they happen and thinned out at the end.

A long simulation has more steps than any plot has pixels. Neighbouring steps are then merged into
their mean over time, which keeps every integral (GPU-seconds used, mean queue length) as it was.
"""

from array import array

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.outcome import Series

MOST_POINTS = 20_000


class Recorder:
    """Points of ``width`` values each, in ascending order of time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._times = array("d")
        self._values = array("d")
        self._last: tuple[float, ...] | None = None

    def record(self, time: float, *values: float) -> None:
        """What holds from ``time`` on; a later word about the same moment replaces the earlier."""
        if values == self._last:
            return
        if self._times and self._times[-1] == time:
            del self._times[-1], self._values[-self._width :]
        self._times.append(time)
        self._values.extend(values)
        self._last = values

    def points(self, most_points: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Times, shape (points,), and values, shape (points, width); ``most_points`` at most."""
        times = np.array(self._times, dtype=np.float64)
        values = np.array(self._values, dtype=np.float64).reshape(-1, self._width)
        if most_points is not None and len(times) > most_points:
            return _merged(times, values, most_points)
        return times, values

    def series(self, most_points: int = MOST_POINTS) -> Series:
        """Of a recorder of used GPUs, waiting gangs and fragmented GPUs."""
        times, values = self.points(most_points)
        return Series(times, *(column.copy() for column in values.T))


def _merged(
    times: FloatArray, values: FloatArray, most_points: int
) -> tuple[FloatArray, FloatArray]:
    """Runs of neighbouring steps as one step each; the last point, which never ends, stays."""
    lengths = np.diff(times)
    first = np.linspace(0, len(lengths), most_points - 1, endpoint=False).astype(np.int64)
    totals = np.add.reduceat(values[:-1] * lengths[:, None], first, axis=0)
    means = totals / np.add.reduceat(lengths, first)[:, None]
    return np.append(times[first], times[-1]), np.vstack([means, values[-1]])
