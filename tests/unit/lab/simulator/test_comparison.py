"""Policies side by side: means, intervals over seeds, paired ratios."""

import json

import pytest

from bireme.core.errors import SettingError
from bireme_lab.simulator.comparison import Comparison, Estimate, compare
from bireme_lab.simulator.metrics import SimulationMetrics, measure
from tests.unit.lab.simulator.outcomes import an_outcome, one_after_another

MEAN = "mean_jct_seconds"


def runs_of(policy: str, *seconds: float) -> list[SimulationMetrics]:
    """A run per seed, of one job that takes so long."""
    return [
        measure(one_after_another(each, policy=policy, seed=seed))
        for seed, each in enumerate(seconds)
    ]


def ratio(comparison: Comparison, policy: str, key: str = MEAN) -> Estimate:
    return next(line.ratios[key] for line in comparison.results if line.policy == policy)


def test_policies_stay_in_the_order_they_were_given_in() -> None:
    comparison = compare(runs_of("z", 1) + runs_of("a", 1))
    assert [line.policy for line in comparison.results] == ["z", "a"]


def test_mean_is_over_seeds_and_the_ratio_is_one_of_means() -> None:
    comparison = compare(runs_of("first", 10, 30) + runs_of("second", 5, 5))
    assert comparison.results[0].means[MEAN].mean == 20
    assert ratio(comparison, "second").mean == pytest.approx(0.25)
    assert ratio(comparison, "first") == Estimate(1.0, 1.0, 1.0)


def test_one_seed_has_no_interval() -> None:
    comparison = compare(runs_of("first", 10) + runs_of("second", 5))
    assert comparison.results[0].means[MEAN] == Estimate(10.0)
    assert ratio(comparison, "second") == Estimate(0.5)


def test_interval_holds_the_mean_and_lies_among_the_seeds() -> None:
    mean = compare(runs_of("first", 10, 20, 30, 40, 50)).results[0].means[MEAN]
    assert mean.low is not None
    assert mean.high is not None
    assert 10 <= mean.low < 30 < mean.high <= 50


def test_interval_is_that_of_the_bootstrap() -> None:
    """Of two seeds, a quarter of the samples are both the one, a quarter both the other."""
    assert compare(runs_of("first", 10, 20)).results[0].means[MEAN] == Estimate(15.0, 10.0, 20.0)


def test_ratio_is_paired_so_that_hard_seeds_do_not_blur_it() -> None:
    comparison = compare(runs_of("first", 1, 10, 100) + runs_of("second", 2, 20, 200))
    found = ratio(comparison, "second")
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    spread = comparison.results[1].means[MEAN]
    assert spread.low is not None
    assert spread.high is not None
    assert spread.high > 10 * spread.low


def test_pairs_are_found_whatever_the_order_of_runs() -> None:
    runs = runs_of("first", 1, 10, 100) + runs_of("second", 2, 20, 300)
    shuffled = [runs[0], *reversed(runs[1:])]
    assert compare(runs).to_json() == compare(shuffled).to_json()


def test_the_same_runs_have_the_same_interval() -> None:
    runs = runs_of("first", 3, 14, 15, 92, 65)
    assert compare(runs).to_json() == compare(runs).to_json()


def test_seeds_that_agree_leave_no_interval_and_are_called_settled() -> None:
    comparison = compare(runs_of("first", 1 / 3, 1 / 3, 1 / 3) + runs_of("second", 5, 5, 5))
    assert comparison.is_settled
    mean = comparison.results[0].means[MEAN]
    assert mean.low == mean.high == mean.mean


@pytest.mark.parametrize("second", [(5, 6), (5, 5, 6)])
def test_one_run_that_differs_shows_chance(second: tuple[float, ...]) -> None:
    runs = runs_of("first", *[1] * len(second)) + runs_of("second", *second)
    assert not compare(runs).is_settled


def test_single_seed_proves_nothing_about_chance() -> None:
    assert not compare(runs_of("first", 1)).is_settled


def test_number_that_a_run_lacks_is_left_out_instead_of_guessed() -> None:
    comparison = compare([measure(an_outcome(policy="first")), *runs_of("second", 5)])
    assert MEAN not in comparison.results[0].means
    assert comparison.results[1].means[MEAN].mean == 5
    assert MEAN not in comparison.results[1].ratios


def test_there_is_no_ratio_to_zero() -> None:
    comparison = compare(runs_of("first", 5, 5) + runs_of("second", 5, 6))
    assert "mean_wait_seconds" not in comparison.results[1].ratios
    assert "mean_wait_seconds" in comparison.results[1].means


def test_policy_that_lacks_a_seed_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="policy 'second' has no run with seed 1"):
        compare(runs_of("first", 1, 2) + runs_of("second", 1))


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(SettingError, match="simulate at least one policy"):
        compare([])


def test_json_has_no_values_that_json_lacks() -> None:
    runs = [measure(an_outcome(policy="first")), *runs_of("second", 5)]
    text = json.dumps(compare(runs).to_json(), allow_nan=False)
    assert json.loads(text)["policies"][1]["means"][MEAN] == {
        "mean": 5.0,
        "low": None,
        "high": None,
    }
