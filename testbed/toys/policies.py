"""The smallest networks that can do right in the toy envs: one layer each."""

import torch
from torch import Tensor, nn

from bireme_lab.training.distributions import (
    ActionDistribution,
    DiagonalGaussian,
    FullGaussian,
    JointDistribution,
    MaskedCategorical,
)
from bireme_lab.training.networks import ActorCritic, Tensors
from testbed.toys.envs import CHOICES


class Echoing(ActorCritic):
    """For Echo and Late."""

    def __init__(self, seed: int = 0, hidden: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.actor = _layers(CHOICES, hidden, CHOICES)
            self.critic = _layers(CHOICES, hidden, 1)

    def distribution(self, observation: Tensors) -> ActionDistribution:
        return MaskedCategorical(self.actor(observation["asked"]), observation["mask"])

    def values(self, observation: Tensors) -> Tensor:
        return torch.as_tensor(self.critic(observation["asked"])).squeeze(-1)


class Aiming(ActorCritic):
    """For Target, without a critic; with a full covariance, or a diagonal one."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__()
        self.mean = nn.Linear(2, 2)
        nn.init.zeros_(self.mean.weight)
        nn.init.zeros_(self.mean.bias)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        self.below = nn.Parameter(torch.zeros(2, 2))
        self._is_full = is_full

    def distribution(self, observation: Tensors) -> ActionDistribution:
        mean = self.mean(observation["wanted"])
        if not self._is_full:
            return DiagonalGaussian(mean, self.log_std)
        return FullGaussian(mean, self.below.tril(-1) + torch.diag(self.log_std.exp()))


class Paired(Echoing):
    """For Pair: the critic of Echoing, shared by two agents."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.level = nn.Linear(CHOICES, 1)
        nn.init.zeros_(self.level.weight)
        nn.init.zeros_(self.level.bias)
        self.log_std = nn.Parameter(torch.tensor(-1.0))

    def distribution(self, observation: Tensors) -> ActionDistribution:
        level = DiagonalGaussian(self.level(observation["asked"]), self.log_std)
        choice = super().distribution(observation)
        return JointDistribution(
            {"choice": choice, "level": level}, idle={"level": observation["is_odd"]}
        )


def _layers(size: int, hidden: int, out: int) -> nn.Module:
    if not hidden:
        return nn.Linear(size, out)
    return nn.Sequential(nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, out))
