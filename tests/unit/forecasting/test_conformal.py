"""Intervals from errors: exact ranks, coverage of exchangeable errors, never below 0."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import FloatArray
from bireme.forecasting.selection import Intervals
from bireme.forecasting.series import TooShortError


def test_the_bound_is_the_error_of_the_finite_sample_rank() -> None:
    roots = np.arange(1.0, 20.0)[:, None]
    seen = Intervals.of(np.zeros((19, 1)), roots**2)
    assert seen.quantile(np.array([100.0]), 0.9) == [(10 + 18) ** 2]


def test_each_lead_time_has_its_own_errors() -> None:
    actuals = np.column_stack([np.full(9, 1.0), np.full(9, 25.0)])
    seen = Intervals.of(np.zeros((9, 2)), actuals)
    assert seen.quantile(np.zeros(2), 0.5).tolist() == [1.0, 25.0]


def test_bounds_are_wider_where_amounts_are_larger() -> None:
    seen = Intervals.of(np.full((9, 1), 16.0), np.full((9, 1), 25.0))
    assert seen.quantile(np.array([0.0, 100.0])[:, None], 0.5).tolist() == [[1.0], [121.0]]


def test_no_bound_lies_below_zero() -> None:
    seen = Intervals.of(np.full((9, 1), 10.0), np.zeros((9, 1)))
    assert seen.quantile(np.array([2.0]), 0.5) == [0.0]


@given(st.integers(1, 300), st.floats(0.5, 0.995))
def test_too_few_errors_are_refused_and_enough_are_not(seen: int, q: float) -> None:
    intervals = Intervals(np.zeros((seen, 1)))
    if math.ceil((seen + 1) * q - 1e-9) <= seen:
        assert intervals.quantile(np.ones(1), q) == [1.0]
    else:
        with pytest.raises(TooShortError, match=f"{seen} errors of forecasts say nothing"):
            intervals.quantile(np.ones(1), q)


@pytest.mark.parametrize("q", [0.5, 0.9])
@pytest.mark.parametrize("seen", [9, 19, 54])
def test_bounds_hold_as_often_as_they_promise_but_not_much_more(q: float, seen: int) -> None:
    """Exact for exchangeable errors: between q and q + 1 / (n + 1), whatever their law."""
    chance = np.random.default_rng(7)
    actuals = chance.lognormal(0, 2, (20_000, seen + 1))
    rank = math.ceil((seen + 1) * q)
    bounds = np.sort(actuals[:, :-1])[:, rank - 1]
    assert np.allclose(bounds[:50], [_bound(row[:-1], q) for row in actuals[:50]])
    held = bounds >= actuals[:, -1]
    assert q - 0.012 <= held.mean() <= q + 1 / (seen + 1) + 0.012


def _bound(actuals: FloatArray, q: float) -> float:
    """Of a forecast of 0, where 0 was forecast each time."""
    seen = Intervals.of(np.zeros((len(actuals), 1)), actuals[:, None])
    return float(seen.quantile(np.zeros(1), q)[0])


@given(st.lists(st.floats(0, 100), min_size=20, max_size=40), st.floats(0.1, 0.9))
def test_a_higher_quantile_is_never_lower(actuals: list[float], q: float) -> None:
    seen = Intervals.of(np.full((len(actuals), 1), 30.0), np.array(actuals)[:, None])
    points = np.array([20.0])
    assert seen.quantile(points, q) <= seen.quantile(points, q + 0.04)
