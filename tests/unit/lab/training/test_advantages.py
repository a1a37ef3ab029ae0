"""Advantages by hand: generalised estimates, replicas whose times differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme_lab.training.rollouts import gae, replica_advantages


def column(*numbers: float) -> FloatArray:
    """One env's numbers, shape (steps, 1)."""
    return np.array(numbers, dtype=float)[:, None]


def flags(*numbers: int) -> BoolArray:
    return np.array(numbers, dtype=bool)[:, None]


class Lived:
    """A random rollout of ``envs`` envs that end at different steps."""

    def __init__(self, seed: int, steps: int = 7, envs: int = 4) -> None:
        draw = np.random.default_rng(seed)
        lengths = draw.integers(1, steps + 2, envs)
        at = np.arange(steps)[:, None]
        self.is_active, self.is_over = at < lengths, at >= lengths - 1
        self.rewards = draw.normal(size=(steps, envs)) * self.is_active
        self.values = draw.normal(size=(steps, envs)) * self.is_active
        following = np.concatenate([self.values[1:], draw.normal(size=(1, envs))])
        self.next_values = np.where(self.is_over, 0.0, following)
        passed = draw.uniform(0, 2, (steps, envs)) * self.is_active
        self.times = np.concatenate([np.zeros((1, envs)), np.cumsum(passed, axis=0)])


def test_gae_by_hand() -> None:
    """Errors 1 + 0.5 * 2 - 1 = 1, 2 + 0.5 * 4 - 2 = 2, 3 + 0.5 * 8 - 4 = 3; factor 0.25."""
    found = gae(
        column(1, 2, 3), column(1, 2, 4), column(2, 4, 8), flags(0, 0, 0), gamma=0.5, gae_lambda=0.5
    )
    assert found[:, 0].tolist() == [1 + 0.25 * 2.75, 2.75, 3]


def test_gae_does_not_look_past_an_end() -> None:
    """The env ends of its own after the second step: its next value there is 0."""
    found = gae(
        column(1, 2, 0), column(1, 2, 0), column(2, 0, 0), flags(0, 1, 1), gamma=0.5, gae_lambda=0.5
    )
    assert found[:, 0].tolist() == [1 + 0.25 * 0, 0, 0]


def test_gae_counts_what_follows_a_cut() -> None:
    """Cut off after the second step in a state that is worth 10: error 2 + 0.5 * 10 - 2 = 5."""
    found = gae(
        column(1, 2, 0), column(1, 2, 0), column(2, 10, 0), flags(0, 1, 1), 0.5, gae_lambda=0.5
    )
    assert found[:, 0].tolist() == [1 + 0.25 * 5, 5, 0]


def test_gae_takes_a_discount_per_step() -> None:
    """Errors 1 + 1 * 1 - 1 = 1 and 1 + 0.5 * 1 - 1 = 0.5, the second passed on whole."""
    found = gae(column(1, 1), column(1, 1), column(1, 1), flags(0, 0), column(1, 0.5), 1.0)
    assert found[:, 0].tolist() == [1.5, 0.5]


def test_gae_with_lambda_1_is_n_step_returns_less_values() -> None:
    """Three steps ahead from the first one, one step ahead from the last; a cut ends the second."""
    found = gae(column(1, 2, 3), column(4, 5, 6), column(5, 6, 8), flags(0, 0, 0), 0.5, 1.0)
    assert found[:, 0].tolist() == [1 + 0.5 * (2 + 0.5 * (3 + 0.5 * 8)) - 4, 2 + 0.5 * 7 - 5, 7 - 6]
    cut = gae(column(1, 2, 0), column(4, 5, 0), column(5, 6, 0), flags(0, 1, 1), 0.5, 1.0)
    assert cut[:, 0].tolist() == [3.5 - 4, 5 - 5, 0]


@given(st.integers(0, 999), st.permutations(range(4)))
def test_worlds_do_not_depend_on_their_places(seed: int, order: list[int]) -> None:
    lived, seeds = Lived(seed), np.array([5, 5, 6, 6])

    def judged(places: list[int]) -> FloatArray:
        shown = [lived.rewards, lived.values, lived.next_values]
        rewards, values, following = (part[:, places] for part in shown)
        own = gae(rewards, values, following, lived.is_over[:, places], 0.9, 0.8)
        times, active = lived.times[:, places], lived.is_active[:, places]
        return own + replica_advantages(rewards, times, active, seeds[places], 0.9)

    assert judged(order) == pytest.approx(judged(list(range(4)))[:, order])


def two_replicas() -> tuple[FloatArray, FloatArray, BoolArray, IntArray]:
    """Decisions at 0, 2, 4 and at 0, 3; the first env ends at 6, the second at 5."""
    rewards = np.array([[-2.0, -3], [-2, -2], [-2, 0]])
    times = np.array([[0.0, 0], [2, 3], [4, 5], [6, 5]])
    active = np.array([[1, 1], [1, 1], [1, 0]], dtype=bool)
    return rewards, times, active, np.array([7, 7])


def test_replicas_are_compared_at_the_same_time() -> None:
    """To go: -6, -4, -2, 0 at 0, 2, 4, 6 and -5, -2, 0 at 0, 3, 5.

    At 2 the second lies a third before its -2: -3; at 4 halfway to its end: -1. At 3 the first
    lies halfway: -3.
    """
    found = replica_advantages(*two_replicas())
    first = [-6 - (-6 - 5) / 2, -4 - (-4 - 3) / 2, -2 - (-2 - 1) / 2]
    second = [-5 - (-6 - 5) / 2, -2 - (-3 - 2) / 2, 0]
    assert found[:, 0] == pytest.approx(first)
    assert found[:, 1] == pytest.approx(second)


def test_of_several_decisions_at_one_time_the_first_tells_what_was_to_come() -> None:
    """Two decisions at 0, the second rewarded on the spot; the other replica has 5 to go."""
    rewards = np.array([[0.0, 5], [1, 0], [2, 0]])
    times = np.array([[0.0, 0], [0, 4], [0, 4], [4, 4]])
    active = np.array([[1, 1], [1, 0], [1, 0]], dtype=bool)
    found = replica_advantages(rewards, times, active, np.array([1, 1]))
    assert found.T.tolist() == [[3 - 4, 3 - 4, 2 - 4], [5 - 4, 0, 0]]


def test_replicas_discount_what_is_to_come() -> None:
    """One env alone in what it earns: 1 now and 1 a step later, at half; the other earns none."""
    rewards, times = np.array([[1.0, 0], [1, 0]]), np.array([[0.0, 0], [1, 1], [2, 2]])
    found = replica_advantages(rewards, times, np.ones((2, 2), bool), np.array([1, 1]), gamma=0.5)
    assert found.T.tolist() == [[0.75, 0.5], [-0.75, -0.5]]


@given(st.integers(0, 999))
def test_equal_replicas_have_no_advantage(seed: int) -> None:
    one = Lived(seed, envs=1)
    twice = [np.repeat(part, 2, axis=1) for part in (one.rewards, one.times)]
    active = np.repeat(one.is_active, 2, axis=1)
    # Distinct times, for at equal ones only the first decision tells what was to come.
    assert (np.diff(one.times[: one.is_active.sum() + 1], axis=0) > 0).all()
    found = replica_advantages(twice[0], twice[1], active, np.array([3, 3]))
    assert found == pytest.approx(np.zeros_like(found))


def test_other_arrivals_do_not_enter_the_baseline() -> None:
    rewards, times, active, _ = two_replicas()
    found = replica_advantages(rewards, times, active, np.array([7, 8]))
    assert found == pytest.approx(np.zeros_like(found))
