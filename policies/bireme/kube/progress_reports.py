"""Progress that training jobs report, as the core uses it.

Progress lives only in ``status.progress``, so that a new leader knows as much as the old one. It
has the last report, the speed at the latest sizes, and a thinned history of the loss. Whenever the
status changes, Amdahl's law is fitted to the speeds, and the loss curve of Optimus to the losses.
With one known size the law uses the usual serial share.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError

from bireme.core.estimates import with_anchor
from bireme.core.gangs import TrainingProgress
from bireme.core.speed import (
    FASTEST,
    SLOWEST,
    CurveFitError,
    InverseQuadratic,
    LinearSpeed,
    fit_loss,
    fit_speed,
)
from bireme.core.times import MAX_SECONDS
from bireme.kube.api.training_job import (
    MAX_LOSSES,
    MAX_SPEEDS,
    LossSeen,
    ProgressStatus,
    SpeedSeen,
)

MAX_STEPS: Final = 1e15
"""Larger step counts are refused."""
# Shortest time between two reports that give a speed.
_MIN_SECONDS: Final = 10.0
_TRAINING_FIELDS: Final = ("percentage", "step", "loss", "accuracy")
# Weight of a new speed against the one remembered for the same size.
_NEW_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress report with checked and clipped numbers; an absent field is None.

    Attributes:
        percentage: Finished part of the training, 0 to 100.
        remaining_seconds: At least 0.
        accuracy: From 0 to 1.
    """

    percentage: float | None = None
    remaining_seconds: float | None = None
    step: float | None = None
    total_steps: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    checkpoint_step: float | None = None


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that a report belongs to.

    Attributes:
        replicas: Its size.
        started: Admission, POSIX seconds.
        since: Start at this size, POSIX seconds.
        attained_seconds: Run time of earlier starts.
    """

    replicas: int
    started: float
    since: float
    attained_seconds: float


@dataclass(frozen=True)
class ReportedProgress:
    """``status.progress`` of a job in the form that the core uses."""

    status: ProgressStatus

    @cached_property
    def progress(self) -> TrainingProgress:
        """The last report, with the differences to earlier ones."""
        last = self.status
        fraction = None if last.percentage is None else last.percentage / 100
        if fraction is None and last.step is not None and last.total_steps:
            fraction = min(1.0, last.step / last.total_steps)
        return TrainingProgress(
            reported=last.reported_time.timestamp(),
            fraction=fraction,
            remaining_seconds=last.remaining_seconds,
            steps=last.step,
            remaining_steps=_remaining_steps(last.step, last.total_steps, fraction),
            loss=last.loss,
            worst_loss=last.worst_loss,
            accuracy=last.accuracy,
            accuracy_gain=last.accuracy_gain,
            # Bounded again here: earlier versions wrote unbounded values.
            anchor_seconds=_at_most(last.first_expected_seconds, MAX_SECONDS),
        )

    @cached_property
    def speed(self) -> LinearSpeed | None:
        """Steps per second by number of replicas; None before two reports at one size."""
        pairs = (
            (pace_by_size.replicas, pace_by_size.steps_per_second)
            for pace_by_size in self.status.speeds
        )
        pace_by_size = {size: pace for size, pace in pairs if size and SLOWEST <= pace <= FASTEST}
        try:
            return fit_speed(pace_by_size) if pace_by_size else None
        except (CurveFitError, ArithmeticError):
            return None

    @cached_property
    def loss(self) -> InverseQuadratic | None:
        """The loss over the steps (Optimus, section 3.1); None if no such curve fits."""
        history = self.status.losses
        try:
            return fit_loss([p.step for p in history], [p.loss for p in history])
        except (ValueError, ArithmeticError):  # CurveFitError, or numbers that numpy cannot take
            return None


def progress_of(status: Mapping[str, Any]) -> ReportedProgress | None:
    """Return the progress in a TrainingJob's status; None if it is absent or invalid."""
    manifest = status.get("progress")
    try:
        if manifest is None:
            return None
        # Before a rollback a newer operator may have written unknown fields.
        return ReportedProgress(ProgressStatus.model_validate(manifest, extra="ignore"))
    except ValidationError:  # not written by the operator; the next report replaces it
        return None


