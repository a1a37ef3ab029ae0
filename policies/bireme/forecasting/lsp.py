"""LSP (long- and short-period prediction): a blend of a network and of ARIMA.

Equation 1 of the paper of RLPTO and LSP, with 0.6 as its weight:

    y = alpha * GRU(recent values, same hours of past seasons) + (1 - alpha) * ARIMA(all values)

The paper's GRU reads the last seven values. Ours reads a window of 24 (a day of hours, two hours of
five-minute values) beside the values one season back and their mean over past seasons
(:mod:`bireme.forecasting.networks`); before training its forecast is the seasonal-naive one. ARIMA
is fitted to all values on a log scale (:mod:`bireme.forecasting.arima`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.forecasters import FittedModel, Forecaster
from bireme.forecasting.selection import back_test
from bireme.forecasting.series import Series

ALPHA = 0.6
"""The paper's weight of the network."""
_VALIDATION_SHARE: Final = 0.15
_WEIGHTS: Final = np.linspace(0, 1, 21)


@dataclass(frozen=True, slots=True)
class BlendedModel:
    """The GRU's forecast times ``alpha``, plus that of ARIMA times the rest."""

    gru: FittedModel
    arima: FittedModel
    alpha: float

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        short, long = (part.at(values, origins, steps) for part in (self.gru, self.arima))
        return self.alpha * short + (1 - self.alpha) * long


class Lsp:
    """The GRU's forecast blended with that of ARIMA; both must be fitted.

    Args:
        alpha: Weight of the network, 0 to 1; None fits it: the weight of the smallest mean
            absolute error over the last 15 % of the values, with both fitted to those before.
        steps: Lead time at which forecasts are evaluated when ``alpha`` is fitted.

    Raises:
        SettingError: ``alpha`` is outside 0 to 1.
    """

    name = "lsp"

    def __init__(
        self, gru: Forecaster, arima: Forecaster, alpha: float | None = ALPHA, steps: int = 1
    ) -> None:
        if alpha is not None and not 0 <= alpha <= 1:
            raise SettingError(f"alpha is {alpha}; it is a weight from 0 to 1")
        self._gru, self._arima = gru, arima
        self._alpha, self._steps = alpha, steps

    def fit(self, series: Series) -> BlendedModel:
        alpha = self._fit_alpha(series) if self._alpha is None else self._alpha
        return BlendedModel(self._gru.fit(series), self._arima.fit(series), alpha)

    def _fit_alpha(self, series: Series) -> float:
        first = len(series) - max(self._steps, round(_VALIDATION_SHARE * len(series)))
        short, long = (
            back_test(part, series, first, steps=self._steps) for part in (self._gru, self._arima)
        )
        wrong = [
            np.abs(a * short.forecasts + (1 - a) * long.forecasts - long.actuals).mean()
            for a in _WEIGHTS
        ]
        return float(_WEIGHTS[np.argmin(wrong)])
