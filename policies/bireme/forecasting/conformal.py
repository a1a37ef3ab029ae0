"""How far off a forecast may be: split conformal prediction, for each lead time by itself.

Errors that a model made at origins it was not fitted to are the only measure. If ``n`` errors and
the next one are exchangeable, the next is at most the ``ceil((n + 1) q)``-th smallest of them with
probability at least ``q`` (Vovk et al., Algorithmic Learning in a Random World, 2005; Lei et al.,
JASA 2018, section 2). They are errors of square roots, as amounts spread with their size and counts
with the root of it (Anscombe, Biometrika 1948): a night has narrower bounds than a day. Errors of
load are not quite exchangeable; how often the bounds held is therefore measured, not assumed
(:mod:`bireme.forecasting.backtest`).
"""

import math
from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray
from bireme.forecasting.errors import TooShort


@dataclass(frozen=True, slots=True)
class Intervals:
    """Errors seen so far.

    Attributes:
        errors: Root of the actual value minus that of the forecast, shape (n, steps), each column
            sorted.
    """

    errors: FloatArray

    @classmethod
    def of(cls, forecasts: FloatArray, actuals: FloatArray) -> "Intervals":
        """From what was forecast and what came, both of shape (n, steps)."""
        return cls(np.sort(np.sqrt(actuals) - np.sqrt(forecasts), axis=0))

    def quantile(self, points: FloatArray, q: float) -> FloatArray:
        """What each of ``points`` stays below with probability ``q``; at least 0.

        Args:
            points: Point forecasts, shape (..., k), k not above the steps of the errors.
            q: Above 0 and below 1.

        Raises:
            TooShort: there are fewer than ``q / (1 - q)`` errors, too few to tell.
        """
        seen = len(self.errors)
        # The hair keeps (n + 1) q from passing a whole number by rounding alone.
        rank = max(1, math.ceil((seen + 1) * q - 1e-9))
        if rank > seen:
            raise TooShort(
                f"{seen} errors of forecasts say nothing about quantile {q}; it takes "
                f"{math.ceil(q / (1 - q) - 1e-9)}"
            )
        roots, error = np.sqrt(points), self.errors[rank - 1, : points.shape[-1]]
        # The square of their sum, written so that an error of 0 leaves a point as it is.
        bounds: FloatArray = np.where(roots > -error, points + error * (2 * roots + error), 0.0)
        return bounds
