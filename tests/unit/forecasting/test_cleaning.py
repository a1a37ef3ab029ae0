"""Cleaning of hours that were counted badly, or not at all."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme.core.times import HOUR
from bireme.forecasting.pool_forecast import CleanedHistory, UnusableHistoryError, WallClock, clean
from bireme_lab.simulator.traces.series import read_series

BERLIN = WallClock("Europe/Berlin")
UTC_CLOCK = WallClock("UTC")
START = datetime(2026, 9, 7, tzinfo=UTC).timestamp()
"""A Monday; no clock changes within the next six weeks."""
DAYS = 21
DATA = Path(__file__).parents[4] / "shared" / "data"


def a_history(days: int = DAYS) -> FloatArray:
    """Six nodes at night, twelve by day, every day."""
    hours = np.arange(24 * days) % 24
    return np.where((hours >= 8) & (hours < 18), 12.0, 6.0)


def cleaned(
    values: FloatArray, *, start: float = START, clock: WallClock = UTC_CLOCK, hours_later: int = 0
) -> tuple[CleanedHistory, list[str]]:
    """Right after the last of ``values``, or ``hours_later``."""
    notes: list[str] = []
    now = start + HOUR * (len(values) + hours_later) + 60
    return clean(start, values.copy(), now, clock, "nodes", notes), notes


def test_what_was_counted_well_stays_as_it_is_and_nothing_is_reported() -> None:
    values = a_history()
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, values)
    assert found.series.periods == (24, 168)
    assert notes == []


def test_hours_that_are_not_over_do_not_count() -> None:
    values = a_history()
    notes: list[str] = []
    found = clean(START, values, START + 100 * HOUR + 1800, UTC_CLOCK, "nodes", notes)
    assert len(found.series) == 100


# --- gaps -------------------------------------------------------------------------------------


def test_a_short_gap_is_filled_with_the_same_hours_of_the_week_before_and_reported() -> None:
    values = a_history() + np.arange(24 * DAYS) // 168
    expected = values.copy()
    expected[400:410] = values[400 - 168 : 410 - 168]
    values[400:410] = np.nan
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, expected)
    assert notes == ["10 missing hours filled with the week before, else by a line"]


def test_a_gap_in_the_first_week_is_filled_by_a_line() -> None:
    values = np.arange(24.0 * DAYS)
    values[50:55] = np.nan
    found, _ = cleaned(values)
    np.testing.assert_allclose(found.series.values, np.arange(24.0 * DAYS))


def test_a_gap_of_more_than_a_day_ends_the_history_that_counts() -> None:
    values = a_history()
    values[100:125] = np.nan
    found, notes = cleaned(values)
    assert len(found.series) == 24 * DAYS - 125
    assert (found.cut_hours, found.first_hour) == (25, int(START // HOUR) + 125)
    assert notes == [f"25 hours in a row are not recorded; the {24 * DAYS - 125} since count"]


def test_a_history_with_a_tenth_missing_here_and_there_is_refused() -> None:
    values = a_history()
    values[5::9] = np.nan
    with pytest.raises(
        UnusableHistoryError, match="56 of 504 hours are not recorded, more than 10%"
    ) as caught:
        cleaned(values)
    assert caught.value.has_gaps


def test_a_history_that_ended_days_ago_is_refused() -> None:
    assert len(cleaned(a_history(), hours_later=48)[0].series) == 24 * DAYS
    with pytest.raises(UnusableHistoryError, match="the last 49 hours are not recorded") as caught:
        cleaned(a_history(), hours_later=49)
    assert caught.value.has_gaps


@pytest.mark.parametrize("values", [np.empty(0), np.full(500, np.nan)])
def test_a_history_of_nothing_is_refused(values: FloatArray) -> None:
    with pytest.raises(UnusableHistoryError, match="no hour of it is recorded") as caught:
        cleaned(values)
    assert not caught.value.has_gaps


# --- values that cannot be --------------------------------------------------------------------


def test_zeros_are_amounts_like_others() -> None:
    values = a_history()
    values[200:260] = 0
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, values)
    assert notes == []


@pytest.mark.parametrize("wrong", [-4.0, float("inf"), 1e300])
def test_a_value_that_is_no_amount_is_refused_by_name_and_filled(wrong: float) -> None:
    values = a_history()
    values[300] = values[310] = wrong
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, a_history())
    assert notes[0] == (
        f"2 values refused, first {wrong:g} nodes at 2026-09-19T12:00:00Z: they are 0 to 1e+09"
    )


def test_hours_that_are_not_a_number_count_as_not_recorded() -> None:
    values = a_history()
    values[300] = np.nan
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, a_history())
    assert notes == ["1 missing hours filled with the week before, else by a line"]


@pytest.mark.parametrize("high_days", [1, 2])
def test_a_spike_of_ten_times_counts_as_the_most_of_its_hour_on_other_days(high_days: int) -> None:
    values = a_history()
    for day in range(high_days):
        values[24 * (10 + day) + 3] = 120
        values[24 * (10 + day) + 12] = 120
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, a_history())
    assert len(notes) == 1
    assert notes[0] == (
        f"{2 * high_days} hours from 2026-09-17T03:00:00Z on are more than 3 times the nodes of "
        "all other days; they count as their usual most"
    )


def test_a_rise_to_ten_times_that_comes_back_on_a_third_day_is_no_spike() -> None:
    values = a_history()
    values[-72:] = 120
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, values)
    assert notes == []


def test_a_pool_that_was_idle_may_start_being_used() -> None:
    values = np.zeros(24 * DAYS)
    values[-5:] = 7
    assert cleaned(values)[0].series.values[-5:].tolist() == [7] * 5


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("helios/philly_node_sequence_1min.csv.gz", {"column": "active", "step_seconds": HOUR}),
        ("philly/philly_2017-09-04_2017-11-14.csv.gz", {"step_seconds": HOUR, "reduce": "count"}),
    ],
    ids=["nodes", "jobs"],
)
def test_no_hour_of_real_load_is_taken_for_a_spike(file: str, columns: dict[str, Any]) -> None:
    """Jobs come in bursts: the busiest hour here has ninety times as many as the middle one."""
    if not (DATA / file).is_file():
        pytest.skip(f"{file} is not here: the trace is published, but not part of Bireme")
    values = read_series(DATA / file, **columns).series.values
    found, notes = cleaned(values)
    np.testing.assert_array_equal(found.series.values, values)
    assert notes == []


# --- the clock on the wall --------------------------------------------------------------------


def by_the_clock(start: datetime, clock: WallClock, days: int = DAYS) -> FloatArray:
    """In each hour, what the clock shows in it."""
    starts = start.timestamp() + HOUR * np.arange(24.0 * days)
    return (clock.hours(starts) % 24).astype(np.float64)


@pytest.mark.parametrize(
    ("start", "hours"),
    [
        (datetime(2026, 3, 20, tzinfo=UTC), 24 * DAYS + 1),
        (datetime(2026, 10, 15, tzinfo=UTC), 24 * DAYS - 1),
    ],
    ids=["spring", "autumn"],
)
def test_a_change_of_the_clock_leaves_every_hour_of_the_day_where_it_was(
    start: datetime, hours: int
) -> None:
    """In spring the wall clock shows one hour more than passed, in autumn one less."""
    found, notes = cleaned(by_the_clock(start, BERLIN), start=start.timestamp(), clock=BERLIN)
    expected = (found.first_hour + np.arange(hours)) % 24.0
    np.testing.assert_allclose(found.series.values, expected)
    assert notes == []


def test_the_hour_that_comes_twice_counts_with_its_mean() -> None:
    start = datetime(2026, 10, 25, tzinfo=UTC).timestamp()
    values = np.array([4.0, 10.0] + [6.0] * 30)  # 00:00 and 01:00 UTC are both 02:00 in Berlin
    assert cleaned(values, start=start, clock=BERLIN)[0].series.values[0] == 7


def test_clocks_that_are_half_an_hour_off_show_each_hour_once() -> None:
    shown = WallClock("Asia/Kolkata").hours(START + HOUR * np.arange(50.0))
    np.testing.assert_array_equal(np.diff(shown), np.ones(49))


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "../../etc/passwd", "", "\x00"])
def test_a_zone_that_is_none_is_refused_by_name(zone: str) -> None:
    with pytest.raises(
        SettingError, match=r"timeZone .* is not known: give one of the tz database"
    ):
        WallClock(zone)


# --- always -----------------------------------------------------------------------------------

AMOUNTS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, 2.0, 80.0, -1.0, float("nan")]),
)


@given(st.lists(AMOUNTS, max_size=400), st.sampled_from(["UTC", "Europe/Berlin"]))
def test_whatever_was_counted_there_is_a_series_of_amounts_or_a_refusal(
    values: list[float], zone: str
) -> None:
    start = datetime(2026, 10, 20, tzinfo=UTC).timestamp()
    try:
        found, _ = cleaned(np.array(values, np.float64), start=start, clock=WallClock(zone))
    except UnusableHistoryError:
        return
    series = found.series.values
    assert 0 < len(series) <= len(values)
    assert np.isfinite(series).all()
    assert (series >= 0).all()
