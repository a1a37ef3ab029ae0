"""Regret: the cost of the active policy against a shadow, in the completion times of gangs.

From one snapshot the cluster is played forward twice (:mod:`bireme.core.play`). In each play one of
the two policies decides in every cycle: order, size, places and stops. The comparison takes the
mean completion time of the gangs that exist at that moment, waiting and running. It counts from
that moment on: earlier time is equal for both.

**The work of a gang is the same in both plays**, whatever it is: only the schedules differ. It is
counted in seconds at the requested size, on usual GPUs:

*   An undisturbed running gang ends when its steps are done, if its speed and steps are known. Else
    it ends when a reservation counts on it (:meth:`~bireme.core.running.RunningGang.expected_end`).
*   A waiting gang takes the time of its steps, if both are known, else its estimate, by its owner
    or by the history of run times.
*   The total run time of a gang without an estimate is the median of all estimates, or twice its
run time so far if that is longer. In the second case it lasts as long again as so far (the median
of the rest under Pareto's law with exponent 1). If no gang has an estimate, the median is that of
the doubled run times, else an hour.

**Decisions change its speed and loss:**

*   *Size and spread*: a gang runs as fast as its law says for its size and number of nodes
    (:mod:`bireme.core.speed`). A step at another batch size counts by its statistical efficiency.
    If no law is known, or the law says that the gang cannot run, more replicas do not shorten a
    part of :data:`SERIAL_SHARE` of its time. No law includes topology levels wider than a node, so
    a spread over racks costs nothing here.
*   *Places*: on other GPU models it runs as fast as the slowest of them, by
    :mod:`bireme.core.gpus`, relative to the mean over the GPUs of the nodes that it allows.
*   *Stops*: a stopped gang loses its work since its last checkpoint and later begins with a
    restart. A change of size saves a checkpoint and costs a restart. No report tells when a gang
    writes checkpoints, so :class:`Restarts` assumes an interval.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable, feasible
from bireme.core.play import Bounds, Play
from bireme.core.policy import Policy
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import SERIAL_SHARE, EfficiencyLaw, LinearSpeed

BOUNDS: Final = Bounds(horizon_seconds=7 * 86_400.0, cycles=512, coarseness=0.02)
"""Bounds of the compared plays. Later events say little about the present decision."""
_UNKNOWN_SECONDS: Final = 3600.0
_AMDAHL: Final = LinearSpeed(1.0, SERIAL_SHARE)


@dataclass(frozen=True, slots=True)
class Restarts:
    """The cost of a stop; the assumptions of ``python -m bireme_lab.contest``.

    Attributes:
        restart_seconds: Time without work after every start but the first, and after every resize.
        checkpoint_seconds: Interval of checkpoints, from the start on; 0 for no loss, infinity for
            no checkpoints.
    """

    restart_seconds: float = 30.0
    checkpoint_seconds: float = 1800.0


USUAL_RESTARTS: Final = Restarts()


@dataclass(frozen=True, slots=True)
class RegretSample:
    """One moment, played forward by the active policy and by the shadow.

    Attributes:
        active_seconds, shadow_seconds: Mean completion time of the gangs that exist at the moment,
            from it on.
        gangs: Their number.
    """

    active_seconds: float
    shadow_seconds: float
    gangs: int = 1

    @property
    def regret_seconds(self) -> float:
        """The extra time of the gangs under the active policy; negative if they take less."""
        return self.active_seconds - self.shadow_seconds


def always() -> bool:
    """Time is left."""
    return True


def regret(
    snapshot: ClusterSnapshot,
    active: Policy,
    shadow: Policy,
    bounds: Bounds = BOUNDS,
    restarts: Restarts = USUAL_RESTARTS,
    is_time_left: Callable[[], bool] = always,
) -> RegretSample | None:
    """Play ``snapshot`` forward by both policies, and compare the completion times.

    A play may end before its last gang, by the bounds or because no time was left. An unfinished
    gang then counts as ending when the shorter of both plays ends (the restricted mean of survival
    analysis). Gangs that end in neither play, such as those that can never start, are left out.
    None if no gang remains.

    The policies decide as in a cycle, so they must not learn from these calls.
    """
    # Node pools do not grow in a play, so neither policy may count on growth in its first decision.
    snapshot = replace(snapshot, growable=())
    plays = [_play(snapshot, policy, bounds, restarts) for policy in (active, shadow)]
    going = [(play, iter(play)) for play in plays]
    limit = math.inf
    while going and is_time_left():
        # Advance the slower play, so that both have come equally far when time runs out.
        slower = min(going, key=lambda pair: pair[0].until)
        if slower[0].until >= limit:
            break
        if next(slower[1], None) is None:
            going.remove(slower)
            limit = min(limit, slower[0].reach)
    reach = min(play.reach for play in plays)
    if math.isinf(reach):
        reach = max([snapshot.now, *(end for play in plays for end in play.ended.values())])
    uids = sorted({uid for play in plays for uid, end in play.ended.items() if end <= reach})
    if not uids:
        return None
    mine, other = (
        statistics.fmean(min(play.ended.get(uid, reach), reach) - snapshot.now for uid in uids)
        for play in plays
    )
    return RegretSample(mine, other, len(uids))


def _play(snapshot: ClusterSnapshot, policy: Policy, bounds: Bounds, restarts: Restarts) -> Play:
    decision = run_cycle(snapshot, policy, explain=False)
    return Play(snapshot, decision, policy, bounds, Work(snapshot, restarts))


# --- work ---


@dataclass(slots=True)
class _Job:
    """A gang at work, or before it: ``remaining`` seconds of work, at ``rate`` from ``since`` on.

    Attributes:
        saved: The remaining work at the last checkpoint.
        began: The time from which checkpoints count.
    """

    remaining: float
    rate: float = 1.0
    since: float = 0.0
    saved: float = 0.0
    began: float = 0.0
    has_run: bool = False

    @property
    def end(self) -> float:
        return self.since + self.remaining / self.rate

    def advance(self, now: float, checkpoint_seconds: float) -> None:
        """Work until ``now``."""
        if now <= self.since:  # it still starts up
            return
        saved_at = _last_checkpoint(self.began, now, checkpoint_seconds)
        if saved_at > self.since:
            self.saved = max(0.0, self.remaining - (saved_at - self.since) * self.rate)
        self.remaining = max(0.0, self.remaining - (now - self.since) * self.rate)
        self.since = now


def _last_checkpoint(began: float, now: float, apart_seconds: float) -> float:
    if apart_seconds <= 0:
        return now
    if math.isinf(apart_seconds):
        return began
    return began + math.floor((now - began) / apart_seconds) * apart_seconds


class Work:
    """The work of all gangs of a snapshot, in one play of it; a :class:`~bireme.core.play.Course`.

    See the module for its assumptions.
    """

    def __init__(self, snapshot: ClusterSnapshot, restarts: Restarts = USUAL_RESTARTS) -> None:
        self._snapshot, self._restarts = snapshot, restarts
        self._speeds = _GpuSpeeds(snapshot.nodes)
        self._typical = _typical_seconds(snapshot)
        self._jobs = {gang.uid: _Job(self._work_of(gang)) for gang in snapshot.waiting}

    # --- the beginning of the play ---

    def _work_of(self, gang: Gang) -> float:
        """Return the work of a waiting gang."""
        pace = _pace_asked(gang)
        if pace is not None and gang.remaining_steps is not None:
            return max(0.0, gang.remaining_steps) / pace
        if gang.estimated_seconds is not None:
            return gang.estimated_seconds
        return self._guess(gang.attained_seconds)

    def _guess(self, attained_seconds: float) -> float:
        return max(self._typical - attained_seconds, attained_seconds)

    def end_of_running(self, running: RunningGang, now: float) -> float:
        if running.is_leaving:
            return now  # its entry among the waiting gangs, if any, has its remaining work
        gang, rate = running.gang, self._rate(running)
        steps, pace = gang.remaining_steps, _pace(gang, running.sizes, _nodes_of(running))
        since = max(running.started, running.resized)
        if steps is not None and pace is not None and steps > pace * (now - since):
            seconds = steps / pace - max(0.0, now - since)
        elif gang.estimated_seconds is not None:
            seconds = running.expected_end(now, math.inf) - now
        else:
            seconds = self._guess(self._snapshot.attained_seconds(gang))
        job = _Job(seconds * rate, rate, now, began=running.started, has_run=True)
        saved_at = _last_checkpoint(running.started, now, self._restarts.checkpoint_seconds)
        lost_seconds = max(0.0, now - max(saved_at, since))
        job.saved = job.remaining + lost_seconds * rate
        self._jobs[gang.uid] = job
        return job.end

    # --- events ---

    def end_of_new(self, running: RunningGang, now: float) -> float:
        job = self._jobs[running.gang.uid]
        job.rate = self._rate(running)
        job.since = job.began = now + (self._restarts.restart_seconds if job.has_run else 0.0)
        job.saved, job.has_run = job.remaining, True
        return job.end

    def resize(self, old: RunningGang, new: RunningGang, now: float) -> tuple[RunningGang, float]:
        job = self._jobs[old.gang.uid]
        job.advance(now, self._restarts.checkpoint_seconds)
        job.saved = job.remaining
        job.since = max(job.since, now + self._restarts.restart_seconds)
        job.rate = self._rate(new)
        return replace(new, gang=_with_steps(new.gang, job.remaining), _used={}), job.end

    def stop(self, running: RunningGang, now: float) -> Gang:
        job = self._jobs[running.gang.uid]
        job.advance(now, self._restarts.checkpoint_seconds)
        job.remaining = job.saved
        return _with_steps(running.gang, job.remaining)

    def _rate(self, running: RunningGang) -> float:
        """Return the work that ``running`` does in a second."""
        gang, sizes = running.gang, running.sizes
        if not sizes:
            return 1.0  # all its nodes are gone, and it will be stopped
        requested_sizes = {task.name: task.replicas for task in gang.tasks}
        pace, usual = _pace(gang, sizes, _nodes_of(running)), _pace_asked(gang)
        if pace is None or usual is None:
            pace, usual = (
                _AMDAHL.steps_per_second(counts, 1) for counts in (sizes, requested_sizes)
            )
        return pace / usual * self._speeds.of(running)


def _typical_seconds(snapshot: ClusterSnapshot) -> float:
    gangs = [*snapshot.waiting, *(running.gang for running in snapshot.running)]
    estimates = [g.estimated_seconds for g in gangs if g.estimated_seconds is not None]
    estimates = estimates or [
        2 * seconds for g in gangs if (seconds := snapshot.attained_seconds(g)) > 0
    ]
    return statistics.median(estimates) if estimates else _UNKNOWN_SECONDS


def _nodes_of(running: RunningGang) -> int:
    return len(running.placement.node_rows())


def _pace_asked(gang: Gang) -> float | None:
    # The reference of estimates (bireme.core.estimates): that size, on one node.
    return _pace(gang, {task.name: task.replicas for task in gang.tasks}, 1)


def _pace(gang: Gang, sizes: Mapping[str, int], nodes: int) -> float | None:
    """Return the steps a second, each by its worth; None if no law gives any."""
    law = gang.speed
    if law is None:
        return None
    pace = law.steps_per_second(sizes, nodes)
    if isinstance(law, EfficiencyLaw):
        pace *= law.statistical_efficiency(sizes)
    return pace if pace > 0 else None


def _with_steps(gang: Gang, work: float) -> Gang:
    """Return ``gang`` with the done and remaining steps that match the remaining ``work``."""
    steps, pace = gang.remaining_steps, _pace_asked(gang)
    if steps is None or pace is None:
        return gang
    now = work * pace
    return replace(gang, remaining_steps=now, done_steps=max(0.0, gang.done_steps + steps - now))


class _GpuSpeeds:
    """The speeds of the GPUs of nodes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._of_node = nodes.gpu_speeds
        has_gpus = GPU in nodes.axis.names
        column = nodes.axis.names.index(GPU) if has_gpus else 0
        self._gpus = nodes.allocatable[:, column] * has_gpus
        self._is_one_model = len(np.unique(self._of_node[self._gpus > 0])) <= 1

    def of(self, running: RunningGang) -> float:
        """Return the speed of its slowest GPU relative to the mean of the GPUs that it allows."""
        if self._is_one_model:
            return 1.0
        tasks = {task.name: task for task in running.gang.tasks if dict(task.request).get(GPU)}
        own_speeds, allowed = [], np.zeros(len(self._nodes), dtype=np.bool_)
        for places in running.placement.tasks:
            if places.task in tasks:
                own_speeds.append(float(self._of_node[places.rows].min()))
                allowed |= feasible(tasks[places.task].constraints, self._nodes)
        weights = self._gpus * allowed
        if not own_speeds or not weights.any():
            return 1.0
        return min(own_speeds) / float(np.average(self._of_node, weights=weights))
