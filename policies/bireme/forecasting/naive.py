"""What needs no fitting: the last value, and the value of one season ago.

Every other forecaster is judged against these two; what does not beat them has no skill.
"""

from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.series import Series, TooShort, require_origins


@dataclass(frozen=True, slots=True)
class Repeat:
    """The last ``period`` values, over and over."""

    period: int

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """See :class:`~bireme.forecasting.forecasters.Model`."""
        require_origins(origins, values, self.period)
        ahead = np.arange(steps, dtype=np.int64) % self.period
        repeated: FloatArray = values[origins[:, None] - self.period + ahead]
        return repeated


class Persistence:
    """Everything stays as it is now."""

    name = "persistence"

    def fit(self, series: Series) -> Repeat:
        """Nothing to fit."""
        return Repeat(1)


class SeasonalNaive:
    """Everything is as it was one season ago: of the seasons, the one that said most so far.

    The season is that of the smallest mean absolute error over the values that all seasons can
    speak of (Hyndman and Athanasopoulos, Forecasting: Principles and Practice, section 5.2).
    """

    name = "seasonal-naive"

    def fit(self, series: Series) -> Repeat:
        """Raises TooShort where not even one season has passed, or where there is none."""
        periods = [period for period in series.periods if period <= len(series)]
        if not periods:
            shortest = min(series.periods, default=None)
            raise TooShort(
                f"seasonal-naive needs one whole season ({shortest} values); there are "
                f"{len(series)}"
                if shortest
                else "seasonal-naive needs a season; the series names no periods"
            )
        return Repeat(min(periods, key=lambda period: _error(series.values, period, periods[-1])))


def _error(values: FloatArray, period: int, longest: int) -> float:
    """Mean absolute error of ``period`` on ``values[longest:]``; 0 where there are none."""
    wrong = np.abs(values[period:] - values[:-period])[longest - period :]
    return float(wrong.mean()) if len(wrong) else 0.0
