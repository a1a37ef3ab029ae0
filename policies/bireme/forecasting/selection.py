"""Model selection: back-test the candidates, take the best one that beats the baseline.

1. :func:`back_test` fits a forecaster to the values before the first origin and forecasts from one
   origin after the other.
2. :class:`Intervals` turns the errors of a back-test into quantiles, lead time by lead time.
3. :func:`choose` compares by pinball loss at the quantile by which nodes are requested, as too few
   nodes cost more than too many. It never chooses a model that is worse than the seasonal-naive
   forecast (without a whole season: than persistence), in that loss or in absolute error.

Accuracies are those of the papers, 1 - MAPE and 1 - WAPE. Both look good on any steady series, so
skill against another forecaster goes with them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.forecasters import FittedModel, Forecaster
from bireme.forecasting.naive import Persistence, SeasonalNaive
from bireme.forecasting.series import ForecastError, Series, TooShortError, origins_between


@dataclass(frozen=True, slots=True)
class Intervals:
    """Quantiles of forecasts from past errors: split conformal prediction per lead time.

    If ``n`` errors at origins that a model was not fitted to and the next one are exchangeable, the
    next is at most the ``ceil((n + 1) q)``-th smallest of them with probability at least ``q``
    (Vovk et al., Algorithmic Learning in a Random World, 2005; Lei et al., JASA 2018, section 2).
    Errors are of square roots, as counts spread with theirs (Anscombe, Biometrika 1948): a night
    has narrower bounds than a day. :meth:`BackTest.coverage` measures how often the bounds held.

    Attributes:
        errors: Root of the actual value minus that of the forecast, shape (n, steps), each column
            sorted.
    """

    errors: FloatArray

    @classmethod
    def of(cls, forecasts: FloatArray, actuals: FloatArray) -> "Intervals":
        """Return the intervals of ``forecasts`` and their actual values, of shape (n, steps)."""
        return cls(np.sort(np.sqrt(actuals) - np.sqrt(forecasts), axis=0))

    def quantile(self, points: FloatArray, q: float) -> FloatArray:
        """Return the bound that holds with probability ``q`` for each of ``points``; at least 0.

        Args:
            points: Point forecasts, shape (..., k), k not above the steps of the errors.
            q: Above 0 and below 1.

        Raises:
            TooShortError: there are fewer than ``q / (1 - q)`` errors.
        """
        count = len(self.errors)
        # The hair keeps (n + 1) q from passing a whole number by rounding alone.
        rank = max(1, math.ceil((count + 1) * q - 1e-9))
        if rank > count:
            raise TooShortError(
                f"{count} errors of forecasts say nothing about quantile {q}; it takes "
                f"{math.ceil(q / (1 - q) - 1e-9)}"
            )
        roots, error = np.sqrt(points), self.errors[rank - 1, : points.shape[-1]]
        # The square of their sum, in a form in which an error of 0 changes no point.
        bounds: FloatArray = np.where(roots > -error, points + error * (2 * roots + error), 0.0)
        return bounds


@dataclass(frozen=True, slots=True)
class BackTest:
    """Forecasts of past origins, shape (n,), and actual values, both of shape (n, steps)."""

    origins: IntArray
    forecasts: FloatArray
    actuals: FloatArray

    @property
    def mean_absolute_error(self) -> float:
        """Mean absolute error in the unit of the series."""
        return float(np.abs(self.actuals - self.forecasts).mean())

    @property
    def accuracy_mape(self) -> float | None:
        """1 - mean of \\|error\\| / actual; None if an actual value is 0."""
        if not self.actuals.all():
            return None
        return 1 - float((np.abs(self.actuals - self.forecasts) / self.actuals).mean())

    @property
    def accuracy_wape(self) -> float | None:
        """1 - sum of \\|error\\| / sum of actual values; None if all of those are 0."""
        total = float(self.actuals.mean())
        return 1 - self.mean_absolute_error / total if total else None

    def skill(self, other: "BackTest") -> float | None:
        """1 - mean absolute error / that of ``other``: 1 is perfect, 0 as good, below 0 worse.

        None if ``other`` is perfect and this is not.
        """
        mine, theirs = self.mean_absolute_error, other.mean_absolute_error
        if theirs:
            return 1 - mine / theirs
        return None if mine else 0.0

    def pinball(self, q: float) -> float:
        return float(self.losses(q).mean())

    def losses(self, q: float) -> FloatArray:
        """Return the pinball loss of the quantile ``q`` by origin, shape (n,).

        Raises TooShortError as :meth:`Intervals.quantile`.
        """
        under = self.actuals - self._cross_quantiles(q)
        losses: FloatArray = np.maximum(q * under, (q - 1) * under).mean(axis=1)
        return losses

    def coverage(self, q: float) -> float:
        """Return the share of actual values not above their quantile ``q``, as in pinball."""
        return float((self.actuals <= self._cross_quantiles(q)).mean())

    def intervals(self) -> Intervals:
        return Intervals.of(self.forecasts, self.actuals)

    def _cross_quantiles(self, q: float) -> FloatArray:
        # Each half is evaluated with the errors of the other: no quantile has seen its own test.
        half = len(self.origins) // 2
        first, last = slice(None, half), slice(half, None)
        return np.concatenate(
            [
                Intervals.of(self.forecasts[by], self.actuals[by]).quantile(self.forecasts[of], q)
                for of, by in ((first, last), (last, first))
            ]
        )


def back_test(
    forecaster: Forecaster, series: Series, first_origin: int, every: int = 1, steps: int = 1
) -> BackTest:
    """Test ``forecaster`` at ``first_origin`` and each ``every`` steps later, ``steps`` ahead.

    Later origins have more values, but no better parameters.

    Raises:
        TooShortError: no whole horizon follows ``first_origin``, or fitting takes more values.
        ForecastError: the forecaster cannot be fitted to the values before ``first_origin``.
    """
    last = len(series) - steps
    if not 0 < first_origin <= last:
        raise TooShortError(
            f"{len(series)} values leave no {steps} to judge by from origin {first_origin} on"
        )
    origins = origins_between(first_origin, last, every)
    model = forecaster.fit(series.until(first_origin))
    forecasts = model.at(series.values, origins, steps)
    actuals = series.values[origins[:, None] + np.arange(steps)]
    return BackTest(origins, forecasts, actuals)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model to use, and the back-tests of all.

    Attributes:
        name: Name of the chosen forecaster.
        model: The model fitted to the whole series.
        intervals: Intervals by the errors of its back-test.
        baseline: Name of the forecaster to beat: seasonal-naive, or persistence.
        scores: Back-tests by name of forecaster, with the baseline.
        faults: Reasons why a forecaster could not be tried, by its name.
        summary: The choice and its reason in one sentence.
    """

    name: str
    model: FittedModel
    intervals: Intervals
    baseline: str
    scores: Mapping[str, BackTest]
    faults: Mapping[str, str]
    summary: str

    @property
    def skill(self) -> float | None:
        """Skill of the chosen model against the baseline; None if the baseline is perfect."""
        return self.scores[self.name].skill(self.scores[self.baseline])


