"""Early stopping: the policy that did best on worlds it does not learn from is the one to keep.

Learning goes on past the best policy, into noise and into what only the training worlds have, so
every few updates the policy is judged on fixed validation worlds. The best weights are kept; when
they have not been bettered for ``patience`` judgements, learning ends.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bireme.core.errors import SettingError
from bireme.training.algorithm import Progress


class EarlyStopping:
    """A callback that judges, keeps the best, and ends learning.

    Args:
        policy: Whose weights are kept.
        score: The validation score of the policy as it is. The same in all processes.
        every: Judge after every so many updates.
        patience: End after so many judgements in a row that were no better.
        is_less_better: Whether a score is a cost.

    Attributes:
        best_score: None before the first judgement.
        best_update: After which update it was reached.
        last_score: Of the last judgement.
    """

    def __init__(
        self,
        policy: nn.Module,
        score: Callable[[], float],
        *,
        every: int = 10,
        patience: int = 10,
        is_less_better: bool = False,
    ) -> None:
        if every < 1 or patience < 1:
            raise SettingError(f"every={every} and patience={patience}: both must be at least 1")
        self._policy, self._score = policy, score
        self._every, self._patience, self._sign = every, patience, -1 if is_less_better else 1
        self.best_score: float | None = None
        self.last_score: float | None = None
        self.best_update = 0
        self._misses = 0
        self._best: dict[str, Tensor] = {}

    def __call__(self, progress: Progress) -> bool:
        """Judge, if it is time; whether learning should go on."""
        if progress.update % self._every == 0:
            self.judge(progress.update)
        return self._misses < self._patience

    def judge(self, update: int = 0) -> float:
        """Judge the policy now, before learning for instance; a score of nan is never best."""
        score = self.last_score = self._score()
        if self._is_best(score):
            self.best_score, self.best_update, self._misses = score, update, 0
            self._best = {n: part.detach().clone() for n, part in self._policy.state_dict().items()}
        else:
            self._misses += 1
        return score

    def restore(self) -> None:
        """Give the policy its best weights back.

        Raises:
            SettingError: it was never judged.
        """
        if self.best_score is None:
            raise SettingError(
                f"the policy was never judged; learn for at least every={self._every} updates, or "
                "call judge() first"
            )
        self._policy.load_state_dict(self._best)

    def state_dict(self) -> dict[str, Any]:
        """The best weights and how it stands, for :mod:`bireme.training.storage`."""
        return {
            "policy": self._best or dict(self._policy.state_dict()),
            "best_score": self.best_score,
            "last_score": self.last_score,
            "best_update": self.best_update,
            "misses": self._misses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self._best = dict(state.get("policy", {}))
        self.best_score, self.last_score = state["best_score"], state["last_score"]
        self.best_update, self._misses = state["best_update"], state["misses"]

    def _is_best(self, score: float) -> bool:
        if self.best_score is None:
            return not math.isnan(score)
        return self._sign * score > self._sign * self.best_score
