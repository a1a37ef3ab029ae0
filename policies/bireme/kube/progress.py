"""What a TrainingJob has reported about its training: from reports to its status, and to the core.

All that is known stands in ``status.progress``, written by the operator alone, so that a new leader
knows as much as the one before it. It keeps the last report, the speed at the latest sizes and a
thinned history of the loss; from these come a speed law (Amdahl's, or with one size seen the usual
serial share) and a loss curve (that of Optimus), fitted anew whenever the status changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError

from bireme.core.claims import anchored
from bireme.core.curves import InverseQuadratic
from bireme.core.estimates import LONGEST_SECONDS
from bireme.core.fitting import FASTEST, SLOWEST, FitError, fit_loss, fit_speed
from bireme.core.progress import Progress
from bireme.core.speed import LinearSpeed
from bireme.kube.api.progress_status import (
    MOST_LOSSES,
    MOST_SPEEDS,
    LossSeen,
    ProgressStatus,
    SpeedSeen,
)

MOST_STEPS: Final = 1e15
"""No training has more."""
_SHORTEST_SECONDS: Final = 10.0
"""Between reports whose steps are to tell a speed; scripts do not report at every step."""
_NEW_WEIGHT: Final = 0.5
"""Of a speed seen anew, against the one remembered for the same size."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report, every number checked and clipped; None for what it does not tell.

    Attributes:
        percentage: Of the training that is done, 0 to 100.
        remaining_seconds: At least 0.
        accuracy: From 0 to 1.
    """

    percentage: float | None = None
    remaining_seconds: float | None = None
    step: float | None = None
    total_steps: float | None = None
    loss: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The run that a report speaks of.

    Attributes:
        replicas: How many there are.
        started: When it was admitted, POSIX seconds.
        since: Since when it has had this size.
        attained_seconds: For how long earlier starts ran.
    """

    replicas: int
    started: float
    since: float
    attained_seconds: float


@dataclass(frozen=True)
class Told:
    """What ``status.progress`` of a job says."""

    status: ProgressStatus

    @cached_property
    def progress(self) -> Progress:
        """The last report and what it adds to those before."""
        said = self.status
        fraction = None if said.percentage is None else said.percentage / 100
        if fraction is None and said.step is not None and said.total_steps:
            fraction = min(1.0, said.step / said.total_steps)
        return Progress(
            reported=said.reported_time.timestamp(),
            fraction=fraction,
            remaining_seconds=said.remaining_seconds,
            steps=said.step,
            remaining_steps=_remaining_steps(said.step, said.total_steps, fraction),
            loss=said.loss,
            worst_loss=said.worst_loss,
            accuracy=said.accuracy,
            accuracy_gain=said.accuracy_gain,
            # Bounded again where it is read: earlier versions wrote what they were told.
            anchor_seconds=_least(said.first_expected_seconds, LONGEST_SECONDS),
        )

    @cached_property
    def speed(self) -> LinearSpeed | None:
        """Steps a second by number of replicas; None before two reports at one size."""
        pairs = ((seen.replicas, seen.steps_per_second) for seen in self.status.speeds)
        seen = {size: pace for size, pace in pairs if size and SLOWEST <= pace <= FASTEST}
        try:
            return fit_speed(seen) if seen else None
        except (FitError, ArithmeticError):
            return None

    @cached_property
    def loss(self) -> InverseQuadratic | None:
        """The loss over the steps (Optimus, section 3.1); None where no curve falls like it."""
        seen = self.status.losses
        try:
            return fit_loss([p.step for p in seen], [p.loss for p in seen])
        except (ValueError, ArithmeticError):  # FitError, or numbers that numpy cannot take
            return None


def told_by(status: Mapping[str, Any]) -> Told | None:
    """What the status of a TrainingJob says of its progress; None where it says nothing of use."""
    given = status.get("progress")
    try:
        return None if given is None else Told(ProgressStatus.model_validate(given))
    except ValidationError:  # somebody else wrote it; the next report writes it anew
        return None


def _remaining_steps(
    step: float | None, total: float | None, fraction: float | None
) -> float | None:
    if step is None:
        return None
    if total is not None:
        return max(0.0, total - step)
    return _least(step * (1 / fraction - 1), MOST_STEPS) if fraction else None


def _least(said: float | None, most: float) -> float | None:
    """``said``, at most ``most``; None where it is no number."""
    return None if said is None or math.isnan(said) else min(said, most)


def with_report(before: Told | None, report: Report, now: float, run: Run) -> dict[str, Any]:
    """``status.progress`` after ``report``, which came at ``now`` (POSIX seconds).

    What the report leaves out stays as it was told before, but for the time that is left.
    """
    moment = datetime.fromtimestamp(now, UTC)
    old = before.status if before else ProgressStatus(reported_time=moment)
    said = {name: value for name, value in asdict(report).items() if value is not None}
    new = old.model_copy(
        update={
            **said,
            "reported_time": moment,
            "remaining_seconds": report.remaining_seconds,
            "worst_loss": _largest(old.worst_loss, report.loss),
            "accuracy_gain": _gain(old, report.accuracy),
            "speeds": _speeds(before, report.step, now, run),
            "losses": _losses(old.losses, report),
        }
    )
    progress = anchored(Told(new).progress, run.attained_seconds, run.started)
    anchor = {"first_expected_seconds": progress.anchor_seconds}
    return new.model_copy(update=anchor).to_manifest()


def _largest(*losses: float | None) -> float | None:
    return max((loss for loss in losses if loss is not None), default=None)


def _gain(old: ProgressStatus, accuracy: float | None) -> float | None:
    if accuracy is None:
        return old.accuracy_gain
    return None if old.accuracy is None else accuracy - old.accuracy


def _speeds(before: Told | None, step: float | None, now: float, run: Run) -> tuple[SpeedSeen, ...]:
    """The speeds known, with that since the last report, if it was made at the same size."""
    known = before.status.speeds if before else ()
    last = before.progress if before else None
    if last is None or last.steps is None or step is None or last.reported < run.since:
        return known
    seconds, steps = now - last.reported, step - last.steps
    if seconds < _SHORTEST_SECONDS or not SLOWEST <= steps / seconds <= FASTEST:
        return known
    seen = {each.replicas: each.steps_per_second for each in known}
    earlier = seen.pop(run.replicas, None)
    pace = steps / seconds
    pace = pace if earlier is None else _NEW_WEIGHT * pace + (1 - _NEW_WEIGHT) * earlier
    kept = [*seen.items(), (run.replicas, pace)][-MOST_SPEEDS:]
    return tuple(SpeedSeen(replicas=n, steps_per_second=each) for n, each in kept)


def _losses(known: Sequence[LossSeen], report: Report) -> tuple[LossSeen, ...]:
    """The losses known, with the one reported; every second is dropped when they are too many."""
    if report.step is None or report.loss is None:
        return tuple(known)
    # A restart goes on from a checkpoint: what came after that did not happen.
    kept = [seen for seen in known if seen.step < report.step]
    if len(kept) >= MOST_LOSSES:
        kept = [*kept[:-1:2], kept[-1]]
    return (*kept, LossSeen(step=report.step, loss=report.loss))
