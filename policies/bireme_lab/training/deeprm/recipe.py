"""Recipes of A2cScheduler: the served scorer (``a2c``), and the paper's CNNs.

The scorer learns by PPO over whole episodes; eight replicas of each sequence of arrivals are its
baseline. It needs no expert: a copy of shortest-job-first has so little entropy that it then learns
slowly. The paper's networks learn by n-step A2C: ``a2c-cnn`` with convolutions over every other
place, ``a2c-paper`` over every place. All of them train on all arrival rates at once. The learning
rate falls linearly, and the weights with the lowest validation cost are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from bireme.core.errors import SettingError
from bireme.core.policy import PartName
from bireme.core.resources import IntArray
from bireme.onnx.sessions import Array
from bireme.rl.checkpoint import Checkpoint
from bireme_lab.training.a2c import A2C, A2CConfig
from bireme_lab.training.algorithm import OnPolicy
from bireme_lab.training.deeprm import evaluation
from bireme_lab.training.deeprm.environment import (
    DeepRmEnv,
    DeepRmEnvConfig,
    DeepRmState,
    View,
    as_image,
    as_set,
)
from bireme_lab.training.deeprm.evaluation import RATES, DeepRmValidation, served_choice
from bireme_lab.training.deeprm.networks import ImagePolicy, ServedImages, SetPolicy
from bireme_lab.training.evaluation import session_of
from bireme_lab.training.export import TrainedPart, export_run
from bireme_lab.training.ppo import PPO, PPOConfig
from bireme_lab.training.recipes import Results
from bireme_lab.training.runs import EarlyStopping, Schedule, TrainingRun

_DECAY_TO: Final = 0.03


class DeepRmRecipe(ABC):
    """The common training and evaluation of all recipes.

    Attributes:
        view: Maps a state to the network's observation.
        stage: Name of the algorithm in the curves.
        encoder: Name and version of the encoder of the served network.
    """

    name: str
    summary: str
    paper = "Liang et al., Data centers job scheduling with deep reinforcement learning, PAKDD 2020"
    split = (
        "trained on arrivals drawn anew for every episode; validated with seeds from 1,000,000; "
        "evaluated on seeds from 0"
    )
    settings = evaluation.SETTINGS
    primary = evaluation.PRIMARY
    devices = ("cpu", "cuda")
    config: DeepRmEnvConfig
    schedules: Mapping[str, Schedule]
    view: View
    stage: str
    encoder: str

    @abstractmethod
    def _algorithm(self, env: DeepRmEnv, run: TrainingRun) -> tuple[OnPolicy[Any], nn.Module]:
        """Return the algorithm with a new policy, and the policy's network for serving."""

    @abstractmethod
    def inputs(self, state: DeepRmState) -> dict[str, Array]:
        """Return the served network's inputs in a single environment, a row per job."""

    def train(self, run: TrainingRun) -> Path:
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        env = DeepRmEnv(schedule.envs, self.config, self.view)
        algorithm, served = self._algorithm(env, run)
        score = DeepRmValidation(algorithm.policy, schedule.validated, self.config, self.view, run)
        stopping = EarlyStopping(
            algorithm.policy,
            score,
            every=schedule.every,
            patience=schedule.patience,
            is_less_better=True,
        )
        stopping.evaluate()
        run.learn(self.stage, algorithm, schedule.steps, stopping)
        stopping.evaluate()
        stopping.restore()
        rates = ", ".join(f"{rate:g}" for rate in RATES)
        data = f"arrivals of DeepRM's world, drawn at rates of {rates}"
        parts: dict[PartName, TrainedPart] = {"orderer": TrainedPart(served, self.encoder)}
        return export_run(run, self, parts, data, steps=algorithm.steps)

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Evaluate beside the paper's baselines; option ``waits=no`` forbids waiting."""
        waits = options.get("waits", "yes")
        if waits not in ("yes", "no") or set(options) - {"waits"}:
            raise SettingError(f"options are {dict(options)}; there are waits=yes and waits=no")
        session = session_of(checkpoint, "orderer")

        def choose(state: DeepRmState) -> IntArray:
            return served_choice(session, self.inputs(state), state, may_wait=waits == "yes")

        slots = self.config.queue_slots
        return evaluation.evaluate(checkpoint.card.name, choose, setting, slots, seed)


