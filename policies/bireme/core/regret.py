"""Regret: what the active policy costs against a shadow, in the completion times of gangs.

From one snapshot the cluster is played forward twice (:mod:`bireme.core.play`), each time with
another policy deciding in every cycle: order, size, places and stops. The mean completion time of
the gangs known at that moment, waiting and running ones, is compared. It counts from that moment
on: what was before is the same for both.

**The work of a gang is the same in both plays**, whatever it is: nothing is compared but what the
policies make of it. It is counted in seconds at the size asked for, on usual GPUs:

*   A gang that runs would end, if nobody touched it, when its steps are done where its speed and
    steps are known, else when a reservation counts on it
    (:meth:`~bireme.core.running.RunningGang.expected_end`).
*   A gang that waits takes the time that its steps take where both are known, else its estimate, by
    its owner or by the history of run times.
*   A gang without any estimate takes as long as the median of those that have one, in all, or twice
    as long as it has run, whichever is more: from half of the median on it lasts as long again as
    it has lasted (the median of what is left under Pareto's law with exponent 1). Where no gang has
    an estimate, the median is that of twice the times run, else an hour.

**What decisions make of it:**

*   *Size and spread*: a gang runs as fast as its law says for its size and number of nodes
    (:mod:`bireme.core.speed`), steps at another batch size counted by what they are worth. Where no
    law is known, or it says that the gang could not run, a part of :data:`SERIAL_SHARE` of its time
    does not shorten with more replicas. Topology levels wider than a node are in no law, so that to
    be spread over racks costs nothing here.
*   *Places*: on other GPU models it runs as fast as the slowest of them, by
    :mod:`bireme.core.gpus`, relative to the mean over the GPUs of the nodes that it allows.
*   *Stops*: a gang that is stopped loses what it did since its last checkpoint and later begins
    with a restart; a change of size saves a checkpoint and costs a restart. Nothing tells when a
    gang writes checkpoints: :class:`Restarts` assumes it.
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
"""How far the plays of a comparison go. What comes later says little about the decision of now."""
_UNKNOWN_SECONDS: Final = 3600.0
_AMDAHL: Final = LinearSpeed(1.0, SERIAL_SHARE)


@dataclass(frozen=True, slots=True)
class Restarts:
    """What a stop costs; the assumptions of ``bireme benchmark``.

    Attributes:
        restart_seconds: From every start after the first, and from every resize, until work goes
            on.
        checkpoint_seconds: Checkpoints are so far apart, from the start on; 0 for no loss,
            infinity for none.
    """

    restart_seconds: float = 30.0
    checkpoint_seconds: float = 1800.0


USUAL_RESTARTS: Final = Restarts()


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment, played forward by the active policy and by the shadow.

    Attributes:
        active_seconds, shadow_seconds: Mean completion time of the gangs known at the moment, from
            it on.
        gangs: How many they are.
    """

    active_seconds: float
    shadow_seconds: float
    gangs: int = 1

    @property
    def regret_seconds(self) -> float:
        """How much longer the gangs take by the active policy; negative where they take less."""
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
) -> Sample | None:
    """Play ``snapshot`` forward by both policies, and return what becomes of its gangs.

    Where a play ends before its last gang has, by the bounds or because no time was left, a gang
    counts as ending when the shorter of both plays does, if it has not before (the restricted mean
    of survival analysis). Gangs that end in neither until then, such as those that can never start,
    are left out. None where none is left.

    The policies are asked as in a cycle, so they must not learn from being asked.
    """
    # Node pools do not grow in a play, so neither policy may count on it at the first moment.
    snapshot = replace(snapshot, growable=())
    plays = [_play(snapshot, policy, bounds, restarts) for policy in (active, shadow)]
    going = [(play, iter(play)) for play in plays]
    limit = math.inf
    while going and is_time_left():
        # The one that is behind goes on, so that both have come about as far where time runs out.
        behind = min(going, key=lambda each: each[0].until)
        if behind[0].until >= limit:
            break
        if next(behind[1], None) is None:
            going.remove(behind)
            limit = min(limit, behind[0].reach)
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
    return Sample(mine, other, len(uids))


def _play(snapshot: ClusterSnapshot, policy: Policy, bounds: Bounds, restarts: Restarts) -> Play:
    decision = run_cycle(snapshot, policy, explain=False)
    return Play(snapshot, decision, policy, bounds, Work(snapshot, restarts))


# --- work ---


@dataclass(slots=True)
class _Job:
    """A gang at work, or before it: ``left`` seconds of work, at ``rate`` from ``at`` on.

    Attributes:
        saved: What was left at the last checkpoint.
        began: From when on checkpoints are counted.
    """

    left: float
    rate: float = 1.0
    at: float = 0.0
    saved: float = 0.0
    began: float = 0.0
    has_run: bool = False

    @property
    def end(self) -> float:
        return self.at + self.left / self.rate

    def advance(self, now: float, checkpoint_seconds: float) -> None:
        """Work until ``now``."""
        if now <= self.at:  # it still starts up
            return
        saved_at = _last_checkpoint(self.began, now, checkpoint_seconds)
        if saved_at > self.at:
            self.saved = max(0.0, self.left - (saved_at - self.at) * self.rate)
        self.left = max(0.0, self.left - (now - self.at) * self.rate)
        self.at = now


def _last_checkpoint(began: float, now: float, apart_seconds: float) -> float:
    if apart_seconds <= 0:
        return now
    if math.isinf(apart_seconds):
        return began
    return began + math.floor((now - began) / apart_seconds) * apart_seconds


