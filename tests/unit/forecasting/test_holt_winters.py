"""Holt and Winters: statsmodels is the oracle, at the end of the values and before it."""

import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme.forecasting import holt_winters
from bireme.forecasting.holt_winters import HoltWinters
from bireme.forecasting.series import ForecastError, Series, TooShortError


def load(n: int) -> FloatArray:
    chance = np.random.default_rng(4)
    daily = 1.3 + np.sin(2 * np.pi * np.arange(n) / 24)
    return 30 * daily * np.exp(0.1 * np.cumsum(chance.normal(0, 0.3, n)))


@pytest.mark.parametrize("has_trend", [True, False])
@pytest.mark.parametrize("period", [0, 24])
def test_forecasts_equal_those_of_statsmodels(period: int, has_trend: bool) -> None:
    values = load(300)
    oracle = holt_winters._fit(values, period, has_trend)
    model = holt_winters._model(oracle, values)
    # What the last value taught about its hour is left out by statsmodels, at that hour only.
    taught = np.arange(1, 61) % (period or 1_000) != 0
    ours = np.log1p(model.at(values, np.array([300]), 60)[0])
    np.testing.assert_allclose(ours[taught], oracle.forecast(60)[taught], rtol=1e-7)
    np.testing.assert_allclose(
        np.log1p(model.at(values, np.arange(1, 300), 1)[:, 0]), oracle.fittedvalues[1:], rtol=1e-7
    )


def test_far_ahead_a_trend_that_would_run_away_is_left_out() -> None:
    """A wave that no season speaks of: near by its slope tells most, far ahead it misleads."""
    noise = 0.02 * np.random.default_rng(3).normal(size=500)
    series = Series(20 * np.exp(np.sin(2 * np.pi * np.arange(500) / 50) + noise), 3600)
    near, far = (HoltWinters(steps).fit(series) for steps in (1, 25))
    assert near.trend_weight > 0.05
    assert far.trend_weight == 0


def test_origins_before_the_end_know_nothing_after_them() -> None:
    values = load(300)
    model = HoltWinters().fit(Series(values, 3600, (24,)))
    whole = model.at(values, np.array([200]), 30)
    np.testing.assert_allclose(whole, model.at(values[:200], np.array([200]), 30))


def test_the_season_that_fits_best_is_used() -> None:
    values = np.tile(np.repeat([40.0, 4.0], [5, 2]), 12) + np.random.default_rng(0).random(84)
    assert len(HoltWinters().fit(Series(values, 86_400, (2, 7))).seasons) == 7


def test_a_season_that_has_not_passed_twice_is_left_out() -> None:
    assert len(HoltWinters().fit(Series(load(40), 3600, (24,))).seasons) == 1


def test_equal_values_are_refused_by_name() -> None:
    with pytest.raises(ForecastError, match="all values are the same"):
        HoltWinters().fit(Series(np.zeros(100), 3600, (24,)))


def test_too_few_values_are_refused_by_number() -> None:
    with pytest.raises(TooShortError, match="needs 10 values; there are 9"):
        HoltWinters().fit(Series(np.arange(9.0), 3600))


def test_a_trend_of_logs_does_not_run_away() -> None:
    values = np.concatenate([np.ones(30), np.exp(np.arange(15.0))])
    forecasts = HoltWinters().fit(Series(values, 3600)).at(values, np.array([45]), 300)
    assert forecasts.max() <= 10.001 * values.max()
