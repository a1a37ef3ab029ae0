"""The loop of all algorithms: play, learn, report, repeat.

The names are those of stable-baselines3. An algorithm has a policy, an environment and a
configuration; ``learn`` runs it. ``state_dict`` and ``load_state_dict`` interrupt and resume it
(:mod:`bireme_lab.training.storage` has the files). A resumed run equals the uninterrupted one bit
by bit.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme_lab.training.distributed import (
    average_gradients,
    equal_start,
    least,
    process_seed,
    rank,
)
from bireme_lab.training.distributions import Action, ActionDistribution
from bireme_lab.training.networks import ActorCritic, Tensors
from bireme_lab.training.rollouts import Episodes, Rollout, collect, gae, replica_advantages
from bireme_lab.training.vec_env import VecEnv


@dataclass(frozen=True, slots=True)
class LearningProgress:
    """State of learning after an update; ``steps`` are decisions of this process."""

    update: int
    steps: int
    seconds: float
    metrics: Mapping[str, float]


Callback: TypeAlias = Callable[[LearningProgress], bool]
"""Called after every update; False ends the learning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of every algorithm.

    Attributes:
        n_steps: Steps of every environment between updates; None: whole episodes.
        replicas: The number of neighbouring environments with the same seed.
        decay_to: Final share of the learning rate, which falls linearly over all steps.
        max_grad_norm: The maximum norm of gradients.
    """

    n_steps: int | None = None
    replicas: int = 1
    learning_rate: float = 3e-4
    decay_to: float = 1.0
    max_grad_norm: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCriticConfig(Config):
    """The settings of algorithms that learn from advantages.

    Attributes:
        baseline: The expected return: ``critic`` uses the policy's values, ``replicas`` the mean
            over the environments of equal seed, which needs whole episodes and no critic.
        gamma: The discount, per step or per unit of the environment's clock (``gamma_per``).
        reward_scale: Factor of rewards; a critic learns best with returns near 1.
        normalize_advantage: Whether to scale to mean 0 and deviation 1 over the rollout.
    """

    baseline: Literal["critic", "replicas"] = "critic"
    gamma: float = 0.99
    gamma_per: Literal["step", "time"] = "step"
    gae_lambda: float = 0.95
    reward_scale: float = 1.0
    normalize_advantage: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.5

    def __post_init__(self) -> None:
        if self.baseline == "replicas" and (self.n_steps is not None or self.replicas < 2):
            raise SettingError(
                f'baseline="replicas" with n_steps={self.n_steps} and replicas={self.replicas}: '
                "it compares whole episodes of equal arrivals; leave n_steps None and use at "
                "least 2 replicas"
            )
        if not 0 <= self.gamma <= 1 or not 0 <= self.gae_lambda <= 1:
            raise SettingError(
                f"gamma={self.gamma} and gae_lambda={self.gae_lambda}: both lie from 0 to 1"
            )

    @property
    def has_critic(self) -> bool:
        """Whether the baseline is the policy's values."""
        return self.baseline == "critic"


C = TypeVar("C", bound=Config)
AC = TypeVar("AC", bound=ActorCriticConfig)


