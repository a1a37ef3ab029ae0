"""PPO and MAPPO: clipping and the KL penalty by hand, agents and their ratios, settings."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bireme.core.errors import SettingError
from bireme_lab.training.a2c import A2C, A2CConfig
from bireme_lab.training.ppo import MAPPO, PPO, PPOConfig
from testbed.toys.envs import Echo, Pair
from testbed.toys.notes import Notes
from testbed.toys.policies import Echoing, Paired

LOG_RATIO = torch.tensor([[math.log(1.5)], [math.log(1.5)], [math.log(0.5)], [math.log(0.5)]])
ADVANTAGES = torch.tensor([1.0, -1.0, 1.0, -1.0])
ALL_WORK = torch.ones(4, 1, dtype=torch.bool)


def ppo(**config: Any) -> PPO:
    return PPO(Echoing(), Echo(), PPOConfig(**config))


def test_ratio_is_clipped_only_where_that_makes_the_objective_smaller() -> None:
    """1.5 * 1 is clipped to 1.2; -1.5 stays; 0.5 stays; -0.5 becomes -0.8."""
    loss = ppo()._policy_loss(LOG_RATIO, ALL_WORK, ADVANTAGES)
    assert loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)


def test_penalised_objective_does_not_clip() -> None:
    loss = ppo(objective="kl", target_kl=0.01)._policy_loss(LOG_RATIO, ALL_WORK, ADVANTAGES)
    assert loss.item() == pytest.approx(-(1.5 - 1.5 + 0.5 - 0.5) / 4)


@pytest.mark.parametrize(
    ("kl", "beta"), [(0.0151, 2.0), (0.0149, 1.0), (0.0067, 1.0), (0.0066, 0.5)]
)
def test_beta_doubles_above_one_and_a_half_times_the_target_and_halves_below(
    kl: float, beta: float
) -> None:
    algorithm = ppo(objective="kl", target_kl=0.01)
    algorithm.adapt(kl)
    assert algorithm.kl_coef == beta


def test_beta_is_adapted_after_every_update_by_the_divergence_it_led_to() -> None:
    notes = Notes()
    algorithm = ppo(objective="kl", target_kl=0.01, learning_rate=0.05, kl_coef=8.0)
    algorithm.learn(200, notes)
    beta = 8.0
    for kl, coefficient in zip(notes.of("kl"), notes.of("kl_coef"), strict=True):
        beta *= 2 if kl > 0.015 else 0.5 if kl < 0.01 / 1.5 else 1
        assert coefficient == beta
    assert len(set(notes.of("kl_coef"))) > 1


def test_a_larger_penalty_keeps_the_policy_nearer() -> None:
    def moved(kl_coef: float) -> float:
        algorithm = ppo(objective="kl", target_kl=0.01, learning_rate=0.05, kl_coef=kl_coef)
        algorithm.learn(1, notes := Notes())
        return notes.of("kl")[0]

    assert moved(100.0) < moved(1.0) / 3


def test_passes_end_early_when_the_policy_has_moved_far() -> None:
    def steps_taken(target_kl: float | None) -> int:
        algorithm = ppo(learning_rate=0.1, n_epochs=10, n_minibatches=1, target_kl=target_kl)
        algorithm.learn(1)
        state = next(iter(algorithm.optimizer.state_dict()["state"].values()))
        return int(state["step"])

    assert steps_taken(None) == 10
    assert 1 < steps_taken(0.001) < 10


def test_minibatches_are_a_partition_of_the_rollout() -> None:
    parts = list(ppo(n_minibatches=3)._minibatches(10))
    assert [len(part) for part in parts] == [4, 3, 3]
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert len(list(ppo(n_minibatches=4)._minibatches(2))) == 2


def joint(algorithm: PPO, log_ratio: list[list[float]], works: list[list[bool]]) -> float:
    advantages = torch.ones(len(works))
    loss: Tensor = algorithm._policy_loss(
        torch.tensor(log_ratio).log(), torch.tensor(works), advantages
    )
    return loss.item()


def test_agents_are_clipped_one_by_one_where_ppo_clips_their_product() -> None:
    """Ratios 1.5 and 0.8: the product 1.2 is within bounds, the first alone is not."""
    agents = MAPPO(Paired(), Pair(), PPOConfig())
    assert joint(ppo(), [[1.5, 0.8]], [[True, True]]) == pytest.approx(-1.2)
    assert joint(agents, [[1.5, 0.8]], [[True, True]]) == pytest.approx(-(1.2 + 0.8))


def test_steps_of_an_idle_agent_are_left_out_of_its_mean() -> None:
    """The second agent worked once, at 0.9; the first twice, at 1.0 and 1.1."""
    agents = MAPPO(Paired(), Pair(), PPOConfig())
    works = [[True, True], [True, False]]
    assert joint(agents, [[1.0, 0.9], [1.1, 1.0]], works) == pytest.approx(-(1.05 + 0.9))


def test_an_agent_that_never_worked_costs_nothing() -> None:
    agents = MAPPO(Paired(), Pair(), PPOConfig())
    assert joint(agents, [[1.0, 1.0]], [[True, False]]) == pytest.approx(-1.0)


def test_advantages_are_normalised_over_the_rollout_and_returns_are_not() -> None:
    algorithm = PPO(Echoing(hidden=4), Echo(ragged=3), PPOConfig(gae_lambda=1.0, gamma=1.0))
    rollout = algorithm.collect()
    advantages, returns = algorithm.advantages_and_returns(rollout)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert advantages.std().item() == pytest.approx(1, abs=1e-4)
    to_go = np.cumsum(rollout.rewards[::-1], axis=0)[::-1]
    assert returns.tolist() == pytest.approx(to_go[rollout.is_active].tolist(), abs=1e-5)


def test_rewards_are_scaled_before_they_are_judged() -> None:
    settings = {"gae_lambda": 1.0, "gamma": 1.0}
    plain, scaled = ppo(**settings), ppo(**settings, reward_scale=0.1)
    rollout = plain.collect()
    _, returns = plain.advantages_and_returns(rollout)
    torch.testing.assert_close(scaled.advantages_and_returns(rollout)[1], 0.1 * returns)


def test_discount_may_be_by_the_clock() -> None:
    """Nothing passes but one reward at the end, 3 units after the first decision."""
    algorithm = A2C(Echoing(), Echo(count=1, steps=2), A2CConfig(gamma=0.5, gamma_per="time"))
    rollout = algorithm.collect()
    rollout.times[:, 0], rollout.rewards[:, 0] = [0, 3, 4], [0, 1]
    rollout.values[:], rollout.next_values[:] = 0, 0
    assert algorithm.advantages_and_returns(rollout)[1].tolist() == [0.125, 1.0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"baseline": "replicas"}, "replicas=1: it compares whole episodes"),
        ({"baseline": "replicas", "replicas": 4, "n_steps": 8}, "n_steps=8 and replicas=4"),
        ({"gamma": 1.1}, "gamma=1.1 and gae_lambda=0.95: both lie from 0 to 1"),
        ({"objective": "kl"}, "name one, 0.01 is usual"),
    ],
)
def test_settings_that_cannot_be_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        PPOConfig(**config)
