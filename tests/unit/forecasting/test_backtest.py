"""Rolling origins: what is known at each, and what the measures say."""

from dataclasses import dataclass

import numpy as np
import pytest

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.naive import Persistence
from bireme.forecasting.selection import BackTest, back_test
from bireme.forecasting.series import Series, TooShortError


@dataclass
class Recorder:
    """Forecasts 0 and remembers what it was fitted to."""

    name = "recorder"
    fitted_to: int = 0

    def fit(self, series: Series) -> "Recorder":
        self.fitted_to = len(series)
        return self

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        return np.zeros((len(origins), steps))


def of(forecasts: list[float], actuals: list[float]) -> BackTest:
    made, came = np.array(forecasts)[:, None], np.array(actuals)[:, None]
    return BackTest(np.arange(len(forecasts)), made, came)


def test_what_is_fitted_ends_where_the_test_begins() -> None:
    recorder = Recorder()
    back_test(recorder, Series(np.ones(10), 60), 7)
    assert recorder.fitted_to == 7


def test_every_whole_horizon_is_forecast_once() -> None:
    tested = back_test(Persistence(), Series(np.arange(10.0), 60), 4, every=2, steps=3)
    assert tested.origins.tolist() == [4, 6]
    assert tested.actuals.tolist() == [[4.0, 5.0, 6.0], [6.0, 7.0, 8.0]]
    assert tested.forecasts[:, 0].tolist() == [3.0, 5.0]


@pytest.mark.parametrize("first", [0, 9])
def test_a_test_without_room_is_refused(first: int) -> None:
    with pytest.raises(TooShortError, match="10 values leave no 2 to judge by"):
        back_test(Persistence(), Series(np.ones(10), 60), first, steps=2)


def test_accuracies_are_those_of_the_papers() -> None:
    tested = of([8.0, 30.0], [10.0, 20.0])
    assert tested.accuracy_mape == pytest.approx(1 - (0.2 + 0.5) / 2)
    assert tested.accuracy_wape == pytest.approx(1 - 12 / 30)


def test_accuracies_that_are_not_defined_are_not_shown() -> None:
    assert of([1.0, 1.0], [0.0, 2.0]).accuracy_mape is None
    assert of([1.0], [0.0]).accuracy_wape is None


def test_skill_is_what_is_left_of_the_others_error() -> None:
    mine, theirs = of([9.0], [10.0]), of([6.0], [10.0])
    assert mine.skill(theirs) == 0.75
    assert theirs.skill(mine) == -3.0


def test_skill_against_the_perfect_is_zero_for_the_perfect_and_unknown_for_others() -> None:
    perfect, other = of([10.0], [10.0]), of([9.0], [10.0])
    assert perfect.skill(perfect) == 0.0
    assert other.skill(perfect) is None


def test_pinball_loss_judges_each_half_by_the_errors_of_the_other() -> None:
    """Errors 0 in one half, 10 in the other: each half is judged by the wrong ones."""
    tested = of([0.0] * 18, [0.0] * 9 + [10.0] * 9)
    assert tested.pinball(0.9) == pytest.approx((0.1 * 10 * 9 + 0.9 * 10 * 9) / 18)
    assert tested.coverage(0.9) == 0.5


def test_too_few_origins_for_the_quantile_are_refused() -> None:
    with pytest.raises(TooShortError, match="it takes 9"):
        of([0.0] * 16, [0.0] * 16).pinball(0.9)


def test_coverage_of_steady_noise_is_near_what_is_promised() -> None:
    noise = np.random.default_rng(3).gamma(2, 10, 2000)
    tested = back_test(Persistence(), Series(noise, 60), 1)
    assert tested.coverage(0.9) == pytest.approx(0.9, abs=0.03)
