"""Pages about learned policies: bars are held against the best baseline; misses are reported."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.learning.bars import BARS, Bar, measured
from benchmarks.learning.page import joined, page
from bireme_lab.training.das.evaluation import baselines
from bireme_lab.training.evaluation import EvaluationResult

BASELINES = ("slow", "fast")


def a_judgement(
    runs: Mapping[int, Mapping[str, Mapping[str, float]]], setting: str = "small"
) -> EvaluationResult:
    return EvaluationResult("mine", "mine", "0" * 64, setting, {}, "mean_jct_minutes", True, runs)


def times(**minutes: float) -> dict[str, dict[str, float]]:
    return {name: {"mean_jct_minutes": value} for name, value in minutes.items()}


def test_a_ratio_is_to_the_best_baseline_over_all_seeds() -> None:
    runs = {0: times(mine=8, slow=9, fast=20), 1: times(mine=10, slow=31, fast=16)}
    reached = measured(Bar("small", "mean_jct_minutes", 0.5, BASELINES), a_judgement(runs))
    assert reached.baseline == "fast"
    assert reached.found.mean == pytest.approx(18 / 36)
    assert reached.is_reached


def test_a_bar_without_rivals_is_on_the_value() -> None:
    runs = {0: times(mine=8), 1: times(mine=10)}
    reached = measured(Bar("small", "mean_jct_minutes", 8.9), a_judgement(runs))
    assert (reached.baseline, reached.found.mean) == ("", 9.0)
    assert not reached.is_reached


def test_a_bar_may_be_on_more_of_something_and_on_another_policy_of_the_checkpoint() -> None:
    points = {
        name: {"mean_jct_minutes": value}
        for name, value in (("mine", 1), ("mine-b", 9), ("slow", 8))
    }
    bar = Bar("small", "mean_jct_minutes", 1.0, ("slow",), own="mine-b", is_less_better=False)
    assert measured(bar, a_judgement({0: points})).is_reached
    assert not measured(replace(bar, own=""), a_judgement({0: points})).is_reached


def test_the_best_baseline_has_most_where_more_is_better() -> None:
    runs = {0: times(mine=8, slow=9, fast=4)}
    bar = Bar("small", "mean_jct_minutes", 1.0, BASELINES, is_less_better=False)
    assert measured(bar, a_judgement(runs)).baseline == "slow"


def test_the_interval_holds_the_ratio_that_all_seeds_agree_on() -> None:
    runs = {seed: times(mine=4.0 + seed, fast=8.0 + 2 * seed) for seed in range(5)}
    bar = Bar("small", "mean_jct_minutes", 0.5, ("fast",))
    found = measured(bar, a_judgement(runs)).found
    assert found.low == found.high == pytest.approx(0.5)


def test_policies_evaluated_apart_with_equal_seeds_become_one_table() -> None:
    own = a_judgement({0: times(mine=8), 1: times(mine=10)})
    baselines = replace(
        a_judgement({0: times(mine=1, fast=2), 1: times(mine=1, fast=4)}), options={"only": "fast"}
    )
    other = replace(baselines, options={"only": "fast", "cycle": "guardrails"})
    whole, guardrails = joined([own, baselines, other])
    assert whole.runs == {0: times(mine=8, fast=2), 1: times(mine=10, fast=4)}
    assert guardrails.options == {"cycle": "guardrails"}
    assert len(joined([own, a_judgement({2: times(mine=8)})])) == 2, "other seeds stay apart"


def das_runs(minutes: float) -> dict[int, dict[str, dict[str, float]]]:
    """DAS takes so long and costs 1 $; every baseline takes 100 minutes and costs 1 $."""
    baselines = dict.fromkeys((name for bar in BARS["das"] for name in bar.baselines), 100.0)
    return {
        seed: {
            name: {"mean_jct_minutes": value, "mean_fee_dollars": 1.0}
            for name, value in {"mine": minutes, **baselines}.items()
        }
        for seed in range(2)
    }


def test_the_page_tells_bars_that_were_missed() -> None:
    found = [a_judgement(das_runs(80.0)), a_judgement(das_runs(98.0), "medium")]
    command = "bireme evaluate das --setting small,medium"
    lines = page("das", found, [f"{command} --jobs 1 --json x", command]).splitlines()
    bars = [line for line in lines if ", ratio to" in line]
    verdicts = [line.split("|")[-2].strip() for line in bars]
    assert verdicts == [*2 * ["yes", "**no**", "**no**", "**no**"], *8 * ["yes"]]
    assert lines.count(command) == 1, "where results go is left out"


def test_the_first_judgement_of_a_setting_is_held_to_its_bars() -> None:
    found = [
        a_judgement(das_runs(80.0)),
        replace(a_judgement(das_runs(98.0)), options={"cycle": "guardrails"}),
    ]
    bars = [line for line in page("das", found, []).splitlines() if ", ratio to" in line]
    assert "0.800" in bars[0]
    assert len(bars) == 8


def test_every_rival_that_a_bar_names_is_judged() -> None:
    assert {name for bar in BARS["das"] for name in bar.baselines} == {
        *("dl2", "dl2/first-fit"),  # a checkpoint, judged with --opt beside
        *baselines(),
    }
