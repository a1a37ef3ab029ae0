"""A forecaster that is fitted once a week, so that sixty nights of a simulation cost nine fits.

The fit of one week forecasts until the end of the next, and, two weeks later, is what the back-test
judges: it knows nothing of the values that it is judged by.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.forecasters import FittedModel, Forecaster
from bireme.forecasting.series import Series, SeriesError

_WEEK_SECONDS: Final = 7 * 86_400


class Weekly:
    """``inner``, fitted to the first series asked for that ends in a week."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self._inner = inner
        self._fits: dict[int, tuple[Series, FittedModel]] = {}

    def fit(self, series: Series) -> FittedModel:
        if series.start is None:
            raise SeriesError("start is None; give the series times, to know its weeks")
        end = series.start + series.step_seconds * len(series)
        week = int(end // _WEEK_SECONDS)
        if week not in self._fits:
            self._fits[week] = series, self._inner.fit(series)
        fitted, model = self._fits[week]
        assert fitted.start is not None  # noqa: S101  # refused above
        dropped = int(series.start - fitted.start) // series.step_seconds
        return _Later(model, fitted.values[:dropped])


@dataclass(frozen=True, slots=True, eq=False)
class _Later:
    """``model`` for a series without the ``dropped`` first values of the one it was fitted to."""

    model: FittedModel
    dropped: FloatArray

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        whole = np.concatenate([self.dropped, values])
        return self.model.at(whole, origins + len(self.dropped), steps)
