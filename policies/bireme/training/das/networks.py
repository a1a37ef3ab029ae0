"""The networks of the two agents of DAS, and of the critic they share.

The ordering agent squeezes all machines into one state, mixes it into every job's by a gate,

    s = AvgPool(S_machines),  S_job' = delta * f(s) + (1 - delta) * S_job,
    delta = sigmoid(W [S_job, f(s)] + b)                        (squeeze and communicate)

and lets jobs attend to each other, knowing their place in the order of arrival. The placement
agent reads the job to be placed and one machine after the other. Nothing in them depends on how
many jobs and machines there are: the same weights serve any cluster.

Shapes: ``jobs`` (..., jobs, features), ``is_job`` (..., jobs) bool, ``machines`` (..., machines,
features), ``is_machine`` (..., machines) bool. What is padding changes nothing.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bireme.training.layers import Attention, mean_over

LONGEST_WAVE = 10_000.0
"""Of positions, in places of the queue (Vaswani et al., 2017)."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the networks are: features as the encoders give them, and inner widths.

    ``placed_features`` and ``place_features`` are those of a job that is placed, and of machines
    as places for it.
    """

    job_features: int
    machine_features: int
    placed_features: int
    place_features: int
    width: int = 32
    heads: int = 4
    layers: int = 1


class Communication(nn.Module):
    """Squeeze and communicate: the state of the cluster, mixed into every job's."""

    def __init__(self, machine_features: int, width: int) -> None:
        super().__init__()
        self.squeezed = nn.Sequential(nn.Linear(machine_features, width), nn.ReLU())
        self.gate = nn.Linear(2 * width, width)

    def forward(self, states: Tensor, machines: Tensor, is_machine: Tensor) -> Tensor:
        """States of jobs that know of the cluster, (..., jobs, width)."""
        cluster = self.squeezed(mean_over(machines, is_machine))[..., None, :].expand_as(states)
        share = torch.sigmoid(self.gate(torch.cat([states, cluster], dim=-1)))
        mixed: Tensor = share * cluster + (1 - share) * states
        return mixed


class OrderingNetwork(nn.Module):
    """Mean priorities of jobs; without ``communicates`` it does not see the cluster (DA)."""

    def __init__(self, sizes: Sizes, *, communicates: bool = True) -> None:
        super().__init__()
        width = sizes.width
        self.embed = nn.Sequential(nn.Linear(sizes.job_features, width), nn.ReLU())
        self.communicate = Communication(sizes.machine_features, width) if communicates else None
        self.layers = nn.ModuleList(Attention(width, sizes.heads) for _ in range(sizes.layers))
        self.head = nn.Linear(width, 1)

    def forward(
        self, jobs: Tensor, places: Tensor, is_job: Tensor, machines: Tensor, is_machine: Tensor
    ) -> Tensor:
        """Priorities, (..., jobs): the highest starts first.

        ``places`` are those in the order of arrival, from 0, same shape.
        """
        states = self.embed(jobs)
        if self.communicate is not None:
            states = self.communicate(states, machines, is_machine)
        states = states + positions(places, states.shape[-1])
        for layer in self.layers:
            states = layer(states, is_job)
        scores: Tensor = self.head(states)
        return scores.squeeze(-1)


class PlacementNetwork(nn.Module):
    """Mean affinities of one job to all machines."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.of_job = nn.Linear(sizes.placed_features, width)
        self.of_machine = nn.Linear(sizes.place_features, width, bias=False)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, job: Tensor, machines: Tensor) -> Tensor:
        """Affinities (..., machines) from (..., features) and (..., machines, features)."""
        states = self.of_job(job)[..., None, :] + self.of_machine(machines)
        affinities: Tensor = self.head(self.inner(states))
        return affinities.squeeze(-1)


class Critic(nn.Module):
    """The value of what both agents see, from the means over jobs and over machines."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.of_job = nn.Sequential(nn.Linear(sizes.job_features, width), nn.ReLU())
        self.of_machine = nn.Sequential(nn.Linear(sizes.machine_features, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, jobs: Tensor, is_job: Tensor, machines: Tensor, is_machine: Tensor) -> Tensor:
        """Values, (...)."""
        waiting = torch.log1p(is_job.to(jobs.dtype).sum(-1, keepdim=True))
        states = (
            mean_over(self.of_job(jobs), is_job),
            mean_over(self.of_machine(machines), is_machine),
        )
        value: Tensor = self.head(torch.cat([*states, waiting], dim=-1))
        return value.squeeze(-1)


def positions(places: Tensor, width: int) -> Tensor:
    """Sines and cosines of places in the order of arrival, (..., jobs) -> (..., jobs, width)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(LONGEST_WAVE) / width))
    angles = places[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
