"""TapFinger's env: when time passes, what it costs, what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bireme_lab.encoders.tapfinger_scene import NONE
from bireme_lab.training.tapfinger.baselines import Greedy, at_random
from bireme_lab.training.tapfinger.environment import (
    WINDOW,
    TapFingerEnv,
    TapFingerPools,
    draw,
    make_config,
)
from bireme_lab.training.tapfinger.evaluation import follow

MULTI = make_config("multi-3", jobs=40)
SINGLE = make_config("single-3", jobs=40)
Chosen = dict[str, NDArray[Any]]


def nothing(env: TapFingerEnv) -> Chosen:
    shape = (env.count, len(env.config.capacity))
    return {
        "slot": np.zeros(shape, np.int64),
        "won": np.zeros(shape, np.bool_),
        "amount": np.zeros((*shape, 2), np.int64),
    }


def one(env: TapFingerEnv, pool: int, gpus: int, slot: int = 0) -> Chosen:
    """Every env starts one job in ``pool``."""
    chosen = nothing(env)
    chosen["slot"][:, pool], chosen["won"][:, pool] = slot, True
    chosen["amount"][:, pool] = 2, gpus
    return chosen


def where_pools_share(env: TapFingerEnv) -> int:
    """The first seed in which the first job in line reaches the first two pools."""
    for seed in range(100):
        job = env.reset([seed])["job"]
        if job[0, 0, 0] == job[0, 1, 0] != NONE:
            return seed
    raise AssertionError("no seed has it")


@pytest.mark.parametrize("setting", [MULTI, SINGLE], ids=["multi", "single"])
def test_all_rewards_together_are_minus_all_completion_times(setting: Any) -> None:
    env, rule = TapFingerEnv(8, setting), Greedy(setting.law)
    seen, total = env.reset(range(8)), np.zeros(8)
    while not env.pools.is_over.all():
        step = env.step(rule(seen))
        seen, total = step.observation, total + step.rewards
    assert total.tolist() == (-(env.pools.ended - env.pools.jobs.arrival).sum(axis=1)).tolist()


def test_starts_of_multi_mode_take_no_time_and_cost_nothing() -> None:
    env = TapFingerEnv(1, MULTI)
    env.reset([where_pools_share(env)])
    before = env.pools.now.copy()
    step = env.step(one(env, 0, 1))
    assert step.observation["can_start"].any()
    assert step.rewards.tolist() == [0.0]
    assert env.pools.now.tolist() == before.tolist()


def test_a_start_of_single_mode_takes_a_step() -> None:
    env = TapFingerEnv(1, SINGLE)
    env.reset([where_pools_share(env)])
    before, present = env.pools.now.copy(), env.pools.present.sum()
    step = env.step(one(env, 0, 1))
    assert step.rewards[0] <= -present
    assert (env.pools.now > before).all()


def test_with_retries_a_pool_that_lost_chooses_again_and_one_that_won_does_not() -> None:
    env = TapFingerEnv(20, SINGLE, retries=True)
    chosen = Greedy(SINGLE.law)(env.reset(range(20)))
    is_winner = np.arange(3) == chosen["won"].argmax(axis=1)[:, None]
    before = env.pools.now.copy()
    seen = env.step(chosen | {"won": is_winner}).observation
    goes_on = env.pools.now == before
    assert goes_on.any()
    assert seen["can_start"][goes_on].any(axis=1).all()
    assert not (seen["can_start"] & is_winner)[goes_on].any()


def test_a_job_that_starts_leaves_the_line_of_all_pools() -> None:
    env = TapFingerEnv(1, MULTI)
    seed = where_pools_share(env)
    job = env.reset([seed])["job"][0, 0, 0]
    seen = env.step(one(env, 0, 3)).observation
    assert not (seen["job"] == job).any()
    assert env.pools.pool[0, job] == 0
    assert env.pools.free[0].tolist() == [[14, 13], [16, 16], [16, 16]]


def test_two_pools_cannot_start_one_job() -> None:
    env = TapFingerEnv(1, MULTI)
    env.reset([where_pools_share(env)])
    both = one(env, 0, 1)
    both["won"][0, 1], both["amount"][0, 1] = True, (2, 1)
    with pytest.raises(ValueError, match="no other pool starts"):
        env.step(both)


@pytest.mark.parametrize("amount", [(2, 17), (1, 1), (2, 0)])
def test_an_impossible_amount_is_refused(amount: tuple[int, int]) -> None:
    env = TapFingerEnv(1, MULTI)
    env.reset([where_pools_share(env)])
    chosen = one(env, 0, 1)
    chosen["amount"][0, 0] = amount
    with pytest.raises(ValueError, match="a possible amount"):
        env.step(chosen)


def test_choosing_an_empty_place_is_refused() -> None:
    env = TapFingerEnv(1, MULTI)
    env.reset([where_pools_share(env)])
    with pytest.raises(ValueError, match="a job that is there"):
        env.step(one(env, 0, 1, slot=WINDOW - 1))


def test_nobody_may_wait_while_nothing_runs() -> None:
    env = TapFingerEnv(2, MULTI)
    assert not env.reset([0, 1])["may_wait"].any()
    with pytest.raises(ValueError, match="while nothing runs"):
        env.step(nothing(env))


def test_where_nobody_can_start_anything_time_passes_by_itself() -> None:
    env, rule = TapFingerEnv(8, MULTI), Greedy(MULTI.law)
    seen = env.reset(range(8))
    while not env.pools.is_over.all():
        assert (seen["can_start"].any(axis=1) | env.pools.is_over).all()
        seen = env.step(rule(seen)).observation


def test_a_world_that_is_over_ignores_what_is_done_in_it() -> None:
    short = TapFingerEnv(2, make_config("multi-3", jobs=1))
    seen = short.reset([0, 1])
    while not short.pools.is_over.all():
        seen = short.step(Greedy(MULTI.law)(seen)).observation
    step = short.step(one(short, 0, 5))
    assert step.rewards.tolist() == [0.0, 0.0]
    assert step.is_over.all()


def test_equal_seeds_are_replicas_also_of_their_luck() -> None:
    setting = make_config("single-3-noisy", jobs=30)
    end = follow(Greedy(setting.law), setting, [5, 5, 6])
    assert end.ended[0].tolist() == end.ended[1].tolist() != end.ended[2].tolist()


def test_a_seed_has_the_same_jobs_whatever_worlds_are_beside_it() -> None:
    alone, beside = draw(MULTI, [3]), draw(MULTI, [7, 3])
    assert alone.arrival[0].tolist() == beside.arrival[1].tolist()
    assert alone.reaches[0].tolist() == beside.reaches[1].tolist()


def test_jobs_reach_one_to_all_pools_evenly_and_arrive_at_the_rate() -> None:
    jobs = draw(make_config("multi-3", jobs=3000), [0])
    reached = jobs.reaches[0].sum(axis=0)
    assert np.bincount(reached)[1:] / 3000 == pytest.approx([1 / 3] * 3, abs=0.03)
    assert 3000 / jobs.arrival[0, -1] == pytest.approx(3.0, rel=0.05)


def test_a_pool_sees_at_most_its_window_and_new_ones_before_those_out_of_sight() -> None:
    """As in the authors' program: who comes takes a free place before who has long waited."""
    pools = TapFingerPools(replace(MULTI, arrivals_per_step=30.0, jobs=90), [0])
    assert (pools.in_sight.sum(axis=2) == WINDOW).all()
    first = int(pools.first(pools.in_sight, 1)[0, 0, 0])
    row = np.array([0])
    pools.start(row, np.array([0]), np.array([first]), np.array([[2, 10]]))
    pools.advance(row)
    let_in = pools.first(pools.in_sight, WINDOW)[0, 0, -1]
    assert pools.jobs.arrival[0, let_in] == 1
    assert (pools.waiting.sum(axis=2) > WINDOW).all()


def test_what_runs_is_shown_with_its_end() -> None:
    env = TapFingerEnv(1, MULTI)
    env.reset([where_pools_share(env)])
    seen = env.step(one(env, 0, 10)).observation
    kind = env.pools.jobs.kind[0, (env.pools.pool[0] == 0).argmax()]
    assert seen["run_amount"][0, 0, 0].tolist() == [2, 10]
    assert seen["run_left"][0, 0, 0] == MULTI.law.steps[kind, 2, 10]
    assert (seen["run_left"][0, 1] == NONE).all()


def test_any_rule_of_chance_keeps_within_what_is_free() -> None:
    env, rule = TapFingerEnv(16, MULTI), at_random(1, takes_least=False)
    seen = env.reset(range(16))
    while not env.pools.is_over.all():
        seen = env.step(rule(seen)).observation
        held = np.zeros_like(env.pools.free)
        rows, jobs = np.nonzero((env.pools.pool >= 0) & (env.pools.ended < 0))
        np.add.at(held, (rows, env.pools.pool[rows, jobs]), env.pools.amount[rows, jobs])
        assert (env.pools.free >= 0).all()
        assert (env.pools.free + held == env.pools.capacity).all()
