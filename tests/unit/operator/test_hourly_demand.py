"""The hours of a pool: means weighed by time, gaps where too little was seen."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.times import HOUR
from bireme_operator.node_pools import HourlyDemand

BEGIN = 1_795_312_800.0
"""A whole hour."""
STEP = 60.0


def metered(*looks: tuple[float, float]) -> HourlyDemand:
    """A meter that was shown a demand at each time, seconds after the hour began."""
    meter = HourlyDemand()
    for after, demand in looks:
        meter.observe(BEGIN + after, demand, 0)
    return meter


def steadily(first: float, last: float, demand: float) -> list[tuple[float, float]]:
    return [(first + STEP * i, demand) for i in range(int((last - first) / STEP) + 1)]


def means(meter: HourlyDemand) -> dict[float, float]:
    """Mean demand by hours after the first."""
    return {(begin - BEGIN) / HOUR: mean for begin, (mean, _) in meter.over.items()}


def test_an_hour_is_the_mean_of_what_held_weighed_by_how_long() -> None:
    meter = metered(*steadily(0, 900, 1.0), *steadily(901, 2700, 5.0), *steadily(2701, 3661, 1.0))
    assert means(meter) == {0: pytest.approx(3.0, abs=0.02)}


def test_an_hour_is_over_only_when_the_next_has_begun() -> None:
    meter = metered(*steadily(0, 3540, 1.0))
    assert means(meter) == {}
    meter.observe(BEGIN + 3600, 9.0, 0)
    assert means(meter) == {0: 1.0}


def test_what_held_over_the_turn_counts_in_both_hours() -> None:
    meter = metered(*steadily(0, 3570, 2.0), *steadily(3630, 7230, 4.0))
    assert means(meter) == {0: 2.0, 1: pytest.approx(4.0 - 2.0 * 30 / 3600)}


@pytest.mark.parametrize(("began", "hours"), [(1700, {0}), (1900, set())])
def test_an_hour_counts_if_half_of_it_was_seen(began: float, hours: set[float]) -> None:
    assert set(means(metered(*steadily(began, began + 3600, 1.0)))) - {1} == hours


def test_time_without_a_look_is_nobodys() -> None:
    meter = metered(*steadily(0, 1200, 1.0), *steadily(2400, 3600, 3.0))
    assert means(meter) == {0: pytest.approx(2.0)}
    assert means(metered((0, 1.0), (3600, 1.0), (7200, 1.0))) == {}


def test_a_clock_that_is_set_back_or_ahead_spoils_no_other_hour() -> None:
    meter = metered(*steadily(0, 3600, 1.0), (HOUR * 999.0, 7.0), *steadily(3660, 7200, 2.0))
    assert means(meter) == {0: 1.0, 1: 2.0}


def test_jobs_are_counted_for_the_whole_hour_whatever_was_seen_of_it() -> None:
    meter = HourlyDemand()
    for after, _ in steadily(0, 2400, 0.0):
        meter.observe(BEGIN + after, 0.0, 1)
    meter.observe(BEGIN + HOUR, 0.0, 0)
    assert meter.over[BEGIN][1] == pytest.approx(41 * 1.5)


def test_hours_that_cannot_be_written_are_kept_for_two_days() -> None:
    meter = metered(*steadily(0, 60 * HOUR, 1.0))
    assert sorted(means(meter)) == list(range(12, 60))


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(0, 5000)), min_size=1, max_size=60))
def test_a_mean_is_never_beyond_what_was_seen(looks: list[tuple[float, float]]) -> None:
    meter, at = HourlyDemand(), BEGIN
    for pause, demand in looks:
        at += pause
        meter.observe(at, demand, 0)
    demands = [demand for _, demand in looks]
    for mean, _ in meter.over.values():
        within = min(demands) <= mean <= max(demands)
        assert within or math.isclose(mean, min(demands)) or math.isclose(mean, max(demands))
