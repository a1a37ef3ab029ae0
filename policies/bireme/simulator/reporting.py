"""What jobs of a simulation tell about their training while they run, truly or not.

A job reports when a decision is due, but not more often than its script would; between decisions
nobody listens. What it tells reaches the cycle as the operator would pass it on: in
``Gang.progress``, and bounded by :mod:`bireme.core.claims` in all that follows from it.
"""

import math
from dataclasses import dataclass

from bireme.core.errors import SettingError
from bireme.core.progress import Progress
from bireme.core.speed import LossCurve


@dataclass(frozen=True, slots=True)
class Work:
    """How far a job is: the share of its work that is left, how long that takes at its present
    pace (infinite where it stands still), and the steps of the whole, where it counts any."""

    left: float
    seconds: float
    steps: float | None


@dataclass(frozen=True, slots=True)
class Reporting:
    """What a job says.

    Attributes:
        loss, accuracy: After so many steps, or after such a share of the work for a job without
            steps; None where it does not say. A liar's differ from the truth.
        every_seconds: The least time between two reports.
        honesty: The time and the steps that it says are left, over the true ones; 1 for the truth.
    """

    loss: LossCurve | None = None
    accuracy: LossCurve | None = None
    every_seconds: float = 30.0
    honesty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.honesty < math.inf:
            raise SettingError(f"honesty is {self.honesty}; it must be a number above 0")
        if not 0 <= self.every_seconds < math.inf:
            raise SettingError(f"every_seconds is {self.every_seconds}; it must be 0 or more")

    def is_due(self, before: Progress | None, now: float) -> bool:
        """Whether it reports at ``now``, after what it told ``before``."""
        return before is None or now >= before.reported + max(self.every_seconds, 1e-9)

    def told(self, before: Progress | None, now: float, work: Work) -> Progress:
        """The report at ``now``, beside what those before it have left."""
        left = min(1.0, work.left * self.honesty)
        at = 1 - work.left if work.steps is None else (1 - work.left) * work.steps
        loss = None if self.loss is None else self.loss.loss(at)
        accuracy = None if self.accuracy is None else self.accuracy.loss(at)
        seconds = None if math.isinf(work.seconds) else work.seconds * self.honesty
        return Progress(
            reported=now,
            fraction=1 - left,
            remaining_seconds=seconds,
            steps=None if work.steps is None else at,
            remaining_steps=None if work.steps is None else work.left * work.steps * self.honesty,
            loss=loss,
            worst_loss=_larger(loss, before.worst_loss if before else None),
            accuracy=accuracy,
            accuracy_gain=_gain(before, accuracy),
            anchor_seconds=before.anchor_seconds if before else None,
        )


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _gain(before: Progress | None, accuracy: float | None) -> float | None:
    if before is None or before.accuracy is None or accuracy is None:
        return None
    return accuracy - before.accuracy
