"""Every algorithm learns something trivial, in seconds; the same seed gives the same run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bireme.core.resources import FloatArray
from bireme_lab.training import storage
from bireme_lab.training.a2c import A2C, A2CConfig
from bireme_lab.training.algorithm import Algorithm, LearningProgress
from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.ppo import MAPPO, PPO, PPOConfig
from bireme_lab.training.rollouts import play
from bireme_lab.training.vec_env import Actions, VecEnv
from testbed.toys.cartpole import LONGEST, Balancing, CartPole
from testbed.toys.envs import Echo, Late, Pair, Target
from testbed.toys.policies import Aiming, Echoing, Paired

Maker = Callable[[ActorCritic, VecEnv, int], Algorithm[Any]]


def a2c(policy: ActorCritic, env: VecEnv, seed: int = 0) -> A2C:
    return A2C(policy, env, A2CConfig(learning_rate=0.03), seed)


def clipped(policy: ActorCritic, env: VecEnv, seed: int = 0) -> PPO:
    return PPO(policy, env, PPOConfig(learning_rate=0.1, n_minibatches=2), seed)


def penalised(policy: ActorCritic, env: VecEnv, seed: int = 0) -> PPO:
    config = PPOConfig(learning_rate=0.1, n_minibatches=2, objective="kl", target_kl=0.05)
    return PPO(policy, env, config, seed)


def judged_by_replicas(policy: ActorCritic, env: VecEnv, seed: int = 0) -> PPO:
    config = PPOConfig(learning_rate=0.1, n_minibatches=2, baseline="replicas", replicas=4)
    return PPO(policy, env, config, seed)


def agents(policy: ActorCritic, env: VecEnv, seed: int = 0) -> MAPPO:
    config = PPOConfig(learning_rate=0.05, n_minibatches=2, reward_scale=0.3)
    return MAPPO(policy, env, config, seed)


def cloning(policy: ActorCritic, env: VecEnv, seed: int = 0) -> Cloning:
    config = CloningConfig(learning_rate=0.1, batch_size=64)
    return Cloning(policy, env, config, seed, expert=lambda seen: seen["asked"].argmax(axis=1))


def reached(policy: ActorCritic, env: VecEnv) -> float:
    """The mean return of the policy's likeliest actions."""
    seeds = range(1000, 1000 + env.count)
    return float(play(env, seeds, lambda seen: predict(policy, seen)).mean())


@pytest.mark.parametrize("make", [a2c, clipped, penalised, judged_by_replicas, agents, cloning])
def test_algorithm_learns_to_repeat_what_is_asked(make: Maker) -> None:
    """Two steps of four choices: chance gets 0.5 of 2."""
    policy = Echoing()
    assert reached(policy, Echo(count=32)) < 1
    make(policy, Echo(count=32, ragged=2), 0).learn(800)
    assert reached(policy, Echo(count=32)) == 2


@pytest.mark.parametrize("make", [a2c, clipped, judged_by_replicas])
def test_algorithm_learns_what_is_paid_later(make: Maker) -> None:
    policy = Echoing()
    make(policy, Late(count=32), 0).learn(1_000)
    assert reached(policy, Late(count=32)) == 1


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("objective", ["clip", "kl"])
def test_gaussian_policies_come_near_their_target(is_full: bool, objective: Any) -> None:
    """Standing still at 0 costs 2/3; the spread at the start costs 0.74 more."""
    policy = Aiming(is_full=is_full)
    config = PPOConfig(
        learning_rate=0.03, n_minibatches=2, baseline="replicas", replicas=8,
        objective=objective, target_kl=0.05,
    )  # fmt: skip
    PPO(policy, Target(count=64), config).learn(64 * 20)
    assert reached(policy, Target(count=64)) > -0.03


def test_agents_learn_together() -> None:
    """Only the first of 2 steps asks for a level; the best return is 2, a constant costs 1.25."""
    policy, env = Paired(), Pair(count=32)
    agents(policy, env).learn(3_000)
    assert reached(policy, env) > 1.8


