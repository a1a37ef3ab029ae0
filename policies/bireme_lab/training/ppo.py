"""Proximal policy optimisation (Schulman et al., 2017), by clipping or by a KL penalty; MAPPO.

Each rollout is used for several passes in minibatches. With r = pi(a|s) / pi_old(a|s), PPO
maximises

    clip:  E[min(r A, clip(r, 1 - eps, 1 + eps) A)]                    (equation 7)
    kl:    E[r A - beta KL(pi_old, pi)]                                (equation 8)

plus ``ent_coef`` E[H(pi)] - ``vf_coef`` E[(R - V)^2] (equation 9; no value term when replicas are
the baseline). Beta is doubled after an update with a KL above 1.5 times its target and halved
after one below the target over 1.5 (section 4). Advantages are normalised over the rollout.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bireme.core.errors import SettingError
from bireme_lab.training.algorithm import ActorCriticConfig, OnPolicy
from bireme_lab.training.distributed import average, least
from bireme_lab.training.distributions import Action, ActionDistribution
from bireme_lab.training.networks import ActorCritic, Tensors
from bireme_lab.training.rollouts import Rollout, take_rows
from bireme_lab.training.vec_env import VecEnv

_TOLERANCE = 1.5
"""The factor between KL and its target that triggers an adaptation."""
_ROWS = 4096
"""Rows per call of a critic of actions."""
_KL_COEFS = (1e-4, 1e4)
"""Bounds of beta: from further away it would need too many updates to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """The settings of PPO.

    Attributes:
        n_epochs: Passes over each rollout, in ``n_minibatches`` parts each.
        clip_range: The eps of the objective ``clip``.
        target_kl: ``kl``: the target of beta's adaptation. ``clip``: passes end early once KL is
            above 1.5 times this; None: never.
        kl_coef: The first beta.
    """

    objective: Literal["clip", "kl"] = "clip"
    n_epochs: int = 4
    n_minibatches: int = 4
    clip_range: float = 0.2
    target_kl: float | None = None
    kl_coef: float = 1.0

    def __post_init__(self) -> None:
        super(PPOConfig, self).__post_init__()  # slots: the class is not the one of this body
        if self.objective == "kl" and self.target_kl is None:
            raise SettingError('objective="kl" without target_kl; name one, 0.01 is usual')


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a rollout with their advantages; all first dimensions are n."""

    observations: Tensors
    actions: Action
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, rows: Tensor) -> "Batch":
        return Batch(
            {name: part[rows] for name, part in self.observations.items()},
            take_rows(self.actions, rows),
            self.log_probs[rows],
            self.advantages[rows],
            self.returns[rows],
        )


class PPO(OnPolicy[PPOConfig]):
    """Several passes over each rollout, kept near the policy that played it."""

    def __init__(self, policy: ActorCritic, env: VecEnv, config: PPOConfig, seed: int = 0) -> None:
        super().__init__(policy, env, config, seed)
        self.kl_coef = config.kl_coef

    def update(self) -> tuple[int, dict[str, float]]:
        """Play a rollout, then improve the policy on it."""
        config = self.config
        # 1. Play the present policy.
        rollout = self.collect()
        # 2. Estimate the advantage of each action.
        advantages, returns = self.advantages_and_returns(rollout)
        batch = Batch(rollout.observations, rollout.actions, rollout.log_probs, advantages, returns)
        # 3. Keep the policy that played: the KL penalty is the distance from it.
        old = copy.deepcopy(self.policy) if config.objective == "kl" else None
        # 4. Pass over the rollout several times, one gradient step per minibatch.
        measured: list[dict[str, float]] = []
        for _ in range(config.n_epochs):
            of_pass = [
                self._step(batch.take(rows), old) for rows in self._minibatches(len(batch.returns))
            ]
            measured += of_pass
            # 5. Stop early if the policy has moved too far from the one that played.
            kl = average(sum(one["kl"] for one in of_pass) / len(of_pass))
            if old is None and config.target_kl and kl > _TOLERANCE * config.target_kl:
                break
        metrics = {name: sum(one[name] for one in measured) / len(measured) for name in measured[0]}
        # 6. Adapt the weight of the KL penalty to the policy's change.
        if old is not None:
            metrics["kl"] = self._divergence(old, batch)
            self.adapt(metrics["kl"])
            metrics["kl_coef"] = self.kl_coef
        return len(rollout), metrics

    def _minibatches(self, size: int) -> Iterator[Tensor]:
        """Yield the rows of equal parts of a rollout, newly shuffled."""
        # Equal numbers in every process: the others would wait for ever for a missing gradient.
        parts = int(least(min(self.config.n_minibatches, size)))
        shuffled = torch.randperm(size, generator=self.generator).to(self.policy.device)
        yield from shuffled.tensor_split(parts)

    def _step(self, batch: Batch, old: ActorCritic | None) -> dict[str, float]:
        """Take one step of the optimiser on a minibatch."""
        config = self.config
        distribution, values = self.evaluate_actions(batch.observations, batch.actions)
        # log r, by agent; an agent without work has r = 1
        log_ratio = distribution.log_probs(batch.actions) - batch.log_probs
        policy_loss = self._policy_loss(log_ratio, distribution.works(), batch.advantages)
        entropy = distribution.entropy().mean()
        loss = policy_loss - config.ent_coef * entropy
        metrics = {"policy_loss": policy_loss.item(), "entropy": entropy.item()}
        if old is not None:
            with torch.no_grad():
                old_distribution = old.distribution(batch.observations)
            loss = loss + self.kl_coef * old_distribution.kl(distribution).mean()  # equation 8
        if values is not None:
            value_loss = (batch.returns - values).square().mean()
            loss = loss + config.vf_coef * value_loss  # equation 9
            metrics["value_loss"] = value_loss.item()
        self.descend(loss)
        return metrics | _policy_change(log_ratio.detach().sum(1), config.clip_range)

    def _policy_loss(self, log_ratio: Tensor, works: Tensor, advantages: Tensor) -> Tensor:
        """Return minus the objective; ``log_ratio`` and ``works`` have shape (n, agents)."""
        del works  # agents count as one, by the product of their ratios
        return -self._surrogate(log_ratio.sum(1), advantages).mean()

    def _surrogate(self, log_ratio: Tensor, advantages: Tensor) -> Tensor:
        """Return the objective of each action; equations 6 and 7."""
        ratio = log_ratio.exp()
        if self.config.objective == "kl":
            return ratio * advantages
        clipped = ratio.clamp(1 - self.config.clip_range, 1 + self.config.clip_range)
        return torch.minimum(ratio * advantages, clipped * advantages)

    @torch.no_grad()
    def _divergence(self, old: ActorCritic, batch: Batch) -> float:
        """Return the mean KL from ``old`` to the policy over a rollout, in all processes."""
        total = 0.0
        every = torch.arange(len(batch.returns), device=batch.returns.device)
        for rows in every.tensor_split(self.config.n_minibatches):
            if len(rows):
                part = batch.take(rows).observations
                total += float(old.distribution(part).kl(self.policy.distribution(part)).sum())
        return average(total / len(batch.returns))

    def adapt(self, kl: float) -> None:
        """Change beta after an update that moved the policy by ``kl`` (section 4)."""
        target = self.config.target_kl or 0.0
        least_coef, most_coef = _KL_COEFS
        if kl < target / _TOLERANCE:
            self.kl_coef = max(self.kl_coef / 2, least_coef)
        elif kl > target * _TOLERANCE:
            self.kl_coef = min(self.kl_coef * 2, most_coef)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"kl_coef": self.kl_coef}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.kl_coef = state["kl_coef"]


class MAPPO(PPO):
    """PPO with one clipped objective per agent (Yu et al., NeurIPS 2022 datasets track).

    The policy returns a :class:`~bireme_lab.training.distributions.JointDistribution`. Its values
    see the whole observation and are shared by all agents. MAPPO maximises

        sum over agents i of E[min(r_i A, clip(r_i, 1 - eps, 1 + eps) A) | agent i had work]

    The critic values states, as in Yu et al. The paper on DAS writes a critic of states and
    actions, but a baseline must not depend on actions.
    """

    # PPO clips the product of the ratios, as for a single agent: an agent that has moved far would
    # keep the others from learning.
    def _policy_loss(self, log_ratio: Tensor, works: Tensor, advantages: Tensor) -> Tensor:
        gained = self._surrogate(log_ratio, advantages.unsqueeze(1)) * works
        return -(gained.sum(0) / works.sum(0).clamp(min=1)).sum()


class ActionMAPPO(MAPPO):
    """MAPPO with a critic of actions, Q(o, a) over all agents (DAS, KDD 2023).

    The critic learns by temporal differences,

        (Q(o_t, a_t) - y_t)^2,   y_t = r_t + gamma Q_old(o_t+1, pi_old(o_t+1)),

    where Q_old and pi_old played the rollout, so that pi_old's action is the next played action. An
    advantage is Q(o, a) minus the policy's value of the state, :meth:`ActorCritic.values`. That
    value must not depend on the action; it may be Q of the likeliest action.
    """

    @torch.no_grad()
    def advantages_and_returns(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return advantages, and the targets y of the critic, shape (n,) each."""
        config, rows = self.config, torch.arange(len(rollout), device=self.policy.device)
        action_values = [
            self.policy.action_values(
                {name: observation[part] for name, observation in rollout.observations.items()},
                take_rows(rollout.actions, part),
            )
            for part in (rows[start : start + _ROWS] for start in range(0, len(rollout), _ROWS))
        ]
        values = np.zeros_like(rollout.rewards)
        values[rollout.is_active] = np.asarray(torch.cat(action_values).cpu())
        following = np.concatenate([values[1:], rollout.next_values[-1:]])
        targets = rollout.rewards * config.reward_scale + config.gamma * np.where(
            rollout.is_over, 0.0, following
        )
        advantages = rollout.flat(values - rollout.values)
        if config.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages, rollout.flat(targets)

    def evaluate_actions(
        self, observations: Tensors, actions: Action
    ) -> tuple[ActionDistribution, Tensor | None]:
        """Return distribution and Q of ``actions``, with gradients."""
        distribution = self.policy.distribution(observations)
        return distribution, self.policy.action_values(observations, actions)


def _policy_change(log_ratio: Tensor, clip_range: float) -> dict[str, float]:
    """Return the change of a policy from its actions: an unbiased estimate of the KL.

    E[(r - 1) - log r], never negative (k3 in Schulman, Approximating KL Divergence, 2020).
    """
    ratio = log_ratio.exp()
    return {
        "kl": float((ratio - 1 - log_ratio).mean()),
        "clip_fraction": float(((ratio - 1).abs() > clip_range).float().mean()),
    }
