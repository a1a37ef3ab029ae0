"""Numbers as people read them, and axes with round ticks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.simulator.reports import svg, terminal


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "40 ms"),
        (1, "1.0 s"),
        (75, "75 s"),
        (720, "12 min"),
        (12_240, "3.4 h"),
        (36 * 3600, "36 h"),
        (181_440, "2.1 d"),
        (1e9, "11574 d"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert terminal.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.071, "0.07"), (3.42, "3.4"), (128.2, "128"), (250_000, "250 k"), (3e6, "3 M")],
)
def test_digits_are_as_many_as_count(value: float, text: str) -> None:
    assert terminal.digits(value) == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("mean_jct_seconds", 7200, "2.0 h"),
        ("gpu_utilisation", 0.8723, "87.2 %"),
        ("p99_slowdown", 12.34, "12"),
        ("finished", 64_483, "64,483"),
        ("preemptions", 1.5, "1.5"),
    ],
)
def test_every_number_is_written_by_its_key(key: str, value: float, text: str) -> None:
    assert terminal.formatter_of(key)(value) == text


@pytest.mark.parametrize(
    ("policies", "short"),
    [
        (["fifo"], ["fifo"]),
        (["fifo/packing"], ["fifo/packing"]),
        (["fifo/packing", "srtf/packing"], ["fifo", "srtf"]),
        (["fifo/packing", "fifo/fgd"], ["packing", "fgd"]),
        (["fifo", "fifo/fgd"], ["fifo", "fifo/fgd"]),
        (["a/p/s", "b/p/t"], ["a/s", "b/t"]),
    ],
)
def test_parts_that_all_policies_share_are_not_repeated(
    policies: list[str], short: list[str]
) -> None:
    assert terminal.short_names(policies) == short


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "seed", "1 seed"), (1000, "job", "1,000 jobs"), (2, "policy", "2 policies")],
)
def test_nouns_follow_their_number(number: int, noun: str, text: str) -> None:
    assert terminal.plural(number, noun) == text


@given(st.floats(1e-6, 1e9))
def test_linear_axis_ends_on_a_tick_at_or_above_the_largest_value(high: float) -> None:
    axis = svg.linear(high, str)
    assert axis.ticks[-1][0] == axis.high >= high * (1 - 1e-9)
    assert 2 <= len(axis.ticks) <= 6


@given(st.floats(1, 1e8))
def test_time_axis_has_few_ticks_and_all_lie_on_it(high: float) -> None:
    axis = svg.seconds(high)
    assert len(axis.ticks) <= 8
    assert all(0 <= value <= high + 1e-3 for value, _ in axis.ticks)


@pytest.mark.parametrize(
    ("high", "labels"),
    [
        (3600, ["0", "10 min", "20 min", "30 min", "40 min", "50 min", "1 h"]),
        (86_400 * 2, ["0", "12 h", "1 d", "36 h", "2 d"]),
    ],
)
def test_times_are_ticked_in_the_units_people_use(high: float, labels: list[str]) -> None:
    assert [label for _, label in svg.seconds(high).ticks] == labels


def test_logarithmic_axes_hold_their_largest_value_and_start_at_one() -> None:
    durations, factors = svg.log_seconds(50_000), svg.log_factor(1234)
    assert [label for _, label in durations.ticks if label] == ["1 s", "1 min", "1 h", "1 d"]
    assert [label for _, label in factors.ticks] == ["1", "10", "100", "1 k", "10 k"]
    assert durations.share(np.array([0.0, 1.0, 86_400.0])).tolist() == [0.0, 0.0, 1.0]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.booleans())
def test_places_on_an_axis_never_leave_it(values: list[float], is_log: bool) -> None:
    axis = svg.log_seconds(1e4) if is_log else svg.linear(1e4, str)
    places = axis.share(np.array(values))
    assert ((places >= 0) & (places <= 1)).all()


def test_nothing_to_plot_still_has_an_axis() -> None:
    high = svg.largest([np.empty(0)])
    assert svg.linear(high, str).high > 0
    assert svg.log_seconds(high).high == 10
