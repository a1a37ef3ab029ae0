"""Stragglers: how unequal the replicas of a start are."""

import csv
import gzip
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme_lab.simulator.physics.model import Fluctuation, expected_largest, straggling

DATA = Path(__file__).parents[5] / "shared" / "data"
VARIATIONS = DATA / "alibaba_v2020" / "coefficient_variation.csv.gz"


@pytest.mark.parametrize(("count", "exact"), [(1, 0.0), (3, 0.8463), (10, 1.5388), (100, 2.5076)])
def test_the_expected_largest_value_is_near_the_exact_one(count: int, exact: float) -> None:
    assert expected_largest(count) == pytest.approx(exact, rel=0.03, abs=1e-12)


def test_a_single_replica_waits_for_nobody() -> None:
    assert straggling(0.5, 1) == 1.0


@given(st.floats(0.05, 1), st.integers(1, 500))
def test_more_replicas_wait_longer(factor: float, replicas: int) -> None:
    assert straggling(factor, replicas + 1) <= straggling(factor, replicas) <= 1.0


@given(st.floats(0.05, 1))
def test_a_factor_is_for_ten_replicas(factor: float) -> None:
    assert straggling(factor, 10) == pytest.approx(factor)


def test_luck_depends_on_seed_job_and_start_alone() -> None:
    law = Fluctuation()
    assert law.factor(1, "a", 0) == law.factor(1, "a", 0)
    assert (
        len({law.factor(*key) for key in [(1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1)]}) == 4
    )


def test_draws_have_the_median_and_the_tail_they_are_calibrated_to() -> None:
    law = Fluctuation()
    draws = np.array([law.variation(7, "job", start) for start in range(4000)])
    assert np.median(draws) == pytest.approx(0.093, rel=0.12)
    assert np.percentile(draws, 90) == pytest.approx(1.06, rel=0.15)
    assert draws.max() == sqrt(10)


def test_equal_replicas_hardly_vary() -> None:
    law = Fluctuation(median_variation=1e-6, p90_variation=1e-6)
    assert law.factor(0, "a", 0) == pytest.approx(1 / (1 + 1e-6 * expected_largest(10)), rel=1e-9)


@pytest.mark.parametrize("numbers", [(0.0, 1.0), (0.2, 0.1)])
def test_variations_that_make_no_law_are_refused(numbers: tuple[float, float]) -> None:
    with pytest.raises(SettingError, match="median_variation is"):
        Fluctuation(*numbers)


@pytest.mark.skipif(not VARIATIONS.exists(), reason="needs Alibaba's measurements, not shipped")
def test_the_shipped_numbers_are_those_of_the_measurements() -> None:
    with gzip.open(VARIATIONS, "rt") as file:
        rows = list(csv.reader(file))[1:]
    measured = np.array([float(cell) for row in rows for cell in row[1:] if cell])
    law = Fluctuation()
    assert np.median(measured) == pytest.approx(law.median_variation, abs=0.001)
    assert np.percentile(measured, 90) == pytest.approx(law.p90_variation, abs=0.006)
    assert measured.max() <= sqrt(10)
