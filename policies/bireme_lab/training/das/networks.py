"""The networks of the two agents of DAS and of their common critic.

The ordering agent squeezes all machines into one state and mixes it into every job's by a gate,

    s = AvgPool(S_machines),  S_job' = delta * f(s) + (1 - delta) * S_job,
    delta = sigmoid(W [S_job, f(s)] + b)                        (squeeze and communicate)

Then jobs attend to each other, with their place in the order of arrival. The placement agent reads
the job to be placed and one machine after the other, so the same weights serve any number of jobs
and machines.

Shapes: ``jobs`` (..., jobs, features), ``is_job`` (..., jobs) bool, ``machines`` (..., machines,
features), ``is_machine`` (..., machines) bool. Padding changes nothing.
"""

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from bireme_lab.encoders import das_inputs
from bireme_lab.training.das.environment import ORDERING, PLACEMENT
from bireme_lab.training.distributions import (
    Action,
    ActionDistribution,
    DiagonalGaussian,
    FullGaussian,
    JointDistribution,
    MaskedCategorical,
)
from bireme_lab.training.networks import ActorCritic, AttentionLayer, Tensors, mean_over

_WIDTH: Final = 32
_HEADS: Final = 4
_MAX_WAVE: Final = 10_000.0
"""The longest wave of positions, in places of the queue (Vaswani et al., 2017)."""


class Communication(nn.Module):
    """Squeeze and communicate: mixes the state of the cluster into every job's."""

    def __init__(self) -> None:
        super().__init__()
        self.squeezed = nn.Sequential(nn.Linear(das_inputs.MACHINE_FEATURES, _WIDTH), nn.ReLU())
        self.gate = nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, states: Tensor, machines: Tensor, is_machine: Tensor) -> Tensor:
        """Return states of jobs with the cluster's state, (..., jobs, width)."""
        cluster = self.squeezed(mean_over(machines, is_machine))[..., None, :].expand_as(states)
        share = torch.sigmoid(self.gate(torch.cat([states, cluster], dim=-1)))
        mixed: Tensor = share * cluster + (1 - share) * states
        return mixed


class OrderingNetwork(nn.Module):
    """Mean priorities of jobs; without ``communicates`` they ignore the cluster (DA)."""

    def __init__(self, *, communicates: bool = True) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(das_inputs.JOB_FEATURES, _WIDTH), nn.ReLU())
        self.communicate = Communication() if communicates else None
        self.attention = AttentionLayer(_WIDTH, _HEADS)
        self.head = nn.Linear(_WIDTH, 1)

    def forward(
        self, jobs: Tensor, places: Tensor, is_job: Tensor, machines: Tensor, is_machine: Tensor
    ) -> Tensor:
        """Return priorities, (..., jobs): the highest starts first.

        ``places`` are positions in the order of arrival, from 0, same shape.
        """
        states = self.embed(jobs)
        if self.communicate is not None:
            states = self.communicate(states, machines, is_machine)
        states = self.attention(states + positions(places, _WIDTH), is_job)
        scores: Tensor = self.head(states)
        return scores.squeeze(-1)


class PlacementNetwork(nn.Module):
    """Mean affinities of one job to all machines."""

    def __init__(self) -> None:
        super().__init__()
        self.of_job = nn.Linear(das_inputs.PLACED_FEATURES, _WIDTH)
        self.of_machine = nn.Linear(das_inputs.PLACE_FEATURES, _WIDTH, bias=False)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
        self.head = nn.Linear(_WIDTH, 1)

    def forward(self, job: Tensor, machines: Tensor) -> Tensor:
        """Return affinities (..., machines), from inputs as in ``das-machines/1``."""
        states = self.of_job(job)[..., None, :] + self.of_machine(machines)
        affinities: Tensor = self.head(self.inner(states))
        return affinities.squeeze(-1)


class DasCritic(nn.Module):
    """The value of an observation of both agents, from the means over jobs and over machines."""

    def __init__(self) -> None:
        super().__init__()
        self.of_job = nn.Sequential(nn.Linear(das_inputs.JOB_FEATURES, _WIDTH), nn.ReLU())
        self.of_machine = nn.Sequential(nn.Linear(das_inputs.MACHINE_FEATURES, _WIDTH), nn.ReLU())
        self.head = nn.Sequential(
            nn.Linear(2 * _WIDTH + 1, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1)
        )

    def forward(self, jobs: Tensor, is_job: Tensor, machines: Tensor, is_machine: Tensor) -> Tensor:
        """Return values, (...)."""
        waiting = torch.log1p(is_job.to(jobs.dtype).sum(-1, keepdim=True))
        states = (
            mean_over(self.of_job(jobs), is_job),
            mean_over(self.of_machine(machines), is_machine),
        )
        return torch.as_tensor(self.head(torch.cat([*states, waiting], dim=-1)).squeeze(-1))

    def of(self, observation: Tensors) -> Tensor:
        """Return values, (batch,), of an observation of the environment."""
        return torch.as_tensor(self(*(observation[name] for name in (*_QUEUE, *_CLUSTER))))