def choose(
    series: Series, candidates: Sequence[Forecaster], steps: int, test_steps: int, quantile: float
) -> ModelChoice:
    """Choose the best of ``candidates`` and the baseline over the last ``test_steps`` values.

    Args:
        series: All known values.
        candidates: Each is fitted to the values before the test, and the chosen one again to all.
        steps: Lead time, 1 to ``test_steps``.
        test_steps: Number of last values, which are forecast from every origin before them.
        quantile: Quantile of the pinball loss, above 0 and below 1.

    Raises:
        TooShortError: there are too few values before the test for the baseline, or too few in the
            test for the quantile.
    """
    first = len(series) - test_steps
    if first < 1:
        raise TooShortError(f"{len(series)} values leave none before a test of {test_steps}")
    has_season = bool(series.periods) and series.periods[0] <= first
    baseline: Forecaster = SeasonalNaive() if has_season else Persistence()
    tried = [baseline, *(c for c in candidates if c.name != baseline.name)]
    scores: dict[str, BackTest] = {}
    faults: dict[str, str] = {}
    for forecaster in tried:
        try:
            scores[forecaster.name] = back_test(forecaster, series, first, steps=steps)
        except ForecastError as error:
            faults[forecaster.name] = str(error)
    if baseline.name not in scores:
        raise TooShortError(faults[baseline.name])
    losses = {name: score.pinball(quantile) for name, score in scores.items()}
    max_loss, worst = losses[baseline.name], scores[baseline.name].mean_absolute_error
    # Not worse than the baseline in either measure; for equal losses the first, the baseline.
    best = min(
        (n for n in scores if losses[n] <= max_loss and scores[n].mean_absolute_error <= worst),
        key=losses.__getitem__,
    )
    days = test_steps * series.step_seconds / 86_400
    summary = _summary(best, losses, baseline.name, days)
    try:
        model = {c.name: c for c in tried}[best].fit(series)
    except ForecastError as error:
        # The fit to fewer values worked; the baseline has no fit that could fail.
        summary = f"{baseline.name}: {best} did better over the last {days:g} days, but {error}"
        best, model = baseline.name, baseline.fit(series)
    return ModelChoice(
        best, model, scores[best].intervals(), baseline.name, scores, faults, summary
    )


def _summary(name: str, losses: Mapping[str, float], baseline: str, days: float) -> str:
    over = f"over the last {days:g} days"
    if name == baseline:
        rivals = [rival for rival in losses if rival != baseline]
        return f"{baseline}: none of {', '.join(rivals) or 'the others'} did better {over}"
    better = 1 - losses[name] / losses[baseline]
    return f"{name}: {better:.0%} less loss than {baseline} {over}"
