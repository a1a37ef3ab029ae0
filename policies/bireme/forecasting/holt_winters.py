"""Holt and Winters: level, damped trend and season, each smoothed exponentially, on logs.

Weights are fitted by statsmodels (``ExponentialSmoothing``, additive), with and without a trend and
with each season that has passed often enough. The one used erred least on the last quarter of the
values, at the lead times wanted, or has the least AIC where that is too short. Forecasts from many
origins cost one pass of the recursion (Hyndman et al., Forecasting with Exponential Smoothing,
2008, chapter 3), with s the season, phi the damping:

    level_t  = alpha (z_t - season_(t-s)) + (1 - alpha) (level_(t-1) + phi trend_(t-1))
    trend_t  = beta* (level_t - level_(t-1)) + (1 - beta*) phi trend_(t-1)
    season_t = gamma (z_t - level_(t-1) - phi trend_(t-1)) + (1 - gamma) season_(t-s)
"""

import warnings
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.series import (
    ForecastError,
    Series,
    TooShortError,
    from_logs,
    held_out_origins,
    require_origins,
)

_FEWEST = 10
"""The first states are estimated from so many values, and two seasons."""
_WEIGHTS = (
    *("smoothing_level", "smoothing_trend", "smoothing_seasonal"),
    *("damping_trend", "initial_level", "initial_trend"),
)


@dataclass(frozen=True, slots=True)
class HoltWintersModel:
    """Weights (alpha, beta*, gamma, phi), and states before the first value.

    Attributes:
        seasons: Shape (season,); (0.0,) where there is none.
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
        require_origins(origins, values, 1)
        levels, trends, seasons = self._states(np.log1p(values))
        ahead = np.arange(steps)
        damped = np.cumsum(self.damping ** (1.0 + ahead))
        # Entry t + s of the seasons belongs to value t: what is known last repeats itself.
        season = seasons[origins[:, None] + ahead % len(self.seasons)]
        logs = levels[origins, None] + trends[origins, None] * damped + season
        return from_logs(logs, self.most)

    def _states(self, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return level and trend before each value and after the last, and season of each value."""
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
    """Exponential smoothing with the trend and the season that forecast best, ``steps`` ahead."""

    name = "holt-winters"

    def __init__(self, steps: int = 1) -> None:
        self._steps = steps

    def fit(self, series: Series) -> HoltWintersModel:
        """Raises TooShortError for fewer than 10 values, ForecastError where all are the same."""
        values = series.values
        if len(values) < _FEWEST:
            raise TooShortError(f"holt-winters needs {_FEWEST} values; there are {len(values)}")
        if np.ptp(values) == 0:
            raise ForecastError("holt-winters: all values are the same; persistence says it all")
        origins = held_out_origins(len(values), self._steps)
        known = values[: origins[0]] if len(origins) else values
        periods = [p for p in series.periods if max(_FEWEST + p, 2 * p) <= len(known)] or [0]
        shapes = list(product(periods, (True, False)))
        fits = [_fitted(known, *shape) for shape in shapes]
        if not len(origins):
            return _model(min(fits, key=lambda fit: float(fit.aic)), values)
        errors = [_error(_model(fit, known), values, origins, self._steps) for fit in fits]
        # Fitted again: the values that were held out are those that matter most.
        return _model(_fitted(values, *shapes[int(np.argmin(errors))]), values)


def _fitted(values: FloatArray, period: int, has_trend: bool) -> Any:
    """Return the fit of statsmodels for a season of ``period`` steps, 0 for none."""
    with warnings.catch_warnings():
        # They are about the search for the weights; the back-test evaluates its result.
        for kind in (ConvergenceWarning, RuntimeWarning):
            warnings.simplefilter("ignore", kind)
        try:
            return ExponentialSmoothing(
                np.log1p(values),
                trend="add" if has_trend else None,
                damped_trend=has_trend,
                seasonal="add" if period else None,
                seasonal_periods=period or None,
                initialization_method="heuristic",
            ).fit()
        except (ValueError, np.linalg.LinAlgError) as error:
            raise ForecastError(f"holt-winters: season of {period} steps: {error}") from error


def _model(fit: Any, values: FloatArray) -> HoltWintersModel:
    # statsmodels gives NaN for the weights of a trend or a season that the model does not have.
    weights = {name: float(np.nan_to_num(float(fit.params[name]))) for name in _WEIGHTS}
    seasons = np.array(fit.params["initial_seasons"], dtype=np.float64)
    return HoltWintersModel(
        level_weight=weights["smoothing_level"],
        trend_weight=weights["smoothing_trend"],
        season_weight=weights["smoothing_seasonal"],
        damping=weights["damping_trend"],
        level=weights["initial_level"],
        trend=weights["initial_trend"],
        seasons=seasons if len(seasons) else np.zeros(1),
        most=float(values.max()),
    )


def _error(model: HoltWintersModel, values: FloatArray, origins: IntArray, steps: int) -> float:
    """Return the mean absolute error of the logs."""
    logs = np.log1p(model.at(values, origins, steps))
    return float(np.abs(logs - np.log1p(values)[origins[:, None] + np.arange(steps)]).mean())
