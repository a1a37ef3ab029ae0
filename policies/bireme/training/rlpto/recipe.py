"""How RLPTO is trained: a simple rule is copied, then improved by PPO with an adaptive KL penalty.

One network serves both clusters of the paper and every beta: worlds differ in both, and beta is an
input. Eight replicas of every sequence of tasks are each other's baseline, since how long tasks
train is mostly their own affair. The weights that do best on worlds of their own are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.onnx.sessions import Session
from bireme.rl.checkpoint import Checkpoint
from bireme.training.cloning import Cloning, CloningConfig
from bireme.training.export import Trained, export_run
from bireme.training.judgement import session_of
from bireme.training.networks import ActorCritic, predict
from bireme.training.ppo import PPO, PPOConfig
from bireme.training.recipes import Results
from bireme.training.rlpto import elastic_jobs, evaluation
from bireme.training.rlpto.baselines import share_among_gaining, teach
from bireme.training.rlpto.environment import (
    SLOTS,
    RlptoWorld,
    View,
    priced,
    raw,
    seen,
    seen_and_raw,
)
from bireme.training.rlpto.networks import RlptoPolicy, ServedAllocator
from bireme.training.rlpto.settings import BETAS, SETTINGS
from bireme.training.rollouts import play
from bireme.training.runs import EarlyStopping, TrainingRun
from bireme.training.worlds import Actions, Observation

# How a policy does beside the simple rule while it learns, on worlds that it does not learn in.

TABLES: Final = ("table-2", "table-3")
_FIRST_SEED: Final = 1_000_000
"""A multiple of all settings and betas, far from the seeds of evaluations, which begin at 0."""


class Validation:
    """How much more than the rule a policy earns, over both tables and all betas.

    By the reward of the training, per minute of the rule's run.
    """

    def __init__(self, policy: ActorCritic, count: int, note: Callable[[str, float], None]) -> None:
        """``count`` worlds of each table and beta; ``note`` is told of accuracy and time."""
        self._policy, self._note = policy, note
        settings = [SETTINGS[name] for name in TABLES]
        worlds = count * len(settings) * len(BETAS)
        self._world = RlptoWorld(worlds, settings, BETAS, seen, priced)
        rule = RlptoWorld(worlds, settings, BETAS, raw, priced)
        self._rule = _played(rule, share_among_gaining)

    def __call__(self) -> float:
        """Above 0 it is better than the rule."""
        found = _played(self._world, partial(predict, self._policy))
        earned, accuracy, minutes = (
            np.subtract(own, rule) for own, rule in zip(found, self._rule, strict=True)
        )
        rule_minutes = self._rule[2]
        self._note("points_above_the_rule", 100 * float(accuracy.mean()))
        self._note("time_ratio", 1 + float((minutes / rule_minutes).mean()))
        return float((earned / rule_minutes).mean())


def _played(
    world: RlptoWorld, act: Callable[[Observation], Actions]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of every world what it earned, its mean accuracy, and its minutes, shape (worlds,)."""
    earned = play(world, range(_FIRST_SEED, _FIRST_SEED + world.count), act)
    return earned, world.cluster.accuracy.mean(axis=1), world.cluster.clock / 60


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


FULL: Final = Plan(160, 100_000, 4_000_000, 20, 8, 100)
SMOKE: Final = Plan(32, 12_000, 3_000, 4, 2, 5)


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
    settings: Mapping[str, str] = {**evaluation.SETTINGS, "elastic": elastic_jobs.SUMMARY}
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
            CloningConfig(learning_rate=2e-3, ent_coef=0.01),
            run.world_seed,
            teacher=teach,
        )
        run.learn("cloning", copied, plan.copied)
        steps = copied.steps + self._improve(run, policy, plan)
        part = Trained(ServedAllocator(policy.allocator), "rlpto-tasks/1")
        data = "twelve tasks of the paper's three sizes on its 12 and 16 nodes, at every beta"
        export_run(run, self, {"sizer": part}, data, steps=steps)
        return run.checkpoint_folder

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """In the paper's world beside its rivals, or in Bireme's own cycle beside other sizers."""
        if options:
            raise SettingError(f"options are {dict(options)}; there are none, leave them out")
        session = session_of(checkpoint, "sizer")
        if setting == "elastic":
            return elastic_jobs.evaluate(checkpoint, seed)
        choose = partial(chosen, session)
        return evaluation.evaluate(setting, seed, {checkpoint.card.name: choose}, seen)

    def _improve(self, run: TrainingRun, policy: RlptoPolicy, plan: Plan) -> int:
        """PPO; the best weights are kept. How many decisions it took."""
        config = PPOConfig(
            objective="kl",
            target_kl=0.005,
            baseline="replicas",
            replicas=REPLICAS,
            gamma=1.0,  # with the paper's 0.99 it pays to put off what is long
            learning_rate=1.5e-4,
            n_epochs=3,
            n_minibatches=4,
        )
        algorithm = PPO(policy, _world(plan.worlds, seen), config, run.world_seed)
        score = Validation(policy, plan.validated, run.note)
        stopping = EarlyStopping(policy, score, every=plan.every, patience=plan.patience)
        stopping.judge()
        run.learn("ppo", algorithm, plan.steps, stopping)
        stopping.restore()
        return algorithm.steps


def chosen(session: Session, shown: Observation) -> IntArray:
    """The best move of the served network in a single world, shape (1,)."""
    slots = np.flatnonzero(shown["present"][0])
    moves = np.array([0, *(1 + slots), *(1 + SLOTS + slots)])
    arrays = {"tasks": shown["tasks"][0, slots], "context": shown["context"][0]}
    logits = session.answer(arrays, len(moves), _LIMIT_SECONDS)
    best = np.where(shown["mask"][0, moves], logits, -np.inf).argmax()
    return moves[[best]]


def _world(count: int, view: View) -> RlptoWorld:
    return RlptoWorld(count, [SETTINGS[name] for name in TABLES], BETAS, view, priced)
