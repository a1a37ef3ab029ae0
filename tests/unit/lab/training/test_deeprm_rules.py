"""The rules in DeepRM's env, what is measured of them, and the reference they must meet."""

import numpy as np
import pytest

from bireme_lab.training.deeprm.baselines import (
    Rule,
    at_random,
    rules,
    run_rule,
    shortest_first,
    tetris,
)
from bireme_lab.training.deeprm.environment import (
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmJobs,
    DeepRmState,
    measure,
)

MANY = 400


def a_state(*jobs: tuple[int, int, int], free: tuple[int, int] = (10, 10)) -> DeepRmState:
    """One env whose queue holds these jobs: duration, and demand of either resource."""
    setting, count = DeepRmEnvConfig(queue_slots=5, arrival_steps=50), len(jobs)
    durations = np.ones((1, 50), dtype=np.int64)
    demands = np.ones((1, 50, 2), dtype=np.int64)
    durations[0, :count] = [duration for duration, *_ in jobs]
    demands[0, :count] = np.array([demand for _, *demand in jobs]).reshape(count, 2)
    exists = (np.arange(50) < count)[None]
    queue = np.where(np.arange(5) < count, np.arange(5), -1)[None]
    fits = (queue >= 0) & (demands[0, queue] <= np.array(free)).all(axis=2)
    never = np.full((1, 50), -1)
    clock = np.array([49])
    left = np.array([free])
    return DeepRmState(
        setting, DeepRmJobs(exists, durations, demands), clock, never, exists, queue, left, fits
    )


def test_the_shortest_that_fits_starts_and_of_equals_the_one_that_came_first() -> None:
    assert shortest_first(a_state((3, 1, 1), (2, 1, 1), (2, 1, 1))) == [1]
    assert shortest_first(a_state((3, 1, 1), (2, 9, 1), (2, 1, 1), free=(8, 8))) == [2]


def test_tetris_starts_what_asks_for_what_is_free() -> None:
    """Of equal durations the one that asks for the resource that is free."""
    assert tetris(a_state((2, 6, 1), (2, 1, 6), free=(6, 10))) == [1]
    assert tetris(a_state((2, 6, 1), (2, 1, 6), free=(10, 6))) == [0]


def test_tetris_prefers_short_jobs_of_equal_demand() -> None:
    assert tetris(a_state((12, 5, 1), (1, 5, 1))) == [1]


@pytest.mark.parametrize("rule", [*rules(0).values()], ids=list(rules(0)))
def test_no_rule_waits_while_something_fits(rule: Rule) -> None:
    env = DeepRmEnv(20, DeepRmEnvConfig())
    env.reset(range(20))
    while not env.state.is_over.all():
        actions = rule(env.state)
        live = ~env.state.is_over
        assert (actions[live] < env.config.queue_slots).all()
        env.step(actions)


@pytest.mark.parametrize(
    ("rate", "rule", "expected"),
    [
        (0.6, "sjf", (4.25, 14.4, 10.3)),
        (0.7, "sjf", (5.11, 17.5, 13.2)),
        (0.8, "sjf", (5.60, 19.2, 15.0)),
        (0.9, "sjf", (6.84, 21.9, 17.8)),
        (0.7, "random", (12.35, 26.2, 22.1)),
        (0.9, "random", (18.76, 37.2, 33.1)),
    ],
)
def test_rules_are_as_good_as_independent_programs_found(
    rate: float, rule: str, expected: tuple[float, float, float]
) -> None:
    """Another program's means over 100 sequences; both have an error of some percent.

    Random's completion and waiting times are this program's own, to notice a change.
    """
    env = DeepRmEnv(MANY, DeepRmEnvConfig(rates=(rate,)))
    env.reset(range(MANY))
    found = measure(run_rule(env, rules(1)[rule]))
    means = ("slowdown", "completion_steps", "waiting_steps")
    assert [found[name].mean() for name in means] == pytest.approx(expected, rel=0.1)


def test_measures_by_hand() -> None:
    """Started at 4 and at 1, having come at 0 and 1."""
    state = a_state((2, 1, 1), (4, 1, 1))
    started = state.started.copy()
    started[0, :2] = (4, 1)
    done = DeepRmState(
        state.config,
        state.jobs,
        state.clock,
        started,
        np.zeros_like(state.waiting),
        np.full_like(state.queue, -1),
        state.free,
        np.zeros_like(state.fits),
    )
    found = measure(done)
    assert found["waiting_steps"] == [2.0]
    assert found["longest_wait_steps"] == [4.0]
    assert found["completion_steps"] == [5.0]
    assert found["slowdown"] == [(6 / 2 + 4 / 4) / 2]


def test_an_episode_with_unfinished_jobs_is_not_measured() -> None:
    env = DeepRmEnv(2, DeepRmEnvConfig())
    env.reset([0, 1])
    with pytest.raises(ValueError, match="env 0 has jobs that have not finished"):
        measure(env.state)


def test_an_episode_without_jobs_has_no_means() -> None:
    state = a_state()
    with pytest.raises(ValueError, match="env 0 had no jobs"):
        measure(state)


def test_the_random_rule_is_fixed_by_its_seed() -> None:
    env = DeepRmEnv(3, DeepRmEnvConfig())
    ends = []
    for seed in (1, 1, 2):
        env.reset([4, 5, 6])
        ends.append(run_rule(env, at_random(seed)).started)
    assert (ends[0] == ends[1]).all()
    assert (ends[0] != ends[2]).any()
