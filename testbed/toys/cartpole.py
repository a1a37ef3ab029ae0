"""CartPole, batched: keep a pole upright on a cart, for 200 steps at most (CartPole-v0).

Barto, Sutton and Anderson, IEEE Trans. Systems, Man and Cybernetics 13(5), 1983, with Gymnasium's
constants.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bireme.core.resources import FloatArray
from bireme_lab.training.distributions import ActionDistribution, MaskedCategorical
from bireme_lab.training.networks import ActorCritic, Tensors
from bireme_lab.training.vec_env import Actions, EnvStep, Observation

LONGEST = 200
_GRAVITY, _CART_MASS, _POLE_MASS, _HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
_FORCE, _SECONDS = 10.0, 0.02
_FARTHEST, _STEEPEST = 2.4, 12 * 2 * np.pi / 360


class CartPole:
    """``count`` carts; 1 is paid for every step that the pole stands, ``longest`` at most."""

    def __init__(self, count: int, longest: int = LONGEST) -> None:
        self.count, self._longest = count, longest

    def reset(self, seeds: Sequence[int]) -> Observation:
        draws = [np.random.default_rng(seed).uniform(-0.05, 0.05, 4) for seed in seeds]
        self.state = np.stack(draws)
        self._fallen, self._at = np.zeros(self.count, np.bool_), 0
        self._lasted = np.zeros(self.count)
        return {"state": self.state}

    def step(self, actions: Actions) -> EnvStep:
        """Push left (0) or right (1)."""
        stood = ~self._fallen & (self._at < self._longest)
        self.state = np.where(stood[:, None], _moved(self.state, np.asarray(actions)), self.state)
        beyond = (abs(self.state[:, 0]) > _FARTHEST) | (abs(self.state[:, 2]) > _STEEPEST)
        self._fallen, self._at = self._fallen | beyond, self._at + 1
        self._lasted = self._lasted + stood
        is_cut = ~self._fallen & (self._at >= self._longest)
        seen = {"state": self.state}
        return EnvStep(seen, stood.astype(float), self._fallen | is_cut, self._lasted, is_cut)


class Balancing(ActorCritic):
    """Two small networks, as stable-baselines3 uses for CartPole."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.actor, self.critic = _network(2), _network(1)

    def distribution(self, observation: Tensors) -> ActionDistribution:
        return MaskedCategorical(self.actor(observation["state"]))

    def values(self, observation: Tensors) -> Tensor:
        return torch.as_tensor(self.critic(observation["state"])).squeeze(-1)


def _moved(state: FloatArray, actions: FloatArray) -> FloatArray:
    _, speed, angle, turn = state.T
    force = np.where(actions == 1, _FORCE, -_FORCE)
    mass, pole = _CART_MASS + _POLE_MASS, _POLE_MASS * _HALF_LENGTH
    pushed = (force + pole * turn**2 * np.sin(angle)) / mass
    leverage = _HALF_LENGTH * (4 / 3 - _POLE_MASS * np.cos(angle) ** 2 / mass)
    turned = (_GRAVITY * np.sin(angle) - np.cos(angle) * pushed) / leverage
    sped = pushed - pole * turned * np.cos(angle) / mass
    return state + _SECONDS * np.stack([speed, sped, turn, turned], axis=1)


def _network(out: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, out)
    )
