"""RLPTO's evaluation: same tasks for all, points over time, the simple rule's curve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.heuristics.simple_sizers import FairSharing, Maximum
from bireme_lab.training.rlpto.baselines import (
    BASELINES,
    ITERATIONS,
    RlptoBaseline,
    run_baseline,
    share_among_gaining,
)
from bireme_lab.training.rlpto.environment import BETAS, CONFIGS
from bireme_lab.training.rlpto.evaluation import SETTINGS, evaluate, play_episode, points

TABLE = CONFIGS["table-2"]
SEED = 7


@pytest.mark.parametrize("name", ["fs", "fcfs", "slaq", "dolphin"])
def test_rivals_without_a_target_train_every_task_as_long(name: str) -> None:
    end = run_baseline(BASELINES[name], TABLE, SEED)
    assert end.iterations == pytest.approx(np.full((1, 12), ITERATIONS))


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_rivals_know_no_priorities_and_interrupt_nobody(name: str) -> None:
    mixed = CONFIGS["mix-4"]
    plain = replace(mixed, priorities=(1,) * 12)
    ends = [run_baseline(BASELINES[name], setting, SEED) for setting in (mixed, plain)]
    assert not ends[0].interrupted.any()
    assert (ends[0].finished == ends[1].finished).all()


def test_one_task_after_the_other_has_everything_and_is_least_accurate() -> None:
    alone, shared = (run_baseline(BASELINES[name], TABLE, SEED) for name in ("fcfs", "fs"))
    order = np.argsort(alone.started[0])
    assert alone.started[0][order][1:] == pytest.approx(alone.finished[0][order][:-1])
    assert alone.accuracy.mean() < shared.accuracy.mean()


def test_tasks_end_at_their_target_earlier_and_less_accurate() -> None:
    target, full = (run_baseline(BASELINES[name], TABLE, SEED) for name in ("tradl", "fs"))
    assert (target.iterations < full.iterations).all()
    assert target.clock[0] < full.clock[0]
    assert target.accuracy.mean() < full.accuracy.mean()


def test_the_nearest_target_is_taken_first_where_the_order_says_so() -> None:
    late = replace(TABLE, servers=1)
    end = run_baseline(replace(BASELINES["tradl-nearest"], sizer=Maximum()), late, SEED)
    first, last = np.argmin(end.started[0]), np.argmax(end.started[0])
    assert (
        end.finished[0, first] - end.started[0, first]
        < end.finished[0, last] - end.started[0, last]
    )


def test_a_least_gain_ends_tasks_whose_gain_falls_below_it() -> None:
    stop = RlptoBaseline(FairSharing(), least_gain=3e-4, iterations=math.inf)
    assert (run_baseline(stop, TABLE, SEED).gain < 3e-4).all()


def test_the_simple_rule_is_faster_and_less_accurate_the_larger_beta() -> None:
    ends = [play_episode(share_among_gaining, TABLE, beta, SEED) for beta in BETAS]
    assert (np.diff([end.clock[0] for end in ends]) < 0).all()
    assert (np.diff([end.accuracy.mean() for end in ends]) < 0).all()


def test_points_are_ten_times_the_priority_and_eighty_for_the_highest() -> None:
    finished = np.array([500.0, 1000.0, 3500.0, math.nan])
    assert points(finished, (1, 5, 4, 3)).tolist() == [90, 90, 90, 130, 130, 130, 130]


def test_all_contenders_are_judged_by_name_and_learned_ones_once_per_beta() -> None:
    found = evaluate("table-2", SEED, {"rlpto": share_among_gaining})
    assert {*BASELINES, "rlpto", *(f"rlpto-{beta}" for beta in BETAS)} < set(found)
    assert found["rlpto-0.001"] == found["simple-rule-0.001"] != found["fair-stop-0.001"]
    assert found["rlpto"] == found["rlpto-0.0003"]


def test_mixes_are_judged_at_one_beta_and_by_points() -> None:
    found = evaluate("mix-4", SEED, {})
    assert {name for name in found if name not in BASELINES} == {
        *("fair-stop-0.0003", "simple-rule-0.0003")
    }
    assert all(0 < row["mean_reward"] < 430 for row in found.values())


def test_every_setting_has_a_line_and_an_unknown_one_is_named() -> None:
    assert set(SETTINGS) == {*CONFIGS, "elastic"}
    with pytest.raises(SettingError, match="table-4"):
        evaluate("table-4", 0, {})
