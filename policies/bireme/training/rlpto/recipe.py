"""How RLPTO is trained: the simple rule is copied, then improved by PPO with an adaptive KL penalty.

One network serves both clusters of the paper and every beta: worlds differ in both, and beta is an
input. Eight replicas of every sequence of tasks are each other's baseline; a critic would have to
know what no task tells. The weights that do best on worlds of their own are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from bireme.core.errors import SettingError
from bireme.rl.checkpoints import Checkpoint
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.export import Trained, export_run
from bireme.training.ppo import PPO, PPOConfig
from bireme.training.recipes import Results
from bireme.training.rlpto import evaluation
from bireme.training.rlpto.networks import RlptoPolicy, ServedAllocator
from bireme.training.rlpto.rewards import priced
from bireme.training.rlpto.rules import share_among_gaining
from bireme.training.rlpto.settings import BETAS, SETTINGS
from bireme.training.rlpto.validation import TABLES, Validation
from bireme.training.rlpto.views import seen, seen_and_raw
from bireme.training.rlpto.world import RlptoWorld, View
from bireme.training.runs import TrainingRun
from bireme.training.stopping import EarlyStopping

REPLICAS: Final = 8
_LIMIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done of everything.

    Attributes:
        worlds: That are played together.
        copied: Decisions in which the rule is copied.
        steps: Decisions of PPO.
        validated: Worlds of each setting in a validation, one every ``every`` updates.
        patience: Validations without a gain that end the training.
    """

    worlds: int
    copied: int
    steps: int
    validated: int
    every: int
    patience: int


FULL: Final = Plan(160, 100_000, 4_000_000, 50, 10, 12)
SMOKE: Final = Plan(16, 5_000, 5_000, 5, 1, 5)


class RlptoRecipe:
    """``rlpto``: a small network shared over tasks, for all betas."""

    name = "rlpto"
    summary = "Sizes gangs node by node, from whose training gains little to whose gains more"
    paper = (
        "Lu et al., RLPTO: a reinforcement learning-based performance-time optimized task and "
        "resource scheduling mechanism for distributed machine learning, IEEE TPDS 2023"
    )
    settings = evaluation.SETTINGS
    primary = evaluation.PRIMARY
    plans: Mapping[str, Plan] = {"full": FULL, "smoke": SMOKE}

    def train(self, run: TrainingRun) -> Path:
        """Copy, improve, export."""
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        policy = RlptoPolicy()
        copied = Cloning(
            policy,
            _world(plan.worlds, seen_and_raw),
            CloningConfig(learning_rate=2e-3),
            run.world_seed,
            teacher=share_among_gaining,
        )
        run.learn("cloning", copied, plan.copied)
        steps = copied.steps + self._improve(run, policy, plan)
        part = Trained(ServedAllocator(policy.allocator), "rlpto-tasks/1")
        data = "twelve tasks of the paper's three sizes on its 12 and 16 nodes, at every beta"
        export_run(run, self, {"sizer": part}, data, steps=steps)
        return run.checkpoint_folder

    def _improve(self, run: TrainingRun, policy: RlptoPolicy, plan: Plan) -> int:
        """PPO; the best weights are kept. How many decisions it took."""
        config = PPOConfig(
            objective="kl",
            target_kl=0.01,
            baseline="replicas",
            replicas=REPLICAS,
            gamma=0.99,
            learning_rate=3e-4,
            n_minibatches=8,
        )
        algorithm = PPO(policy, _world(plan.worlds, seen), config, run.world_seed)
        score = Validation(policy, plan.validated, run.note)
        stopping = EarlyStopping(policy, score, every=plan.every, patience=plan.patience)
        stopping.judge()
        run.learn("ppo", algorithm, plan.steps, stopping)
        stopping.restore()
        return algorithm.steps


def _world(count: int, view: View) -> RlptoWorld:
    return RlptoWorld(count, [SETTINGS[name] for name in TABLES], BETAS, view, priced)
