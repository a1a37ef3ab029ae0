"""How TapFinger is trained: the rule that looks ahead is copied, then all agents improve together.

One set of weights learns in several worlds at once: pools that start one job a step and pools that
start many, equal and unequal ones, jobs that gain by GPUs and jobs that do not. Eight replicas of
every sequence of arrivals are each other's baseline, since most of what happens is decided by what
arrives; rewards count less by 0.92 for each step of time. The weights that do best beside the rule,
on worlds of their own, are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bireme.rl.checkpoint import Checkpoint
from bireme.training.algorithm import Callback, Progress
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.export import Trained, export_run
from bireme.training.networks import ActorCritic, predict
from bireme.training.ppo import MAPPO, PPOConfig
from bireme.training.recipes import Results
from bireme.training.rollouts import play
from bireme.training.runs import EarlyStopping, TrainingRun
from bireme.training.tapfinger import evaluation
from bireme.training.tapfinger.agents import Design, TapAgents, TapNetwork
from bireme.training.tapfinger.baselines import teacher_of
from bireme.training.tapfinger.environment import TapWorld
from bireme.training.tapfinger.evaluation import contenders
from bireme.training.tapfinger.networks import Sizes
from bireme.training.tapfinger.settings import make_setting
from bireme.training.tapfinger.turns import Mixture, Part, TapTurns, taught
from bireme.training.worlds import Actions, Observation

# The network of TapFinger as it is served: one moment, every task of every pool, no padding.


class ServedPools(nn.Module):
    """Scores from the inputs of ``tapfinger-pools/1``."""

    def __init__(self, network: TapNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pending: Tensor, running: Tensor, pools: Tensor, sizes: Tensor) -> Tensor:
        """Of every slot: the pointer's, that of waiting, those of sizes; flat."""
        states, of_pools = self.network.encode(pending, running, pools)
        scores, states = self.network.point(states, pending)
        there = of_pools.unsqueeze(-2).expand_as(states)
        logits = self.network.size_head(states, there, sizes)
        return torch.cat([scores.unsqueeze(-1), logits], dim=-1).flatten()


# How TapFinger's agents do beside the rule they start from, on worlds they do not learn in.

_FIRST_SEED: Final = 500_000
"""Trainings draw at random from 2^31 seeds, evaluations count from 0: neither meets these."""


class Validation:
    """Mean completion times as ratios to those of the worlds' teachers."""

    def __init__(
        self,
        policy: ActorCritic,
        worlds: Mapping[str, TapTurns],
        note: Callable[[str, float], None],
    ) -> None:
        """``worlds`` are those of each setting, with a teacher; ``note`` is told every mean."""
        self._policy, self._worlds, self._note = policy, worlds, note
        self._of_teacher = {name: _mean_steps(world, taught) for name, world in worlds.items()}

    def __call__(self) -> float:
        """The geometric mean of all ratios; 1 is the teachers'."""
        logs = []
        for name, world in self._worlds.items():
            found = _mean_steps(world, partial(predict, self._policy))
            self._note(f"{name}_jct_steps", found)
            logs.append(np.log(found / self._of_teacher[name]))
        return float(np.exp(np.mean(logs)))


def _mean_steps(world: TapTurns, act: Callable[[Observation], Actions]) -> float:
    """The mean completion time: rewards are minus the jobs that are there, step by step."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + world.count)
    return -float(play(world, seeds, act).mean()) / world.world.setting.jobs


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
    split = (
        "trained on jobs drawn anew for every sequence; validated with seeds from 500,000; "
        "evaluated on seeds from 0, and on the authors' traces, which it has never seen"
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
