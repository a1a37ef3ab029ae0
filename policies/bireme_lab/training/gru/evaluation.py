"""Evaluation of LSP's GRU and of all forecasters: comparisons on one series, errors on many.

:func:`compare_forecasters` is the command ``bireme forecast compare``; :func:`evaluate_forecaster`
measures a trained network on unseen series, for its card.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.forecasting.forecasters import FittedModel, Forecaster, make
from bireme.forecasting.gru import Gru, GruModel
from bireme.forecasting.lsp import BlendedModel, Lsp
from bireme.forecasting.naive import Persistence, SeasonalNaive
from bireme.forecasting.selection import BackTest, Intervals, ModelChoice, back_test, choose
from bireme.forecasting.series import Series
from bireme.onnx.cards import Result
from bireme_lab.simulator import comparison
from bireme_lab.simulator.traces.series import ReadSeries

PERSISTENCE: Final = "persistence"
SEASONAL: Final = "seasonal-naive"
TRAIN: Final = "train"
"""A value instead of a folder: train the network on the series itself."""
SHIPPED: Final = "shipped"
"""A value instead of a folder: the network that comes with Bireme, for hours."""


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """The options of a comparison.

    Attributes:
        file: The source of ``read``.
        names: Names of forecasters; the two simple ones are always tried.
        horizon: The number of forecast intervals.
        test: The number of last intervals that no model is fitted to.
        quantile: The quantile that selects the model.
        alpha: Weight of the GRU in LSP; None: fitted.
        gru: Folder of a network, :data:`TRAIN` or :data:`SHIPPED`.
    """

    file: Path
    read: ReadSeries
    names: tuple[str, ...]
    horizon: int
    test: int
    quantile: float
    alpha: float | None
    gru: str


@dataclass(frozen=True, slots=True)
class ForecastComparison:
    """The results of a comparison.

    Attributes:
        chosen: The best model, and the back-tests of all.
        fit_seconds: Duration of the fit before the back-test, by name.
        about: Training data of a network, or weights of a blend, by name.
        ahead: Forecast, lower and upper bound after the end of the series, shape (3, horizon).
    """

    request: ForecastRequest
    chosen: ModelChoice
    fit_seconds: Mapping[str, float]
    about: Mapping[str, str]
    ahead: FloatArray

    def skill(self, name: str, baseline: str) -> float | None:
        """Return the skill of ``name`` over ``baseline``; None for an untried baseline."""
        scores: Mapping[str, BackTest] = self.chosen.scores
        return scores[name].skill(scores[baseline]) if baseline in scores else None


class TimedForecaster:
    """A forecaster that times and keeps its first fit."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self.seconds = 0.0
        self.model: FittedModel | None = None
        self._inner = inner

    def fit(self, series: Series) -> FittedModel:
        began = time.perf_counter()
        model = self._inner.fit(series)
        if self.model is None:
            self.model, self.seconds = model, time.perf_counter() - began
        return model


def compare_forecasters(request: ForecastRequest) -> ForecastComparison:
    """Fit and back-test all forecasters of ``request``.

    Raises:
        ImportError: a forecaster needs a library that is not installed.
        BiremeError: a name is unknown, or the series is too short for the test.
    """
    names = dict.fromkeys([PERSISTENCE, SEASONAL, *request.names])
    timed = [
        TimedForecaster(forecaster)
        for forecaster in make(names, request.horizon, **_parts(request))
    ]
    series = request.read.series
    choice = choose(series, timed, request.horizon, request.test, request.quantile)
    points = choice.model.at(series.values, np.array([len(series)]), request.horizon)[0]
    about = {forecaster.name: _description(forecaster.model) for forecaster in timed}
    return ForecastComparison(
        request=request,
        chosen=choice,
        fit_seconds=_seconds(timed),
        about={name: text for name, text in about.items() if text},
        ahead=bounds(choice.intervals, points, request.quantile),
    )


def bounds(intervals: Intervals, points: FloatArray, quantile: float) -> FloatArray:
    """Return ``points`` with their lower and upper bounds, shape (3, *points.shape)."""
    return np.stack([points, *(intervals.quantile(points, q) for q in (1 - quantile, quantile))])


def _parts(request: ForecastRequest) -> dict[str, Forecaster]:
    """Return the forecasters with more arguments than a name."""
    if not {"gru", "lsp"} & set(request.names):
        return {}
    gru, arima = make(["gru", "arima"], request.horizon, gru=_gru(request))
    return {"gru": gru, "arima": arima, "lsp": Lsp(gru, arima, request.alpha, request.horizon)}


def _gru(request: ForecastRequest) -> Forecaster:
    if request.gru not in (TRAIN, SHIPPED):
        return Gru(Path(request.gru))
    if request.gru == SHIPPED or find_spec("torch") is None:
        return Gru()
    from bireme_lab.training.gru.networks import train_for

    return Gru(train=partial(train_for, horizon=request.horizon, seed=0))


def _seconds(timed: Sequence[TimedForecaster]) -> dict[str, float]:
    seconds = {forecaster.name: forecaster.seconds for forecaster in timed}
    # the blend reused the fits of its parts, so it takes their time
    if "lsp" in seconds:
        seconds["lsp"] += seconds.get("gru", 0.0) + seconds.get("arima", 0.0)
    return seconds


def _description(model: FittedModel | None) -> str:
    if isinstance(model, BlendedModel):
        return f"{model.alpha:g} * gru + {1 - model.alpha:g} * arima"
    return f"trained on {model.network.card.data}" if isinstance(model, GruModel) else ""


# --- the error of one forecaster on unseen series -----------------------------------------------

_DAY: Final = 24
BASELINES: Final = (Persistence, SeasonalNaive)
_MIN_MEAN: Final = 1e-9
"""The minimum mean as a base of errors, for series almost without demand."""


def evaluate_forecaster(
    forecaster: Forecaster,
    every: Sequence[Series],
    steps: int,
    days: int,
    setting: str,
    command: str,
) -> Result:
    """Return the mean error over the last ``days`` of hourly series, over the best baseline's.

    The absolute error counts over the whole horizon, from one origin a day. Each series is relative
    to its own mean, so that large pools do not outweigh small ones. The interval is a bootstrap
    over series, or over the days of a single series.
    """
    errors = _errors(forecaster, every, steps, days)
    baselines = {baseline.name: _errors(baseline(), every, steps, days) for baseline in BASELINES}
    best = min(baselines, key=lambda name: float(baselines[name].mean()))
    (ratio,) = comparison.ratios(errors, baselines[best], comparison.draws(len(errors)))
    if ratio is None or ratio.low is None or ratio.high is None:
        raise RuntimeError(f"{setting}: {best} is never wrong, or there is nothing to draw from")
    return Result(
        setting=setting,
        metric=f"mean error of {steps} hours, as a ratio",
        value=round(ratio.mean, 4),
        interval=(round(ratio.low, 4), round(ratio.high, 4)),
        rival=best,
        rival_value=1.0,
        command=command,
    )


def _errors(forecaster: Forecaster, every: Sequence[Series], steps: int, days: int) -> FloatArray:
    """Return errors relative to each series' mean, by series, or by day of a single one; (n, 1)."""
    errors = []
    for series in every:
        test = back_test(forecaster, series, len(series) - days * _DAY, every=_DAY, steps=steps)
        wrong = np.abs(test.forecasts - test.actuals).mean(axis=1)
        errors.append(wrong / max(series.values.mean(), _MIN_MEAN))
    by_unit: FloatArray = errors[0] if len(every) == 1 else np.array(errors).mean(axis=1)
    return by_unit[:, None]
