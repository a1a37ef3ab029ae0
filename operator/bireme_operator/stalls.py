"""Stalled gangs: running gangs that hold devices without progress, or with unready replicas.

Pure functions over facts. A job without any progress report never counts as hung. The operator
reports stalls and stops no gang: only the owner knows whether that would help.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bireme.core.accelerators import DEFAULT, Accelerators
from bireme.core.reasons import Reason
from bireme.core.times import clock_time
from bireme.kube.allocations import GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import running_message
from bireme_operator.status import Status

REASONS: Final = (Reason.NO_PROGRESS, Reason.REPLICAS_NOT_READY)


@dataclass(frozen=True, slots=True)
class Stall:
    """The cause of a stall; its message changes only with the facts."""

    reason: Reason
    message: str


def stall_of(
    job: JobFacts,
    view: GangView,
    now: float,
    after_seconds: float,
    accelerators: Accelerators = DEFAULT,
) -> Stall | None:
    """Return the stall of a TrainingJob at ``now`` (POSIX seconds); None without one.

    A job with accelerators is stalled if it reported no progress, or if a replica was not ready,
    for ``after_seconds``; never if these are 0.
    """
    if (
        job.phase != "Running"
        or view.plan.attempt != job.attempt
        or not _holds_devices(view, accelerators)
    ):
        return None
    return _not_ready(view, now, after_seconds) or _no_progress(job, now, after_seconds)


def with_stall(status: Status, view: GangView, stall: Stall | None) -> Status:
    """Return the status of a running job with the reason of ``stall``, or without a stall."""
    if stall is not None:
        return {**status, "reason": stall.reason.value, "message": cleaned(stall.message)}
    if status.get("reason") not in REASONS:
        return status
    return {**status, "reason": Reason.GANG_RUNNING.value, "message": running_message(view)}


def stall_counts(state: ClusterState, now: float, after_seconds: float) -> Counter[tuple[str, str]]:
    """Count stalled gangs by queue and reason; a PodGroup stalls only by unready replicas."""
    return Counter(_iter_stalls(state, now, after_seconds))


def _iter_stalls(
    state: ClusterState, now: float, after_seconds: float
) -> Iterator[tuple[str, str]]:
    accelerators = state.settings.known_accelerators
    for key, view in state.views.of_gangs():
        job, group = state.objects.jobs.get(key), state.objects.groups.get(key)
        stall = None
        if job is not None:
            stall = stall_of(job, view, now, after_seconds, accelerators)
        elif (
            group is not None
            and group.status.get("phase") == "Running"
            and _holds_devices(view, accelerators)
        ):
            stall = _not_ready(view, now, after_seconds)
        if stall is not None:
            yield view.plan.queue, stall.reason.value


def _holds_devices(view: GangView, accelerators: Accelerators) -> bool:
    return accelerators.count(view.demand) > 0


def _not_ready(view: GangView, now: float, after_seconds: float) -> Stall | None:
    unready = [
        (pod.unready_since, member, pod)
        for member, pod in view.members
        # An ended pod holds no devices, or restarts with the gang.
        if pod is not None and pod.node and pod.unready_since and not pod.is_leaving
        if 0 < after_seconds <= now - pod.unready_since
    ]
    if not unready:
        return None
    since, member, pod = min(unready, key=lambda entry: (entry[0], entry[1].task, entry[1].index))
    subject = (
        f"replica {member.index} of {member.task} on node {pod.node} holds devices and has not"
    )
    message = f"{subject} been ready since {clock_time(since)}"
    if pod.obstacles is not None and pod.obstacles.waiting:
        message += f": {pod.obstacles.waiting[:600]}"
    if len(unready) > 1:
        message += f"; {len(unready) - 1} others neither"
    return Stall(Reason.REPLICAS_NOT_READY, message)


def _no_progress(job: JobFacts, now: float, after_seconds: float) -> Stall | None:
    began, reported = job.running_since, job.latest_progress
    if began is None or reported is None:
        return None
    last = reported.status
    news = (last.progressed_time or last.reported_time).timestamp()
    # After a restart the gang may need long to reach its earlier step.
    since = max(began, news)
    if not 0 < after_seconds <= now - since:
        return None
    message = f"its reports show no progress since {clock_time(since)}"
    if last.step is not None:
        total = f" of {last.total_steps:.0f}" if last.total_steps is not None else ""
        message += f", at step {last.step:.0f}{total}"
    elif last.percentage is not None:
        message += f", at {last.percentage:.0f} %"
    return Stall(Reason.NO_PROGRESS, message)
