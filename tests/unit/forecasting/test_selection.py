"""The model used: the best of the last days, and never one worse than the season."""

from dataclasses import dataclass

import numpy as np
import pytest

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.selection import choose
from bireme.forecasting.series import ForecastError, Series, TooShortError

CHANCE = np.random.default_rng(11)
DAILY = np.tile(10 + np.arange(24.0), 20)
VALUES = DAILY + CHANCE.normal(0, 1, len(DAILY))
SERIES = Series(VALUES, 3600, (24,))


@dataclass
class Teller:
    """Forecasts the values themselves, with an error of its own."""

    name: str
    error: FloatArray
    fails_from: int = 10_000

    def fit(self, series: Series) -> "Teller":
        if len(series) >= self.fails_from:
            raise ForecastError(f"{self.name} cannot take {len(series)} values")
        return self

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        ahead = np.minimum(origins[:, None] + np.arange(steps), len(VALUES) - 1)
        forecast: FloatArray = np.maximum(VALUES[ahead] + self.error[ahead], 0.0)
        return forecast


def noisy(name: str, deviation: float) -> Teller:
    return Teller(name, CHANCE.normal(0, deviation, len(VALUES)))


def test_the_best_of_the_last_days_is_used_and_named() -> None:
    chosen = choose(SERIES, [noisy("fair", 0.8), noisy("good", 0.2)], 6, 7 * 24, 0.9)
    assert chosen.name == "good"
    assert chosen.summary.startswith("good: ")
    assert "less loss than seasonal-naive over the last 7 days" in chosen.summary
    assert (chosen.skill or 0) > 0.5


def test_where_all_are_worse_the_season_is_used_and_named() -> None:
    chosen = choose(SERIES, [noisy("poor", 9.0)], 6, 7 * 24, 0.9)
    assert chosen.name == chosen.baseline == "seasonal-naive"
    assert chosen.summary == "seasonal-naive: none of poor did better over the last 7 days"
    assert chosen.skill == 0.0


def test_a_model_that_only_bounds_well_is_not_used() -> None:
    """An error that is always the same vanishes in the quantile; the forecast itself is bad."""
    shifted = Teller("shifted", (np.sqrt(VALUES) + 3) ** 2 - VALUES)
    chosen = choose(SERIES, [shifted], 6, 7 * 24, 0.9)
    assert chosen.scores["shifted"].pinball(0.9) < chosen.scores["seasonal-naive"].pinball(0.9)
    assert chosen.name == "seasonal-naive"


def test_what_cannot_be_fitted_is_left_out_and_named() -> None:
    chosen = choose(SERIES, [Teller("lame", VALUES, 0), noisy("good", 0.2)], 6, 7 * 24, 0.9)
    assert chosen.name == "good"
    assert chosen.faults == {"lame": "lame cannot take 312 values"}


def test_where_the_best_fails_on_all_values_the_season_is_used_and_named() -> None:
    chosen = choose(SERIES, [Teller("brief", 0 * VALUES, 400)], 6, 7 * 24, 0.9)
    assert chosen.name == "seasonal-naive"
    assert chosen.summary == (
        "seasonal-naive: brief did better over the last 7 days, but brief cannot take 480 values"
    )


def test_without_a_season_all_must_beat_persistence() -> None:
    chosen = choose(Series(VALUES, 3600), [noisy("poor", 99.0)], 1, 7 * 24, 0.9)
    assert chosen.name == chosen.baseline == "persistence"


def test_intervals_come_from_the_errors_of_the_model_chosen() -> None:
    chosen = choose(SERIES, [Teller("exact", 0 * VALUES)], 6, 7 * 24, 0.9)
    assert chosen.intervals.quantile(np.array([5.0] * 6), 0.9).tolist() == [5.0] * 6


def test_the_model_chosen_is_fitted_to_everything() -> None:
    chosen = choose(SERIES, [], 6, 7 * 24, 0.9)
    forecast = chosen.model.at(VALUES, np.array([len(VALUES)]), 24)
    assert forecast[0].tolist() == VALUES[-24:].tolist()


@pytest.mark.parametrize(
    ("test_steps", "missing"), [(480, "480 values leave none"), (12, "it takes 9")]
)
def test_too_little_to_judge_by_is_an_error(test_steps: int, missing: str) -> None:
    with pytest.raises(TooShortError, match=missing):
        choose(SERIES, [], 6, test_steps, 0.9)
