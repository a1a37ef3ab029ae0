"""Networks that learn: they answer an observation with a distribution and, if asked, a value.

Observations come from envs as numpy arrays and enter networks as tensors with the same names.
Batches are ragged in one way only: envs that are over are left out, so every row that a network
sees is one in which something is to be decided. The value of an :class:`ActorCritic` may use all
of the observation, also where its agents each look at a part: then it is the shared critic of
centralised training (Yu et al., NeurIPS 2022 datasets track, MAPPO).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme.core.errors import SettingError
from bireme.training.distributions import Action, ActionDistribution
from bireme.training.vec_env import Actions, Array, Observation

Tensors: TypeAlias = Mapping[str, Tensor]


class ActorCritic(nn.Module, ABC):
    """A policy and a critic over the same observations."""

    @abstractmethod
    def distribution(self, observation: Tensors) -> ActionDistribution:
        """What to do, for every row of ``observation``."""

    def values(self, observation: Tensors) -> Tensor:
        """Return the expected return from every row on, shape (batch,).

        Not needed where replicas are the baseline.

        Raises:
            SettingError: the policy has no critic.
        """
        raise SettingError(
            f"{type(self).__name__} has no critic; give it values(), or train with "
            'baseline="replicas", which needs none'
        )

    def distribution_and_values(self, observation: Tensors) -> tuple[ActionDistribution, Tensor]:
        """Return both; to be overridden where they share layers."""
        return self.distribution(observation), self.values(observation)


def tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """``arrays`` as tensors: floats in single precision, integers as int64, bools as they are."""
    return {name: tensor(array) for name, array in arrays.items()}


def tensor(array: Array) -> Tensor:
    """One array as a tensor, converted as :func:`tensors` does."""
    kind = array.dtype.kind
    if kind == "b":
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if kind == "f" else np.int64))


def arrays(actions: Action) -> Actions:
    """Sampled actions as a env takes them."""
    if isinstance(actions, Tensor):
        return np.asarray(actions.detach())
    return {agent: np.asarray(action.detach()) for agent, action in actions.items()}


@torch.no_grad()
def predict(policy: ActorCritic, observation: Observation) -> Actions:
    """What ``policy`` deems best in each row of ``observation``."""
    return arrays(policy.distribution(tensors(observation)).mode())


# --- layers that several families share; padding changes nothing in them ------------------------
#
# Shapes: ``states`` (..., things, features), ``is_there`` (..., things) bool: False for padding.
# Leading dimensions are those of batches.


class Attention(nn.Module):
    """One layer of a transformer encoder, normalised before each half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, states: Tensor, is_there: Tensor) -> Tensor:
        """(..., things, width) from the same; things attend to those that ``is_there`` marks."""
        parts = self.project(self.before(states)).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in parts
        )
        hidden = torch.where(is_there, 0.0, -1e9)[..., None, None, :]
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        states = states + self.merge(found.transpose(-3, -2).flatten(-2))
        inner: Tensor = self.inner(self.between(states))
        return states + inner


def mean_over(states: Tensor, is_there: Tensor) -> Tensor:
    """The mean over what ``is_there`` marks, (..., features); zero where nothing is."""
    weights = is_there.to(states.dtype)[..., None]
    return (states * weights).sum(-2) / weights.sum(-2).clamp_min(1.0)
