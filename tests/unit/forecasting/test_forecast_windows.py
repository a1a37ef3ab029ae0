"""Inputs of a forecasting network: no future, and everything relative to the last season."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import FloatArray
from bireme.forecasting.networks import Frame, encode

FRAME = Frame(window=6, horizon=10, periods=(4, 12), cycles=3)
LAST_OF_DAY, MEAN_OF_DAY, LAST_OF_WEEK, MEAN_OF_WEEK, LAST, LEAD = range(6)


def drawn(count: int = 80, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(3.0, 1.0, count)


@given(st.integers(18, 80), st.integers(0, 5))
def test_a_row_sees_nothing_from_its_origin_on(origin: int, seed: int) -> None:
    logs = drawn(seed=seed)
    later = np.concatenate([logs[:origin], drawn(80, seed=99)])
    known, changed = (encode(each, np.array([origin]), FRAME) for each in (logs, later))
    for name in FRAME.inputs:
        np.testing.assert_allclose(known.inputs[name], changed.inputs[name], atol=1e-5)
    np.testing.assert_allclose(known.spread, changed.spread)


@given(st.lists(st.integers(18, 80), min_size=1, max_size=8), st.integers(0, 5))
def test_a_row_is_what_it_is_among_any_others(origins: list[int], seed: int) -> None:
    together = encode(drawn(seed=seed), np.array(origins), FRAME)
    for row, origin in enumerate(origins):
        alone = encode(drawn(seed=seed), np.array([origin]), FRAME)
        for name in FRAME.inputs:
            np.testing.assert_array_equal(together.inputs[name][row], alone.inputs[name][0])


def test_rows_have_the_shapes_that_the_frame_states() -> None:
    rows = encode(drawn(), np.array([18, 40, 80]), FRAME)
    for name, (_, *sizes) in FRAME.inputs.items():
        assert rows.inputs[name].shape == (3, *sizes)
        assert rows.inputs[name].dtype == np.float32


def test_every_lead_sees_the_same_hour_of_the_season_before() -> None:
    logs = drawn()
    rows = encode(logs, np.array([40]), FRAME)
    ahead = rows.inputs["ahead"][0] * rows.spread[0] + rows.centre[0]
    # Leads 5 to 8 lie more than one season of 4 ahead: the season before that is not known yet.
    places = np.array([36, 37, 38, 39] * 2 + [36, 37])
    np.testing.assert_allclose(ahead[:, LAST_OF_DAY], logs[places], atol=1e-5)
    np.testing.assert_allclose(ahead[:, LAST_OF_WEEK], logs[28:38], atol=1e-5)
    np.testing.assert_allclose(ahead[:, LAST], logs[39], atol=1e-5)
    means = (logs[places] + logs[places - 4] + logs[places - 8]) / 3
    np.testing.assert_allclose(ahead[:, MEAN_OF_DAY], means, atol=1e-5)


def test_the_mean_over_seasons_takes_those_that_there_are() -> None:
    logs = drawn()
    rows = encode(logs, np.array([20]), FRAME)
    ahead = rows.inputs["ahead"][0] * rows.spread[0] + rows.centre[0]
    np.testing.assert_allclose(ahead[:4, MEAN_OF_WEEK], logs[8:12], atol=1e-5)


@given(st.integers(18, 80), st.floats(-5, 20))
def test_rows_are_scaled_by_the_last_season(origin: int, level: float) -> None:
    logs = drawn() + level
    rows = encode(logs, np.array([origin]), FRAME)
    season = logs[origin - 12 : origin]
    assert rows.centre[0, 0] == pytest.approx(season.mean(), abs=1e-8)
    assert rows.spread[0, 0] == pytest.approx(season.std(), abs=1e-8)


def test_a_season_without_any_change_is_shown_as_zeros() -> None:
    rows = encode(np.full(80, 2.5), np.array([40]), FRAME)
    assert not rows.inputs["past"].any()
    assert not rows.inputs["ahead"][..., :LEAD].any()
    np.testing.assert_allclose(rows.demand(np.zeros((1, 10))), np.expm1(2.5))


def test_answers_are_read_as_demand_that_is_never_below_zero() -> None:
    logs = np.log1p(np.arange(80) % 12)
    rows = encode(logs, np.array([40]), FRAME)
    scaled = (logs[40:50] - rows.centre) / rows.spread
    np.testing.assert_allclose(rows.demand(scaled)[0], np.arange(40, 50) % 12, atol=1e-9)
    assert (rows.demand(np.full((1, 10), -1e3)) == 0).all()
    assert np.isfinite(rows.demand(np.full((1, 10), 1e9))).all()


def test_a_series_without_seasons_is_shown_by_its_last_values_alone() -> None:
    frame = Frame(window=6, horizon=2, periods=())
    rows = encode(drawn(), np.array([6, 80]), frame)
    assert rows.inputs["past"].shape == (2, 6, 1)
    assert rows.inputs["ahead"].shape == (2, 2, 2)
    assert frame.least_values == 6
