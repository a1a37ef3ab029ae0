"""Nightly forecasts of a pool, and the message where nothing can be forecast."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.pool_history import PoolHistory
from bireme.core.reasons import Reason
from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import HOUR
from bireme.forecasting.forecasters import FittedModel
from bireme.forecasting.naive import Persistence
from bireme.forecasting.pool_forecast import NightlySettings, PoolForecast, forecast_pool
from bireme.forecasting.series import ForecastError, Series

START = datetime(2026, 9, 7, tzinfo=UTC).timestamp()
"""A Monday; no clock changes within the next six weeks."""
SETTINGS = NightlySettings(quantile=0.9, minimum=0, maximum=100)


def a_day(days: int) -> FloatArray:
    """Six nodes at night, twelve from 08:00 to 18:00."""
    hours = np.arange(24 * days) % 24
    return np.where((hours >= 8) & (hours < 18), 12.0, 6.0)


def noisy(days: int, seed: int = 1) -> FloatArray:
    generator = np.random.default_rng(seed)
    return np.maximum(a_day(days) + generator.normal(0, 1, 24 * days), 0)


def history(demand: FloatArray, tasks: FloatArray | None = None) -> PoolHistory:
    return PoolHistory(START, demand, np.full_like(demand, np.nan) if tasks is None else tasks)


def forecast(
    known: PoolHistory,
    asked: NightlySettings = SETTINGS,
    candidates: tuple[object, ...] = (),
    minutes: int = 30,
) -> PoolForecast:
    """Half an hour after the last hour that was counted."""
    return forecast_pool(known, known.end + 60 * minutes, asked, candidates)  # type: ignore[arg-type]


class Truth:
    """Knows the pattern of :func:`a_day`."""

    name = "truth"

    def fit(self, series: Series) -> FittedModel:
        return self

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        hours = (origins[:, None] + np.arange(steps)) % 24
        return np.where((hours >= 8) & (hours < 18), 12.0, 6.0)


class Broken:
    name = "broken"

    def fit(self, series: Series) -> FittedModel:
        raise ForecastError("it is broken")


# --- what a forecast is -----------------------------------------------------------------------


def test_forty_eight_hours_follow_from_the_hour_under_way() -> None:
    known = history(noisy(28))
    found = forecast(known)
    assert [h.start for h in found.hours] == [known.end + HOUR * n for n in range(48)]
    assert found.is_made


def test_a_model_that_beats_the_season_is_used_and_named() -> None:
    found = forecast(history(noisy(28)), candidates=(Persistence(), Truth(), Broken()))
    assert (found.reason, found.model) == (Reason.FORECAST_MADE, "truth")
    assert found.skill is not None
    assert found.skill > 0.2
    assert found.accuracy is not None
    assert found.accuracy > 0.85
    assert "truth: " in found.explanation
    assert found.notes == ("broken failed: it is broken",)
    medians = np.array([h.p50 for h in found.hours])
    np.testing.assert_allclose(medians, np.tile(a_day(1), 2), atol=0.5)


def test_without_a_better_model_the_season_is_repeated_and_named() -> None:
    found = forecast(history(a_day(28)), candidates=(Persistence(), Broken()))
    assert (found.reason, found.model) == (Reason.SEASONAL_NAIVE_USED, "seasonal-naive")
    assert [h.p50 for h in found.hours] == list(np.tile(a_day(1), 2))


def test_the_upper_value_holds_as_often_as_asked() -> None:
    held = []
    for seed in range(40):
        future = noisy(30, seed)
        found = forecast(history(future[: 24 * 28]), candidates=(Truth(),))
        held.append(future[24 * 28 :] <= [h.upper for h in found.hours])
    assert 0.87 < np.mean(held) < 0.93


def test_hours_that_were_not_recorded_lately_are_not_made_up_but_forecast_across() -> None:
    values = noisy(28)
    values[-20:] = np.nan
    found = forecast(history(values), candidates=(Truth(),))
    assert found.hours[0].start == START + HOUR * len(values)
    assert [round(h.p50 / 6) for h in found.hours[:24]] == [1] * 8 + [2] * 10 + [1] * 6


def test_a_pool_that_nothing_was_ever_asked_of_is_forecast_to_stay_idle() -> None:
    found = forecast(history(np.zeros(24 * 28)), candidates=(Persistence(),))
    assert {(h.p50, h.upper) for h in found.hours} == {(0.0, 0.0)}
    assert found.accuracy is None
    assert found.tomorrow == "Tue 0 nodes, by seasonal-naive"


# --- too little, or too bad -------------------------------------------------------------------


def test_with_less_than_four_days_nothing_is_forecast() -> None:
    found = forecast(history(a_day(4)[:-1]))
    assert (found.is_made, found.reason) == (False, Reason.TOO_LITTLE_HISTORY)
    assert found.explanation == "95 hours are recorded in a row; a forecast takes 96"
    assert found.tomorrow == "not forecast"


def test_with_less_than_fourteen_days_the_season_is_repeated_whatever_else_is_there() -> None:
    found = forecast(history(noisy(13)), candidates=(Truth(),))
    assert (found.model, found.reason) == ("seasonal-naive", Reason.TOO_LITTLE_HISTORY)
    assert found.explanation == "seasonal-naive: 312 hours are recorded in a row, models take 336"
    assert len(found.hours) == 48


def test_a_long_gap_lately_is_named_as_what_is_wrong() -> None:
    values = noisy(28)
    values[-24 * 8 : -24 * 6] = np.nan
    found = forecast(history(values), candidates=(Truth(),))
    assert (found.model, found.reason) == ("seasonal-naive", Reason.HISTORY_HAS_GAPS)
    assert found.notes == ("48 hours in a row are not recorded; the 144 since count",)
    values[-24 * 3 :] = np.nan
    found = forecast(history(values), candidates=(Truth(),))
    assert (found.is_made, found.reason) == (False, Reason.HISTORY_HAS_GAPS)


def test_what_could_not_be_read_and_what_was_repaired_is_reported() -> None:
    values = noisy(28)
    values[300] = -3
    known = PoolHistory(START, values, values, ("day 'x' is no date",))
    message = forecast(known).message
    assert "day 'x' is no date" in message
    assert "1 values refused, first -3 nodes at 2026-09-19T12:00:00Z" in message


@pytest.mark.parametrize("days", [14, 15, 20])
def test_a_quantile_that_the_errors_cannot_tell_is_too_little_history(days: int) -> None:
    asked = NightlySettings(quantile=0.99, minimum=0, maximum=9)
    found = forecast(history(noisy(days)), asked)
    assert (found.is_made, found.reason) == (False, Reason.TOO_LITTLE_HISTORY)
    assert "quantile 0.99" in found.explanation


# --- tasks ------------------------------------------------------------------------------------


def test_tasks_become_nodes_by_how_many_of_them_a_node_finishes() -> None:
    tasks = noisy(28)
    asked = NightlySettings(0.9, 0, 100, measure="Tasks")
    found = forecast(history(tasks / 4, tasks), asked, (Truth(),))
    direct = forecast(history(tasks), candidates=(Truth(),))
    np.testing.assert_allclose(
        [(h.p50, h.upper) for h in found.hours], [(h.p50 / 4, h.upper / 4) for h in direct.hours]
    )
    assert found.notes == ("a node finishes 4 tasks per hour",)


def test_the_rate_follows_the_latest_days() -> None:
    """Equation 2: 0.8 of the old rate and 0.2 of the day that is over."""
    tasks, nodes = np.full(24 * 28, 8.0), np.full(24 * 28, 4.0)
    nodes[-24:] = 1.0
    found = forecast(history(nodes, tasks), NightlySettings(0.9, 0, 100, measure="Tasks"))
    assert found.hours[0].p50 == pytest.approx(8 / (0.8 * 2 + 0.2 * 8))


@pytest.mark.parametrize("nodes", [0.0, np.nan, -1.0])
def test_tasks_without_nodes_that_finished_them_say_nothing_of_nodes(nodes: float) -> None:
    asked = NightlySettings(0.9, 0, 100, measure="Tasks")
    found = forecast(history(np.full(24 * 28, nodes), np.full(24 * 28, 8.0)), asked)
    assert (found.is_made, found.reason) == (False, Reason.TOO_LITTLE_HISTORY)
    assert found.explanation == "no day has both finished tasks and nodes that they ran on"


# --- the clock on the wall --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "shift"),
    [(datetime(2026, 3, 28, 12, tzinfo=UTC), -1), (datetime(2026, 10, 24, 12, tzinfo=UTC), 1)],
    ids=["spring", "autumn"],
)
def test_the_working_day_stays_where_the_clock_shows_it_when_the_clock_changes(
    now: datetime, shift: int
) -> None:
    days = 28
    start = now.timestamp() - HOUR * 24 * days
    offset = 1 if shift < 0 else 2
    hours = (12 + np.arange(24 * (days + 2))) % 24
    known = np.where((hours >= 8 - offset) & (hours < 18 - offset), 12.0, 6.0)
    berlin = NightlySettings(0.9, 0, 100, time_zone="Europe/Berlin")
    found = forecast_pool(
        PoolHistory(start, known[: 24 * days], known[: 24 * days]), now.timestamp(), berlin, ()
    )
    next_day = [h.p50 for h in found.hours[12:36]]
    begin = 8 - offset + shift
    assert next_day == [6.0] * begin + [12.0] * 10 + [6.0] * (14 - begin)


def test_the_second_time_of_an_hour_that_comes_twice_is_forecast_like_the_hour_after_it() -> None:
    """At 01:20 UTC, when the job runs, it is 02:20 in Berlin for the second time."""
    now = datetime(2026, 10, 25, 1, 20, tzinfo=UTC).timestamp()
    hours = np.arange(24 * 28 + 1)
    known = np.where((hours + 2) % 24 < 3, 50.0, 1.0)  # until 03:00 by the clock
    history = PoolHistory(now - 1200 - HOUR * len(hours), known, known)
    found = forecast_pool(history, now, NightlySettings(0.9, 0, 100, time_zone="Europe/Berlin"), ())
    assert [h.p50 for h in found.hours[:3]] == [1.0, 1.0, 1.0]
    assert found.hours[22].p50 == 50.0, "midnight of the next day, which had 25 hours"


@pytest.mark.parametrize("wrong", [np.inf, -5.0, np.nan])
def test_the_rate_is_taken_from_hours_that_can_be(wrong: float) -> None:
    tasks, nodes = np.full(24 * 28, 8.0), np.full(24 * 28, 4.0)
    tasks[100] = nodes[200] = wrong
    found = forecast(history(nodes, tasks), NightlySettings(0.9, 0, 100, measure="Tasks"))
    assert found.hours[0].p50 == pytest.approx(4)


# --- in a few words ---------------------------------------------------------------------------


def test_tomorrow_is_forecast_within_the_bounds_of_the_pool() -> None:
    known = history(a_day(28))
    assert forecast(known).tomorrow == "Tue 6-12 nodes, most at 08:00, by seasonal-naive"
    assert (
        forecast(known, NightlySettings(0.9, 8, 10)).tomorrow
        == "Tue 8-10 nodes, most at 08:00 (12 wanted), by seasonal-naive"
    )
    assert forecast(known, NightlySettings(0.9, 20, 30)).tomorrow == (
        "Tue 20 nodes, by seasonal-naive"
    )


def test_tomorrow_is_the_next_day_of_the_pools_own_calendar() -> None:
    known = history(a_day(28)[:-3])  # 21:00 UTC on Sunday is 06:00 on Monday in Tokyo
    assert forecast(known).tomorrow.startswith("Mon ")
    tokyo = NightlySettings(0.9, 0, 100, time_zone="Asia/Tokyo")
    assert forecast(known, tokyo).tomorrow.startswith("Tue ")


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=90, max_size=200),
    st.sampled_from(["Demand", "Tasks"]),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_whatever_was_counted_a_forecast_is_finite_or_there_is_none(
    values: list[float], measure: str, quantile: float
) -> None:
    counted = np.array(values * 2)
    asked = NightlySettings(quantile, 0, 10, measure, "Europe/Berlin")  # type: ignore[arg-type]
    found = forecast(history(counted, counted), asked, (Persistence(), Broken()))
    assert len(found.hours) in {0, 48}
    assert all(0 <= h.p50 <= h.upper < float("inf") for h in found.hours)
    assert found.explanation
