"""Loss curves: their values, and fits that find them again."""

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.speed import (
    FASTEST,
    SERIAL_SHARE,
    SLOWEST,
    CurveFitError,
    InverseQuadratic,
    LinearSpeed,
    LossCurve,
    fit_loss,
    fit_speed,
    nonnegative_least_squares,
)

STEPS = [float(step) for step in range(1, 101, 5)]


def losses(curve: LossCurve, steps: Sequence[float] = STEPS) -> list[float]:
    return [curve.loss(step) for step in steps]


def test_curves_have_the_values_of_their_formulas() -> None:
    assert InverseQuadratic(0.01, 0.1, 2.0, 0.3).loss(10) == pytest.approx(1 / 4 + 0.3)


def test_a_curve_without_a_constant_starts_from_infinite_loss() -> None:
    assert InverseQuadratic(0.0, 1.0, 0.0).loss(0) == inf


@pytest.mark.parametrize("d", [0.1, 0.0, 1.5])
def test_optimus_curve_is_found_again_with_its_numbers(d: float) -> None:
    fitted = fit_loss(STEPS, losses(InverseQuadratic(0, 0.05, 0.4, d)))
    found = (fitted.a, fitted.b, fitted.c, fitted.d)
    assert found == pytest.approx((0, 0.05, 0.4, d), rel=1e-2, abs=1e-3)


def test_noise_leaves_the_forecast_near_the_truth() -> None:
    truth = InverseQuadratic(0, 0.05, 0.4, 0.1)
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(len(STEPS))
    fitted = fit_loss(STEPS, (np.array(losses(truth)) * noise).tolist())
    assert fitted.loss(200) == pytest.approx(truth.loss(200), rel=0.15)


@pytest.mark.parametrize(
    ("steps", "seen", "word"),
    [
        ([1, 2, 3], [3, 2, 1], "3 steps and 3 losses"),
        ([1, 2, 3, 4], [3, 2, 1], "4 steps and 3 losses"),
        ([1, 3, 2, 4], [4, 3, 2, 1], "steps must ascend"),
        ([1, 2, 3, 4], [4, 3, 2, -1], "losses must be finite"),
        ([1, 2, 3, 4], [4, 3, 2, inf], "losses must be finite"),
        ([1, 2, 3, 4], [1, 2, 3, 4], "do not fall"),
    ],
)
def test_what_no_curve_fits_is_refused(steps: list[float], seen: list[float], word: str) -> None:
    with pytest.raises(CurveFitError, match=word):
        fit_loss(steps, seen)


@given(st.integers(0, 2**32 - 1))
def test_no_other_nonnegative_coefficients_fit_better(seed: int) -> None:
    chance = np.random.default_rng(seed)
    columns, target = chance.random((9, 3)), chance.standard_normal(9)
    weights = chance.random(9) + 0.1
    (found,) = nonnegative_least_squares(columns, target[None], weights[None])
    assert (found >= 0).all()

    def error(coefficients: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(weights @ (columns @ coefficients - target) ** 2)

    for scale in (1e-3, 1e-2, 0.1, 1.0):
        nearby = np.maximum(found + scale * chance.standard_normal((50, 3)), 0)
        assert all(error(other) >= error(found) - 1e-9 for other in nearby)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: InverseQuadratic(-1, 1, 1), "none may be below 0"),
        (lambda: InverseQuadratic(0, 0, 0), "one must be above"),
    ],
)
def test_numbers_that_make_no_curve_are_refused(make: object, word: str) -> None:
    assert callable(make)
    with pytest.raises(SettingError, match=word):
        make()


@given(share=st.floats(0, 1), speed=st.floats(1e-3, 1e3))
def test_speed_law_is_found_again_from_two_sizes(share: float, speed: float) -> None:
    law = LinearSpeed(speed, share)
    paces = {n: law.steps_per_second({"worker": n}, 1) for n in (2, 8)}
    fitted = fit_speed(paces)
    for replicas in (1, 4, 16):
        sizes = {"worker": replicas}
        expected = law.steps_per_second(sizes, 1)
        assert fitted.steps_per_second(sizes, 1) == pytest.approx(expected, rel=1e-6)


def test_one_size_is_scaled_by_the_usual_serial_share() -> None:
    law = fit_speed({4: 10.0})
    assert law.serial_share == SERIAL_SHARE
    assert law.steps_per_second({"worker": 4}, 1) == pytest.approx(10.0)


def test_speed_that_falls_with_size_gains_nothing_by_it() -> None:
    assert fit_speed({1: 3.0, 4: 2.0}).serial_share == 1.0


@pytest.mark.parametrize("speeds", [{}, {0: 1.0}, {2: 0.0}, {2: inf}, {1: 1.0, 2: float("nan")}])
def test_speeds_that_cannot_be_are_refused(speeds: dict[int, float]) -> None:
    with pytest.raises(CurveFitError, match="speeds are"):
        fit_speed(speeds)


@given(
    st.dictionaries(
        st.integers(1, 10_000), st.floats(SLOWEST, FASTEST) | st.sampled_from((SLOWEST, FASTEST))
    ).filter(bool)
)
def test_any_speeds_that_can_be_make_a_law(speeds: dict[int, float]) -> None:
    law = fit_speed(speeds)
    assert 0 < law.steps_per_second({"worker": 3}, 1) < inf