class Algorithm(ABC, Generic[C]):
    """One policy that learns in one environment.

    Args:
        seed: Seed of arrivals, sampling and shuffling; the caller chooses the first weights. Each
            process has its own (:func:`bireme_lab.training.distributed.process_seed`).
    """

    def __init__(self, policy: ActorCritic, env: VecEnv, config: C, seed: int = 0) -> None:
        self.policy, self.config = policy, config
        self._weights = list(policy.parameters())
        self.generator = torch.Generator().manual_seed(seed)
        self.episodes = Episodes(env, seed, config.replicas)
        self.optimizer = self._optimizer(policy)
        self.updates, self.steps, self.seconds = 0, 0, 0.0

    @abstractmethod
    def update(self) -> tuple[int, dict[str, float]]:
        """Play and learn; return the number of decisions and the metrics."""

    def _optimizer(self, policy: nn.Module) -> torch.optim.Optimizer:
        rate = self.config.learning_rate
        return torch.optim.Adam(policy.parameters(), lr=rate, eps=1e-5, fused=True)

    def learn(self, total_steps: int, callback: Callback | None = None) -> Self:
        """Update until ``total_steps`` decisions, including those before a resume.

        All processes stop with the first one that is done.
        """
        equal_start([*self.policy.parameters(), *self.policy.buffers()])
        goes_on = True
        while goes_on and least(total_steps - self.steps) > 0:
            began = time.perf_counter()
            share = max(self.config.decay_to, 1 - self.steps / total_steps)
            for group in self.optimizer.param_groups:
                group["lr"] = share * self.config.learning_rate
            steps, metrics = self.update()
            self.updates, self.steps = self.updates + 1, self.steps + steps
            self.seconds += time.perf_counter() - began
            if self.episodes.last_return is not None:
                metrics["return"] = self.episodes.last_return
            if callback is not None:
                progress = LearningProgress(self.updates, self.steps, self.seconds, metrics)
                # All processes stop together: the others would wait for a missing gradient.
                goes_on = bool(least(float(callback(progress))))
        return self

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": dict(self.policy.state_dict()),
            "optimizer": {str(k): v for k, v in self.optimizer.state_dict()["state"].items()},
            "generator": self.generator.get_state(),
            "episodes": self.episodes.state_dict(),
            "counters": {"updates": self.updates, "steps": self.steps, "seconds": self.seconds},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.

        All processes load the state of the first one; the others begin new episodes.
        """
        self.policy.load_state_dict(state["policy"])
        groups = self.optimizer.state_dict()["param_groups"]
        moments = {int(k): v for k, v in state.get("optimizer", {}).items()}
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.generator.set_state(state["generator"])
        self.episodes.load_state_dict(state["episodes"])
        counters = state["counters"]
        self.updates, self.steps = counters["updates"], counters["steps"]
        self.seconds = counters["seconds"]
        if rank():
            # The first process's draws would add no new experience.
            process = process_seed(int(torch.randint(2**31, (1,), generator=self.generator)))
            self.generator.manual_seed(process)
            self.episodes = Episodes(self.episodes.env, process, self.episodes.replicas)

    def descend(self, loss: Tensor) -> None:
        """Take one step of the optimiser, with the gradients of all processes.

        Raises:
            FloatingPointError: the gradient is not finite; the weights are as they were.
        """
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(self._weights)
        # Check before the step: a nan would destroy the weights.
        norm = nn.utils.clip_grad_norm_(self._weights, self.config.max_grad_norm)
        if not norm.isfinite():
            raise FloatingPointError(
                f"the gradient has norm {norm.item()} in update {self.updates + 1}; look for nan "
                "in observations and rewards and for probabilities of 0, or lower "
                f"learning_rate={self.config.learning_rate}"
            )
        self.optimizer.step()


class OnPolicy(Algorithm[AC]):
    """An algorithm that learns from rollouts of the present policy."""

    def collect(self) -> Rollout:
        config = self.config
        return collect(
            self.policy,
            self.episodes,
            self.generator,
            n_steps=config.n_steps,
            has_critic=config.has_critic,
        )

    def advantages_and_returns(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return advantages and returns of a rollout, shape (n,) each."""
        raw = self._advantages(rollout)
        advantages = rollout.flat(raw)
        if self.config.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages, rollout.flat(raw + rollout.values)

    def evaluate_actions(
        self, observations: Tensors, actions: Action
    ) -> tuple[ActionDistribution, Tensor | None]:
        """Return distribution and values with gradients; no values without a critic."""
        del actions  # a critic of states does not look at them
        distribution = self.policy.distribution(observations)
        return distribution, self.policy.values(observations) if self.config.has_critic else None

    def _advantages(self, rollout: Rollout) -> FloatArray:
        config, rewards = self.config, rollout.rewards * self.config.reward_scale
        elapsed = np.diff(rollout.times, axis=0) if config.gamma_per == "time" else 1.0
        gamma = config.gamma**elapsed
        if not config.has_critic:
            active, seeds = rollout.is_active, rollout.seeds
            return replica_advantages(rewards, rollout.times, active, seeds, gamma)
        return gae(
            rewards, rollout.values, rollout.next_values, rollout.is_over, gamma, config.gae_lambda
        )
