"""What a period is worth: the paper's reward by hand, and the one that training goes by."""

import numpy as np
import pytest

from bireme.training.rlpto.environment import (
    POWER,
    RUN_PRICE,
    TASK_PRICE,
    RlptoPeriod,
    equation_5,
    priced,
)

BETA = 3e-4


def a_period(
    gain: float, *, minutes: float = 2.0, left: int = 4, result: float = 0.0
) -> RlptoPeriod:
    """One env, one task of five workers that gained ``gain`` in one iteration."""
    one = np.array([[gain]])
    return RlptoPeriod(
        added=one,
        gain=one,
        nodes=np.array([[5]]),
        minutes=np.array([minutes]),
        left=np.array([left]),
        results=np.array([[result]]),
        beta=np.array([BETA]),
    )


def test_the_sign_of_the_papers_second_term_flips_at_beta() -> None:
    spent = 2.0 * 5 * POWER
    for gain, sign in ((0.9 * BETA, -1), (BETA, 0), (1.1 * BETA, 1)):
        assert equation_5(a_period(gain)) == pytest.approx([gain + sign * spent])


def test_a_minute_costs_betas_for_the_run_and_for_every_task_not_yet_done() -> None:
    found = priced(a_period(1e-2, minutes=1.5, left=4, result=6e-4))
    assert found == pytest.approx([2.0 - 1.5 * (RUN_PRICE + 4 * TASK_PRICE)])


def test_being_slow_pays_by_the_papers_reward_and_costs_by_the_other() -> None:
    quick, slow = a_period(1e-3), a_period(1e-3, minutes=4.0)
    assert equation_5(slow) > equation_5(quick)
    assert priced(slow) < priced(quick)
