"""Networks that learn: they map an observation to a distribution and optionally a value.

Observations come from envs as numpy arrays and enter networks as tensors with the same names. A
batch has no envs that are over, so every row has a decision. A network may be on an accelerator;
envs and random numbers stay on the CPU. So a run draws the same numbers and can resume on either
device. The value of an :class:`ActorCritic` may use the whole observation, even if each agent sees
only a part: then it is the shared critic of centralised training (Yu et al., NeurIPS 2022, MAPPO).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme.core.errors import SettingError
from bireme_lab.training.distributions import Action, ActionDistribution
from bireme_lab.training.vec_env import Actions, Array, Observation, by_agent

Tensors: TypeAlias = Mapping[str, Tensor]


class ActorCritic(nn.Module, ABC):
    """A policy and a critic over the same observations."""

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return next((part.device for part in self.parameters()), torch.device("cpu"))

    @abstractmethod
    def distribution(self, observation: Tensors) -> ActionDistribution:
        """Return the distribution of actions for every row of ``observation``."""

    def values(self, observation: Tensors) -> Tensor:
        """Return the expected return from every row, shape (batch,).

        Raises:
            SettingError: the policy has no critic.
        """
        raise SettingError(
            f"{type(self).__name__} has no critic; give it values(), or train with "
            'baseline="replicas", which needs none'
        )

    def action_values(self, observation: Tensors, actions: Action) -> Tensor:
        """Return the expected return after ``actions`` in every row, Q(o, a), shape (batch,).

        Raises:
            SettingError: the policy has no critic of actions.
        """
        raise SettingError(
            f"{type(self).__name__} has no critic of actions; give it action_values(), or train "
            "by another algorithm"
        )


def device_called(name: str) -> torch.device:
    """Return the device ``name``, cpu or cuda; SettingError if torch cannot use it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError(
            f"torch {torch.__version__} finds no GPU here; train with --device cpu, or on a "
            "machine with an NVIDIA GPU, its driver, and a torch that is built for CUDA"
        )
    return torch.device(name)


def tensors(arrays: Mapping[str, Array], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return ``arrays`` as tensors on ``device``, each converted as :func:`tensor` does."""
    return {name: tensor(array).to(device) for name, array in arrays.items()}


def tensor(array: Array) -> Tensor:
    """Return ``array`` as a tensor: float32 for floats, int64 for integers, bool for bools."""
    kind = array.dtype.kind
    if kind == "b":
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if kind == "f" else np.int64))


def arrays(actions: Action) -> Actions:
    """Return sampled actions as numpy arrays for an env."""
    return by_agent(lambda action: np.asarray(action.detach().cpu()), actions)


@torch.no_grad()
def predict(
    policy: ActorCritic, observation: Observation, draws: torch.Generator | None = None
) -> Actions:
    """Return the likeliest action in each row of ``observation``, or a draw with ``draws``."""
    distribution = policy.distribution(tensors(observation, policy.device))
    return arrays(distribution.mode() if draws is None else distribution.sample(draws))


# --- common layers of several families; padding has no effect on them ---------------------------
#
# Shapes: ``states`` (..., things, features), ``is_there`` (..., things) bool: False for padding.
# Leading dimensions are those of batches.


class AttentionLayer(nn.Module):
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
        """Return states, (..., things, width), after attention to the things in ``is_there``."""
        parts = self.project(self.before(states)).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in parts
        )
        # Not -inf: a softmax over only -inf is nan.
        hidden = torch.where(is_there, 0.0, -1e9)[..., None, None, :]
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        states = states + self.merge(attended.transpose(-3, -2).flatten(-2))
        inner: Tensor = self.inner(self.between(states))
        return states + inner


def mean_over(states: Tensor, is_there: Tensor) -> Tensor:
    """Return the mean over the things in ``is_there``, (..., features); zero without any."""
    weights = is_there.to(states.dtype)[..., None]
    return (states * weights).sum(-2) / weights.sum(-2).clamp_min(1.0)