class DasActionCritic(nn.Module):
    """Q(O_jobs, O_machines, a_jobs, A_machines): the value of one agent's action.

    It also sees the states of the chosen job, and of the machines weighted by affinity. A mean over
    all would hardly show a single action.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_job = nn.Sequential(nn.Linear(das_inputs.JOB_FEATURES + 1, _WIDTH), nn.ReLU())
        self.of_machine = nn.Sequential(
            nn.Linear(das_inputs.MACHINE_FEATURES + 1, _WIDTH), nn.ReLU()
        )
        self.of_placed = nn.Sequential(nn.Linear(das_inputs.PLACED_FEATURES, _WIDTH), nn.ReLU())
        self.head = nn.Sequential(
            nn.Linear(5 * _WIDTH + 2, 2 * _WIDTH), nn.ReLU(), nn.Linear(2 * _WIDTH, 1)
        )

    def forward(self, observation: Tensors, actions: Mapping[str, Tensor]) -> Tensor:
        """Return values, (batch,), of the actions of the acting agent."""
        is_placing, fits, is_job = (
            observation["is_placing"],
            observation["fits"],
            observation["job_mask"],
        )
        scores = actions[ORDERING].masked_fill(is_placing[:, None] | ~fits, 0.0)
        jobs = self.of_job(torch.cat([observation["jobs"], scores[..., None]], dim=-1))
        first = actions[ORDERING].masked_fill(~fits, -math.inf).argmax(-1)
        chosen_job = jobs[torch.arange(len(jobs), device=jobs.device), first]
        has_room = observation["has_room"]
        affinities = actions[PLACEMENT].masked_fill(~has_room, 0.0)
        machines = self.of_machine(
            torch.cat([observation["machines"], affinities[..., None]], dim=-1)
        )
        # Finite, for the softmax in ordering steps, where no machine has room.
        shares = torch.softmax(affinities.masked_fill(~has_room, -1e9), dim=-1)
        waiting = torch.log1p(is_job.to(jobs.dtype).sum(-1, keepdim=True))
        placing = is_placing.to(jobs.dtype)[:, None]
        states = (
            mean_over(jobs, is_job),
            chosen_job * (1 - placing),
            mean_over(machines, observation["machine_mask"]),
            (machines * shares[..., None]).sum(-2) * placing,
            self.of_placed(observation["placed"]) * placing,
        )
        return torch.as_tensor(
            self.head(torch.cat([*states, waiting, placing], dim=-1)).squeeze(-1)
        )


def positions(places: Tensor, width: int) -> Tensor:
    """Return sines and cosines of places, (..., jobs) -> (..., jobs, width)."""
    even = torch.arange(0, width, 2, device=places.device)
    rates = torch.exp(even * (-math.log(_MAX_WAVE) / width))
    angles = places[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


# --- the agents' policy -------------------------------------------------------------------------

_LOG_STD: Final = (-3.0, 0.0)
"""Bounds of the logarithm of each agent's deviation."""
_FIRST_LOG_STD: Final = -1.0
_QUEUE: Final = ("jobs", "job_mask")
_CLUSTER: Final = ("machines", "machine_mask")


