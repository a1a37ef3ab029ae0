"""Persistence and seasonal naive: what they repeat, and what they need for it."""

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.forecasting.forecasters import FORECASTERS, make
from bireme.forecasting.naive import Persistence, SeasonalNaive
from bireme.forecasting.series import Series, SeriesError, TooShortError


def test_persistence_repeats_the_last_value_of_each_origin() -> None:
    series = Series(np.array([1.0, 5.0, 2.0]), 3600)
    forecasts = Persistence().fit(series).at(series.values, np.array([1, 3]), 2)
    assert forecasts.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_seasonal_naive_repeats_the_last_whole_season_beyond_its_length() -> None:
    series = Series(np.array([9.0, 9.0, 1.0, 2.0, 3.0]), 3600, (3,))
    forecasts = SeasonalNaive().fit(series).at(series.values, np.array([5]), 7)
    assert forecasts.tolist() == [[1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]]


def test_seasonal_naive_takes_the_season_that_explained_most() -> None:
    weekdays_and_weekends = np.tile(np.repeat([5.0, 0.0], [5, 2]), 6)
    model = SeasonalNaive().fit(Series(weekdays_and_weekends, 86_400, (2, 7)))
    assert model.period == 7


def test_seasonal_naive_leaves_out_a_season_that_has_not_passed() -> None:
    model = SeasonalNaive().fit(Series(np.ones(30), 3600, (24, 168)))
    assert model.period == 24


@pytest.mark.parametrize(
    ("periods", "missing"), [((24,), "24 values.*there are 5"), ((), "names no periods")]
)
def test_without_a_season_behind_it_seasonal_naive_says_what_is_missing(
    periods: tuple[int, ...], missing: str
) -> None:
    with pytest.raises(TooShortError, match=missing):
        SeasonalNaive().fit(Series(np.ones(5), 3600, periods))


def test_an_origin_without_a_season_before_it_is_refused() -> None:
    model = SeasonalNaive().fit(Series(np.ones(30), 3600, (24,)))
    with pytest.raises(TooShortError, match="origin 23 has fewer than the 24"):
        model.at(np.ones(30), np.array([23]), 1)


def test_an_origin_behind_the_values_is_refused() -> None:
    model = Persistence().fit(Series(np.ones(3), 3600))
    with pytest.raises(SeriesError, match="origin 4 lies behind the 3 values"):
        model.at(np.ones(3), np.array([4]), 1)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_a_series_refuses_what_is_no_amount_and_names_it(wrong: float) -> None:
    with pytest.raises(SeriesError, match=r"value 1 is .*clean the series"):
        Series(np.array([1.0, wrong, 2.0]), 3600)


@pytest.mark.parametrize("periods", [(1,), (168, 24), (24, 24)])
def test_a_series_refuses_seasons_out_of_order(periods: tuple[int, ...]) -> None:
    with pytest.raises(SeriesError, match="shortest first"):
        Series(np.ones(3), 3600, periods)


def test_every_forecaster_is_called_what_it_is_asked_for_by() -> None:
    assert [forecaster.name for forecaster in make()] == list(FORECASTERS)


def test_an_unknown_forecaster_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match="did you mean 'arima'"):
        make(["arma"])
