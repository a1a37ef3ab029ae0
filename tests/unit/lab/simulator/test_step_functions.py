"""Means of step functions, against a slow sum."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.simulator import metrics

TIMES = np.array([1.0, 3.0, 4.0])
VALUES = np.array([2.0, 0.0, 5.0])


@pytest.mark.parametrize(
    ("began", "ended", "mean"),
    [
        pytest.param(1, 3, 2.0, id="one step"),
        pytest.param(2, 4, 1.0, id="two halves"),
        pytest.param(0, 1, 0.0, id="before the first"),
        pytest.param(0, 2, 1.0, id="over the first"),
        pytest.param(4, 400, 5.0, id="the last step never ends"),
    ],
)
def test_mean_is_over_time_not_over_steps(began: float, ended: float, mean: float) -> None:
    assert metrics.mean_between(TIMES, VALUES, began, ended) == pytest.approx(mean)


def test_function_without_steps_is_zero() -> None:
    assert metrics.mean_between(np.empty(0), np.empty(0), 0.0, 10.0) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=12),
    st.lists(st.integers(-5, 70), min_size=2, max_size=8, unique=True),
)
def test_bins_hold_the_sum_second_by_second(points: list[tuple[int, int]], at: list[int]) -> None:
    ascending = sorted(dict(points).items())
    times = np.array([time for time, _ in ascending], dtype=float)
    values = np.array([value for _, value in ascending], dtype=float)
    edges = np.array(sorted(at), dtype=float)

    def value_at(second: int) -> int:
        return next((v for t, v in reversed(ascending) if t <= second), 0)

    slow = [
        sum(value_at(second) for second in range(int(low), int(high))) / (high - low)
        for low, high in pairwise(edges)
    ]
    assert metrics.bin_means(times, values, edges) == pytest.approx(slow)
