"""The overview as it is drawn."""

import numpy as np
import pytest

from tools.docs.monitoring.picture import (
    SECONDS,
    colour_of,
    last_known,
    legend_of,
    submissions,
    worded,
)


def test_legends_take_the_values_of_their_labels() -> None:
    labels = {"verb": "update", "status": "5xx"}
    assert legend_of("{{verb}} failed: {{status}}", labels) == "update failed: 5xx"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0042, "s", "4.2 ms"),
        (90.0, "s", "1.5 min"),
        (-7200.0, "s", "-2 h"),
        (0.0, "s", "0 s"),
        (2e-5, "s", "20 µs"),
        (0.25, "percentunit", "25 %"),
        (1234.0, "short", "1.23 K"),
    ],
)
def test_numbers_are_shown_in_their_unit(value: float, unit: str, shown: str) -> None:
    assert worded(value, unit) == shown


def test_a_missed_scrape_leaves_the_number_before_it() -> None:
    assert last_known(np.array([1.0, 2.0, np.nan])) == 2.0
    assert last_known(np.array([np.nan])) is None


def test_a_number_takes_the_colour_of_the_last_threshold_it_reaches() -> None:
    steps = [("green", None), ("yellow", 10), ("red", 30)]
    late = {"thresholds": {"steps": [{"color": word, "value": value} for word, value in steps]}}
    assert [colour_of(value, late) for value in (0, 10, 99)] == ["green", "yellow", "red"]


def test_the_load_is_the_same_every_time_and_ends_before_its_picture() -> None:
    dealt = list(submissions())
    assert dealt == list(submissions())
    assert max(job.seconds for job in dealt) < SECONDS
