"""Estimates of run times: what few runs say, how groups lend to each other, what is forgotten."""

import math
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core import estimates
from bireme.core.estimates import (
    MAX_GROUPS,
    MIN_RUNS,
    PRIOR_RUNS,
    RUNS_PER_GROUP,
    RuntimeHistory,
)
from bireme.core.times import MAX_SECONDS


def a_history(
    *runs: tuple[str, str, float], runs_per_group: int = RUNS_PER_GROUP, groups: int = MAX_GROUPS
) -> RuntimeHistory:
    history = RuntimeHistory()
    with (
        mock.patch.object(estimates, "RUNS_PER_GROUP", runs_per_group),
        mock.patch.object(estimates, "MAX_GROUPS", groups),
    ):
        for run in runs:
            history.observe(*run)
    return history


def kept(history: RuntimeHistory) -> dict[tuple[str, ...], list[float]]:
    """The runs of each group, those without one for longest first."""
    return {group: list(runs.seconds) for group, runs in history._groups.items()}


def equal_runs(
    count: int, seconds: float = 100.0, user: str = "ann"
) -> list[tuple[str, str, float]]:
    return [(user, "bert", seconds)] * count


def estimate(history: RuntimeHistory, user: str = "ann", template: str = "bert") -> float:
    found = history.estimate(user, template)
    assert found is not None
    return found


def test_nothing_is_estimated_before_there_are_a_few_runs_of_anybody() -> None:
    assert a_history(*equal_runs(MIN_RUNS - 1)).estimate("ann", "bert") is None
    assert estimate(a_history(*equal_runs(MIN_RUNS))) == pytest.approx(100.0)


def test_equal_runs_are_expected_to_go_on_equal() -> None:
    assert estimate(a_history(*equal_runs(50))) == pytest.approx(100.0)


def test_nine_in_ten_runs_stay_within_the_estimate() -> None:
    history = a_history(*[("ann", "bert", float(seconds)) for seconds in range(1, 51)])
    assert estimate(history) == pytest.approx(45.0)
    assert estimate(history, "bob") == pytest.approx(45.0)


def test_of_fewer_than_ten_runs_the_longest_counts() -> None:
    history = a_history(*equal_runs(8), ("ann", "bert", 900.0))
    assert estimate(history) == pytest.approx(900.0)


def test_a_group_of_few_runs_is_drawn_towards_the_wider_one() -> None:
    others = equal_runs(100, 10_000.0, user="bob")
    history = a_history(*others, runs_per_group=100)
    assert estimate(history) == pytest.approx(10_000.0), "ann has run nothing yet"
    history = a_history(*equal_runs(PRIOR_RUNS), *others, runs_per_group=100)
    by_user = math.sqrt(100.0 * 10_000.0)
    assert estimate(history, template="new") == pytest.approx(by_user)
    assert math.sqrt(100.0 * by_user) == pytest.approx(316.2, abs=0.1)
    assert estimate(history) == 320.0
    assert estimate(history, "new") == pytest.approx(10_000.0)


def test_many_runs_of_its_own_outweigh_everybody_elses() -> None:
    others = equal_runs(64, 10_000.0, user="bob")
    history = a_history(*others, *equal_runs(60), runs_per_group=200)
    assert estimate(history) == 110.0, "102.8 before it is rounded up"


@pytest.mark.parametrize(
    "seconds",
    [0.0, -1.0, math.nan, math.inf, -math.inf, 2.0 * MAX_SECONDS, 10**400],
)
def test_what_cannot_be_a_run_time_is_left_out(seconds: float) -> None:
    history = a_history(*equal_runs(MIN_RUNS))
    before = kept(history)
    history.observe("ann", "bert", seconds)
    assert kept(history) == before


def test_another_run_of_about_the_same_length_leaves_the_estimate_as_it_was() -> None:
    """So gangs that came before and after it are still equal."""
    history = a_history(*[("ann", "bert", 1000.0 + n) for n in range(40)])
    before = estimate(history)
    history.observe("ann", "bert", 1041.5)
    assert estimate(history) == before == 1100.0


def test_only_the_latest_runs_count() -> None:
    history = a_history(*equal_runs(50, 9_000.0), *equal_runs(8), runs_per_group=8)
    assert estimate(history) == pytest.approx(100.0)


def test_the_group_without_a_run_for_longest_is_forgotten_first() -> None:
    runs = [("ann", "a", 1.0), ("ann", "b", 1.0), ("ann", "a", 1.0), ("ann", "c", 1.0)]
    groups = list(kept(a_history(*runs, groups=4)))
    assert groups == [("ann", "a"), ("ann", "c"), ("ann",), ()]


RUNS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.floats(1e-3, MAX_SECONDS)),
    max_size=40,
)


@given(RUNS, st.integers(1, 6), st.integers(3, 8))
def test_memory_is_bounded_and_everybodys_runs_are_never_forgotten(
    runs: list[tuple[str, str, float]], per_group: int, groups: int
) -> None:
    known = kept(a_history(*runs, runs_per_group=per_group, groups=groups))
    assert len(known) <= groups
    assert all(0 < len(seconds) <= per_group for seconds in known.values())
    latest = [seconds for _, _, seconds in runs[-per_group:]]
    assert not runs or list(known.items())[-1] == ((), latest)


@given(RUNS)
def test_an_estimate_lies_between_the_shortest_and_the_longest_run_rounded_up(
    runs: list[tuple[str, str, float]],
) -> None:
    history = a_history(*runs)
    found = history.estimate("a", "x")
    assert (found is None) == (len(runs) < MIN_RUNS)
    if found is not None:
        times = [seconds for _, _, seconds in runs]
        assert min(times) * (1 - 1e-6) <= found <= max(times) * 1.1
        assert found == float(f"{found:.1e}"), "two significant digits"


@given(st.floats(1e-3, MAX_SECONDS))
def test_equal_runs_stay_within_the_estimate_they_lead_to(seconds: float) -> None:
    found = estimate(a_history(*equal_runs(MIN_RUNS, seconds)))
    assert seconds * (1 - 1e-6) <= found <= seconds * 1.1


@pytest.mark.parametrize(
    ("seconds", "expected"), [(100, 100), (101, 110), (99.5, 100), (0.123, 0.13)]
)
def test_an_estimate_is_rounded_up_to_two_digits(seconds: float, expected: float) -> None:
    assert estimate(a_history(*equal_runs(9, seconds))) == expected
