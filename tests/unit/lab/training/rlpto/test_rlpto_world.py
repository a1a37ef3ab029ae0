"""RLPTO's env: what moves are allowed, when time passes, what is taken back, what is paid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import IntArray
from bireme_lab.training.rlpto.baselines import share_among_gaining
from bireme_lab.training.rlpto.environment import (
    BETAS,
    CONFIGS,
    RUN_PRICE,
    SLOTS,
    TASK_PRICE,
    RlptoEnv,
    to_come_at,
)
from testbed.examples import examples

TABLES = [CONFIGS["table-2"], CONFIGS["table-3"]]
BETA = 3e-4


def a_world(count: int = 1, beta: float = BETA) -> RlptoEnv:
    return RlptoEnv(count, TABLES[:1], [beta])


def any_allowed(env: RlptoEnv, chance: np.random.Generator) -> IntArray:
    mask = env.seen["mask"]
    return np.asarray(np.where(mask, chance.random(mask.shape), -1.0).argmax(axis=1))


def test_worlds_meet_all_settings_and_betas_by_their_seeds() -> None:
    env = RlptoEnv(10, TABLES, BETAS)
    found = set(zip(env.clusters.total.tolist(), env.beta.tolist(), strict=True))
    assert found == {(setting.nodes, beta) for setting in TABLES for beta in BETAS}


def test_a_worker_is_given_and_taken_while_no_time_passes() -> None:
    env = a_world()
    env.step(np.array([1]))
    assert env.seen["nodes"][0, :3].tolist() == [2, 1, 1]
    env.step(np.array([SLOTS + 1]))
    assert env.seen["nodes"][0, :3].tolist() == [1, 1, 1]
    assert env.clusters.clock[0] == 0


def test_nothing_to_do_lets_time_pass() -> None:
    env = a_world()
    step = env.step(np.array([0]))
    assert step.times[0] == env.clusters.clock[0] > 0


def test_time_passes_where_nothing_is_left_to_give() -> None:
    env = a_world()
    for _ in range(int(env.clusters.free[0])):
        assert env.clusters.clock[0] == 0
        env.step(np.array([2]))
    assert env.clusters.clock[0] > 0


def test_moves_to_and_fro_end_after_twice_as_many_as_there_are_workers() -> None:
    env = a_world()
    for move in range(2 * int(env.clusters.total[0])):
        assert env.clusters.clock[0] == 0
        env.step(np.array([1 + SLOTS * (move % 2)]))
    assert env.clusters.clock[0] > 0


@pytest.mark.parametrize("action", [4, SLOTS + 1, -1, 2 * SLOTS + 1])
def test_a_move_that_is_not_allowed_is_refused(action: int) -> None:
    with pytest.raises(ValueError, match=f"action {action} of env 0"):
        a_world().step(np.array([action]))


def test_a_task_that_hardly_gains_loses_a_worker_and_ends_with_the_last() -> None:
    env = a_world(beta=2.0)  # no gain is as large
    env.step(np.array([1]))
    env.step(np.array([0]))
    assert env.clusters.done.sum() == 2
    assert env.seen["nodes"][0, 0] == 1
    env.step(np.array([0]))
    assert env.clusters.done.sum() == 5


def test_a_task_keeps_its_server_and_a_new_one_takes_that_which_is_free() -> None:
    env = a_world(beta=2.0)
    first = env.task_of_slot[0, :3].tolist()
    env.step(np.array([2]))
    env.step(np.array([0]))
    assert env.task_of_slot[0, 1] == first[1]
    assert not set(env.task_of_slot[0, [0, 2]].tolist()) & set(first)
    assert (env.task_of_slot[0, 3:] == -1).all()


def test_a_minute_costs_betas_for_the_run_and_for_every_task_not_yet_done() -> None:
    step = a_world().step(np.array([0]))
    assert step.rewards[0] == pytest.approx(-step.times[0] / 60 * (RUN_PRICE + 12 * TASK_PRICE))


def test_an_ended_task_is_paid_its_accuracy_above_that_at_a_gain_of_beta() -> None:
    env, paid = a_world(beta=1e-2), 0.0
    while not env.clusters.done.any():
        paid += env.step(np.array([0])).rewards[0]
    minutes = env.clusters.clock[0] / 60
    tasks, done = env.clusters.tasks, env.clusters.done[0]
    at_beta = tasks.top[0] - to_come_at(tasks.pace[0], np.full(12, 1e-2))
    gained = (env.clusters.accuracy[0] - at_beta)[done].sum() / 1e-2
    assert paid == pytest.approx(gained - minutes * (RUN_PRICE + 12 * TASK_PRICE))


@examples(15)
@given(st.integers(0, 2**31))
def test_any_play_ends_and_a_world_that_is_over_is_left_alone(seed: int) -> None:
    env, chance = RlptoEnv(4, TABLES, [1e-2]), np.random.default_rng(seed)
    env.reset(range(seed, seed + 4))
    for _ in range(20_000):
        over, clock = env.clusters.is_over, env.clusters.clock
        if over.all():
            break
        step = env.step(any_allowed(env, chance))
        assert (step.rewards[over] == 0).all()
        assert (step.times[over] == clock[over]).all()
        assert (env.seen["nodes"].sum(axis=1) + env.clusters.free == env.clusters.total).all()
    assert env.clusters.is_over.all()


def test_equal_seeds_and_moves_make_equal_worlds() -> None:
    envs = [RlptoEnv(6, TABLES, BETAS) for _ in range(2)]
    observations = [env.reset([3, 3, 4, 5, 6, 7]) for env in envs]
    for _ in range(40):
        steps = [
            env.step(share_among_gaining(shown))
            for env, shown in zip(envs, observations, strict=True)
        ]
        observations = [step.observation for step in steps]
        assert (steps[0].rewards == steps[1].rewards).all()
    assert envs[0].clusters.clock[0] == envs[0].clusters.clock[1]
    assert len(set(envs[0].clusters.clock.tolist())) == 5


def test_the_papers_reward_pays_for_time_while_tasks_gain_and_charges_for_it_then() -> None:
    """Equation 5, by hand, over the first period and over one in which nothing gains beta."""
    for beta, sign in ((BETA, 1.0), (1.0, -1.0)):
        env = RlptoEnv(1, TABLES[:1], [beta], "equation-5")
        clusters = env.clusters
        accuracy, nodes = clusters.accuracy.copy(), clusters.nodes.copy()
        paid = env.step(np.array([0])).rewards[0]
        ran = nodes > 0
        if sign > 0:
            added = (clusters.accuracy - accuracy)[ran].sum()
            minutes = clusters.clock[0] / 60
            assert paid == pytest.approx(added + minutes * nodes.sum() * 0.000625)
        else:
            assert paid < (clusters.accuracy - accuracy).sum()
