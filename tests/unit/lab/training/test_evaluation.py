"""Evaluation of a checkpoint and its baselines over many seeds, and the joining of shards."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.errors import SettingError
from bireme_lab.training.evaluation import EvaluationResult, merge
from bireme_lab.training.recipes import Results


def results(own: float, baseline: float, third: float = 99.0) -> Results:
    return {
        "third": {"cost": third},
        "mine": {"cost": own, "delay": 2 * own},
        "baseline": {"cost": baseline, "delay": 1.0},
    }


def a_judgement(*seeds: Results, **facts: Any) -> EvaluationResult:
    about: dict[str, Any] = {
        "recipe": "toy",
        "checkpoint": "mine",
        "sha256": "0" * 64,
        "setting": "plain",
        "options": {},
        "metric": "cost",
        "is_less_better": True,
    }
    return EvaluationResult(**{**about, **facts}, runs=dict(enumerate(seeds)))


def test_best_baseline_is_the_best_by_the_primary_metric_but_the_checkpoint() -> None:
    result = a_judgement(results(1, 10, 20), results(1, 30, 22))
    assert list(result.means()) == ["mine", "baseline", "third"]
    assert result.best_baseline == "baseline"
    assert replace(result, is_less_better=False).best_baseline == "third"


def test_ratio_is_of_means_and_paired_over_seeds() -> None:
    result = a_judgement(results(8, 10), results(80, 100), results(4, 5))
    ratio = result.ratios()["mine"]["cost"]
    assert ratio.mean == ratio.low == ratio.high == pytest.approx(0.8)
    mean = result.means()["mine"]["cost"]
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < mean.mean < mean.high


def test_table_has_a_row_per_policy_and_says_none_where_there_is_no_number() -> None:
    head, rows = a_judgement(results(8, 10)).table()
    assert head == ["policy", "cost", "delay", "cost to baseline's"]
    assert rows[0] == ["mine", "8.00", "16.0", "0.800"]
    assert rows[2] == ["third", "99.0", "none", "9.90"]


def test_policy_without_any_value_comes_last() -> None:
    result = a_judgement({"lost": {}, "mine": {"cost": 3.0}})
    assert list(result.means()) == ["mine", "lost"]
    assert result.best_baseline == "lost"
    assert result.ratios()["mine"] == {}


def test_policy_alone_has_no_ratio() -> None:
    result = a_judgement({"mine": {"cost": 3.0}})
    assert result.ratios() == {}
    assert result.table() == (["policy", "cost"], [["mine", "3.00"]])


def test_policy_that_a_seed_lacks_is_an_error_that_names_both() -> None:
    result = a_judgement(
        {"mine": {"cost": 1.0}, "baseline": {"cost": 1.0}}, {"mine": {"cost": 1.0}}
    )
    with pytest.raises(SettingError, match="seed 1 has no numbers of 'baseline'"):
        result.means()


def test_what_is_written_as_json_reads_back_the_same() -> None:
    result = a_judgement(results(8, 10), results(9, 10))
    assert EvaluationResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_merged_shards_are_the_whole() -> None:
    seeds = [results(own, 10) for own in range(1, 7)]
    whole = a_judgement(*seeds)
    shards = [
        replace(whole, runs={seed: run for seed, run in whole.runs.items() if seed % 3 == shard})
        for shard in (2, 0, 1)
    ]
    assert merge(shards).to_json() == whole.to_json()


def test_shards_of_different_checkpoints_or_with_a_seed_twice_are_refused() -> None:
    one = a_judgement(results(1, 2))
    with pytest.raises(SettingError, match="seed 0 is in two shards"):
        merge([one, one])
    with pytest.raises(SettingError, match="shards differ in sha256"):
        merge([one, replace(one, sha256="1" * 64)])
