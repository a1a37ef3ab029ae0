"""LSP: equation 1, its weight, and what happens when a part cannot."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.forecasters import CachedFits, make
from bireme.forecasting.lsp import Lsp
from bireme.forecasting.series import ForecastError, Series

SERIES = Series(np.linspace(1.0, 50.0, 100), 3600)


@dataclass
class Off:
    """Always wrong by as much, in one direction."""

    by: float
    name: str = "off"
    fits: list[int] = field(default_factory=list)

    def fit(self, series: Series) -> "Off":
        self.fits.append(len(series))
        return self

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        forecast: FloatArray = SERIES.values[np.minimum(origins[:, None] + np.arange(steps), 99)]
        return forecast + self.by


class Unfit:
    name = "unfit"

    def fit(self, series: Series) -> Off:
        raise ForecastError("unfit: no network for steps of 7 seconds")


def test_the_blend_has_the_papers_weight() -> None:
    blend = Lsp(gru=Off(1.0), arima=Off(-4.0)).fit(SERIES)
    assert blend.at(SERIES.values, np.array([10]), 2) == pytest.approx(
        SERIES.values[None, 10:12] + 0.6 * 1.0 - 0.4 * 4.0
    )


def test_a_weight_fitted_cancels_errors_that_can_be() -> None:
    blend = Lsp(gru=Off(1.0), arima=Off(-3.0), alpha=None).fit(SERIES)
    assert blend.alpha == pytest.approx(0.75)


@pytest.mark.parametrize(("gru", "arima", "alpha"), [(0.0, 5.0, 1.0), (5.0, 0.0, 0.0)])
def test_a_weight_fitted_leaves_out_what_only_harms(gru: float, arima: float, alpha: float) -> None:
    assert Lsp(gru=Off(gru), arima=Off(arima), alpha=None).fit(SERIES).alpha == alpha


def test_a_weight_is_fitted_to_values_that_the_parts_did_not_know() -> None:
    network = Off(1.0)
    Lsp(gru=network, arima=Off(2.0), alpha=None).fit(SERIES)
    assert network.fits == [85, 100]


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_what_is_no_weight_is_refused(alpha: float) -> None:
    with pytest.raises(SettingError, match="it is a weight from 0 to 1"):
        Lsp(gru=Off(0.0), arima=Off(0.0), alpha=alpha)


@pytest.mark.parametrize("parts", [(Unfit(), Off(0.0)), (Off(0.0), Unfit())])
def test_without_one_part_there_is_no_blend(parts: tuple[Off | Unfit, Off | Unfit]) -> None:
    with pytest.raises(ForecastError, match="no network for steps of 7 seconds"):
        Lsp(*parts).fit(SERIES)


def test_parts_that_stand_for_themselves_too_are_fitted_once() -> None:
    network, rule = Off(1.0, "gru"), Off(2.0, "arima")
    for forecaster in make(["gru", "arima", "lsp"], gru=network, arima=rule):
        forecaster.fit(SERIES.until(100))
    assert (network.fits, rule.fits) == ([100], [100])


def test_a_weight_fitted_does_not_make_parts_forget() -> None:
    network, rule = Off(1.0, "gru"), Off(2.0, "arima")
    blend = Lsp(gru=CachedFits(network), arima=CachedFits(rule), alpha=None)
    blend.fit(SERIES)
    blend.fit(SERIES.until(100))
    assert (network.fits, rule.fits) == ([85, 100], [85, 100])


def test_what_was_fitted_to_another_series_is_fitted_again() -> None:
    network = Off(1.0)
    once = CachedFits(network)
    for known in (50, 60):
        once.fit(SERIES.until(known))
    assert network.fits == [50, 60]
