"""Cloning: who acts, what is labelled, what is minimised."""

from typing import Any

import numpy as np
import pytest
import torch

from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.networks import predict
from bireme_lab.training.rollouts import play
from bireme_lab.training.vec_env import Observation
from testbed.toys.envs import CHOICES, Echo, Pair, Target
from testbed.toys.notes import Notes
from testbed.toys.policies import Aiming, Echoing, Paired


def repeated(observation: Observation) -> Any:
    """The expert of Echo: repeats what is asked."""
    return observation["asked"].argmax(axis=1)


def a_cloning(**config: Any) -> Cloning:
    return Cloning(Echoing(), Echo(ragged=3), CloningConfig(**config), expert=repeated)


def test_the_teachers_share_falls_to_nothing() -> None:
    notes = Notes()
    a_cloning(expert_rounds=4).learn(150, notes)
    assert notes.of("expert_share")[:6] == [1, 0.75, 0.5, 0.25, 0, 0]


def test_the_first_round_is_the_teachers() -> None:
    notes = Notes()
    a_cloning().learn(1, notes)
    assert notes.of("return") == [np.mean([2 + seed % 3 for seed in seeds_of_first_round()])]


def seeds_of_first_round() -> list[int]:
    algorithm = a_cloning()
    algorithm.episodes.begin()
    return [int(seed) for seed in algorithm.episodes.seeds]


def test_states_pile_up_round_by_round_and_the_oldest_are_forgotten() -> None:
    notes = Notes()
    a_cloning(most_states=50).learn(100, notes)
    sizes = notes.of("states")
    assert 16 <= sizes[0] < sizes[1] <= 50
    assert sizes[-1] == 50


def test_the_teacher_labels_states_that_only_the_learner_gets_into() -> None:
    """The learner never heeds the expert, yet learns from its labels."""
    policy = Echoing()
    config = CloningConfig(learning_rate=0.1, expert_rounds=0)
    Cloning(policy, Echo(count=32), config, expert=repeated).learn(1500)
    assert play(Echo(), range(8), lambda seen: predict(policy, seen)).tolist() == [2] * 8


def test_a_copy_may_be_kept_unsure_of_itself() -> None:
    def entropy(ent_coef: float) -> float:
        policy = Echoing()
        config = CloningConfig(learning_rate=0.1, ent_coef=ent_coef)
        Cloning(policy, Echo(count=32), config, expert=repeated).learn(1000)
        assert play(Echo(), range(8), lambda seen: predict(policy, seen)).tolist() == [2] * 8
        mask = torch.ones(CHOICES, CHOICES, dtype=torch.bool)
        return policy.distribution({"asked": torch.eye(CHOICES), "mask": mask}).entropy()[0].item()

    assert entropy(0.0) < 0.2 < 0.4 < entropy(0.5)


@pytest.mark.parametrize("is_full", [False, True])
def test_gaussian_policies_clone_a_rule(is_full: bool) -> None:
    policy = Aiming(is_full=is_full)
    config = CloningConfig(learning_rate=0.03, batch_size=64, n_epochs=10)
    Cloning(policy, Target(count=64), config, expert=lambda seen: seen["wanted"]).learn(64 * 8)
    missed = play(Target(64), range(64), lambda seen: predict(policy, seen))
    assert missed.mean() > -0.03


def test_agents_are_taught_together_and_an_idle_one_not_at_all() -> None:
    """In odd steps the expert gives the level nonsense, which must not be learned."""

    def expert(observation: Observation) -> Any:
        asked = observation["asked"].argmax(axis=1)
        level = np.where(observation["is_odd"], 99.0, asked)
        return {"choice": asked, "level": level[:, None]}

    policy, env = Paired(), Pair(count=32)
    config = CloningConfig(learning_rate=0.1, n_epochs=4, batch_size=64)
    Cloning(policy, env, config, expert=expert).learn(1000)
    assert play(env, range(32), lambda seen: predict(policy, seen)).mean() > 1.9
