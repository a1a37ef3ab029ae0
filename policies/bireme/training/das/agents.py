"""The two agents of DAS as one policy: Gaussian priorities, Gaussian affinities, a shared critic.

The ordering agent's priorities are independent given what it sees. The placement agent's
affinities are as alike as machines are: their covariance is the posterior of the random-walk
Gaussian process, so that what is tried on one machine is tried on those like it. Both densities
are the correct ones (:mod:`bireme.training.distributions`); the slides print another. How widely
either agent tries things is learned, within bounds.

The ablations of the slides: ``communicates=False`` keeps the cluster from the ordering agent,
``walks=False`` gives affinities of their own to machines and hides what finished runs tell.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme.rl.encoders import das_inputs
from bireme.training.das.networks import Critic, OrderingNetwork, PlacementNetwork, Sizes
from bireme.training.das.turns import ORDERING, PLACEMENT
from bireme.training.distributions import (
    DiagonalGaussian,
    Distribution,
    FullGaussian,
    JointDistribution,
)
from bireme.training.policies import ActorCritic, Tensors

SIZES: Final = Sizes(
    job_features=das_inputs.JOB_FEATURES,
    machine_features=das_inputs.MACHINE_FEATURES,
    placed_features=das_inputs.PLACED_FEATURES,
    place_features=das_inputs.PLACE_FEATURES,
)
_LOG_STD: Final = (-3.0, 0.0)
"""Bounds of the logarithm of either agent's deviation."""
_FIRST_LOG_STD: Final = -1.0
_CLUSTER: Final = ("machines", "machine_mask")


class DasAgents(ActorCritic):
    """What acts in a :class:`~bireme.training.das.turns.DasTurns`."""

    def __init__(
        self, sizes: Sizes = SIZES, *, communicates: bool = True, walks: bool = True
    ) -> None:
        super().__init__()
        self.ordering = OrderingNetwork(sizes, communicates=communicates)
        self.placement = PlacementNetwork(sizes)
        self.critic = Critic(sizes)
        self.walks = walks
        self.log_std = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(_FIRST_LOG_STD)) for name in (ORDERING, PLACEMENT)}
        )

    def distribution(self, observation: Tensors) -> Distribution:
        """Of both agents; only the one whose turn it is has work, and that only if it matters."""
        is_placing, fits, has_room = (observation[n] for n in ("is_placing", "fits", "has_room"))
        return JointDistribution(
            {
                ORDERING: DiagonalGaussian(
                    self._priorities(observation), self._std(ORDERING), fits
                ),
                PLACEMENT: self._affinities(observation, has_room),
            },
            idle={
                ORDERING: self._is_idle(observation),
                PLACEMENT: ~is_placing | (has_room.sum(-1) < 2),
            },
        )

    @torch.no_grad()
    def try_within(self, log_std: float) -> None:
        """Try things as widely as this again: who copies a rule becomes sure of itself."""
        for own in self.log_std.values():
            own.fill_(log_std)

    def values(self, observation: Tensors) -> Tensor:
        """Of what both agents see."""
        value: Tensor = self.critic(
            observation["jobs"],
            observation["job_mask"],
            observation["machines"],
            observation["machine_mask"],
        )
        return value

    def _is_idle(self, seen: Tensors) -> Tensor:
        """Where the ordering agent has nothing to choose, (batch,)."""
        return seen["is_placing"] | (seen["fits"].sum(-1) < 2)

    def _std(self, agent: str) -> Tensor:
        log_std: Tensor = self.log_std[agent]
        return log_std.clamp(*_LOG_STD)

    def _priorities(self, seen: Tensors) -> Tensor:
        """Means, (batch, jobs); 0 where it is idle and behind the last job, which costs nothing."""
        rows = (~self._is_idle(seen)).nonzero().squeeze(-1)
        longest = int(seen["job_mask"].sum(-1).max())
        jobs, is_job = (seen[name][rows, :longest] for name in ("jobs", "job_mask"))
        places = torch.arange(longest, dtype=jobs.dtype).expand(is_job.shape)
        means = self.ordering(jobs, places, is_job, *(seen[n][rows] for n in _CLUSTER))
        means = functional.pad(means, (0, seen["jobs"].shape[1] - longest))
        return means.new_zeros(seen["job_mask"].shape).index_copy(0, rows, means)

    def _affinities(self, seen: Tensors, has_room: Tensor) -> Distribution:
        rows = seen["is_placing"].nonzero().squeeze(-1)
        places = seen["places"][rows]
        if not self.walks:
            places = torch.cat([places[..., :-1], torch.zeros_like(places[..., -1:])], dim=-1)
        means = self.placement(seen["placed"][rows], places)
        means = means.new_zeros(has_room.shape).index_copy(0, rows, means)
        if not self.walks:
            return DiagonalGaussian(means, self._std(PLACEMENT), has_room)
        eye = torch.eye(means.shape[-1]).expand_as(seen["walks"])
        factor = torch.where(seen["is_placing"][:, None, None], seen["walks"], eye)
        return FullGaussian(means, factor * self._std(PLACEMENT).exp(), has_room)
