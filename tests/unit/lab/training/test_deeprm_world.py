"""DeepRM's env: what starts, when time passes, and what the rewards of an episode add up to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import IntArray
from bireme_lab.training.deeprm.baselines import at_random, rules, run_rule
from bireme_lab.training.deeprm.environment import (
    SLOTS,
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmJobs,
    DeepRmState,
    draw,
    masks,
    measure,
)
from testbed.examples import examples

SETTING = DeepRmEnvConfig(rates=(0.6, 0.9), completion_weight=0.1)
VOID = SETTING.queue_slots


def any_allowed(state: DeepRmState, chance: np.random.Generator) -> IntArray:
    """An action per env from its mask, voids included."""
    drawn = chance.random(state.allowed.shape)
    return np.asarray(np.where(state.allowed, drawn, -1.0).argmax(axis=1))


def held(state: DeepRmState, clock: int) -> IntArray:
    """Slots in use at ``clock``, recomputed job by job; shape (envs, resources)."""
    total = np.zeros((len(state.clock), 2), dtype=np.int64)
    for env, job in np.argwhere(state.started >= 0):
        start = state.started[env, job]
        if start <= clock < start + state.jobs.durations[env, job]:
            total[env] += state.jobs.demands[env, job]
    return total


@examples(15)
@given(st.integers(0, 2**31))
def test_any_play_ends_with_every_job_run_once_and_the_machine_never_overfull(seed: int) -> None:
    env, chance = DeepRmEnv(6, SETTING), np.random.default_rng(seed)
    env.reset(range(seed, seed + 6))
    for _ in range(10_000):
        if env.state.is_over.all():
            break
        env.step(any_allowed(env.state, chance))
    end = env.state
    assert end.is_over.all()
    assert ((end.started >= np.arange(50)) == end.jobs.exists).all()
    assert all((held(end, clock) <= SLOTS).all() for clock in range(int(end.clock.max())))


@examples(15)
@given(st.integers(0, 2**31))
def test_rewards_add_up_to_slowdowns_and_completion_times(seed: int) -> None:
    env, chance = DeepRmEnv(5, SETTING), np.random.default_rng(seed)
    env.reset(range(seed, seed + 5))
    total = np.zeros(5)
    while not env.state.is_over.all():
        total += env.step(any_allowed(env.state, chance)).rewards
    found, jobs = measure(env.state), env.state.jobs.exists.sum(axis=1)
    each = found["slowdown"] + SETTING.completion_weight * found["completion_steps"]
    assert total == pytest.approx(-jobs * each / SETTING.arrival_steps)


def test_equal_seeds_give_equal_jobs_and_different_ones_others() -> None:
    one, other, third = (draw(SETTING, [seed]) for seed in (3, 3, 4))
    assert (one.durations == other.durations).all()
    assert (one.demands == other.demands).all()
    assert (one.exists == other.exists).all()
    assert (one.durations != third.durations).any()


def test_jobs_are_as_deeprm_draws_them() -> None:
    jobs = draw(DeepRmEnvConfig(rates=(0.7,)), range(400))
    assert jobs.exists.mean() == pytest.approx(0.7, abs=0.02)
    assert set(np.unique(jobs.durations)) == {1, 2, 3, *range(10, 16)}
    assert (jobs.durations <= 3).mean() == pytest.approx(0.8, abs=0.02)
    assert set(np.unique(jobs.demands.max(axis=2))) == set(range(5, 11))
    assert set(np.unique(jobs.demands.min(axis=2))) == {1, 2}
    assert (jobs.demands[:, :, 0] > 2).mean() == pytest.approx(0.5, abs=0.02)


def test_of_the_jobs_at_a_low_rate_each_comes_at_a_higher_one() -> None:
    low, high = (
        draw(DeepRmEnvConfig(rates=(0.6,)), range(9)),
        draw(DeepRmEnvConfig(rates=(0.9,)), range(9)),
    )
    assert (high.exists | ~low.exists).all()
    assert (low.durations == high.durations).all()


def a_world(*jobs: tuple[int, int, int, int], queue_slots: int = 10) -> DeepRmEnv:
    """One env with these jobs: step of arrival, duration, demand of either resource."""
    setting = DeepRmEnvConfig(rates=(1.0,), queue_slots=queue_slots)
    env = DeepRmEnv(1, setting)
    exists = np.zeros((1, setting.arrival_steps), dtype=np.bool_)
    durations = np.ones((1, setting.arrival_steps), dtype=np.int64)
    demands = np.ones((1, setting.arrival_steps, 2), dtype=np.int64)
    for step, duration, *demand in jobs:
        exists[0, step], durations[0, step], demands[0, step] = True, duration, demand
    return begun(env, DeepRmJobs(exists, durations, demands))


def begun(env: DeepRmEnv, jobs: DeepRmJobs) -> DeepRmEnv:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bireme_lab.training.deeprm.environment.draw", lambda *_: jobs)
        env.reset([0])
    return env


def test_a_chosen_job_starts_now_and_the_clock_stands_still() -> None:
    env = a_world((0, 3, 5, 1), (1, 2, 5, 1))
    step = env.step(np.array([0]))
    assert env.state.started[0, 0] == 0
    assert step.times[0] == 1, "nothing was left to choose until the next job came"
    assert step.rewards[0] == pytest.approx(-(1 / 3) / 50)


def test_the_void_moves_the_clock_by_one() -> None:
    env = a_world((0, 9, 5, 1), (1, 2, 1, 1), (2, 2, 1, 1))
    env.step(np.array([0]))
    step = env.step(np.array([VOID]))
    assert step.times[0] == 2
    assert step.rewards[0] == pytest.approx(-(1 / 9 + 1 / 2) / 50)


def test_the_void_is_forbidden_while_the_machine_is_empty_and_something_waits() -> None:
    env = a_world((0, 3, 5, 1), (1, 1, 1, 1))
    assert masks(env.state)["mask"][0].tolist() == [True] + [False] * VOID
    env.step(np.array([0]))
    assert env.state.allowed[0, VOID], "once something runs, the rest may wait"


def test_time_runs_to_the_next_finish_where_nothing_fits() -> None:
    env = a_world((0, 7, 8, 1), (1, 2, 8, 1))
    step = env.step(np.array([0]))
    assert step.times[0] == 7
    assert env.state.queue[0, 0] == 1


def test_the_queue_holds_the_first_that_came_and_the_backlog_moves_up() -> None:
    env = a_world((0, 9, 10, 1), *((at, 1, 1, 1) for at in range(1, 12)), queue_slots=3)
    env.step(np.array([0]))
    assert env.state.queue[0].tolist() == [1, 2, 3]
    env.step(np.array([1]))
    assert env.state.queue[0].tolist() == [1, 3, 4]


def test_a_world_that_is_over_ignores_actions_and_costs_nothing() -> None:
    env = DeepRmEnv(2, SETTING)
    env.reset([1, 2])
    end = run_rule(env, at_random(0))
    step = env.step(np.array([99, -1]))
    assert step.is_over.all()
    assert (step.rewards == 0).all()
    assert (env.state.started == end.started).all()
    assert (step.times == end.clock).all()


@pytest.mark.parametrize("action", [1, -1, VOID + 1])
def test_an_action_that_is_not_allowed_is_refused_by_name(action: int) -> None:
    env = a_world((0, 3, 5, 1))
    with pytest.raises(ValueError, match=f"action {action} of env 0 is not allowed"):
        env.step(np.array([action]))


def test_what_a_world_does_depends_on_its_own_seed_alone() -> None:
    together, alone = DeepRmEnv(3, SETTING), DeepRmEnv(1, SETTING)
    rule = rules(0)["tetris"]
    together.reset([5, 6, 7])
    alone.reset([6])
    assert (run_rule(together, rule).started[1] == run_rule(alone, rule).started[0]).all()
