"""A rival that learns as DL2 does: a small network per job, taught by a rule, then by reward.

DL2 (Peng et al., 2019) first copies the decisions of the present scheduler and goes on by policy
gradient with a critic. Here it orders jobs: each that fits has a score of its own, the softmax of
which chooses; where it goes is decided by load balance. It keeps the method of DL2 and not what it
decides, the sizes of jobs, because jobs are rigid in this world. The scheduler that it copies is
shortest job first.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from bireme.core.policy import PartName
from bireme.rl.encoders.das_inputs import JOB_FEATURES, job_inputs
from bireme.training.a2c import A2C, A2CConfig
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.das.environment import DasWorld
from bireme.training.das.networks import SIZES, Critic
from bireme.training.das.recipe import DasRecipe
from bireme.training.das.turns import ORDERING, gpus, machines_of
from bireme.training.distributions import Distribution, MaskedCategorical
from bireme.training.export import Trained
from bireme.training.networks import ActorCritic, Tensors
from bireme.training.runs import TrainingRun
from bireme.training.worlds import Actions, Array, Observation, Step

PLACEMENT: Final = "load-balance"
_WIDTH: Final = 32
_STEPS: Final = {"full": 1_000_000, "smoke": 3_000}


class Dl2World:
    """A World in which a job is chosen, int64 of shape (W,), and placed by load balance."""

    def __init__(self, count: int, settings: Sequence[str], jobs: int) -> None:
        self.count = count
        self._world = DasWorld(count, settings, jobs=jobs, placement=PLACEMENT)

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all clouds anew."""
        return self._shown(self._world.reset(seeds))

    def step(self, actions: Actions) -> Step:
        """Start the chosen job in every world that is not over."""
        slots = np.arange(self._slots)
        step = self._world.step({ORDERING: np.asarray(actions)[:, None] == slots})
        return Step(self._shown(step.observation), step.rewards, step.is_over, step.times)

    def _shown(self, seen: Observation) -> dict[str, Array]:
        jobs = job_inputs(seen["jobs"], machines_of(self._world.clouds), gpus(seen))
        self._slots = jobs.shape[1]
        names = ("fits", "job_mask", "machines", "machine_mask")
        jobs = np.where(seen["job_mask"][:, :, None], jobs, np.float32(0.0))
        return {name: seen[name] for name in names} | {"jobs": jobs}


class Dl2Agent(ActorCritic):
    """A perceptron per job."""

    def __init__(self) -> None:
        super().__init__()
        self.scorer = nn.Sequential(
            *(nn.Linear(JOB_FEATURES, _WIDTH), nn.ReLU()),
            *(nn.Linear(_WIDTH, _WIDTH), nn.ReLU()),
            nn.Linear(_WIDTH, 1),
        )
        self.critic = Critic(SIZES)

    def distribution(self, observation: Tensors) -> Distribution:
        """Which of the jobs that fit."""
        return MaskedCategorical(self.scorer(observation["jobs"]).squeeze(-1), observation["fits"])

    def values(self, observation: Tensors) -> Tensor:
        """Of the queue and the machines."""
        names = ("jobs", "job_mask", "machines", "machine_mask")
        value: Tensor = self.critic(*(observation[name] for name in names))
        return value


class ServedScorer(nn.Module):
    """Scores from the inputs of ``das-jobs/1``, of which jobs alone count."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, jobs: Tensor, places: Tensor, machines: Tensor) -> Tensor:
        """(gangs,)."""
        scores: Tensor = self.scorer(jobs)
        return scores.squeeze(-1)


class Dl2Recipe(DasRecipe):
    """The rival; it has no placer of its own."""

    name = "dl2"
    summary = "Orders gangs by a small network per gang, learned as DL2 does"

    def train(self, run: TrainingRun) -> Path:
        """Copy, improve, export."""
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        agent, world = Dl2Agent(), Dl2World(plan.worlds, ("small",), plan.jobs)
        copied = Cloning(agent, world, CloningConfig(), run.world_seed, teacher=shortest_job)
        run.learn("cloning", copied, plan.copied // 2)
        config = A2CConfig(n_steps=10, ent_coef=0.01, gamma=0.99)
        algorithm = A2C(agent, world, config, run.world_seed)
        run.learn("a2c", algorithm, _STEPS[run.scale])
        parts: dict[PartName, Trained] = {
            "orderer": Trained(ServedScorer(agent.scorer), "das-jobs/1")
        }
        self.export(run, parts, copied.steps + algorithm.steps)
        return run.checkpoint_folder


def shortest_job(seen: Observation) -> Array:
    """The slot of the job that fits and is said to last least."""
    return np.asarray(np.where(seen["fits"], -seen["jobs"][:, :, 1], -np.inf).argmax(axis=1))