def _remaining_steps(
    step: float | None, total: float | None, fraction: float | None
) -> float | None:
    if step is None:
        return None
    if total is not None:
        return max(0.0, total - step)
    return _at_most(step * (1 / fraction - 1), MAX_STEPS) if fraction else None


def _at_most(value: float | None, limit: float) -> float | None:
    """Return ``value``, at most ``limit``; None for None and NaN."""
    return None if value is None or math.isnan(value) else min(value, limit)


def with_report(
    previous: ReportedProgress | None, report: ProgressReport, now: float, run: ReportedRun
) -> dict[str, Any]:
    """Return ``status.progress`` after ``report``, received at ``now`` (POSIX seconds).

    Fields that the report leaves out keep their last value, except the remaining time.
    """
    timestamp = datetime.fromtimestamp(now, UTC)
    old = previous.status if previous else ProgressStatus(reported_time=timestamp)
    fields = {name: value for name, value in asdict(report).items() if value is not None}
    new = old.model_copy(
        update={
            **fields,
            "reported_time": timestamp,
            "progressed_time": timestamp if _is_news(old, report) else old.progressed_time,
            "remaining_seconds": report.remaining_seconds,
            "worst_loss": _largest(old.worst_loss, report.loss),
            "accuracy_gain": _gain(old, report.accuracy),
            "speeds": _speeds(previous, report.step, now, run),
            "losses": _losses(old.losses, report),
        }
    )
    progress = with_anchor(ReportedProgress(new).progress, run.attained_seconds, run.started)
    anchor = {"first_expected_seconds": progress.anchor_seconds}
    return new.model_copy(update=anchor).to_manifest()


def _is_news(old: ProgressStatus, report: ProgressReport) -> bool:
    """Return whether ``report`` shows progress since the previous report."""
    fields = {
        name: value
        for name, value in asdict(report).items()
        if name in _TRAINING_FIELDS and value is not None
    }
    if not fields:  # only the remaining time can show progress
        return report.remaining_seconds != old.remaining_seconds
    return any(getattr(old, name) != value for name, value in fields.items())


def _largest(*losses: float | None) -> float | None:
    return max((loss for loss in losses if loss is not None), default=None)


def _gain(old: ProgressStatus, accuracy: float | None) -> float | None:
    if accuracy is None:
        return old.accuracy_gain
    return None if old.accuracy is None else accuracy - old.accuracy


def _speeds(
    previous: ReportedProgress | None, step: float | None, now: float, run: ReportedRun
) -> tuple[SpeedSeen, ...]:
    """Return the known speeds, updated by the speed since the last report at the same size."""
    speeds = previous.status.speeds if previous else ()
    last = previous.progress if previous else None
    if last is None or last.steps is None or step is None or last.reported < run.since:
        return speeds
    seconds, steps = now - last.reported, step - last.steps
    if seconds < _MIN_SECONDS or not SLOWEST <= steps / seconds <= FASTEST:
        return speeds
    pace_by_size = {speed.replicas: speed.steps_per_second for speed in speeds}
    earlier = pace_by_size.pop(run.replicas, None)
    pace = steps / seconds
    pace = pace if earlier is None else _NEW_WEIGHT * pace + (1 - _NEW_WEIGHT) * earlier
    recent = [*pace_by_size.items(), (run.replicas, pace)][-MAX_SPEEDS:]
    return tuple(SpeedSeen(replicas=n, steps_per_second=speed) for n, speed in recent)


def _losses(losses: Sequence[LossSeen], report: ProgressReport) -> tuple[LossSeen, ...]:
    """Return the known losses with the reported one. A full history is thinned by half."""
    if report.step is None or report.loss is None:
        return tuple(losses)
    # A restart resumes from a checkpoint: drop losses of later steps.
    earlier = [loss for loss in losses if loss.step < report.step]
    if len(earlier) >= MAX_LOSSES:
        earlier = [*earlier[:-1:2], earlier[-1]]
    return (*earlier, LossSeen(step=report.step, loss=report.loss))
