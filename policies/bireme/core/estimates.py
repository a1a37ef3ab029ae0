"""Expected run time of a gang: by its history, and by its own progress reports.

**History.** Three groups of runs are alike, each part of the next: runs of the same template by the
same user, all runs of the user, all runs. Each group remembers only its latest runs. Its quantile
q_k is the smallest of them that at least 90 % do not exceed (of fewer than ten, the longest). A
group of few runs is uncertain, so its estimate e_k is drawn towards the wider group, as if that
if that one had lent it ``PRIOR_RUNS`` runs:

    log e_k = (n_k * log q_k + PRIOR_RUNS * log e_wider) / (n_k + PRIOR_RUNS),   e_all = q_all

n_k is the number of runs remembered. This is the shrinkage of a group's mean by its effective
sample size (Efron and Morris, JASA 1975), of a quantile instead.

**Progress reports.** A tenant writes them, so they may be wrong or false. They change the expected
run time of a gang, and its work, by a factor of at most ``MAX_SHIFT``. The reference is the owner's
estimate, or the history, or, if neither exists, the gang's first report.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bireme.core.gangs import Gang, TrainingProgress
from bireme.core.running import RunningGang
from bireme.core.times import MAX_SECONDS

QUANTILE = 0.9
PRIOR_RUNS = 5
"""The number of runs at which a group weighs as much as the wider group."""
MIN_RUNS = 5
"""Minimum of runs in all; with fewer there is no estimate."""
MAX_SHIFT = 2.0
"""The largest factor by which progress reports change an expected run time, up or down."""
RUNS_PER_GROUP = 64
MAX_GROUPS = 4096
"""The limit on remembered groups; the group without a run for longest is forgotten first."""

_Group = tuple[str, ...]
"""``(user, template)``, ``(user,)`` or ``()``."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """The latest runs of a group, oldest first, and their 90 % quantile."""

    seconds: deque[float]
    quantile_seconds: float


class RuntimeHistory:
    """Finished runs by group, bounded in number."""

    def __init__(self) -> None:
        self._groups: dict[_Group, _Runs] = {}

    def observe(self, user: str, template: str, seconds: float) -> None:
        """Record that a run of ``template`` by ``user`` took ``seconds``.

        A value that cannot be a run time (zero, negative, above ten years, not a number) is
        ignored.
        """
        if not 0 < seconds <= MAX_SECONDS:  # clocks jump, and a history must survive that
            return
        # The widest comes last: the last group to be touched is forgotten last.
        for group in ((user, template), (user,), ()):
            previous = self._groups.pop(group, None)
            latest = previous.seconds if previous else deque(maxlen=RUNS_PER_GROUP)
            latest.append(float(seconds))
            self._groups[group] = _Runs(latest, _quantile(latest))
        while len(self._groups) > MAX_GROUPS:
            del self._groups[next(iter(self._groups))]

    def estimate(self, user: str, template: str) -> float | None:
        """Return seconds that a run of ``template`` by ``user`` should stay within, or None.

        It has two significant digits.
        """
        all_runs = self._groups.get(())
        if all_runs is None or len(all_runs.seconds) < MIN_RUNS:
            return None
        estimate = all_runs.quantile_seconds
        for group in ((user,), (user, template)):
            runs = self._groups.get(group)
            if runs is not None:  # a template without runs is judged by those of its user
                # A mean of logarithms: run times spread over five powers of ten.
                own_weight = len(runs.seconds) / (len(runs.seconds) + PRIOR_RUNS)
                estimate = runs.quantile_seconds**own_weight * estimate ** (1 - own_weight)
        return _round_up(estimate)


def _quantile(seconds: Iterable[float]) -> float:
    ordered = sorted(seconds)
    return ordered[math.ceil(QUANTILE * len(ordered)) - 1]


def _round_up(seconds: float) -> float:
    """Round up to two significant digits, ignoring the noise of logarithms."""
    # A low estimate breaks a reservation; a high one only misses a chance to backfill. And gangs of
    # equal estimates are equal, which makes long simulations fast.
    exponent = math.floor(math.log10(seconds)) - 1
    digits = math.ceil(seconds / 10.0**exponent - 1e-6)
    return float(f"{digits}e{exponent}")


def apply_progress_report(gang: Gang, running: RunningGang | None = None) -> Gang:
    """Return ``gang`` with run time and steps from its progress report, within the limits.

    Args:
        gang: With its report, and with its estimates without the report.
        running: The places it holds; None for a waiting gang.
    """
    progress = gang.progress
    if progress is None:
        return gang
    started = running.started if running else None
    reported = seconds_by_report(progress, gang.attained_seconds, started)
    candidates = (gang.estimated_seconds, progress.anchor_seconds, reported)
    known_seconds = next((seconds for seconds in candidates if seconds is not None), None)
    gang = _with_steps(gang, progress, running, known_seconds)
    if reported is None or known_seconds is None:
        return gang
    trusted = min(max(reported, known_seconds / MAX_SHIFT), known_seconds * MAX_SHIFT)
    return replace(gang, estimated_seconds=trusted, is_learned_estimate=False)


def _with_steps(
    gang: Gang, progress: TrainingProgress, running: RunningGang | None, known_seconds: float | None
) -> Gang:
    """Return ``gang`` with its steps as of the start, or the last change of size."""
    done, remaining = progress.steps, progress.remaining_steps
    if done is None:
        return gang
    run = min(_steps_since(gang, progress, running), done)
    if remaining is None:
        return replace(gang, done_steps=done - run)
    if known_seconds is not None and gang.speed is not None:
        # At the requested size, all steps take about the known run time.
        requested_sizes = {task.name: task.replicas for task in gang.tasks}
        whole = known_seconds * gang.speed.steps_per_second(requested_sizes, 1)
        remaining = min(max(remaining, whole / MAX_SHIFT - done), whole * MAX_SHIFT)
    return replace(gang, done_steps=done - run, remaining_steps=remaining + run)


def seconds_by_report(
    progress: TrainingProgress, attained_seconds: float, started: float | None
) -> float | None:
    """Return the run time of the start that began at ``started``, by the gang's report, or None.

    ``started`` is None for a waiting gang: the run time is then that of its next start.
    """
    # A clock step backwards must not make a run time negative.
    elapsed = 0.0 if started is None else max(0.0, progress.reported - started)
    remaining = progress.remaining_seconds
    if remaining is None:
        if not progress.fraction:
            return None
        remaining = (attained_seconds + elapsed) * (1 / progress.fraction - 1)
    seconds = elapsed + remaining
    return min(seconds, MAX_SECONDS) if math.isfinite(seconds) else None


def with_anchor(
    progress: TrainingProgress, attained_seconds: float, started: float | None
) -> TrainingProgress:
    """Return ``progress`` with its anchor, if it is the first report on the start's run time."""
    if progress.anchor_seconds is not None:
        return progress
    return replace(progress, anchor_seconds=seconds_by_report(progress, attained_seconds, started))


def _steps_since(gang: Gang, progress: TrainingProgress, running: RunningGang | None) -> float:
    """Return the steps from the start, or the last resize, to the report, at the usual speed."""
    if running is None or gang.speed is None or not running.sizes:
        return 0.0
    speed = gang.speed.steps_per_second(running.sizes, len(running.placement.node_rows()))
    return speed * max(0.0, progress.reported - max(running.started, running.resized))
