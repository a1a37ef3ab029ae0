"""Running gangs that hold devices and get nothing done: hung, or with replicas that do not work.

Pure functions over facts. A job that has never reported progress is not called hung; nobody can
tell. Nothing is stopped: only its owner knows whether that would help.
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
    """Why a running gang counts as stalled, in words that change only with what they are about."""

    reason: Reason
    message: str


def stall_of(
    job: JobFacts, view: GangView, now: float, after_seconds: float, known: Accelerators = DEFAULT
) -> Stall | None:
    """Return why a TrainingJob is stalled at ``now`` (POSIX seconds); None while it is not.

    One that holds accelerators is, once nothing new was reported, or a replica was not ready, for
    ``after_seconds``; never where these are 0.
    """
    if (
        job.phase != "Running"
        or view.plan.attempt != job.attempt
        or not _holds_devices(view, known)
    ):
        return None
    return _not_ready(view, now, after_seconds) or _hung(job, now, after_seconds)


def with_stall(status: Status, view: GangView, stall: Stall | None) -> Status:
    """Return the status of a running job with the reason of ``stall``, or with none any more."""
    if stall is not None:
        return {**status, "reason": stall.reason.value, "message": cleaned(stall.message)}
    if status.get("reason") not in REASONS:
        return status
    return {**status, "reason": Reason.GANG_RUNNING.value, "message": running_message(view)}


def stalled_gangs(
    state: ClusterState, now: float, after_seconds: float
) -> Counter[tuple[str, str]]:
    """Return how many gangs are stalled, by queue and reason; of PodGroups, replicas alone tell."""
    return Counter(_stalled(state, now, after_seconds))


def _stalled(state: ClusterState, now: float, after_seconds: float) -> Iterator[tuple[str, str]]:
    known = state.settings.known_accelerators
    for key, view in state.views():
        job, group = state.jobs.get(key), state.groups.get(key)
        stall = None
        if job is not None:
            stall = stall_of(job, view, now, after_seconds, known)
        elif (
            group is not None
            and group.status.get("phase") == "Running"
            and _holds_devices(view, known)
        ):
            stall = _not_ready(view, now, after_seconds)
        if stall is not None:
            yield view.plan.queue, stall.reason.value


def _holds_devices(view: GangView, known: Accelerators) -> bool:
    return known.count(view.demand) > 0


def _not_ready(view: GangView, now: float, after_seconds: float) -> Stall | None:
    late = [
        (pod.unready_since, member, pod)
        for member, pod in view.members
        # What has ended has given its devices back, or is restarted with the gang.
        if pod is not None and pod.node and pod.unready_since and not pod.is_leaving
        if 0 < after_seconds <= now - pod.unready_since
    ]
    if not late:
        return None
    since, member, pod = min(late, key=lambda each: (each[0], each[1].task, each[1].index))
    what = f"replica {member.index} of {member.task} on node {pod.node} holds devices and has not"
    words = f"{what} been ready since {clock_time(since)}"
    if pod.obstacles is not None and pod.obstacles.waiting:
        words += f": {pod.obstacles.waiting[:600]}"
    if len(late) > 1:
        words += f"; {len(late) - 1} others neither"
    return Stall(Reason.REPLICAS_NOT_READY, words)


def _hung(job: JobFacts, now: float, after_seconds: float) -> Stall | None:
    began, reported = job.running_since, job.latest_progress
    if began is None or reported is None:
        return None
    last = reported.status
    news = (last.progressed_time or last.reported_time).timestamp()
    # It may have been long in coming back to where it was.
    since = max(began, news)
    if not 0 < after_seconds <= now - since:
        return None
    words = f"its reports show no progress since {clock_time(since)}"
    if last.step is not None:
        of = f" of {last.total_steps:.0f}" if last.total_steps is not None else ""
        words += f", at step {last.step:.0f}{of}"
    elif last.percentage is not None:
        words += f", at {last.percentage:.0f} %"
    return Stall(Reason.NO_PROGRESS, words)
