"""The recipe of RLPTO: a network copies a simple rule, then PPO with a KL penalty improves it.

One network serves both clusters of the paper and every beta: envs differ in both, and beta is an
input. Eight replicas of every sequence of tasks are each other's baseline, because the tasks decide
most of their training time. The best weights on separate validation envs are kept.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import torch

from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint
from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.evaluation import session_of
from bireme_lab.training.export import TrainedPart, export_run
from bireme_lab.training.ppo import PPO, PPOConfig
from bireme_lab.training.recipes import Results
from bireme_lab.training.rlpto import evaluation
from bireme_lab.training.rlpto.baselines import expert
from bireme_lab.training.rlpto.environment import BETAS, CONFIGS, PAPER_BETAS, RlptoEnv
from bireme_lab.training.rlpto.evaluation import TABLES, RlptoValidation
from bireme_lab.training.rlpto.networks import PaperPolicy, RlptoPolicy
from bireme_lab.training.runs import EarlyStopping, Schedule, TrainingRun

REPLICAS: Final = 8


FULL: Final = Schedule(
    envs=160, copied=100_000, steps=4_000_000, validated=20, every=8, patience=100
)
SMOKE: Final = Schedule(envs=32, copied=12_000, steps=3_000, validated=4, every=2, patience=5)


class RlptoRecipe:
    """``rlpto``: a small network shared over tasks, for all betas."""

    name = "rlpto"
    summary = "Sizes gangs node by node, from whose training gains little to whose gains more"
    paper = (
        "Lu et al., RLPTO: a reinforcement learning-based performance-time optimized task and "
        "resource scheduling mechanism for distributed machine learning, IEEE TPDS 2023"
    )
    split = (
        "trained on tasks drawn anew for every sequence; validated with seeds from 1,000,000; "
        "evaluated on seeds from 0, and on jobs of Bireme's own cycle, which it has never seen"
    )
    settings: Mapping[str, str] = evaluation.SETTINGS
    primary = evaluation.PRIMARY
    devices = ("cpu", "cuda")
    schedules: Mapping[str, Schedule] = {"full": FULL, "smoke": SMOKE}
    evaluated: Sequence[float] = evaluation.EVALUATED_BETAS
    """Betas of the tables."""

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        policy = RlptoPolicy().to(run.device)
        copied = Cloning(
            policy,
            _envs(schedule.envs),
            CloningConfig(learning_rate=2e-3, ent_coef=0.01),
            run.env_seed,
            expert=expert,
        )
        run.learn("cloning", copied, schedule.copied)
        steps = copied.steps + self._improve(run, policy, schedule)
        part = TrainedPart(policy.allocator, "rlpto-tasks/1")
        data = "twelve tasks of the paper's three sizes on its 12 and 16 nodes, at every beta"
        return export_run(run, self, {"sizer": part}, data, steps=steps)

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Evaluate in the paper's env beside its baselines, or in Bireme's cycle beside sizers."""
        if options:
            raise SettingError(f"options are {dict(options)}; there are none, leave them out")
        session = session_of(checkpoint, "sizer")
        if setting == "elastic":
            return evaluation.evaluate_elastic(checkpoint, seed)
        choose = partial(evaluation.served_choice, session)
        return evaluation.evaluate(setting, seed, {checkpoint.card.name: choose}, self.evaluated)

    def _improve(self, run: TrainingRun, policy: RlptoPolicy, schedule: Schedule) -> int:
        """Learn by PPO, keep the best weights, and return the number of decisions."""
        config = PPOConfig(
            objective="kl",
            target_kl=0.005,
            baseline="replicas",
            replicas=REPLICAS,
            gamma=1.0,  # the paper's 0.99 rewards postponing long tasks
            learning_rate=1.5e-4,
            n_epochs=3,
            n_minibatches=4,
        )
        algorithm = PPO(policy, _envs(schedule.envs), config, run.env_seed)
        score = RlptoValidation(policy, schedule.validated, run.note)
        stopping = EarlyStopping(policy, score, every=schedule.every, patience=schedule.patience)
        stopping.evaluate()
        run.learn("ppo", algorithm, schedule.steps, stopping)
        stopping.restore()
        return algorithm.steps


class RlptoPaperRecipe(RlptoRecipe):
    """``rlpto-paper``: the paper's reward, critic, discount and betas, and no rule to copy."""

    # One-step temporal differences (equations 8 to 12): gae_lambda is 0.

    name = "rlpto-paper"
    summary = "RLPTO by the paper's own rules: reward of equation 5, critic, TD error, 0.99 a step"
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=48, steps=FULL.steps, validated=4, every=40),
        "smoke": Schedule(envs=12, steps=800, validated=1, every=1),
    }
    evaluated = (5e-5, *evaluation.EVALUATED_BETAS)
    config = PPOConfig(
        n_steps=64,
        objective="kl",
        target_kl=0.005,
        gamma=0.99,
        gae_lambda=0.0,
        learning_rate=3e-4,
        n_epochs=3,
        n_minibatches=4,
    )

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        policy = PaperPolicy().to(run.device)
        env = RlptoEnv(schedule.envs, [CONFIGS[name] for name in TABLES], PAPER_BETAS, "equation-5")
        algorithm = PPO(policy, env, self.config, run.env_seed)
        score = RlptoValidation(policy, schedule.validated, run.note, PAPER_BETAS, "equation-5")
        stopping = EarlyStopping(policy, score, every=schedule.every, patience=schedule.patience)
        run.learn("ppo", algorithm, schedule.steps, stopping)
        stopping.evaluate()
        stopping.restore()
        part = TrainedPart(policy.allocator, "rlpto-tasks/1")
        data = "twelve tasks of the paper's three sizes on its 12 and 16 nodes, at every beta"
        return export_run(run, self, {"sizer": part}, data, steps=algorithm.steps)


def _envs(count: int) -> RlptoEnv:
    return RlptoEnv(count, [CONFIGS[name] for name in TABLES], BETAS)
