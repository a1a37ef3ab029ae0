"""Curricula: when the next stage begins, and what becomes of the episode."""

from pathlib import Path

import pytest
import torch

from bireme.core.errors import SettingError
from bireme.training import storage
from bireme.training.algorithm import Progress
from bireme.training.curriculum import Curriculum, Stage
from bireme.training.ppo import PPO, PPOConfig
from toyworlds.policies import Echoing
from toyworlds.worlds import Echo


def short() -> Stage:
    return Stage("short", lambda: Echo(steps=1), most_steps=20)


def easy() -> Stage:
    return Stage("easy", lambda: Echo(steps=1), is_mastered=lambda told: told["return"] >= 0.9)


def last() -> Stage:
    return Stage("last", lambda: Echo(steps=4))


def learner() -> PPO:
    return PPO(Echoing(), Echo(), PPOConfig(learning_rate=0.1))


def at(steps: int, told: float = 0.0) -> Progress:
    return Progress(1, steps, 0.0, {"return": told})


def test_stage_is_left_after_so_many_decisions() -> None:
    curriculum = Curriculum(learner(), [short(), last()])
    names = [curriculum(at(steps)) and curriculum.stage.name for steps in (8, 16, 24, 9000)]
    assert names == ["short", "short", "last", "last"]


def test_stage_is_left_when_it_is_mastered() -> None:
    curriculum = Curriculum(learner(), [easy(), short(), last()])
    curriculum(at(1000, told=0.5))
    assert curriculum.stage.name == "easy"
    curriculum(at(1008, told=0.9))
    assert curriculum.stage.name == "short"
    curriculum(at(1020))
    assert curriculum.stage.name == "short"
    curriculum(at(1028))
    assert curriculum.stage.name == "last"


def test_learner_moves_into_the_world_of_the_stage() -> None:
    """Eight worlds of one step each, three times; then of four steps."""
    algorithm, taken = learner(), []
    curriculum = Curriculum(algorithm, [short(), last()])

    def note(progress: Progress) -> bool:
        taken.append(progress.steps)
        return curriculum(progress)

    algorithm.learn(80, note)
    assert taken == [8, 16, 24, 56, 88]


def test_interrupted_curriculum_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    def run(algorithm: PPO, curriculum: Curriculum, steps: int) -> torch.Tensor:
        algorithm.learn(steps, curriculum)
        return torch.cat([one.detach().flatten() for one in algorithm.policy.parameters()])

    whole = learner()
    expected = run(whole, Curriculum(whole, [short(), last()]), 150)
    first = learner()
    curriculum = Curriculum(first, [short(), last()])
    run(first, curriculum, 70)
    storage.save(tmp_path / "curriculum", curriculum)
    storage.save(tmp_path / "algorithm", first)
    resumed = learner()
    curriculum = Curriculum(resumed, [short(), last()])
    storage.load(tmp_path / "curriculum", curriculum)
    storage.load(tmp_path / "algorithm", resumed)
    assert torch.equal(run(resumed, curriculum, 150), expected)


def test_curricula_that_lead_nowhere_are_refused() -> None:
    with pytest.raises(SettingError, match="stages is empty"):
        Curriculum(learner(), [])
    with pytest.raises(SettingError, match="stage 'last' never ends; give it most_steps"):
        Curriculum(learner(), [last(), short()])
