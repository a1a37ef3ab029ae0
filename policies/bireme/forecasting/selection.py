"""Which model forecasts a series: the best of its last days, if it is better than the season.

Models are judged by the pinball loss at the quantile that nodes are asked for by, as too few nodes
cost more than too many. None is used that did worse than the seasonal-naive forecast (without a
whole season: than persistence), in that loss or in absolute error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bireme.forecasting.backtest import BackTest, back_test
from bireme.forecasting.conformal import Intervals
from bireme.forecasting.errors import FitError, TooShort
from bireme.forecasting.forecasters import Forecaster, Model
from bireme.forecasting.naive import Persistence, SeasonalNaive
from bireme.forecasting.series import Series


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model to use, and how all did.

    Attributes:
        name: Of the forecaster chosen.
        model: Fitted to the whole series.
        intervals: From the errors of its back-test.
        baseline: Name of what all had to beat: seasonal-naive, or persistence.
        scores: Back-tests by name of forecaster, the baseline among them.
        faults: Why a forecaster could not be tried, by its name.
        said: One sentence: what was chosen and why.
    """

    name: str
    model: Model
    intervals: Intervals
    baseline: str
    scores: Mapping[str, BackTest]
    faults: Mapping[str, str]
    said: str

    @property
    def skill(self) -> float | None:
        """Of the model chosen, against the baseline; None where that is perfect."""
        return self.scores[self.name].skill(self.scores[self.baseline])


def choose(
    series: Series,
    candidates: Sequence[Forecaster],
    steps: int,
    test_steps: int,
    quantile: float,
) -> Chosen:
    """The best of ``candidates`` and the baseline over the last ``test_steps`` values.

    Args:
        series: All that is known.
        candidates: What to try; each is fitted to the values before the test, and the one chosen
            once more to all.
        steps: How far ahead, 1 to ``test_steps``.
        test_steps: How many of the last values are forecast, from every origin before them.
        quantile: What the pinball loss is taken at, above 0 and below 1.

    Raises:
        TooShort: there are too few values before the test for the baseline, or too few in the test
            for the quantile.
    """
    first = len(series) - test_steps
    if first < 1:
        raise TooShort(f"{len(series)} values leave none before a test of {test_steps}")
    baseline = _baseline(series.until(first))
    tried = [baseline, *(c for c in candidates if c.name != baseline.name)]
    scores, faults = _back_tests(series, tried, steps, first)
    if baseline.name not in scores:
        raise TooShort(faults[baseline.name])
    losses = {name: score.pinball(quantile) for name, score in scores.items()}
    best = min(_eligible(scores, losses, baseline.name), key=lambda name: losses[name])
    days = test_steps * series.step_seconds / 86_400
    said = _said(best, losses, baseline.name, days)
    try:
        model = {c.name: c for c in tried}[best].fit(series)
    except FitError as error:
        said = f"{baseline.name}: {best} did better over the last {days:g} days, but {error}"
        best, model = baseline.name, baseline.fit(series)
    return Chosen(best, model, scores[best].intervals(), baseline.name, scores, faults, said)


def _baseline(before: Series) -> Forecaster:
    """Seasonal-naive where ``before`` has a whole season, else persistence."""
    has_season = bool(before.periods) and before.periods[0] <= len(before)
    return SeasonalNaive() if has_season else Persistence()


def _back_tests(
    series: Series, tried: Sequence[Forecaster], steps: int, first: int
) -> tuple[dict[str, BackTest], dict[str, str]]:
    scores: dict[str, BackTest] = {}
    faults: dict[str, str] = {}
    for forecaster in tried:
        try:
            scores[forecaster.name] = back_test(forecaster, series, first, steps=steps)
        except FitError as error:
            faults[forecaster.name] = str(error)
    return scores, faults


def _eligible(
    scores: Mapping[str, BackTest], losses: Mapping[str, float], baseline: str
) -> list[str]:
    """Those not worse than the baseline in either measure; the baseline itself goes first."""
    worst = scores[baseline].mean_absolute_error
    return [
        name
        for name, score in scores.items()
        if losses[name] <= losses[baseline] and score.mean_absolute_error <= worst
    ]


def _said(name: str, losses: Mapping[str, float], baseline: str, days: float) -> str:
    over = f"over the last {days:g} days"
    if name == baseline:
        others = [rival for rival in losses if rival != baseline]
        return f"{baseline}: none of {', '.join(others) or 'the others'} did better {over}"
    better = 1 - losses[name] / losses[baseline]
    return f"{name}: {better:.0%} less loss than {baseline} {over}"
