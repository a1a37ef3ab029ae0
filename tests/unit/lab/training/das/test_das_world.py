"""The batched env of DAS: what is seen, what a step does, and that envs do not touch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bireme.core.errors import SettingError
from bireme_lab.training.das.environment import DasEnv

JOBS, SLOTS = 30, 12


def a_world(count: int = 3, **options: Any) -> DasEnv:
    return DasEnv(count, **{"jobs": JOBS, "slots": SLOTS, **options})


def play(
    env: DasEnv, seeds: list[int], choices: int = 0
) -> tuple[list[Mapping[str, NDArray[Any]]], NDArray[np.float64]]:
    """All observations and rewards, shape (steps, envs), of random actions drawn alike."""
    generator = np.random.default_rng(choices)
    seen, rewards = [env.reset(seeds)], []
    for _ in range(JOBS):
        actions = {
            "ordering": np.tile(generator.normal(size=(1, SLOTS)), (env.count, 1)),
            "placement": np.tile(generator.normal(size=(1, 64)), (env.count, 1)),
        }
        actions["placement"] = actions["placement"][:, : seen[0]["machines"].shape[1]]
        step = env.step(actions)
        seen.append(step.observation)
        rewards.append(step.rewards)
    assert step.is_over.all()
    return seen, np.array(rewards)


def test_an_episode_has_as_many_steps_as_jobs_and_ends_with_all_finished() -> None:
    env = a_world()
    env.reset([1, 2, 3])
    ends = []
    for _ in range(JOBS):
        ordering = np.zeros((3, SLOTS))
        step = env.step({"ordering": ordering, "placement": np.zeros((3, 8))})
        ends.append(step.is_over.tolist())
    assert ends == [[False] * 3] * (JOBS - 1) + [[True] * 3]
    assert np.isfinite(env.clusters.finished).all()
    assert (env.clusters.free == env.clusters.capacity).all()


def test_equal_seeds_are_replicas_and_others_are_not() -> None:
    seen, rewards = play(a_world(), [5, 5, 6])
    for observation in seen:
        for array in observation.values():
            np.testing.assert_array_equal(array[0], array[1])
    np.testing.assert_array_equal(rewards[:, 0], rewards[:, 1])
    assert (rewards[:, 0] != rewards[:, 2]).any()


def test_a_world_does_the_same_alone_as_among_others() -> None:
    among, rewards = play(a_world(3), [4, 9, 2], choices=3)
    alone, own = play(a_world(1), [9], choices=3)
    np.testing.assert_array_equal(rewards[:, 1], own[:, 0])
    for one, other in zip(among, alone, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name][1], other[name][0])


def test_smaller_clouds_are_padded_with_machines_without_gpus() -> None:
    mixed, rewards = play(a_world(2, settings=("small", "large")), [2, 3])
    assert mixed[0]["machine_mask"].sum(axis=1).tolist() == [8, 64]
    _, own = play(a_world(1, settings=("large", "large")), [3])
    np.testing.assert_array_equal(rewards[:, 1], own[:, 0])
    small, _ = play(a_world(1), [2])
    np.testing.assert_array_equal(mixed[0]["machines"][0, :8], small[0]["machines"][0])
    assert not mixed[0]["machines"][0, 8:].any()


def test_only_jobs_that_fit_start_and_the_highest_score_wins() -> None:
    env = a_world(1)
    env.reset([3])
    generator = np.random.default_rng(0)
    for _ in range(JOBS):
        clusters = env.clusters
        scores = generator.normal(size=(1, SLOTS))
        waiting = np.flatnonzero(clusters.waiting[0])[:SLOTS]
        fitting = [slot for slot, job in enumerate(waiting) if fits(env, int(job))]
        best = max(fitting, key=lambda slot: scores[0, slot])
        assert env.best_slots(scores).tolist() == [best]
        now = clusters.now[0]
        env.step({"ordering": scores, "placement": np.zeros((1, 8))})
        assert clusters.started[0, waiting[best]] == now


def fits(env: DasEnv, job: int) -> bool:
    return bool(env.clusters.gpus[0, job] <= env.clusters.free[0].sum())


def test_machines_fill_by_falling_affinity() -> None:
    env = a_world(1)
    env.reset([3])
    affinity = np.array([[0, 5, 1, 7, 2, 3, 4, 6.0]])
    job = int(np.flatnonzero(env.clusters.waiting[0])[0])
    env.step({"ordering": -np.arange(float(SLOTS))[None], "placement": affinity})
    gpus = int(env.clusters.gpus[0, job])
    rest, expected = gpus, np.zeros(8)
    for machine in np.argsort(-affinity[0]):
        expected[machine] = min(rest, 4)
        rest -= int(expected[machine])
    assert env.clusters.places[0, job].tolist() == expected.tolist()


def test_rewards_add_up_to_the_mean_completion_time_and_fee() -> None:
    env = a_world(3)
    _, rewards = play(env, [1, 2, 3])
    found = env.summary()
    hours, fees = found["mean_jct_minutes"] / 60, found["mean_fee_dollars"] / 51
    np.testing.assert_allclose(rewards.sum(axis=0), -(hours + fees), rtol=1e-9)


def test_padding_of_slots_is_zero_and_fits_nowhere() -> None:
    seen, _ = play(a_world(1), [8])
    for observation in seen:
        empty = ~observation["job_mask"]
        assert not observation["jobs"][empty].any()
        assert not observation["fits"][empty].any()


def test_wrong_numbers_of_seeds_and_unknown_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="2 seeds for 3 envs"):
        a_world(3).reset([1, 2])
    with pytest.raises(SettingError, match="one of small, medium, large"):
        a_world(1, settings=("tiny",)).reset([1])


def test_a_world_that_is_over_ignores_actions_and_gives_nothing() -> None:
    env = a_world(2)
    play(env, [1, 2])
    ended = env.clusters.now.copy()
    step = env.step({"ordering": np.ones((2, SLOTS)), "placement": np.ones((2, 8))})
    assert step.rewards.tolist() == [0.0, 0.0]
    assert step.is_over.all()
    assert step.times.tolist() == ended.tolist()
