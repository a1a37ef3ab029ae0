"""Equations 2 and 3 of the paper of RLPTO and LSP."""

import math

import pytest

from bireme.core.errors import SettingError
from bireme.forecasting.pool_forecast import nodes_for, task_rate


def test_the_rate_follows_the_days_with_the_papers_weight() -> None:
    assert task_rate([10.0, 20.0, 0.0]) == pytest.approx(0.8 * (0.8 * 10 + 0.2 * 20))


def test_a_steady_rate_stays_as_it_is() -> None:
    assert task_rate([3.0] * 40) == pytest.approx(3.0)


def test_nodes_are_tasks_over_rate() -> None:
    assert nodes_for(30.0, 4.0) == 7.5


@pytest.mark.parametrize(
    ("observed", "rho"), [([], 0.8), ([-1.0], 0.8), ([math.inf], 0.8), ([1.0], 1.5)]
)
def test_what_is_no_rate_is_refused(observed: list[float], rho: float) -> None:
    with pytest.raises(SettingError, match="at least one finite rate"):
        task_rate(observed, rho)


def test_without_finished_tasks_there_is_no_number_of_nodes() -> None:
    with pytest.raises(SettingError, match="measure Demand instead"):
        nodes_for(5.0, 0.0)
