"""Samples, aims and rows: what counts as reached."""

import math

import pytest

from benchmarks.report import Pairs, Row, Sample, at_least, at_most, medians


def test_percentiles_are_values_that_were_measured() -> None:
    sample = Sample.of(float(number) for number in range(1, 101))
    assert (sample.median, sample.percentile(50), sample.percentile(99)) == (50.5, 50, 99)
    assert Sample.of([3.0]).percentile(99) == 3.0


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_a_sample_without_numbers_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="a sample needs numbers"):
        Sample.of(values)


@pytest.mark.parametrize(
    ("bound", "reached"),
    [(at_most(2.0), True), (at_most(1.9), False), (at_least(2.0), True), (at_least(2.1), False)],
)
def test_an_aim_on_the_value_judges_the_median(bound: object, reached: bool) -> None:
    row = Row(what="time", unit="s", bireme=Sample.of([1.0, 2.0, 9.0]), aim=bound)  # type: ignore[arg-type]  # from a parameter
    assert row.is_reached is reached


def test_an_aim_on_the_ratio_compares_medians() -> None:
    pairs = Pairs()
    for seconds in (1.0, 5.0, 2.0):
        pairs.add("stock", {"time": seconds})
        pairs.add("bireme", {"time": 1.1 * seconds})
    assert pairs.row("time", "s", at_most(1.11, "ratio")).is_reached
    assert not pairs.row("time", "s", at_most(1.05, "ratio")).is_reached


def test_an_aim_on_the_ratio_without_a_baseline_is_an_error() -> None:
    row = Row(what="time", unit="s", bireme=Sample.of([1.0]), aim=at_most(1.0, "ratio"))
    with pytest.raises(ValueError, match="time: an aim on the ratio needs a baseline"):
        _ = row.is_reached


def test_medians_go_key_by_key() -> None:
    assert medians([{"a": 1.0}, {"a": 3.0, "b": 8.0}, {"a": 2.0}]) == {"a": 2.0, "b": 0.0}
