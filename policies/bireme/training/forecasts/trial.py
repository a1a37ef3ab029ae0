"""Every forecaster on one series: how it did on the last part; what the best says comes next."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.forecasting.forecasters import Forecaster, Model, make
from bireme.forecasting.gru import Gru, GruModel
from bireme.forecasting.lsp import Blend, Lsp
from bireme.forecasting.selection import BackTest, Chosen, Intervals, choose
from bireme.forecasting.series import Series
from bireme.simulator.traces.series import ReadSeries

PERSISTENCE: Final = "persistence"
SEASONAL: Final = "seasonal-naive"
TRAIN: Final = "train"
"""Instead of a folder: train the network on the series itself."""
SHIPPED: Final = "shipped"
"""Instead of a folder: the network that comes with Bireme, for hours."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be tried.

    Attributes:
        file: Where ``read`` was read from.
        names: Of forecasters; the two simple ones are tried in any case.
        horizon: How many intervals ahead.
        test: How many of the last intervals no model is fitted to.
        quantile: What models are chosen by.
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
class Trial:
    """How all did.

    Attributes:
        chosen: The best, and the back-tests of all.
        fit_seconds: How long fitting took before the back-test, by name.
        about: What a network was trained on, and the like, by name.
        ahead: Forecast, lower and upper bound of what comes after the series, shape (3, horizon).
    """

    asked: Asked
    chosen: Chosen
    fit_seconds: Mapping[str, float]
    about: Mapping[str, str]
    ahead: FloatArray

    def skill(self, name: str, rival: str) -> float | None:
        """Of ``name`` against ``rival``; None where one of them was not tried."""
        scores: Mapping[str, BackTest] = self.chosen.scores
        return scores[name].skill(scores[rival]) if rival in scores else None


class Watched:
    """A forecaster whose first fit is timed and kept."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self.seconds = 0.0
        self.model: Model | None = None
        self._inner = inner

    def fit(self, series: Series) -> Model:
        """As the forecaster itself."""
        began = time.perf_counter()
        model = self._inner.fit(series)
        if self.model is None:
            self.model, self.seconds = model, time.perf_counter() - began
        return model


def carry_out(asked: Asked) -> Trial:
    """Try all that ``asked`` names.

    Raises:
        ImportError: one of them takes what is not installed.
        BiremeError: one has a wrong name, or the series is too short for the test.
    """
    names = dict.fromkeys([PERSISTENCE, SEASONAL, *asked.names])
    watched = [Watched(each) for each in make(names, asked.horizon, **_parts(asked))]
    series = asked.read.series
    chosen = choose(series, watched, asked.horizon, asked.test, asked.quantile)
    points = chosen.model.at(series.values, np.array([len(series)]), asked.horizon)[0]
    about = {each.name: _told(each.model) for each in watched}
    return Trial(
        asked=asked,
        chosen=chosen,
        fit_seconds=_seconds(watched),
        about={name: words for name, words in about.items() if words},
        ahead=bounds(chosen.intervals, points, asked.quantile),
    )


def bounds(intervals: Intervals, points: FloatArray, quantile: float) -> FloatArray:
    """``points`` with what lies below and above them, shape (3, *points.shape)."""
    return np.stack([points, *(intervals.quantile(points, q) for q in (1 - quantile, quantile))])


def _parts(asked: Asked) -> dict[str, Forecaster]:
    """The forecasters that this trial makes otherwise than by their names alone."""
    if not {"gru", "lsp"} & set(asked.names):
        return {}
    gru, arima = make(["gru", "arima"], asked.horizon, gru=_gru(asked))
    return {"gru": gru, "arima": arima, "lsp": Lsp(gru, arima, asked.alpha, asked.horizon)}


def _gru(asked: Asked) -> Forecaster:
    if asked.gru not in (TRAIN, SHIPPED):
        return Gru(Path(asked.gru))
    if asked.gru == SHIPPED or find_spec("torch") is None:
        return Gru()
    from bireme.training.gru.networks import trained_for

    return Gru(train=partial(trained_for, horizon=asked.horizon, seed=0))


def _seconds(watched: Sequence[Watched]) -> dict[str, float]:
    """Of fitting, by name; a blend that found its parts fitted takes as long as they did."""
    seconds = {each.name: each.seconds for each in watched}
    if "lsp" in seconds:
        seconds["lsp"] += seconds.get("gru", 0.0) + seconds.get("arima", 0.0)
    return seconds


def _told(model: Model | None) -> str:
    """What a network was trained on, or what a blend is made of; empty for others."""
    if isinstance(model, Blend):
        return f"{model.alpha:g} * gru + {1 - model.alpha:g} * arima"
    return f"trained on {model.network.card.data}" if isinstance(model, GruModel) else ""
