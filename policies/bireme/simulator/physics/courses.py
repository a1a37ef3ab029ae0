"""Trainings that do not go on evenly: at one size some phases take longer than others.

Where a job chooses its batch anew in every epoch, late epochs, in which large batches are worth
most, gain far more by a larger size than early ones. Its mean speed at a size is then right for a
whole training at that size alone. A course says how the work is spread over the time.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from bireme.core.resources import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """How a whole training goes on at one size; straight lines between the points.

    Attributes:
        done: Shares of the work, shape (points,), ascending from 0 to 1.
        elapsed: Shares of the time after which they are done, likewise.
    """

    done: FloatArray
    elapsed: FloatArray

    @classmethod
    def of(cls, work: FloatArray, paces: FloatArray) -> "Course":
        """Of phases with so much ``work`` at such ``paces``, both shape (phases,)."""
        done, seconds = np.cumsum(work), np.cumsum(work / paces)
        return cls(np.append(0.0, done / done[-1]), np.append(0.0, seconds / seconds[-1]))

    def time_left(self, left: float) -> float:
        """Share of the time of a whole training that a share ``left`` of its work takes."""
        return float(1 - np.interp(1 - left, self.done, self.elapsed))

    def left_after(self, left: float, spent: float) -> float:
        """Share of the work still left, after a share ``spent`` of the time of a whole training."""
        elapsed = np.interp(1 - left, self.done, self.elapsed) + spent
        return float(1 - np.interp(elapsed, self.elapsed, self.done))


@runtime_checkable
class UnevenSpeedLaw(Protocol):
    """A speed law whose trainings may go on unevenly."""

    def course(self, places: tuple[int, ...]) -> Course | None:
        """With ``places[i]`` replicas on the i-th node; None where evenly, or where it cannot."""
        ...
