"""Recipes of TapFinger: agents copy the look-ahead rule, then improve together by MAPPO.

One set of weights learns in several environments at once: pools that start one job a step and pools
that start many, equal and unequal ones, jobs that gain by GPUs and jobs that do not. Eight replicas
of every sequence of arrivals are each other's baseline, because arrivals decide most of the return.
Rewards are discounted by 0.92 for each step of time. The best weights on validation environments,
relative to the rule, are kept.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from bireme.rl.checkpoint import Checkpoint
from bireme_lab.encoders.tapfinger_types import TYPES
from bireme_lab.training.algorithm import LearningProgress
from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.export import TrainedPart, export_run
from bireme_lab.training.ppo import MAPPO, PPOConfig
from bireme_lab.training.recipes import Results
from bireme_lab.training.runs import EarlyStopping, Schedule, TrainingRun
from bireme_lab.training.tapfinger import environment, evaluation
from bireme_lab.training.tapfinger.baselines import expert_for
from bireme_lab.training.tapfinger.environment import MixedEnv, TapFingerAgentEnv, TapFingerEnv
from bireme_lab.training.tapfinger.networks import Design, ServedPools, TapAgents, TapFingerSizes

REPLICAS: Final = 8
"""The environments of each setting are a multiple of it."""
_COPYING: Final = CloningConfig(learning_rate=2e-3, expert_rounds=3, batch_size=256)
_CROWD: Final[Mapping[str, float]] = {"single-3": 7, "multi-3": 11, "hetero-6": 20, "pointer": 30}
"""Settings of the training, with their typical number of jobs at a time. Rewards are divided by it;
otherwise the most crowded env would decide all updates."""


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
    settings = environment.SETTINGS
    primary = evaluation.PRIMARY
    devices = ("cpu", "cuda")
    design = Design()
    conditions = evaluation.Conditions()
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=8, copied=30_000, steps=1_000_000, validated=8, every=15),
        "smoke": Schedule(envs=8, jobs=16, copied=600, steps=600, validated=4, every=1),
    }

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        agents = TapAgents(self.design).to(run.device)
        validated = {name: _env(name, schedule.validated, schedule.jobs) for name in _CROWD}
        score = evaluation.TapFingerValidation(agents, validated, run.note)
        env = _mix_envs(schedule, has_expert=True)
        copied = Cloning(agents, env, _COPYING, run.env_seed, expert=environment.expert_actions)

        def validate(_: LearningProgress) -> bool:
            score()  # notes how the agents do
            return True

        run.learn("cloning", copied, schedule.copied, validate)
        steps = copied.steps + self._improve(run, agents, score, schedule)
        data = f"drawn jobs in the paper's synthetic envs: {', '.join(_CROWD)}"
        part = TrainedPart(ServedPools(agents.network), "tapfinger-pools/1")
        return export_run(run, self, {"sizer": part}, data, steps=steps)

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        policies = evaluation.policies_of(checkpoint, options, self.conditions)
        other_options = {name: value for name, value in options.items() if name != "beside"}
        return evaluation.evaluate(setting, seed, policies, other_options)

    def _improve(
        self,
        run: TrainingRun,
        agents: TapAgents,
        score: evaluation.TapFingerValidation,
        schedule: Schedule,
    ) -> int:
        """Run MAPPO, keep the best weights, return the number of decisions."""
        config = PPOConfig(
            baseline="replicas",
            replicas=REPLICAS,
            gamma=0.92,
            gamma_per="time",
            learning_rate=6e-4,
            ent_coef=0.002,
            n_epochs=2,
            n_minibatches=4,
            target_kl=0.03,
        )
        env = _mix_envs(schedule, has_expert=False)
        algorithm = MAPPO(agents, env, config, run.env_seed)
        stopping = EarlyStopping(
            agents, score, every=schedule.every, patience=schedule.patience, is_less_better=True
        )
        stopping.evaluate()  # the copied rule may stay the best
        run.learn("mappo", algorithm, schedule.steps, stopping)
        stopping.evaluate()
        stopping.restore()
        return algorithm.steps


class TapfingerPaperRecipe(TapfingerRecipe):
    """``tapfinger-paper``: the paper's size, critic, noise, conflicts and knowledge.

    A pool that lost its task to another starts nothing in that step. Speeds are unknown (tasks show
    their types), and no rule is copied. A pool may give any number of GPUs with any doubling of the
    fewest CPUs.
    """

    name = "tapfinger-paper"
    summary = "TapFinger by the paper's own rules and at its size; for an accelerator"
    split = (
        "trained on noisy jobs drawn anew for every sequence; validated with seeds from 500,000; "
        "evaluated on seeds from 0"
    )
    design = Design(
        TapFingerSizes(width=256, heads=4, graph_layers=6, pending_layers=2), types=TYPES
    )
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=32, jobs=96, steps=8_000_000, validated=8, every=20),
        "smoke": Schedule(envs=1, jobs=4, steps=4, validated=1, every=1),
    }
    crowd: Mapping[str, float] = {"single-3-noisy": 10, "single-6-noisy": 20}
    config = PPOConfig(
        n_steps=32,
        gamma=0.92,
        gamma_per="time",
        reward_scale=0.1,
        learning_rate=3e-4,
        ent_coef=0.01,
        n_epochs=4,
        n_minibatches=4,
        target_kl=0.03,
    )
    conditions = evaluation.PAPER

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        agents = TapAgents(self.design).to(run.device)
        envs = {name: self._env(name, schedule, schedule.envs) for name in self.crowd}
        env = MixedEnv([(envs[name], 1 / crowd) for name, crowd in self.crowd.items()])
        score = evaluation.TapFingerValidation(
            agents,
            {name: self._env(name, schedule, schedule.validated) for name in self.crowd},
            run.note,
            {name: _env(name, schedule.validated, schedule.jobs) for name in self.crowd},
            draws=self.conditions.draws,
        )
        algorithm = MAPPO(agents, env, self.config, run.env_seed)
        stopping = EarlyStopping(
            agents, score, every=schedule.every, patience=schedule.patience, is_less_better=True
        )
        run.learn("mappo", algorithm, schedule.steps, stopping)
        stopping.evaluate()
        stopping.restore()
        data = f"drawn jobs in the paper's synthetic envs: {', '.join(self.crowd)}"
        part = TrainedPart(ServedPools(agents.network), "tapfinger-types/1")
        return export_run(run, self, {"sizer": part}, data, steps=algorithm.steps)

    def _env(self, name: str, schedule: Schedule, count: int) -> TapFingerAgentEnv:
        config = environment.make_config(name, jobs=schedule.jobs)
        return evaluation.agent_env(count, config, self.conditions)


class SmallTapfingerPaperRecipe(TapfingerPaperRecipe):
    """``tapfinger-paper-small``: the paper's rules with the small network of ``tapfinger``.

    One core trains it in an hour, so it shows the effect of the rules apart from the size of the
    network.
    """

    name = "tapfinger-paper-small"
    summary = "TapFinger by the paper's own rules with a small network"
    design = Design(types=TYPES)
    schedules: Mapping[str, Schedule] = {
        **TapfingerPaperRecipe.schedules,
        "full": replace(TapfingerPaperRecipe.schedules["full"], steps=1_500_000),
    }
    # A narrow network moves less by the same rate: at 3e-4 the first updates clipped 2 % at most.
    config = replace(TapfingerPaperRecipe.config, learning_rate=2e-3)


class Ablation(TapfingerRecipe):
    """The base of the ablations, with a budget of minutes; all parts are there."""

    name = "tapfinger-whole"
    summary = "TapFinger with the budget of its ablations, to compare them with"

    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=8, jobs=96, copied=10_000, steps=20_000, validated=8, every=1),
        "smoke": Schedule(envs=8, jobs=16, copied=600, steps=600, validated=4, every=1),
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


def _env(name: str, count: int, jobs: int | None, *, has_expert: bool = True) -> TapFingerAgentEnv:
    config = environment.make_config(name, jobs=jobs)
    env = TapFingerEnv(count, config, retries=True)
    return TapFingerAgentEnv(env, expert_for(config) if has_expert else None)


def _mix_envs(schedule: Schedule, *, has_expert: bool) -> MixedEnv:
    """Make the environments of all settings of the training."""
    return MixedEnv(
        [
            (_env(name, schedule.envs, schedule.jobs, has_expert=has_expert), 1 / crowd)
            for name, crowd in _CROWD.items()
        ]
    )
