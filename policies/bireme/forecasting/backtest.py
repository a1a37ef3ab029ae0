"""How a forecaster would have done: fitted once, then asked from one origin after the other.

What is fitted are the values before the first origin; later origins know more values, not better
parameters. Accuracies are those of the papers, 1 - MAPE and 1 - WAPE; as both look good on any
steady series, skill against another forecaster goes with them.
"""

from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.conformal import Intervals
from bireme.forecasting.errors import TooShort
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.series import Series, origins_between


@dataclass(frozen=True, slots=True)
class BackTest:
    """What was forecast and what came.

    Attributes:
        origins: Shape (n,).
        forecasts: Shape (n, steps).
        actuals: Shape (n, steps).
    """

    origins: IntArray
    forecasts: FloatArray
    actuals: FloatArray

    @property
    def mean_absolute_error(self) -> float:
        """In the unit of the series."""
        return float(np.abs(self.actuals - self.forecasts).mean())

    @property
    def accuracy_mape(self) -> float | None:
        """1 - mean of \\|error\\| / actual; None where an actual value is 0."""
        if not self.actuals.all():
            return None
        return 1 - float((np.abs(self.actuals - self.forecasts) / self.actuals).mean())

    @property
    def accuracy_wape(self) -> float | None:
        """1 - sum of \\|error\\| / sum of actual values; None where all of those are 0."""
        total = float(self.actuals.mean())
        return 1 - self.mean_absolute_error / total if total else None

    def skill(self, other: "BackTest") -> float | None:
        """1 - mean absolute error / that of ``other``: 1 is perfect, 0 as good, below 0 worse.

        None where ``other`` is perfect and this is not.
        """
        mine, theirs = self.mean_absolute_error, other.mean_absolute_error
        if theirs:
            return 1 - mine / theirs
        return None if mine else 0.0

    def pinball(self, q: float) -> float:
        """Mean of :meth:`losses`."""
        return float(self.losses(q).mean())

    def losses(self, q: float) -> FloatArray:
        """Pinball loss of the quantile ``q`` by origin, in the unit of the series, shape (n,).

        Each half of the origins is judged with the errors of the other half, so that no quantile
        has seen what it is judged by. Raises TooShort as :meth:`Intervals.quantile`.
        """
        under = self.actuals - self._crossed(q)
        losses: FloatArray = np.maximum(q * under, (q - 1) * under).mean(axis=1)
        return losses

    def coverage(self, q: float) -> float:
        """The share of actual values not above their quantile ``q``, judged as in pinball."""
        return float((self.actuals <= self._crossed(q)).mean())

    def intervals(self) -> Intervals:
        """From all errors."""
        return Intervals.of(self.forecasts, self.actuals)

    def _crossed(self, q: float) -> FloatArray:
        half = len(self.origins) // 2
        first, last = slice(None, half), slice(half, None)
        return np.concatenate([self._judged(q, first, last), self._judged(q, last, first)])

    def _judged(self, q: float, judged: slice, by: slice) -> FloatArray:
        seen = Intervals.of(self.forecasts[by], self.actuals[by])
        return seen.quantile(self.forecasts[judged], q)


def back_test(
    forecaster: Forecaster, series: Series, first_origin: int, every: int = 1, steps: int = 1
) -> BackTest:
    """``forecaster`` at ``first_origin`` and each ``every`` steps later, ``steps`` ahead.

    Raises:
        TooShort: no whole horizon lies behind ``first_origin``, or fitting takes more values.
        FitError: it cannot be fitted to the values before ``first_origin``.
    """
    last = len(series) - steps
    if not 0 < first_origin <= last:
        raise TooShort(
            f"{len(series)} values leave no {steps} to judge by from origin {first_origin} on"
        )
    origins = origins_between(first_origin, last, every)
    model = forecaster.fit(series.until(first_origin))
    forecasts = model.at(series.values, origins, steps)
    actuals = series.values[origins[:, None] + np.arange(steps)]
    return BackTest(origins, forecasts, actuals)
