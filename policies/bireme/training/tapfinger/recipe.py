"""How TapFinger is trained: the rule that looks ahead is copied, then all agents improve together.

One set of weights learns in several worlds at once: pools that start one job a step and pools that
start many, equal and unequal ones, jobs that gain by GPUs and jobs that do not. Eight replicas of
every sequence of arrivals are each other's baseline, since most of what happens is decided by what
arrives; rewards count less by 0.92 for each step of time. The weights that do best beside the rule,
on worlds of their own, are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from bireme.rl.checkpoints import Checkpoint
from bireme.training.algorithm import Callback, Progress
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.export import Trained, export_run
from bireme.training.mappo import MAPPO
from bireme.training.ppo import PPOConfig
from bireme.training.recipes import Results
from bireme.training.runs import TrainingRun
from bireme.training.stopping import EarlyStopping
from bireme.training.tapfinger import evaluation
from bireme.training.tapfinger.agents import Design, TapAgents
from bireme.training.tapfinger.contenders import contenders
from bireme.training.tapfinger.mixture import Mixture, Part
from bireme.training.tapfinger.networks import Sizes
from bireme.training.tapfinger.served import ServedPools
from bireme.training.tapfinger.settings import make_setting
from bireme.training.tapfinger.teacher import teacher_of
from bireme.training.tapfinger.turns import TapTurns, taught
from bireme.training.tapfinger.validation import Validation
from bireme.training.tapfinger.world import TapWorld

REPLICAS: Final = 8
_COPYING: Final = CloningConfig(learning_rate=2e-3, teacher_rounds=3, batch_size=256)
_CROWD: Final[Mapping[str, float]] = {"single-3": 7, "multi-3": 11, "hetero-6": 20, "pointer": 30}
"""Settings that are learned in, and about how many jobs each has at a time: rewards are divided by
that, or the most crowded world would decide all updates."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done of everything.

    Attributes:
        worlds: Of each setting that are played together, a multiple of REPLICAS.
        jobs: Of each; None: the setting's own number.
        copied: Decisions in which the rule is copied.
        decisions: Of MAPPO.
        validated: Worlds of each setting in a validation, one every ``every`` updates.
    """

    worlds: int
    jobs: int | None
    copied: int
    decisions: int
    validated: int
    every: int


class TapfingerRecipe:
    """``tapfinger``: a small network, with graph attention and pointer."""

    name = "tapfinger"
    summary = "Chooses gangs, their sizes and their node pools by agents that learned together"
    paper = (
        "Li et al., Task placement and resource allocation for edge machine learning: a GNN-based "
        "multi-agent reinforcement learning paradigm, IEEE TPDS 2023"
    )
    settings = evaluation.SETTINGS
    primary = evaluation.PRIMARY
    design = Design()
    baseline: Literal["critic", "replicas"] = "replicas"
    plans: Mapping[str, Plan] = {
        "full": Plan(8, None, 30_000, 1_000_000, 8, 15),
        "smoke": Plan(8, 16, 600, 600, 4, 1),
    }

    def train(self, run: TrainingRun) -> Path:
        """Copy, improve, export."""
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        agents = TapAgents(self.design)
        score = Validation(
            agents,
            {name: _turns(name, plan.validated, plan.jobs, is_taught=True) for name in _CROWD},
            run.note,
        )
        world = _worlds(plan.worlds, plan.jobs, is_taught=True)
        copied = Cloning(agents, world, _COPYING, run.world_seed, teacher=taught)
        run.learn("cloning", copied, plan.copied, _watching(score))
        steps = copied.steps + self._improve(run, agents, score, plan)
        data = f"drawn jobs in the paper's synthetic worlds: {', '.join(_CROWD)}"
        part = Trained(ServedPools(agents.network), "tapfinger-pools/1")
        export_run(run, self, {"sizer": part}, data, steps=steps)
        return run.checkpoint_folder

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Beside the paper's baselines and rules; options are those of both modules."""
        others = contenders(checkpoint, options)
        known = {name: value for name, value in options.items() if name != "beside"}
        return evaluation.evaluate(setting, seed, others, known)

    def _improve(self, run: TrainingRun, agents: TapAgents, score: Validation, plan: Plan) -> int:
        """MAPPO; the best weights are kept. How many decisions it took."""
        config = PPOConfig(
            baseline=self.baseline,
            replicas=REPLICAS,
            gamma=0.92,
            gamma_per="time",
            learning_rate=6e-4,
            ent_coef=0.002,
            n_epochs=2,
            n_minibatches=4,
            target_kl=0.03,
        )
        world = _worlds(plan.worlds, plan.jobs, is_taught=False)
        algorithm = MAPPO(agents, world, config, run.world_seed)
        stopping = EarlyStopping(
            agents, score, every=plan.every, patience=plan.decisions, is_less_better=True
        )
        stopping.judge()
        run.learn("mappo", algorithm, plan.decisions, stopping)
        stopping.judge(algorithm.updates)
        stopping.restore()
        return algorithm.steps


class PaperRecipe(TapfingerRecipe):
    """``tapfinger-paper``: the paper's size and its critic, which take days."""

    name = "tapfinger-paper"
    summary = "TapFinger with the paper's widths, depths and critic; days on one core"
    design = Design(Sizes(width=256, heads=4, graph_layers=6, pending_layers=2))
    baseline = "critic"
    plans: Mapping[str, Plan] = {
        "full": Plan(8, None, 30_000, 8_000_000, 8, 15),
        "smoke": Plan(8, 2, 1, 1, 1, 1),
    }


class Ablation(TapfingerRecipe):
    """What the ablations share: worlds, teacher, and a budget of minutes; all parts are there."""

    name = "tapfinger-whole"
    summary = "TapFinger with the budget of its ablations, to compare them with"

    plans: Mapping[str, Plan] = {
        "full": Plan(8, 96, 10_000, 20_000, 8, 1),
        "smoke": Plan(8, 16, 600, 600, 4, 1),
    }


class NoAttention(Ablation):
    """``tapfinger-no-attention``: tasks are seen one by one, beside their pool."""

    name = "tapfinger-no-attention"
    summary = "TapFinger without its graph attention (the paper's No-HAN)"
    design = Design(has_graph=False)


class NoPointer(Ablation):
    """``tapfinger-no-pointer``: a pool takes any task that fits."""

    name = "tapfinger-no-pointer"
    summary = "TapFinger that takes tasks at random and sizes them (the paper's No-pointer)"
    design = Design(selects="random")


class Vanilla(Ablation):
    """``tapfinger-vanilla``: neither; the first task in line is sized."""

    name = "tapfinger-vanilla"
    summary = "TapFinger that sizes the first task in line, without graph attention"
    design = Design(has_graph=False, selects="first")


def _watching(score: Validation) -> Callback:
    """Tells how the agents do after every update."""

    def watch(_: Progress) -> bool:
        score()
        return True

    return watch


def _turns(name: str, count: int, jobs: int | None, *, is_taught: bool) -> TapTurns:
    setting = make_setting(name, jobs=jobs)
    world = TapWorld(count, setting, retries=True)
    return TapTurns(world, teacher_of(setting) if is_taught else None)


def _worlds(count: int, jobs: int | None, *, is_taught: bool) -> Mixture:
    """Worlds of all settings that are learned in, ``count`` of each."""
    return Mixture(
        [
            Part(_turns(name, count, jobs, is_taught=is_taught), 1 / crowd)
            for name, crowd in _CROWD.items()
        ]
    )
