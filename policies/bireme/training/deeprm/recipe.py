"""How A2cScheduler is trained and judged: the scorer that is served, and the paper's CNNs.

The scorer learns by PPO over whole episodes, judged by eight replicas of each sequence of
arrivals. It needs no teacher: a copy of shortest-job-first is so sure of itself that it learns
slowly from then on. The paper's networks learn by n-step A2C. Both meet all arrival rates at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from bireme.core.errors import SettingError
from bireme.core.resources import IntArray
from bireme.onnx.sessions import Array, Session
from bireme.rl.checkpoint import Checkpoint
from bireme.training.a2c import A2C, A2CConfig
from bireme.training.deeprm.coaching import (
    PRIMARY,
    RATES,
    SETTINGS,
    Coach,
    Plan,
    contest,
    rate_of,
)
from bireme.training.deeprm.environment import DeepRmWorld, Setting, State, as_image, as_set
from bireme.training.deeprm.networks import ImagePolicy, ServedImages, ServedScorer, SetPolicy
from bireme.training.export import Trained, export_run
from bireme.training.judgement import session_of
from bireme.training.ppo import PPO, PPOConfig
from bireme.training.recipes import Results
from bireme.training.runs import TrainingRun

_LIMIT_SECONDS: Final = 5.0


class DeepRmRecipe(ABC):
    """What both recipes share: settings, evaluation and card."""

    name: str
    summary: str
    paper = "Liang et al., Data centers job scheduling with deep reinforcement learning, PAKDD 2020"
    split = (
        "trained on arrivals drawn anew for every episode; validated with seeds from 1,000,000; "
        "evaluated on seeds from 0"
    )
    settings = SETTINGS
    primary = PRIMARY
    setting: Setting

    @abstractmethod
    def shown(self, state: State) -> dict[str, Array]:
        """What the served network is shown of a single world, a row per job of the queue."""

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Beside the paper's baselines; with option ``waits=no`` as it orders a cluster's queue."""
        waits = options.get("waits", "yes")
        if waits not in ("yes", "no") or set(options) - {"waits"}:
            raise SettingError(f"options are {dict(options)}; there are waits=yes and waits=no")
        rule = partial(self.choose, session_of(checkpoint, "orderer"), may_wait=waits == "yes")
        slots = self.setting.queue_slots
        world = Setting(rates=(rate_of(setting),), queue_slots=slots)
        return contest(checkpoint.card.name, rule, world, seed)

    def choose(self, session: Session, state: State, *, may_wait: bool = True) -> IntArray:
        """What the served network chooses in a single world: a slot, or the void; shape (1,)."""
        jobs = int((state.queue[0] >= 0).sum())
        scores = session.answer(self.shown(state), jobs, _LIMIT_SECONDS)
        fitting = np.where(state.fits[0, :jobs], scores, -np.inf)
        is_void = may_wait and fitting.max() < 0 and state.allowed[0, -1]
        return np.array([state.setting.queue_slots if is_void else fitting.argmax()])

    def export(self, run: TrainingRun, part: Trained, steps: int) -> None:
        """Write the checkpoint, in the first process."""
        rates = ", ".join(f"{rate:g}" for rate in RATES)
        data = f"arrivals of DeepRM's world, drawn at rates of {rates}"
        export_run(run, self, {"orderer": part}, data, steps=steps)


class ScorerRecipe(DeepRmRecipe):
    """``a2c``: a small network shared over the queue, by PPO with replicas."""

    name = "a2c"
    summary = "Orders a queue by a small network shared over its gangs, learned in DeepRM's world"
    setting = Setting(rates=RATES, completion_weight=0.5)
    plans: Final = {"full": Plan(64, 1_000_000, 6, 100), "smoke": Plan(32, 10_000, 4, 40)}

    def train(self, run: TrainingRun) -> Path:
        """Learn and export.

        Nothing is discounted: with a discount a policy gains by putting off what is long.
        """
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        policy = SetPolicy()
        world = DeepRmWorld(plan.worlds, self.setting, as_set)
        config = PPOConfig(
            baseline="replicas", replicas=8, gamma=1.0, learning_rate=1e-3, ent_coef=0.003
        )
        algorithm = PPO(policy, world, config, run.world_seed)
        coach = Coach(algorithm, run, self.setting, as_set, plan)
        coach.judge()
        run.learn("ppo", algorithm, plan.steps, coach)
        coach.judge(algorithm.updates)
        coach.restore()
        self.export(run, Trained(ServedScorer(policy.scorer), "a2c-jobs/1"), algorithm.steps)
        return run.checkpoint_folder

    def shown(self, state: State) -> dict[str, Array]:
        """The set."""
        seen, jobs = as_set(state), int((state.queue[0] >= 0).sum())
        return {"jobs": seen["jobs"][0, :jobs], "context": seen["context"][0]}


class ImageRecipe(DeepRmRecipe):
    """``a2c-cnn``: the paper's actor and critic, by n-step A2C from nothing.

    With ``stride`` 1 the networks are the paper's to the letter, and about twenty times slower.
    """

    name = "a2c-cnn"
    summary = "Orders a queue by the paper's CNN on the image of the cluster, in tens"
    setting = Setting(rates=RATES)
    stride = 2
    plans: Final = {"full": Plan(32, 300_000, 20, 40), "smoke": Plan(16, 2_000, 5, 20)}

    def train(self, run: TrainingRun) -> Path:
        """Learn and export.

        Discounted, because the image does not tell how many jobs are still to come: without, the
        critic could only guess.
        """
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        policy = ImagePolicy(self.setting, self.stride)
        world = DeepRmWorld(plan.worlds, self.setting, as_image)
        config = A2CConfig(
            n_steps=10,
            gamma=0.98,
            gamma_per="time",
            reward_scale=0.3,
            normalize_advantage=True,
            ent_coef=0.02,
        )
        algorithm = A2C(policy, world, config, run.world_seed)
        coach = Coach(algorithm, run, self.setting, as_image, plan)
        coach.judge()
        run.learn("a2c", algorithm, plan.steps, coach)
        coach.judge(algorithm.updates)
        coach.restore()
        self.export(run, Trained(ServedImages(policy.actor), "a2c-image/1"), algorithm.steps)
        return run.checkpoint_folder

    def shown(self, state: State) -> dict[str, Array]:
        """The same image for every job, and its slot."""
        jobs = int((state.queue[0] >= 0).sum())
        slots = np.eye(state.setting.queue_slots, dtype=np.float32)
        return {"image": np.repeat(as_image(state)["image"], jobs, axis=0), "slot": slots[:jobs]}
