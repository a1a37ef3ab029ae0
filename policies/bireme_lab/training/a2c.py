"""Advantage actor-critic with n-step returns (Mnih et al., ICML 2016, synchronous: A2C).

Every ``n_steps`` steps of all environments the policy takes one step of RMSProp along

    E[log pi(a|s) A] + ent_coef E[H(pi)] - vf_coef E[(R - V(s))^2],   A = R - V(s),

where R are the rewards up to the end of these steps plus the critic's value of the last state. The
generalised advantage with ``gae_lambda`` 1, the default here, equals A.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bireme_lab.training.algorithm import ActorCriticConfig, OnPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """The settings of Mnih et al. and stable-baselines3.

    Attributes:
        rms_prop_alpha: Decay of RMSProp's moving average, 0 to 1.
        rms_prop_eps: RMSProp's addend to the denominator.
    """

    n_steps: int | None = 5
    learning_rate: float = 7e-4
    gae_lambda: float = 1.0
    normalize_advantage: bool = False
    rms_prop_alpha: float = 0.99
    rms_prop_eps: float = 1e-5


class A2C(OnPolicy[A2CConfig]):
    """One gradient step per rollout."""

    def update(self) -> tuple[int, dict[str, float]]:
        """Play ``n_steps`` steps and take one step along the gradient."""
        config = self.config
        # 1. Play the present policy.
        rollout = self.collect()
        # 2. Estimate the advantage of each action.
        advantages, returns = self.advantages_and_returns(rollout)
        # 3. Evaluate the policy again, with gradients.
        distribution, values = self.evaluate_actions(rollout.observations, rollout.actions)
        # 4. Policy gradient with an entropy bonus, and the critic's regression.
        policy_loss = -(distribution.log_prob(rollout.actions) * advantages).mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss - config.ent_coef * entropy
        metrics = {"policy_loss": policy_loss.item(), "entropy": entropy.item()}
        if values is not None:
            value_loss = (returns - values).square().mean()
            loss = loss + config.vf_coef * value_loss
            metrics["value_loss"] = value_loss.item()
        # 5. One step of the optimiser.
        self.descend(loss)
        return len(rollout), metrics

    def _optimizer(self, policy: nn.Module) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.RMSprop(
            policy.parameters(),
            lr=config.learning_rate,
            alpha=config.rms_prop_alpha,
            eps=config.rms_prop_eps,
        )
