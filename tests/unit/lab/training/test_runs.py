"""A training run: its folder, its curves, when it ends, and how it goes on."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bireme.core.errors import SettingError
from bireme.testing import ManualClock
from bireme_lab.training import distributed
from bireme_lab.training.algorithm import Callback, LearningProgress
from bireme_lab.training.ppo import PPO, PPOConfig
from bireme_lab.training.runs import SECONDS_BETWEEN_SAVES, EarlyStopping, TrainingRun
from testbed.toys.envs import Echo
from testbed.toys.policies import Echoing

STEPS = 16
"""Of one update."""


def a_ppo(seed: int = 0) -> PPO:
    return PPO(Echoing(), Echo(8), PPOConfig(learning_rate=0.05), seed)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "curves.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


class Ticking:
    """Learns nothing, one step per ``seconds`` of ``clock``."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self.clock, self.seconds, self.steps = clock, seconds, 0

    def learn(self, total_steps: int, callback: Callback) -> None:
        goes_on = True
        while goes_on and self.steps < total_steps:
            self.clock.advance(self.seconds)
            self.steps += 1
            goes_on = callback(
                LearningProgress(self.steps, self.steps, 0.0, {"twice": 2.0 * self.steps})
            )

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]


def test_curves_have_a_row_per_update_with_all_numbers(tmp_path: Path) -> None:
    run = TrainingRun("toy", tmp_path)
    run.learn("ppo", a_ppo(), 3 * STEPS)
    found = rows(tmp_path)
    assert [row["step"] for row in found] == ["16", "32", "48"]
    assert {row["stage"] for row in found} == {"ppo"}
    assert all(float(row["return"]) >= 0 for row in found)
    run.finish()
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_noted_number_belongs_to_the_next_row_and_gets_a_column_of_its_own(tmp_path: Path) -> None:
    clock = ManualClock(0)
    run = TrainingRun("toy", tmp_path, clock=clock)

    def judge(progress: LearningProgress) -> bool:
        if progress.update == 2:
            run.note("validation", 3.5)
        return True

    run.learn("tick", Ticking(clock, 1), 3, also=judge)
    assert [row["validation"] for row in rows(tmp_path)] == ["", "3.5", ""]
    assert [row["seconds"] for row in rows(tmp_path)] == ["1.000", "2.000", "3.000"]


def test_learning_ends_when_the_time_is_up(tmp_path: Path) -> None:
    clock = ManualClock(0)
    run = TrainingRun("toy", tmp_path, time_limit_seconds=10, clock=clock)
    learner = Ticking(clock, 4)
    run.learn("tick", learner, 100)
    assert learner.steps == 3


def test_other_callback_ends_learning_too(tmp_path: Path) -> None:
    clock = ManualClock(0)
    learner = Ticking(clock, 1)
    TrainingRun("toy", tmp_path, clock=clock).learn("tick", learner, 100, lambda p: p.steps < 7)
    assert learner.steps == 7


def test_run_broken_off_goes_on_to_the_same_weights_and_curves(tmp_path: Path) -> None:
    whole = a_ppo()
    TrainingRun("toy", tmp_path / "whole").learn("ppo", whole, 6 * STEPS)

    def broken_off(progress: LearningProgress) -> bool:
        if progress.update == 4:
            raise KeyboardInterrupt
        return True

    clock = ManualClock(0)
    first = TrainingRun("toy", tmp_path / "parts", clock=clock)

    def slow(progress: LearningProgress) -> bool:
        clock.advance(SECONDS_BETWEEN_SAVES if progress.update == 2 else 1)
        return broken_off(progress)

    with pytest.raises(KeyboardInterrupt):
        first.learn("ppo", a_ppo(), 6 * STEPS, also=slow)
    second = a_ppo(seed=1)
    TrainingRun("toy", tmp_path / "parts", resume=True).learn("ppo", second, 6 * STEPS)
    for name, weights in whole.policy.state_dict().items():
        assert weights.equal(second.policy.state_dict()[name]), name
    kept = ("stage", "step", "policy_loss", "return")
    assert [[row[k] for k in kept] for row in rows(tmp_path / "whole")] == [
        [row[k] for k in kept] for row in rows(tmp_path / "parts")
    ]


def test_finished_stage_is_loaded_and_the_next_one_learned(tmp_path: Path) -> None:
    clock = ManualClock(0)
    TrainingRun("toy", tmp_path, clock=clock).learn("one", Ticking(clock, 2), 5)
    again = TrainingRun("toy", tmp_path, resume=True, clock=clock)
    assert again.seconds == 10
    one, two = Ticking(clock, 2), Ticking(clock, 2)
    again.learn("one", one, 5)
    again.learn("two", two, 3)
    assert (one.steps, two.steps) == (5, 3)
    assert [row["stage"] for row in rows(tmp_path)] == ["one"] * 5 + ["two"] * 3
    assert again.seconds == 16


def test_best_weights_of_a_finished_stage_are_there_after_a_resume(tmp_path: Path) -> None:
    scores = iter([1.0, 3.0, 2.0, 0.0])

    def stopping(algorithm: PPO) -> EarlyStopping:
        return EarlyStopping(algorithm.policy, lambda: next(scores), every=1)

    algorithm = a_ppo()
    first = stopping(algorithm)
    TrainingRun("toy", tmp_path).learn("ppo", algorithm, 4 * STEPS, also=first)
    first.restore()
    other = a_ppo(seed=9)
    second = stopping(other)
    TrainingRun("toy", tmp_path, resume=True).learn("ppo", other, 4 * STEPS, also=second)
    second.restore()
    assert second.best_score == 3.0
    for name, weights in algorithm.policy.state_dict().items():
        assert weights.equal(other.policy.state_dict()[name]), name


def test_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    TrainingRun("toy", tmp_path)
    with pytest.raises(SettingError, match="already holds a run; go on with --resume or"):
        TrainingRun("toy", tmp_path)


@pytest.mark.parametrize("other", [{"seed": 1}, {"scale": "smoke"}, {"recipe": "das"}])
def test_run_is_resumed_as_what_it_was(tmp_path: Path, other: dict[str, Any]) -> None:
    TrainingRun("toy", tmp_path)
    (key,) = other
    with pytest.raises(SettingError, match=f"holds a run with {key}"):
        TrainingRun(**({"recipe": "toy"} | other), folder=tmp_path, resume=True)


def test_resuming_where_nothing_is_begins(tmp_path: Path) -> None:
    run = TrainingRun("toy", tmp_path / "new", resume=True)
    assert run.seconds < 5
    assert json.loads((tmp_path / "new" / "run.json").read_text())["finished"] == []


def test_alone_a_process_is_the_first_and_averages_nothing() -> None:
    policy = Echoing()
    distributed.average_gradients(policy.parameters())
    assert all(weights.grad is None for weights in policy.parameters())
    assert (distributed.rank(), distributed.world_size()) == (0, 1)
    assert distributed.process_seed(5) == 5
    assert distributed.average(2.5) == distributed.least(2.5) == 2.5
