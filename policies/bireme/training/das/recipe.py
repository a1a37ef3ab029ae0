"""How DAS is trained: the rule is copied, then both agents improve together by MAPPO.

Eight replicas of every sequence of arrivals are each other's baseline, since most of what happens
on a cluster is decided by what arrives. Small clusters come first, where it matters who goes first;
then medium ones, where nobody waits and it matters where. The weights that do best beside the rule,
on worlds of their own of both sizes, are kept. Large clusters are never seen in training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from bireme.core.policy import PartName
from bireme.core.resources import FloatArray
from bireme.rl.checkpoint import Checkpoint
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.das import evaluation
from bireme.training.das.baselines import best_site
from bireme.training.das.environment import DasWorld
from bireme.training.das.networks import DasAgents, ServedOrdering, ServedPlacement
from bireme.training.das.turns import DasTurns
from bireme.training.export import Trained, export_run
from bireme.training.networks import ActorCritic, predict
from bireme.training.ppo import MAPPO, PPOConfig
from bireme.training.recipes import Results
from bireme.training.rollouts import play
from bireme.training.runs import EarlyStopping, TrainingRun
from bireme.training.worlds import Actions, Observation

# How DAS does beside the rule it starts from, on worlds that it does not learn in.

_FIRST_SEED: Final = 500_000
"""Trainings draw at random from 2^31 seeds and evaluations begin there: neither meets these."""
METRICS: Final = ("mean_jct_minutes", "mean_fee_dollars")


class Validation:
    """Ratios to the rule, per setting: completion time and fee, over the same worlds."""

    def __init__(
        self,
        policy: ActorCritic,
        worlds: Mapping[str, int],
        jobs: int,
        note: Callable[[str, float], None],
    ) -> None:
        """``worlds``: how many there are of each setting; ``note`` is told of every ratio."""
        self._policy, self._note = policy, note
        self._worlds = {
            setting: DasTurns(DasWorld(count, (setting,), jobs=jobs))
            for setting, count in worlds.items()
        }
        self._of_rule = {
            setting: _played(world, best_site) for setting, world in self._worlds.items()
        }

    def __call__(self) -> float:
        """The mean of all ratios; 1 is the rule's.

        Each is the geometric mean over worlds, which a few crowded ones do not decide.
        """
        ratios = []
        for setting, world in self._worlds.items():
            found = _played(world, partial(predict, self._policy))
            for metric in METRICS:
                logs = np.log(found[metric] / self._of_rule[setting][metric])
                ratio = float(np.exp(logs.mean()))
                self._note(f"{setting}_{metric.split('_')[1]}_ratio", ratio)
                ratios.append(ratio)
        return sum(ratios) / len(ratios)


def _played(world: DasTurns, act: Callable[[Observation], Actions]) -> dict[str, FloatArray]:
    play(world, range(_FIRST_SEED, _FIRST_SEED + world.count), act)
    return world.world.summary()


REPLICAS: Final = 8
_COPYING: Final = CloningConfig(learning_rate=2e-3)
_LOG_STD: Final = -2.0
"""How widely things are tried. With 0.3 instead of 0.14 the policy that tries got better and its
mean, which is what is served, worse: it learned to make up for its own noise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done of everything.

    Attributes:
        worlds: That are played together, of ``jobs`` jobs each.
        copied: Decisions in which the rule is copied.
        stages: Settings of the clusters, and decisions, of every stage of MAPPO.
        validated: Worlds of each setting in a validation, one every ``every`` updates.
        patience: Validations without a gain that end a stage.
    """

    worlds: int
    jobs: int
    copied: int
    stages: Mapping[tuple[str, ...], int]
    validated: Mapping[str, int]
    every: int
    patience: int


FULL: Final = Plan(
    worlds=96,
    jobs=80,
    copied=120_000,
    stages={("small",): 1_500_000, ("medium",): 600_000},
    validated={"small": 256, "medium": 64},
    every=20,
    patience=5,
)
SMOKE: Final = Plan(
    worlds=16,
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
        "Xing et al., A dual-agent scheduler for distributed deep learning jobs on public cloud "
        "via reinforcement learning, KDD 2023"
    )
    split = (
        "trained on small and medium clusters drawn anew for every sequence; validated with seeds "
        "from 500,000; evaluated on seeds from 0, and on large clusters, which it has never seen"
    )
    settings = evaluation.SETTINGS
    primary = (METRICS[0], True)
    communicates = True
    walks = True
    place_encoder = "das-machines/1"
    plans: Mapping[str, Plan] = {"full": FULL, "smoke": SMOKE}

    def train(self, run: TrainingRun) -> Path:
        """Copy, improve, export."""
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        agents = DasAgents(communicates=self.communicates, walks=self.walks)
        world = self._world(plan, next(iter(plan.stages)))
        copied = Cloning(agents, world, _COPYING, run.world_seed, teacher=best_site)
        run.learn("cloning", copied, plan.copied)
        steps = copied.steps
        for settings, decisions in plan.stages.items():
            agents.try_within(_LOG_STD)
            steps += self._improve(run, agents, settings, decisions)
        parts: dict[PartName, Trained] = {
            "orderer": Trained(ServedOrdering(agents.ordering), "das-jobs/1"),
            "placer": Trained(ServedPlacement(agents.placement), self.place_encoder),
        }
        self.export(run, parts, steps)
        return run.checkpoint_folder

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Beside the paper's rivals and the project's rules, in the simulator."""
        return evaluation.evaluate(checkpoint, setting, seed, options)

    def _world(self, plan: Plan, settings: tuple[str, ...]) -> DasTurns:
        world = DasWorld(plan.worlds, settings, jobs=plan.jobs)
        return DasTurns(world, reports=None if self.walks else False)

    def _improve(
        self, run: TrainingRun, agents: DasAgents, settings: tuple[str, ...], decisions: int
    ) -> int:
        """A stage of MAPPO; the best weights are kept. How many decisions it took."""
        plan = self.plans[run.scale]
        config = PPOConfig(
            baseline="replicas",
            replicas=REPLICAS,
            gamma=1.0,  # with a discount it pays to put off what is long
            learning_rate=1e-4,
            n_minibatches=8,
            target_kl=0.03,
        )
        algorithm = MAPPO(agents, self._world(plan, settings), config, run.world_seed)
        score = Validation(agents, plan.validated, plan.jobs, run.note)
        stopping = EarlyStopping(
            agents, score, every=plan.every, patience=plan.patience, is_less_better=True
        )
        stopping.judge()
        run.learn(f"mappo-{'-'.join(settings)}", algorithm, decisions, stopping)
        stopping.restore()
        return algorithm.steps

    def export(self, run: TrainingRun, parts: Mapping[PartName, Trained], steps: int) -> None:
        """Write the checkpoint, in the first process."""
        stages = self.plans[run.scale].stages
        seen = ", ".join(sorted({name for settings in stages for name in settings}))
        data = f"drawn jobs on drawn clusters of the world of DAS: {seen}"
        export_run(run, self, parts, data, steps=steps)


# The ablations of the slides: DAS without the one, the other, or both of its two ideas.
#
# ``bireme train bireme.training.das.recipe:Da`` trains one, like any recipe of one's own.


class Da(DasRecipe):
    """Two agents, nothing more: the one does not see the cluster, the other not the past."""

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
