"""Recipes of DAS: the agents copy a rule, then both improve together by MAPPO.

Eight replicas of every sequence of arrivals are each other's baseline, because arrivals decide most
of the return. Small clusters come first, where the order matters. Medium ones follow, where no job
waits and the place matters. The best weights on validation environments of both sizes, relative to
the rule, are kept. Training never sees large clusters.

``bireme train bireme_lab.training.das.recipe:Da`` trains an ablation of the slides, and
``bireme_lab.training.das.recipe:Dl2Recipe`` the baseline that learns like DL2, as with any user's
recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from bireme.core.policy import PartName
from bireme_lab.training.a2c import A2C, A2CConfig
from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.das import evaluation
from bireme_lab.training.das.baselines import best_site, shortest_job
from bireme_lab.training.das.environment import DasEnv, DasTurnEnv
from bireme_lab.training.das.networks import (
    DasAgents,
    DasPaperAgents,
    Dl2Agent,
    ServedDl2,
    ServedOrdering,
)
from bireme_lab.training.export import TrainedPart, export_run
from bireme_lab.training.ppo import MAPPO, ActionMAPPO, PPOConfig
from bireme_lab.training.runs import EarlyStopping, TrainingRun

REPLICAS: Final = 8
_DL2_STEPS: Final = {"full": 1_000_000, "smoke": 500}
_COPYING: Final = CloningConfig(learning_rate=2e-3)
_LOG_STD: Final = -2.0
"""Logarithm of the deviation of exploration. With 0.3 instead of 0.14 the exploring policy got
better and its mean, which is served, worse: it learned to compensate its own noise."""


@dataclass(frozen=True, slots=True)
class DasSchedule:
    """Length of each stage of training, and its validation.

    Attributes:
        envs: Environments stepped together, of ``jobs`` jobs each.
        copied: Decisions of behaviour cloning.
        stages: Settings of the clusters, and decisions, of every stage of MAPPO.
        validated: Environments of each setting in a validation, every ``every`` updates.
        patience: Validations without a gain that end a stage.
    """

    envs: int
    jobs: int
    copied: int
    stages: Mapping[tuple[str, ...], int]
    validated: Mapping[str, int]
    every: int
    patience: int


FULL: Final = DasSchedule(
    envs=96,
    jobs=80,
    copied=120_000,
    stages={("small",): 1_500_000, ("medium",): 600_000},
    validated={"small": 256, "medium": 64},
    every=20,
    patience=5,
)
SMOKE: Final = DasSchedule(
    envs=16,
    jobs=30,
    copied=6_000,
    stages={("small",): 2_000},
    validated={"small": 8},
    every=1,
    patience=5,
)


class DasRecipe:
    """``das``: both agents, with communication and the random-walk Gaussian process."""

    name = "das"
    summary = "Orders gangs and places them by two agents that learned together, for time and fee"
    paper = (
        "Xing et al., A dual-agent scheduler for distributed deep learning jobs on public cluster "
        "via reinforcement learning, KDD 2023"
    )
    split = (
        "trained on small and medium clusters drawn anew for every sequence; validated with seeds "
        "from 500,000; evaluated on seeds from 0, and on large clusters, which it has never seen"
    )
    settings = evaluation.SETTINGS
    evaluate = staticmethod(evaluation.evaluate)
    primary = (evaluation.METRICS[0], True)
    devices = ("cpu", "cuda")
    communicates = True
    walks = True
    place_encoder = "das-machines/1"
    schedules: Mapping[str, DasSchedule] = {"full": FULL, "smoke": SMOKE}

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        agents = DasAgents(communicates=self.communicates, walks=self.walks).to(run.device)
        env = self._env(schedule, next(iter(schedule.stages)))
        copied = Cloning(agents, env, _COPYING, run.env_seed, expert=best_site)
        run.learn("cloning", copied, schedule.copied)
        steps = copied.steps
        for settings, decisions in schedule.stages.items():
            agents.explore_within(_LOG_STD)
            steps += self._improve(run, agents, settings, decisions)
        return self._export(run, self._parts(agents), steps)

    def _parts(self, agents: DasAgents) -> dict[PartName, TrainedPart]:
        return {
            "orderer": TrainedPart(ServedOrdering(agents.ordering), "das-jobs/1"),
            "placer": TrainedPart(agents.placement, self.place_encoder),
        }

    def _env(self, schedule: DasSchedule, settings: tuple[str, ...]) -> DasTurnEnv:
        reports = None if self.walks else False
        return DasTurnEnv(schedule.envs, settings, jobs=schedule.jobs, reports=reports)

    def _improve(
        self, run: TrainingRun, agents: DasAgents, settings: tuple[str, ...], decisions: int
    ) -> int:
        """Run a stage of MAPPO, keep the best weights, return the number of decisions."""
        schedule = self.schedules[run.scale]
        config = PPOConfig(
            baseline="replicas",
            replicas=REPLICAS,
            gamma=1.0,  # a discount rewards postponing long jobs
            learning_rate=1e-4,
            n_minibatches=8,
            target_kl=0.03,
        )
        algorithm = MAPPO(agents, self._env(schedule, settings), config, run.env_seed)
        score = evaluation.DasValidation(agents, schedule.validated, schedule.jobs, run.note)
        stopping = EarlyStopping(
            agents, score, every=schedule.every, patience=schedule.patience, is_less_better=True
        )
        stopping.evaluate()  # the copied rule may stay the best
        run.learn(f"mappo-{'-'.join(settings)}", algorithm, decisions, stopping)
        stopping.restore()
        return algorithm.steps

    def _export(self, run: TrainingRun, parts: Mapping[PartName, TrainedPart], steps: int) -> Path:
        stages = self.schedules[run.scale].stages
        names = ", ".join(sorted({name for settings in stages for name in settings}))
        data = f"drawn jobs on drawn clusters of the env of DAS: {names}"
        return export_run(run, self, parts, data, steps=steps)


class DasPaperRecipe(DasRecipe):
    """``das-paper``: the reward of the slides, their critic of actions, entropy; no copied rule.

    Small and medium clusters side by side, half of the environments each.
    """

    name = "das-paper"
    summary = "DAS by the slides' own rules: their reward, a Q critic by TD error, and entropy"
    schedules: Mapping[str, DasSchedule] = {
        "full": DasSchedule(
            envs=32,
            jobs=80,
            copied=0,
            stages={("small", "medium"): sum(FULL.stages.values())},
            validated={"small": 32, "medium": 16},
            every=40,
            patience=1000,
        ),
        "smoke": DasSchedule(
            envs=4,
            jobs=10,
            copied=0,
            stages={("small", "medium"): 200},
            validated={"small": 2},
            every=1,
            patience=1000,
        ),
    }
    # The slides state neither the discount nor the weight of the entropy.
    config = PPOConfig(
        n_steps=40, gamma=0.99, ent_coef=0.01, learning_rate=3e-4, n_minibatches=4, target_kl=0.03
    )

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        agents = DasPaperAgents().to(run.device)
        ((settings, decisions),) = schedule.stages.items()
        env = DasTurnEnv(schedule.envs, settings, jobs=schedule.jobs, pays="slides")
        algorithm = ActionMAPPO(agents, env, self.config, run.env_seed)
        score = evaluation.DasValidation(agents, schedule.validated, schedule.jobs, run.note)
        stopping = EarlyStopping(
            agents, score, every=schedule.every, patience=schedule.patience, is_less_better=True
        )
        run.learn("mappo", algorithm, decisions, stopping)
        stopping.evaluate()
        stopping.restore()
        return self._export(run, self._parts(agents), algorithm.steps)


# --- the ablations of the slides: DAS without one or both of its ideas --------------------------


class Da(DasRecipe):
    """DA: the ordering agent does not see the cluster, the placement agent not the past."""

    name = "da"
    summary = "DAS without communication and without the random-walk Gaussian process"
    communicates = False
    walks = False
    place_encoder = "das-machines-unaware/1"


class DaWithCommunication(DasRecipe):
    """DA+MC: the ordering agent sees the cluster."""

    name = "da-mc"
    summary = "DAS without the random-walk Gaussian process"
    walks = False
    place_encoder = "das-machines-unaware/1"


class DaWithWalks(DasRecipe):
    """DA+RWGP: the placement agent has the random-walk Gaussian process."""

    name = "da-rwgp"
    summary = "DAS without communication"
    communicates = False


class Dl2Recipe(DasRecipe):
    """The baseline that learns like DL2: it copies a rule, then improves by reward (A2C).

    DL2 (Peng et al., 2019) decides the sizes of jobs. Jobs are rigid here, so this recipe keeps the
    method and orders jobs. Each fitting job has a score, their softmax chooses, and load balance
    places the job. The copied scheduler is shortest job first.
    """

    name = "dl2"
    summary = "Orders gangs by a small network per gang, learned as DL2 does"

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        agent, env = (
            Dl2Agent().to(run.device),
            DasEnv(schedule.envs, ("small",), jobs=schedule.jobs),
        )
        copied = Cloning(agent, env, CloningConfig(), run.env_seed, expert=shortest_job)
        run.learn("cloning", copied, schedule.copied // 2)
        config = A2CConfig(n_steps=10, ent_coef=0.01, gamma=0.99)
        algorithm = A2C(agent, env, config, run.env_seed)
        run.learn("a2c", algorithm, _DL2_STEPS[run.scale])
        part = TrainedPart(ServedDl2(agent.scorer), "das-jobs/1")
        return self._export(run, {"orderer": part}, copied.steps + algorithm.steps)
