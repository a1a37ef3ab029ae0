"""Holt and Winters: level, damped trend and season, each smoothed exponentially, on logs.

Weights are fitted by statsmodels (``ExponentialSmoothing``, additive), with and without a trend,
and with each season that has passed often enough. The chosen one has the least error on the last
quarter of the values, at the requested lead times, or the least AIC if that is too short. Forecasts
from many origins cost one pass of the recursion (Hyndman et al., Forecasting with Exponential
Smoothing, 2008, chapter 3), with s the season, phi the damping:

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
    evaluation_origins,
    from_logs,
    require_origins,
)

_MIN_VALUES = 10
"""Minimum number of values from which the first states are estimated, as well as two seasons."""
_WEIGHTS = (
    *("smoothing_level", "smoothing_trend", "smoothing_seasonal"),
    *("damping_trend", "initial_level", "initial_trend"),
)


@dataclass(frozen=True, slots=True)
class HoltWintersModel:
    """Weights (alpha, beta*, gamma, phi), and states before the first value.

    Attributes:
        seasons: Shape (season,); (0.0,) without a season.
        max_value: The largest fitted value.
    """

    level_weight: float
    trend_weight: float
    season_weight: float
    damping: float
    level: float
    trend: float
    seasons: FloatArray
    max_value: float

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        require_origins(origins, values, 1)
        levels, trends, seasons = self._states(np.log1p(values))
        offsets = np.arange(steps)
        damped = np.cumsum(self.damping ** (1.0 + offsets))
        # Entry t + s of the seasons belongs to value t: the last known season repeats.
        season = seasons[origins[:, None] + offsets % len(self.seasons)]
        logs = levels[origins, None] + trends[origins, None] * damped + season
        return from_logs(logs, self.max_value)

    def _states(self, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return level and trend before each value and after the last, and season of each value."""
        levels, trends = np.empty((2, len(z) + 1))
        period = len(self.seasons)
        seasons = np.concatenate([self.seasons, np.zeros(len(z))])
        level, trend = self.level, self.trend
        for t, value in enumerate(z.tolist()):
            levels[t], trends[t] = level, trend
            expected, season = level + self.damping * trend, float(seasons[t])
            next_level = self.level_weight * (value - season) + (1 - self.level_weight) * expected
            damped_trend = (1 - self.trend_weight) * self.damping * trend
            trend = self.trend_weight * (next_level - level) + damped_trend
            level = next_level
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
        """Raises TooShortError for fewer than 10 values, ForecastError if all are the same."""
        values = series.values
        if len(values) < _MIN_VALUES:
            raise TooShortError(f"holt-winters needs {_MIN_VALUES} values; there are {len(values)}")
        if np.ptp(values) == 0:
            raise ForecastError("holt-winters: all values are the same; persistence says it all")
        origins = evaluation_origins(len(values), self._steps)
        training = values[: origins[0]] if len(origins) else values
        periods = [p for p in series.periods if max(_MIN_VALUES + p, 2 * p) <= len(training)] or [0]
        shapes = list(product(periods, (True, False)))
        fits = [_fit(training, *shape) for shape in shapes]
        if not len(origins):
            return _model(min(fits, key=lambda fit: float(fit.aic)), values)
        errors = [_error(_model(fit, training), values, origins, self._steps) for fit in fits]
        # Fitted again: the held-out values matter most.
        return _model(_fit(values, *shapes[int(np.argmin(errors))]), values)


def _fit(values: FloatArray, period: int, has_trend: bool) -> Any:
    """Return the fit of statsmodels for a season of ``period`` steps, 0 for none."""
    with warnings.catch_warnings():
        # The warnings are about the search; the back-test evaluates its result.
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
    # statsmodels gives NaN for the weights of a missing trend or season.
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
        max_value=float(values.max()),
    )


def _error(model: HoltWintersModel, values: FloatArray, origins: IntArray, steps: int) -> float:
    """Return the mean absolute error of the logs."""
    logs = np.log1p(model.at(values, origins, steps))
    return float(np.abs(logs - np.log1p(values)[origins[:, None] + np.arange(steps)]).mean())
