"""Baselines: the last value (persistence), and the value one season ago (seasonal-naive).

Every other forecaster is evaluated against these two; one that does not beat them has no skill.
"""

from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.series import Series, TooShortError, require_origins


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repeats the last ``period`` values."""

    period: int

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        require_origins(origins, values, self.period)
        offsets = np.arange(steps, dtype=np.int64) % self.period
        repeated: FloatArray = values[origins[:, None] - self.period + offsets]
        return repeated


class Persistence:
    """Forecasts the last value."""

    name = "persistence"

    def fit(self, series: Series) -> Repeat:
        return Repeat(1)


class SeasonalNaive:
    """Forecasts the value one season ago.

    From several seasons it takes the one with the smallest mean absolute error over the values that
    all seasons can forecast (Hyndman and Athanasopoulos, Forecasting: Principles and Practice,
    section 5.2).
    """

    name = "seasonal-naive"

    def fit(self, series: Series) -> Repeat:
        """Raises TooShortError if the series has no season, or not even one has passed."""
        if not series.periods:
            raise TooShortError("seasonal-naive needs a season; the series names no periods")
        periods = [period for period in series.periods if period <= len(series)]
        if not periods:
            raise TooShortError(
                f"seasonal-naive needs one whole season ({series.periods[0]} values); there are "
                f"{len(series)}"
            )
        return Repeat(min(periods, key=lambda period: _error(series.values, period, periods[-1])))


def _error(values: FloatArray, period: int, longest_period: int) -> float:
    """Return the mean absolute error of ``period`` on ``values[longest_period:]``, or 0."""
    # Without the first values, which a longer season cannot forecast: all use the same values.
    wrong = np.abs(values[period:] - values[:-period])[longest_period - period :]
    return float(wrong.mean()) if len(wrong) else 0.0
