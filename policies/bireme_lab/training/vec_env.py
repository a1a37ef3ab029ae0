"""Environments: many copies of one scheduling problem, stepped together.

A VecEnv is a batch of ``count`` independent problems in numpy, so that one call of a network serves
all. In every array of observations and actions the environments come first. A seed fixes all random
numbers of an environment. Environments with equal seeds are replicas, which differ only by their
actions. So seeds and actions restore an environment when an interrupted training resumes. This
module and its implementations do not import torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray

Array: TypeAlias = NDArray[Any]
Observation: TypeAlias = Mapping[str, Array]
"""The observation of every env, by name; each array has shape (envs, ...)."""
Actions: TypeAlias = Array | Mapping[str, Array]
"""The action in every env, shape (envs, ...); by agent for several agents."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EnvStep:
    """Outcome of one step.

    Attributes:
        observation: The observation after the step; the last one for envs that are over.
        rewards: Rewards of this step, shape (envs,); 0 for envs that were over before it.
        is_over: Shape (envs,).
        times: Each env's own clock after the step, shape (envs,), in its own unit; it never goes
            back. An env that is over keeps its end time.
        is_cut: Whether a limit on length ended the env, shape (envs,), so that the value of its
            last state still counts. None: no env ends that way.
    """

    observation: Observation
    rewards: FloatArray
    is_over: BoolArray
    times: FloatArray
    is_cut: BoolArray | None = None


class VecEnv(Protocol):
    """A batch of problems; its clocks start at 0 with every reset."""

    @property
    def count(self) -> int:
        """Number of envs."""

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all envs anew, one seed each; equal seeds make replicas."""

    def step(self, actions: Actions) -> EnvStep:
        """Act in every env; an env that is over ignores it and gives no reward until a reset."""


def take(arrays: Mapping[str, Array], rows: NDArray[Any]) -> dict[str, Array]:
    """Return the ``rows`` (indices or a mask of the first dimension) of every array."""
    return {name: array[rows] for name, array in arrays.items()}


def by_agent(apply: Callable[..., T], *actions: Any) -> T | dict[str, T]:
    """Apply a function to actions, agent by agent for several agents."""
    if isinstance(actions[0], Mapping):
        return {agent: apply(*(mapping[agent] for mapping in actions)) for agent in actions[0]}
    return apply(*actions)


def check_choices(actions: IntArray, allowed: BoolArray, live: BoolArray) -> None:
    """Raise ValueError if an entry of ``actions``, (envs,), is not ``allowed``, (envs, choices).

    Only ``live`` envs are checked.
    """
    choices = np.clip(actions, 0, allowed.shape[1] - 1)
    is_fine = (choices == actions) & allowed[np.arange(len(allowed)), choices]
    if (bad := live & ~is_fine).any():
        env = int(bad.argmax())
        raise ValueError(
            f"action {int(actions[env])} of env {env} is not allowed; choose where the mask is true"
        )