class DasAgents(ActorCritic):
    """Both agents of :class:`~bireme_lab.training.das.environment.DasTurnEnv` and their critic.

    The ordering agent's priorities are independent given its observation. The placement agent's
    affinities are correlated like the machines: their covariance is the posterior of the
    random-walk Gaussian process. So exploration of one machine also explores similar ones. Both
    densities are the correct ones (:mod:`bireme_lab.training.distributions`); the slides print
    another. The width of exploration is learned within bounds.

    The ablations of the slides: ``communicates=False`` hides the cluster from the ordering agent,
    ``walks=False`` makes the affinities of machines independent and hides finished runs.
    """

    def __init__(self, *, communicates: bool = True, walks: bool = True) -> None:
        super().__init__()
        self.ordering = OrderingNetwork(communicates=communicates)
        self.placement = PlacementNetwork()
        self.critic = DasCritic()
        self.walks = walks
        self.log_std = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(_FIRST_LOG_STD)) for name in (ORDERING, PLACEMENT)}
        )

    def distribution(self, observation: Tensors) -> ActionDistribution:
        """Return the joint distribution; an agent works in its turn if it has a choice."""
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
    def explore_within(self, log_std: float) -> None:
        """Reset the exploration of both agents, because copying a rule has made them certain."""
        for parameter in self.log_std.values():
            parameter.fill_(log_std)

    def values(self, observation: Tensors) -> Tensor:
        return self.critic.of(observation)

    def _is_idle(self, observation: Tensors) -> Tensor:
        """Return whether the ordering agent has no choice, (batch,)."""
        return observation["is_placing"] | (observation["fits"].sum(-1) < 2)

    def _std(self, agent: str) -> Tensor:
        log_std: Tensor = self.log_std[agent]
        return log_std.clamp(*_LOG_STD)

    def _priorities(self, observation: Tensors) -> Tensor:
        """Return means, (batch, jobs); 0 for idle rows and after the last job."""
        # only used rows and slots, to save attention over padding
        rows = (~self._is_idle(observation)).nonzero().squeeze(-1)
        max_jobs = int(observation["job_mask"].sum(-1).max())
        jobs, is_job = (observation[name][rows, :max_jobs] for name in _QUEUE)
        places = torch.arange(max_jobs, dtype=jobs.dtype, device=jobs.device).expand(is_job.shape)
        means = self.ordering(jobs, places, is_job, *(observation[n][rows] for n in _CLUSTER))
        means = functional.pad(means, (0, observation["jobs"].shape[1] - max_jobs))
        return means.new_zeros(observation["job_mask"].shape).index_copy(0, rows, means)

    def _affinities(self, observation: Tensors, has_room: Tensor) -> ActionDistribution:
        rows = observation["is_placing"].nonzero().squeeze(-1)
        places = observation["places"][rows]
        if not self.walks:  # the last feature is the health
            places = torch.cat([places[..., :-1], torch.zeros_like(places[..., -1:])], dim=-1)
        means = self.placement(observation["placed"][rows], places)
        means = means.new_zeros(has_room.shape).index_copy(0, rows, means)
        if not self.walks:
            return DiagonalGaussian(means, self._std(PLACEMENT), has_room)
        # an idle agent needs any invertible factor
        eye = torch.eye(means.shape[-1], device=means.device).expand_as(observation["walks"])
        factor = torch.where(observation["is_placing"][:, None, None], observation["walks"], eye)
        return FullGaussian(means, factor * self._std(PLACEMENT).exp(), has_room)


class DasPaperAgents(DasAgents):
    """Both agents with the slides' critic of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.critic_of_actions = DasActionCritic()
        del self.critic

    def values(self, observation: Tensors) -> Tensor:
        """Return Q of the likeliest actions."""
        return self.action_values(observation, self.distribution(observation).mode())

    def action_values(self, observation: Tensors, actions: Action) -> Tensor:
        assert not isinstance(actions, Tensor)  # noqa: S101  # by agent
        return torch.as_tensor(self.critic_of_actions(observation, actions))


class Dl2Agent(ActorCritic):
    """A perceptron per job."""

    def __init__(self) -> None:
        super().__init__()
        self.scorer = nn.Sequential(
            *(nn.Linear(das_inputs.JOB_FEATURES, _WIDTH), nn.ReLU()),
            *(nn.Linear(_WIDTH, _WIDTH), nn.ReLU()),
            nn.Linear(_WIDTH, 1),
        )
        self.critic = DasCritic()

    def distribution(self, observation: Tensors) -> ActionDistribution:
        return MaskedCategorical(self.scorer(observation["jobs"]).squeeze(-1), observation["fits"])

    def values(self, observation: Tensors) -> Tensor:
        return self.critic.of(observation)


# --- as served: one cluster, no padding, means instead of samples -------------------------------


class ServedOrdering(nn.Module):
    """Priorities from the inputs of ``das-jobs/1``."""

    def __init__(self, network: OrderingNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, jobs: Tensor, places: Tensor, machines: Tensor) -> Tensor:
        # A batch of one, because the exporter supports attention only in batches.
        is_job = torch.ones_like(places, dtype=torch.bool)[None]
        is_machine = torch.ones_like(machines[:, 0], dtype=torch.bool)[None]
        scores: Tensor = self.network(jobs[None], places[None], is_job, machines[None], is_machine)
        return scores[0]


class ServedDl2(nn.Module):
    """Scores from the inputs of ``das-jobs/1``; only jobs count."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, jobs: Tensor, places: Tensor, machines: Tensor) -> Tensor:
        scores: Tensor = self.scorer(jobs)
        return scores.squeeze(-1)
