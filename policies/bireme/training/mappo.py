"""MAPPO: several agents that act together, judged by one critic (Yu et al., NeurIPS 2022).

The policy answers with a :class:`~bireme.training.distributions.JointDistribution`; its values
see the whole observation and are shared by all agents (centralised training, each agent acting on
what it looks at). Every agent has a clipped objective of its own, with its own ratio, and the sum
is maximised:

    sum over agents i of E[min(r_i A, clip(r_i, 1 - eps, 1 + eps) A) | agent i had work]

The critic values states, as in Yu et al.; the paper on DAS writes one of states and actions, which
a baseline must not depend on.

PPO itself clips the product of the ratios instead, as if one agent chose all: then an agent that
has moved far keeps the others from learning. Steps in which an agent had nothing to decide are
left out of its expectation.
"""

from torch import Tensor

from bireme.training.ppo import PPO


class MAPPO(PPO):
    """PPO with one objective per agent."""

    def _policy_loss(self, log_ratio: Tensor, works: Tensor, advantages: Tensor) -> Tensor:
        gained = self._surrogate(log_ratio, advantages.unsqueeze(1)) * works
        return -(gained.sum(0) / works.sum(0).clamp(min=1)).sum()