class ScorerRecipe(DeepRmRecipe):
    """``a2c``: a small network shared over the queue, by PPO with replicas."""

    name = "a2c"
    summary = "Orders a queue by a small network shared over its gangs, learned in DeepRM's world"
    config = DeepRmEnvConfig(rates=RATES, completion_weight=0.5)
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=64, steps=1_000_000, every=6, validated=100),
        "smoke": Schedule(envs=32, steps=10_000, every=4, validated=40),
    }
    view = staticmethod(as_set)
    stage = "ppo"
    encoder = "a2c-jobs/1"

    def _algorithm(self, env: DeepRmEnv, run: TrainingRun) -> tuple[OnPolicy[Any], nn.Module]:
        policy = SetPolicy().to(run.device)
        config = PPOConfig(
            baseline="replicas",
            replicas=8,
            gamma=1.0,  # a discount rewards postponing long jobs
            learning_rate=1e-3,
            decay_to=_DECAY_TO,
            ent_coef=0.003,
        )
        return PPO(policy, env, config, run.env_seed), policy.scorer

    def inputs(self, state: DeepRmState) -> dict[str, Array]:
        observation, jobs = as_set(state), int((state.queue[0] >= 0).sum())
        return {"jobs": observation["jobs"][0, :jobs], "context": observation["context"][0]}


class ImageRecipe(DeepRmRecipe):
    """``a2c-cnn``: the paper's actor and critic, by n-step A2C from scratch."""

    name = "a2c-cnn"
    summary = "Orders a queue by the paper's CNN on the image of the cluster, in tens"
    config = DeepRmEnvConfig(rates=RATES)
    stride = 2
    learning_rate = 7e-4
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=32, steps=300_000, every=20, validated=40),
        "smoke": Schedule(envs=8, steps=600, every=5, validated=4),
    }
    view = staticmethod(as_image)
    stage = "a2c"
    encoder = "a2c-image/1"

    def _algorithm(self, env: DeepRmEnv, run: TrainingRun) -> tuple[OnPolicy[Any], nn.Module]:
        policy = ImagePolicy(self.config, self.stride).to(run.device)
        config = A2CConfig(
            n_steps=10,
            # Discounted: the image does not show the number of future jobs, so without a discount
            # the critic could only guess.
            gamma=0.98,
            gamma_per="time",
            reward_scale=0.3,
            learning_rate=self.learning_rate,
            decay_to=_DECAY_TO,
            normalize_advantage=True,
            ent_coef=0.02,
        )
        return A2C(policy, env, config, run.env_seed), ServedImages(policy.actor)

    def inputs(self, state: DeepRmState) -> dict[str, Array]:
        jobs = int((state.queue[0] >= 0).sum())
        slots = np.eye(state.config.queue_slots, dtype=np.float32)
        return {"image": np.repeat(as_image(state)["image"], jobs, axis=0), "slot": slots[:jobs]}


class DeepRmPaperRecipe(ImageRecipe):
    """``a2c-paper``: the recipe with stride 1, so that the networks equal the paper's."""

    # Playing and learning from a decision takes 21 ms of one core, the env only 0.2 ms: an
    # accelerator pays.

    name = "a2c-paper"
    summary = "Orders a queue by the paper's CNN at stride 1; for an accelerator"
    schedules: Mapping[str, Schedule] = {
        "full": Schedule(envs=64, steps=800_000, every=100, validated=40),
        "smoke": Schedule(envs=4, steps=40, every=5, validated=2),
    }
    stride = 1
    # The layer after the convolutions has sixteen times as many inputs as with stride 2, so a step
    # moves its outputs sixteen times as far. At 7e-4 the entropy vanished after two updates.
    learning_rate = 7e-4 / 16
