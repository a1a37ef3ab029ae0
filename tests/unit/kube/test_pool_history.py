"""Demand of a pool, hour by hour, as its status keeps it."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.pool_history import HISTORY_DAYS, NO_HISTORY, PoolHistory
from bireme.core.times import DAY, HOUR
from bireme.kube.api.node_pool_scaler import RecordedHistory, history_manifest, history_of

FIRST = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
HOURS = st.tuples(st.integers(0, 80 * 24), st.floats(0, 5000), st.floats(0, 1e5))


def day(date: str, demand: str, tasks: str = "") -> dict[str, str]:
    return {"date": date, "demand": demand, "tasks": tasks}


def read(*days: Any) -> PoolHistory:
    return history_of({"history": {"days": list(days)}})


def with_hours(*hours: tuple[float, float]) -> PoolHistory:
    """An hour each, so many hours after the first day began, with its demand."""
    history = NO_HISTORY
    for after, demand in hours:
        history = history.with_hour(FIRST + HOUR * after, demand, 1.0)
    return history


def test_the_hours_of_days_are_one_line_with_gaps_where_nobody_counted() -> None:
    history = read(day("2026-11-20", "1 - 2.5", "3 - 4"), day("2026-11-22", "7", "8"))
    assert history.start == FIRST
    assert history.end == FIRST + 2 * DAY + HOUR
    assert len(history.demand) == len(history.tasks) == 49
    there = np.flatnonzero(~np.isnan(history.demand)).tolist()
    assert there == [0, 2, 48]
    assert history.demand[there].tolist() == [1, 2.5, 7]
    assert history.tasks[there].tolist() == [3, 4, 8]
    assert history.notes == ()


def test_nothing_recorded_is_an_empty_line() -> None:
    given: list[dict[str, Any]] = [{}, {"history": None}, {"history": {"days": []}}]
    assert [len(history_of(status).demand) for status in given] == [0, 0, 0]


def test_an_hour_more_is_written_as_people_read_it() -> None:
    assert history_manifest(with_hours((22, 3.0), (23, 4.256), (25, 10.0))) == {
        "days": [
            day(
                "2026-11-20", " ".join(["-"] * 22 + ["3", "4.26"]), " ".join(["-"] * 22 + ["1"] * 2)
            ),
            day("2026-11-21", "- 10", "- 1"),
        ]
    }


def test_days_older_than_eight_weeks_go() -> None:
    history = with_hours((0, 1.0), (HISTORY_DAYS * 24 + 23, 2.0))
    assert (history.start, len(history_manifest(history)["days"])) == (FIRST, HISTORY_DAYS + 1)
    history = history.with_hour(FIRST + DAY * (HISTORY_DAYS + 1), 3.0, 0.0)
    assert (history.start, len(history_manifest(history)["days"])) == (
        FIRST + DAY,
        HISTORY_DAYS + 1,
    )


def test_hours_of_a_clock_that_went_ahead_are_forgotten_when_it_is_right_again() -> None:
    history = with_hours((5, 1.0), (24 * 365, 9.0), (6, 2.0))
    assert history.end == FIRST + 7 * HOUR
    assert history.demand[-1] == 2.0


def test_an_hour_counted_twice_has_the_later_value() -> None:
    assert with_hours((3, 1.0), (3, 2.0)).demand[3] == 2.0


def test_an_hour_begins_at_a_whole_hour() -> None:
    with pytest.raises(ValueError, match=r"begin is 1\.5; it must be a whole hour"):
        NO_HISTORY.with_hour(1.5, 0.0, 0.0)


def test_words_that_are_no_numbers_are_gaps_and_reported() -> None:
    history = read(day("2026-11-20", "1 nan inf 1e999 two -3", "1 1 1 1 1 1"))
    assert np.isnan(history.demand[1:5]).all()
    assert history.demand[[0, 5]].tolist() == [1, -3], "its users refuse what is negative"
    assert [note.split(" holds ")[1] for note in history.notes] == [
        f"'{word}', which is no number" for word in ("nan", "inf", "1e999", "two")
    ]


def test_days_that_are_no_dates_or_there_twice_are_left_out_and_reported() -> None:
    history = read(day("2026-11-20", "1"), day("yesterday", "2"), day("2026-11-20", "3"))
    assert history.demand.tolist() == [1]
    assert [note[:15] for note in history.notes] == ["day 'yesterday'", "day '2026-11-20"]


def test_days_out_of_order_are_sorted_and_reported() -> None:
    history = read(day("2026-11-21", "2"), day("2026-11-20", "1"))
    assert (history.demand[0], history.demand[24]) == (1, 2)
    assert history.notes == ("the days are not in order; sorted",)


def test_a_day_has_no_more_than_24_hours() -> None:
    history = read(day("2026-11-20", " ".join(map(str, range(30)))))
    assert len(history.demand) == 24
    assert history.notes == ("demand of 2026-11-20 has 30 hours; the first 24 count",)


@given(st.lists(HOURS, min_size=1, max_size=30))
def test_what_is_written_is_read_again_and_fits_into_a_status(
    hours: list[tuple[int, float, float]],
) -> None:
    history = NO_HISTORY
    for after, demand, tasks in hours:
        history = history.with_hour(FIRST + HOUR * after, demand, tasks)
    manifest = history_manifest(history)
    RecordedHistory.model_validate(manifest)
    again = history_of({"history": manifest})
    assert (again.start, again.notes) == (history.start, ())
    np.testing.assert_allclose(again.demand, history.demand, atol=0.006)
    np.testing.assert_allclose(again.tasks, history.tasks, atol=0.006)
    last = hours[-1]
    assert math.isclose(history.demand[-1], last[1])
