"""Equation 2 of the paper of RLPTO and LSP."""

import pytest

from bireme.forecasting.pool_forecast import task_rate


def test_the_rate_follows_the_days_with_the_papers_weight() -> None:
    assert task_rate([10.0, 20.0, 0.0]) == pytest.approx(0.8 * (0.8 * 10 + 0.2 * 20))


def test_a_steady_rate_stays_as_it_is() -> None:
    assert task_rate([3.0] * 40) == pytest.approx(3.0)