@pytest.mark.parametrize("make", [a2c, clipped, penalised, judged_by_replicas, agents, cloning])
def test_same_seed_same_run_to_the_last_bit(make: Maker) -> None:
    def run(seed: int) -> tuple[torch.Tensor, list[dict[str, float]]]:
        policy, metrics = Echoing(hidden=4), []

        def note(progress: LearningProgress) -> bool:
            metrics.append({**progress.metrics})
            return True

        make(policy, Echo(ragged=3), seed).learn(200, note)
        return torch.cat([weights.flatten() for weights in policy.parameters()]), metrics

    weights, metrics = run(1)
    again, metrics_again = run(1)
    other, _ = run(2)
    assert torch.equal(weights, again)
    assert metrics == metrics_again
    assert not torch.equal(weights, other)


def test_learning_ends_when_the_callback_says_so() -> None:
    seen: list[LearningProgress] = []

    def stop_third(progress: LearningProgress) -> bool:
        seen.append(progress)
        return progress.update < 3

    algorithm = clipped(Echoing(), Echo(count=4))
    algorithm.learn(1000, stop_third)
    assert [(p.update, p.steps) for p in seen] == [(1, 8), (2, 16), (3, 24)]
    assert algorithm.learn(40).steps == 40


def test_the_learning_rate_may_fall_to_a_share_of_it_by_the_steps_so_far() -> None:
    config = PPOConfig(learning_rate=0.1, decay_to=0.4, n_minibatches=1)
    algorithm, rates = PPO(Echoing(), Echo(count=4), config), []

    def note(_: LearningProgress) -> bool:
        rates.append(algorithm.optimizer.param_groups[0]["lr"])
        return True

    algorithm.learn(32, note)
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.04])


def test_rewards_that_are_no_numbers_end_learning_before_the_weights_are_lost() -> None:
    class Broken(Echo):
        def _paid(self, actions: Actions) -> FloatArray:
            return np.full(self.count, np.nan)

    policy = Echoing()
    with pytest.raises(FloatingPointError, match="the gradient has norm nan in update 1; look"):
        clipped(policy, Broken()).learn(100)
    assert all(weights.isfinite().all() for weights in policy.parameters())


def test_ppo_balances_a_pole() -> None:
    """CartPole-v0 counts as solved at a mean of 195; 10 s of one core are enough."""
    policy = Balancing(seed=0)
    config = PPOConfig(
        n_steps=64, learning_rate=3e-3, gamma=0.98, gae_lambda=0.9, reward_scale=0.02,
        n_epochs=6, n_minibatches=8, ent_coef=0.01,
    )  # fmt: skip
    scores: list[float] = []

    def solved(progress: LearningProgress) -> bool:
        if progress.update % 10 == 0:
            scores.append(reached(policy, CartPole(100)))
        return not scores or scores[-1] < 195

    PPO(policy, CartPole(32), config).learn(60_000, solved)
    assert LONGEST >= scores[-1] >= 195


def test_our_cart_is_that_of_gymnasium() -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    theirs, ours = CartPoleEnv(), CartPole(1)
    theirs.reset(seed=0)
    ours.reset([0])
    theirs.state = ours.state[0]
    for push in [0, 1, 1, 0, 1, 1, 1, 0]:
        seen, *_ = theirs.step(push)  # type: ignore[no-untyped-call]
        ours.step(np.array([push]))
        assert ours.state[0] == pytest.approx(seen, abs=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no accelerator")
@pytest.mark.parametrize("make", [a2c, clipped, penalised, agents, cloning])
def test_a_run_goes_on_on_another_device(make: Maker, tmp_path: Path) -> None:
    env = Echo(count=32, ragged=2)
    there = make(Echoing().to("cuda"), env, 0).learn(400)
    storage.save(tmp_path / "state.safetensors", there)
    policy = Echoing()
    here = make(policy, Echo(count=32, ragged=2), 0)
    storage.load(tmp_path / "state.safetensors", here)
    assert policy.device.type == "cpu"
    for name, weights in there.policy.state_dict().items():
        assert torch.equal(weights.cpu(), policy.state_dict()[name])
    here.learn(800)
    assert reached(policy, Echo(count=32)) == 2
