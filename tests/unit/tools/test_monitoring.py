"""Dashboards as they are laid out and drawn."""

import pytest

from tools.docs.monitoring.grafana import Panel, coloured, laid_out, red_below
from tools.docs.monitoring.preview import colour_of, legend_of, worded
from tools.docs.monitoring.rehearsal import SECONDS, _submissions


def panel(width: int, height: int = 8) -> Panel:
    return Panel(title="t", description="d", queries={"q": "up"}, size=(width, height))


def places(*panels: Panel | str) -> list[tuple[int, int]]:
    return [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in laid_out(panels)]


def test_panels_stand_side_by_side_until_the_line_is_full() -> None:
    assert places(panel(12), panel(12, 6), panel(8)) == [(0, 0), (12, 0), (0, 8)]


def test_a_heading_has_a_line_of_its_own() -> None:
    assert places("a", panel(8), "b", panel(8)) == [(0, 0), (0, 1), (0, 9), (0, 10)]


def test_legends_take_the_values_of_their_labels() -> None:
    labels = {"verb": "update", "status": "5xx"}
    assert legend_of("{{verb}} failed: {{status}}", labels) == "update failed: 5xx"


@pytest.mark.parametrize(
    ("value", "unit", "said"),
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
def test_numbers_are_shown_in_their_unit(value: float, unit: str, said: str) -> None:
    assert worded(value, unit) == said


def test_a_number_takes_the_colour_of_the_last_threshold_it_reaches() -> None:
    late = coloured((10, "yellow"), (30, "red"))
    assert [colour_of(value, late) for value in (0, 10, 99)] == ["green", "yellow", "red"]
    assert [colour_of(value, red_below(1)) for value in (0, 1)] == ["red", "green"]


def test_the_rehearsal_is_the_same_every_time_and_ends_before_its_picture() -> None:
    dealt = list(_submissions())
    assert dealt == list(_submissions())
    assert max(job.seconds for job in dealt) < SECONDS
