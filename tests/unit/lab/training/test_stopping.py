"""Early stopping: the best weights are kept, and learning ends when they are not bettered."""

import math
from pathlib import Path

import pytest
import torch

from bireme.core.errors import SettingError
from bireme_lab.training import storage
from bireme_lab.training.algorithm import LearningProgress
from bireme_lab.training.runs import EarlyStopping
from testbed.toys.policies import Echoing


class Judged:
    """A policy whose weights say which update it is, and the scores it will get."""

    def __init__(
        self, *scores: float, every: int = 1, patience: int = 2, less: bool = False
    ) -> None:
        self.policy, self._scores = Echoing(), list(scores)
        self.stopping = EarlyStopping(
            self.policy, self._next, every=every, patience=patience, is_less_better=less
        )

    def _next(self) -> float:
        return self._scores.pop(0)

    def learn(self, updates: int, after: int = 0) -> int:
        """After which update learning ended."""
        for update in range(after + 1, after + updates + 1):
            self.mark(update)
            if not self.stopping(LearningProgress(update, update, 0.0, {})):
                return update
        return after + updates

    def mark(self, update: int) -> None:
        with torch.no_grad():
            next(self.policy.parameters()).fill_(update)

    @property
    def restored(self) -> int:
        self.stopping.restore()
        return int(next(self.policy.parameters()).max())


def test_learning_ends_after_so_many_judgements_without_a_better_one() -> None:
    judged = Judged(1, 3, 2, 4, 3, 4, 9)
    assert judged.learn(7) == 6
    assert judged.stopping.best_score == 4
    assert judged.restored == 4


def test_a_cost_is_better_when_it_is_less() -> None:
    judged = Judged(5, 3, 4, 3.5, less=True)
    assert judged.learn(4) == 4
    assert judged.restored == 2


def test_policy_is_judged_every_so_many_updates() -> None:
    judged = Judged(1, 2, every=3)
    assert judged.learn(7) == 7
    assert judged.restored == 6


def test_a_score_that_is_nan_is_never_the_best() -> None:
    judged = Judged(math.nan, 1, math.nan)
    judged.learn(3)
    assert judged.restored == 2


def test_policy_may_be_judged_before_learning() -> None:
    judged = Judged(5, 1, 1)
    judged.mark(7)
    judged.stopping.evaluate()
    assert judged.learn(2) == 2
    assert judged.restored == 7


def test_nothing_can_be_restored_before_the_first_judgement() -> None:
    with pytest.raises(SettingError, match="never validated; learn for at least every=10 updates"):
        EarlyStopping(Echoing(), lambda: 0.0).restore()


def test_stopping_can_be_interrupted(tmp_path: Path) -> None:
    first, second = Judged(1, 3, 2), Judged(2)
    first.learn(3)
    storage.save(tmp_path / "stopping", first.stopping)
    storage.load(tmp_path / "stopping", second.stopping)
    assert second.learn(1, after=3) == 4
    assert second.restored == 2


def test_patience_of_none_is_refused() -> None:
    with pytest.raises(SettingError, match="patience=0: both must be at least 1"):
        EarlyStopping(Echoing(), lambda: 0.0, patience=0)