class Work:
    """The work of all gangs of a snapshot, in one play of it; a :class:`~bireme.core.play.Course`.

    See the module for what it assumes.
    """

    def __init__(self, snapshot: ClusterSnapshot, restarts: Restarts = USUAL_RESTARTS) -> None:
        self._snapshot, self._restarts = snapshot, restarts
        self._speeds = _GpuSpeeds(snapshot.nodes)
        self._typical = _typical_seconds(snapshot)
        self._jobs = {gang.uid: _Job(self._work_of(gang)) for gang in snapshot.waiting}

    # --- what is known when the play begins ---

    def _work_of(self, gang: Gang) -> float:
        """Return the work of a gang that waits."""
        pace = _pace_asked(gang)
        if pace is not None and gang.remaining_steps is not None:
            return max(0.0, gang.remaining_steps) / pace
        if gang.estimated_seconds is not None:
            return gang.estimated_seconds
        return self._guess(gang.attained_seconds)

    def _guess(self, attained_seconds: float) -> float:
        return max(self._typical - attained_seconds, attained_seconds)

    def found(self, running: RunningGang, now: float) -> float:
        if running.is_leaving:
            return now  # whatever it has left to do, it does later: it waits already or never
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
        job.saved = job.left + lost_seconds * rate
        self._jobs[gang.uid] = job
        return job.end

    # --- what happens ---

    def started(self, running: RunningGang, now: float) -> float:
        job = self._jobs[running.gang.uid]
        job.rate = self._rate(running)
        job.at = job.began = now + (self._restarts.restart_seconds if job.has_run else 0.0)
        job.saved, job.has_run = job.left, True
        return job.end

    def resized(
        self, before: RunningGang, after: RunningGang, now: float
    ) -> tuple[RunningGang, float]:
        job = self._jobs[before.gang.uid]
        job.advance(now, self._restarts.checkpoint_seconds)
        job.saved = job.left
        job.at = max(job.at, now + self._restarts.restart_seconds)
        job.rate = self._rate(after)
        return replace(after, gang=_with_steps(after.gang, job.left), _used={}), job.end

    def stopped(self, running: RunningGang, now: float) -> Gang:
        job = self._jobs[running.gang.uid]
        job.advance(now, self._restarts.checkpoint_seconds)
        job.left = job.saved
        return _with_steps(running.gang, job.left)

    def _rate(self, running: RunningGang) -> float:
        """Return the work that ``running`` does in a second."""
        gang, sizes = running.gang, running.sizes
        if not sizes:
            return 1.0  # all its nodes are gone, and it will be stopped
        asked = {task.name: task.replicas for task in gang.tasks}
        pace, usual = _pace(gang, sizes, _nodes_of(running)), _pace_asked(gang)
        if pace is None or usual is None:
            pace, usual = (_AMDAHL.steps_per_second(each, 1) for each in (sizes, asked))
        return pace / usual * self._speeds.of(running)


def _typical_seconds(snapshot: ClusterSnapshot) -> float:
    gangs = [*snapshot.waiting, *(each.gang for each in snapshot.running)]
    known = [g.estimated_seconds for g in gangs if g.estimated_seconds is not None]
    known = known or [2 * each for g in gangs if (each := snapshot.attained_seconds(g)) > 0]
    return statistics.median(known) if known else _UNKNOWN_SECONDS


def _nodes_of(running: RunningGang) -> int:
    return len(running.placement.node_rows())


def _pace_asked(gang: Gang) -> float | None:
    # As estimates have it (bireme.core.estimates): at that size, on one node.
    return _pace(gang, {task.name: task.replicas for task in gang.tasks}, 1)


def _pace(gang: Gang, sizes: Mapping[str, int], nodes: int) -> float | None:
    """Return the steps a second, each by its worth; None where no law gives any."""
    law = gang.speed
    if law is None:
        return None
    pace = law.steps_per_second(sizes, nodes)
    if isinstance(law, EfficiencyLaw):
        pace *= law.statistical_efficiency(sizes)
    return pace if pace > 0 else None


def _with_steps(gang: Gang, left: float) -> Gang:
    """Return ``gang`` with the steps done and left that go with the work ``left``."""
    steps, pace = gang.remaining_steps, _pace_asked(gang)
    if steps is None or pace is None:
        return gang
    now = left * pace
    return replace(gang, remaining_steps=now, done_steps=max(0.0, gang.done_steps + steps - now))


class _GpuSpeeds:
    """How fast the GPUs of nodes are."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._of_node = nodes.gpu_speeds
        has_gpus = GPU in nodes.axis.names
        column = nodes.axis.names.index(GPU) if has_gpus else 0
        self._gpus = nodes.allocatable[:, column] * has_gpus
        self._is_one_model = len(np.unique(self._of_node[self._gpus > 0])) <= 1

    def of(self, running: RunningGang) -> float:
        """Return the speed of its slowest GPU relative to the mean of those it might have had."""
        if self._is_one_model:
            return 1.0
        tasks = {task.name: task for task in running.gang.tasks if dict(task.request).get(GPU)}
        own, allowed = [], np.zeros(len(self._nodes), dtype=np.bool_)
        for places in running.placement.tasks:
            if places.task in tasks:
                own.append(float(self._of_node[places.rows].min()))
                allowed |= feasible(tasks[places.task].constraints, self._nodes)
        weights = self._gpus * allowed
        if not own or not weights.any():
            return 1.0
        return min(own) / float(np.average(self._of_node, weights=weights))
