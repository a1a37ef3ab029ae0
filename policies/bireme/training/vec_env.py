"""Environments: many copies of one scheduling problem, stepped together.

A env is a batch of ``count`` independent problems in numpy, so that one call of a network
serves all. Every array of an observation, and every array of actions, has the envs first. A
seed fixes all that chance decides in one env: arrivals, durations, fluctuations. Environments with
equal seeds are replicas: they differ by the actions taken in them and by nothing else. So seeds
and actions together restore a env, which is how an interrupted training goes on.

This module is free of torch, as are the envs that implement it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray

Array: TypeAlias = NDArray[Any]
Observation: TypeAlias = Mapping[str, Array]
"""What is seen of every env, by name; each array has shape (envs, ...)."""
Actions: TypeAlias = Array | Mapping[str, Array]
"""What is done in every env, shape (envs, ...); by agent where there are several."""


@dataclass(frozen=True, slots=True)
class EnvStep:
    """What one step has led to.

    Attributes:
        observation: What is seen afterwards; of envs that are over, what was seen last.
        rewards: Shape (envs,), of this step; 0 for envs that were over before it.
        is_over: Shape (envs,).
        times: Each env's own clock after the step, shape (envs,), in its own unit; it never
            goes back. A env that is over keeps the time at which it ended.
        is_cut: Shape (envs,): over because of a limit on length, not by its own nature, so that
            what would have followed still counts. None: no env ends that way.
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
        """How many envs there are."""
        ...

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all envs anew, one seed each; equal seeds make replicas."""
        ...

    def step(self, actions: Actions) -> EnvStep:
        """Act in every env; one that is over ignores it and gives no reward until a reset."""
        ...


def take(arrays: Mapping[str, Array], rows: NDArray[Any]) -> dict[str, Array]:
    """The ``rows`` (indices or a mask of the first dimension) of every array."""
    return {name: array[rows] for name, array in arrays.items()}
