"""Holt and Winters: level, damped trend and season, each smoothed exponentially, on logs.

Weights are fitted by statsmodels (``ExponentialSmoothing``, additive), with each season that has
passed often enough; of these fits the one of the least squared error is used. Forecasts from many
origins cost one pass of the recursion (Hyndman et al., Forecasting with Exponential Smoothing,
2008, chapter 3), with s the season, phi the damping:

    level_t  = alpha (z_t - season_(t-s)) + (1 - alpha) (level_(t-1) + phi trend_(t-1))
    trend_t  = beta* (level_t - level_(t-1)) + (1 - beta*) phi trend_(t-1)
    season_t = gamma (z_t - level_(t-1) - phi trend_(t-1)) + (1 - gamma) season_(t-s)
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.errors import FitError, TooShort
from bireme.forecasting.series import Series, from_logs, require_origins

_FEWEST = 10
"""As many, and two seasons, are what the first states are judged by."""


@dataclass(frozen=True, slots=True)
class HoltWintersModel:
    """Weights and first states.

    Attributes:
        level_weight: alpha.
        trend_weight: beta*.
        season_weight: gamma.
        damping: phi.
        level: Before the first value.
        trend: Before the first value.
        seasons: Before the first value, shape (season,); (0.0,) where there is none.
        most: The largest value fitted.
    """

    level_weight: float
    trend_weight: float
    season_weight: float
    damping: float
    level: float
    trend: float
    seasons: FloatArray
    most: float

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """See :class:`~bireme.forecasting.forecasters.Model`."""
        require_origins(origins, values, 1)
        levels, trends, seasons = self._states(np.log1p(values))
        ahead = np.arange(steps)
        damped = np.cumsum(self.damping ** (1.0 + ahead))
        # Entry t + s of the seasons belongs to value t: what is known last repeats itself.
        season = seasons[origins[:, None] + ahead % len(self.seasons)]
        logs = levels[origins, None] + trends[origins, None] * damped + season
        return from_logs(logs, self.most)

    def _states(self, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Level and trend before each value and after the last, and season of each value."""
        levels, trends = np.empty((2, len(z) + 1))
        period = len(self.seasons)
        seasons = np.concatenate([self.seasons, np.zeros(len(z))])
        level, trend = self.level, self.trend
        for t, value in enumerate(z.tolist()):
            levels[t], trends[t] = level, trend
            expected, season = level + self.damping * trend, float(seasons[t])
            seen = self.level_weight * (value - season) + (1 - self.level_weight) * expected
            kept = (1 - self.trend_weight) * self.damping * trend
            trend = self.trend_weight * (seen - level) + kept
            level = seen
            pulled = self.season_weight * (value - expected)
            seasons[t + period] = pulled + (1 - self.season_weight) * season
        levels[-1], trends[-1] = level, trend
        return levels, trends, seasons


class HoltWinters:
    """Exponential smoothing with a damped trend and the season that fits best."""

    name = "holt-winters"

    def fit(self, series: Series) -> HoltWintersModel:
        """Raises TooShort for fewer than 10 values, FitError where all are the same."""
        z = np.log1p(series.values)
        if len(z) < _FEWEST:
            raise TooShort(f"holt-winters needs {_FEWEST} values; there are {len(z)}")
        if np.ptp(z) == 0:
            raise FitError("holt-winters: all values are the same; persistence says it all")
        periods = [p for p in series.periods if max(_FEWEST + p, 2 * p) <= len(z)]
        fits = [_fitted(z, period) for period in periods] or [_fitted(z, None)]
        best = min(fits, key=lambda fit: float(fit.sse))
        return _model(best.params, float(series.values.max()))


def _fitted(z: FloatArray, period: int | None) -> Any:
    with warnings.catch_warnings():
        # It tells how the search for the weights went; the back-test judges what it found.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return ExponentialSmoothing(
                z,
                trend="add",
                damped_trend=True,
                seasonal="add" if period else None,
                seasonal_periods=period,
                initialization_method="heuristic",
            ).fit()
        except (ValueError, np.linalg.LinAlgError) as error:
            raise FitError(f"holt-winters: season of {period} steps: {error}") from error


def _model(found: dict[str, Any], most: float) -> HoltWintersModel:
    seasonal = len(found["initial_seasons"]) > 0
    return HoltWintersModel(
        level_weight=float(found["smoothing_level"]),
        trend_weight=float(found["smoothing_trend"]),
        season_weight=float(found["smoothing_seasonal"]) if seasonal else 0.0,
        damping=float(found["damping_trend"]),
        level=float(found["initial_level"]),
        trend=float(found["initial_trend"]),
        seasons=np.array(found["initial_seasons"]) if seasonal else np.zeros(1),
        most=most,
    )
