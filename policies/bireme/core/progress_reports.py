"""What a gang's own reports change in what is believed about it, and by how much at most.

A report is a claim of a tenant: it may be wrong, or a lie. So it moves how long a gang is expected
to run, and how much work it is, by a factor of at most ``MOST_SHIFT`` against what was known
without it: the owner's estimate or the history of run times or, where neither exists, what the gang
said first. Whatever it says, the rails treat a gang that outruns its expected end like any other
that does, no size leaves the bounds of its tasks, and nobody is shrunk below theirs.
"""

import math
from dataclasses import replace

from bireme.core.estimates import LONGEST_SECONDS, Progress
from bireme.core.gangs import Gang
from bireme.core.running import RunningGang

MOST_SHIFT = 2.0
"""Factor by which reports move an expected run time at most, up or down."""


def believed(gang: Gang, running: RunningGang | None = None) -> Gang:
    """``gang`` with what its progress says of its run time and steps, as far as it is believed.

    Args:
        gang: With its progress, and with what is known without it.
        running: The places it holds; None for one that waits.
    """
    progress = gang.progress
    if progress is None:
        return gang
    told = told_seconds(progress, gang.attained_seconds, running.started if running else None)
    beside = (gang.estimated_seconds, progress.anchor_seconds, told)
    known = next((seconds for seconds in beside if seconds is not None), None)
    gang = _with_steps(gang, progress, running, known)
    if told is None or known is None:
        return gang
    seconds = min(max(told, known / MOST_SHIFT), known * MOST_SHIFT)
    return replace(gang, estimated_seconds=seconds, is_learned_estimate=False)


def _with_steps(
    gang: Gang, progress: Progress, running: RunningGang | None, known_seconds: float | None
) -> Gang:
    """``gang`` with its steps as of the start, or the last change of size.

    At the size that was asked for, all steps together take ``known_seconds`` within the factor.
    """
    done, left = progress.steps, progress.remaining_steps
    if done is None:
        return gang
    run = min(_steps_since(gang, progress, running), done)
    if left is None:
        return replace(gang, done_steps=done - run)
    if known_seconds is not None and gang.speed is not None:
        asked = {task.name: task.replicas for task in gang.tasks}
        whole = known_seconds * gang.speed.steps_per_second(asked, 1)
        left = min(max(left, whole / MOST_SHIFT - done), whole * MOST_SHIFT)
    return replace(gang, done_steps=done - run, remaining_steps=left + run)


def told_seconds(
    progress: Progress, attained_seconds: float, started: float | None
) -> float | None:
    """How long the start that began at ``started`` runs in all, by what the gang says.

    For a gang that waits (None), the next one. None where it says nothing of its end, or nothing
    that is a number; at most ``LONGEST_SECONDS``.
    """
    elapsed = 0.0 if started is None else max(0.0, progress.reported - started)
    left = progress.remaining_seconds
    if left is None:
        if not progress.fraction:
            return None
        left = (attained_seconds + elapsed) * (1 / progress.fraction - 1)
    seconds = elapsed + left
    return min(seconds, LONGEST_SECONDS) if math.isfinite(seconds) else None


def anchored(progress: Progress, attained_seconds: float, started: float | None) -> Progress:
    """``progress`` with its anchor, if this is the first report to say how long the start runs."""
    if progress.anchor_seconds is not None:
        return progress
    return replace(progress, anchor_seconds=told_seconds(progress, attained_seconds, started))


def _steps_since(gang: Gang, progress: Progress, running: RunningGang | None) -> float:
    """Steps from the start, or the last change of size, to the report, at its usual speed."""
    if running is None or gang.speed is None or not running.sizes:
        return 0.0
    speed = gang.speed.steps_per_second(running.sizes, len(running.placement.node_rows()))
    return speed * max(0.0, progress.reported - max(running.started, running.resized))
