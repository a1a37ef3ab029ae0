"""What a series grows by: the median of all slopes between two of its points (Theil and Sen).

Memory moves in steps and stays where it is for a while, so neighbouring samples say the same. The
line goes through medians of a few minutes, which are few and nearly independent: the interval is as
wide as it should be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import theilslopes

DAY_SECONDS: Final = 86_400.0
CONFIDENCE: Final = 0.95
MIN_POINTS: Final = 5
"""Of fewer medians no interval can be told."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per day with the ends of its 95 % interval, in the unit of the series."""

    per_day: float
    low: float
    high: float

    def is_below(self, bound_per_day: float) -> bool:
        """Return whether the growth is below a bound, as far as the interval goes."""
        return self.high <= bound_per_day


def slope_of(
    seconds: Sequence[float], values: Sequence[float], *, window_seconds: float
) -> Slope | None:
    """Return the growth of a series; None where there are too few windows to tell."""
    times, numbers = np.asarray(seconds, dtype=float), np.asarray(values, dtype=float)
    if not len(times):
        return None
    windows = ((times - times[0]) // window_seconds).astype(int)
    kept = np.unique(windows)
    if len(kept) < MIN_POINTS:
        return None
    at = [float(np.mean(times[windows == one])) for one in kept]
    middle = [float(np.median(numbers[windows == one])) for one in kept]
    slope, _, low, high = theilslopes(middle, at, CONFIDENCE)
    return Slope(*(float(each) * DAY_SECONDS for each in (slope, low, high)))
