"""Play: a snapshot played forward with the same cycle, by a policy.

From the decision of a cycle on, time goes on from one expected end to the next. There the gangs
that are due leave, and :func:`~bireme.core.cycle.run_cycle` decides on those that still wait, with
the policy given. These are the rules:

*   How long gangs run, a :class:`Course` says. By default a running gang ends when a reservation
    counts on it (:meth:`~bireme.core.running.RunningGang.expected_end`), for the gang that has the
    reservation. So one without an estimate, by its owner or by the history of run times, may end at
    any moment and counts as ending now. A gang that starts in the play runs for as long as its
    estimate, or ends at once without one. A start that rests on such gangs alone is foreseen at
    once. A gang that is stopped leaves at once, waits again, and later runs for its whole estimate.
*   Nobody arrives, nothing fails, node pools do not grow, and run times are as the course has them.
*   Volumes that pods of a node share take no place of it.
*   By default no time is a decision of its own, and the play stops when all have started: a wait
    bound that passes, or service that takes a step, counts from the next end on. So a stop for
    service is foreseen late. With a course given it is: the cycle runs too when a wait bound or a
    minimum run time passes and when a resize has settled, and while somebody waits or is elastic a
    minute after whatever happened last, then after twice as long each time. It goes on until all
    have ended.

**It is bounded.** Steps grow with how far ahead they are: what ends within one step, a share
``coarseness`` of the time ahead or ``least_step_seconds``, ends together, at the last of the ends
known when the step begins or, if it came later, at the end of the step. So an end counts as late by
a step at most. No step passes the moment of the first decision's reservation. There are at most two
moments to a step, and so a number logarithmic in the horizon, whatever the number of gangs; at one
moment there are several cycles only where gangs are stopped, or end at once. The play stops at the
horizon, or after ``cycles``.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import numpy as np

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold, Preempt, Resize, Vacate
from bireme.core.gangs import Gang, Key
from bireme.core.placement import Placement, pods_at, usage_of
from bireme.core.policy import Policy
from bireme.core.quotas import Quota
from bireme.core.reasons import Reason
from bireme.core.resources import Amounts, IntArray
from bireme.core.running import RunningGang, RunningTable
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import moment_at, moment_past

_BEAT_SECONDS: Final = 60.0
"""While time alone may change a decision, the cycle runs so long after the last event."""


class Cut(StrEnum):
    """Why a play goes no further."""

    ALL_STARTED = "AllStarted"
    NOTHING_ENDS = "NothingEnds"
    """What still waits would wait on, though all that runs had ended."""
    HORIZON = "Horizon"
    CYCLES = "Cycles"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far, and how finely, a play goes.

    Attributes:
        horizon_seconds: Nothing later is foreseen.
        cycles: The most cycles that are played.
        coarseness: Share of the time ahead within which ends count as one; 0 for each by itself.
        least_step_seconds: Ends within so long count as one, however near they are.
    """

    horizon_seconds: float = 30 * 86_400.0
    cycles: int = 512
    coarseness: float = 0.03
    least_step_seconds: float = 10.0


USUAL: Final = Bounds()


class Course(Protocol):
    """What becomes of the work of gangs: told what happens to each, it says when it ends.

    It is of one play. Ends are POSIX seconds.
    """

    def found(self, running: RunningGang, now: float) -> float:
        """Return when a gang ends that runs when the play begins."""
        ...

    def started(self, running: RunningGang, now: float) -> float:
        """Return when a gang ends that starts now."""
        ...

    def resized(
        self, before: RunningGang, after: RunningGang, now: float
    ) -> tuple[RunningGang, float | None]:
        """Return a gang that changes its size or places as it is from now on, and when it ends.

        None leaves it to end when it did.
        """
        ...

    def stopped(self, running: RunningGang, now: float) -> Gang:
        """Return a gang that loses its places now, with what is known of its work."""
        ...


@dataclass(frozen=True, slots=True)
class _Expected:
    """Every start lasts as long as a gang that is blocked since ``since`` may expect."""

    since: float

    def found(self, running: RunningGang, now: float) -> float:
        return running.expected_end(now, self.since)

    started = found

    def resized(
        self, before: RunningGang, after: RunningGang, now: float
    ) -> tuple[RunningGang, float | None]:
        return after, None

    def stopped(self, running: RunningGang, now: float) -> Gang:
        return running.gang


class Play:
    """A snapshot played forward: iterated, the moments of it, each with the decision made then.

    The first is the decision that it begins with, at the moment of the snapshot. ``policy`` is
    asked as in a cycle, so it must not learn from being asked. With a ``course`` it goes on until
    all have ended, and time alone is a reason to decide.

    Attributes:
        until: How far it has come, POSIX seconds.
        cycles: How many cycles were played so far.
        cut: Why it goes no further; Cycles while it could.
        ended: When gangs ended that have, by uid, POSIX seconds. A gang that is being stopped as
            the play begins does not end by that.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        policy: Policy,
        bounds: Bounds = USUAL,
        course: Course | None = None,
    ) -> None:
        self._snapshot, self._decision = snapshot, decision
        # Most plays know no speeds, so that a move would only cost.
        self._policy = replace(policy, may_move=False)
        self._bounds, self._course = bounds, course
        self.until = snapshot.now
        self.cycles = 0
        self.cut = Cut.CYCLES
        self.ended: Mapping[str, float] = {}

    @property
    def reach(self) -> float:
        """Until when nothing happens that is not known, POSIX seconds; infinity for ever."""
        match self.cut:
            case Cut.CYCLES:
                return self.until
            case Cut.HORIZON:
                return self._snapshot.now + self._bounds.horizon_seconds
            case Cut.ALL_STARTED | Cut.NOTHING_ENDS:
                return math.inf

    def __iter__(self) -> Iterator[tuple[float, Decision]]:
        snapshot, bounds, told = self._snapshot, self._bounds, self._decision
        blocked = next((hold for hold in told.held if hold.reservation is not None), None)
        world = _World(snapshot, blocked, self._course)
        self.ended = world.ended
        while True:
            yield world.now, told
            world.apply(told)
            if not world.may_change:
                self.cut = Cut.ALL_STARTED
                world.let_all_end()
                return
            moment = world.next_moment(told, bounds)
            if moment is None:
                self.cut = Cut.NOTHING_ENDS
                return
            if moment > snapshot.now + bounds.horizon_seconds:
                self.cut = Cut.HORIZON
                return
            if self.cycles >= bounds.cycles:
                return
            world.advance(moment)
            told = run_cycle(world.snapshot(), self._policy, explain=False)
            self.until = world.now
            self.cycles += 1


# --- the cluster that is played forward ---


@dataclass(frozen=True, slots=True)
class _Held:
    """What a gang gives back when it leaves."""

    rows: IntArray
    usage: IntArray
    gang: Gang


class _World:
    """A cluster in which time goes on; ``snapshot`` itself is left as it is."""

    def __init__(
        self, snapshot: ClusterSnapshot, blocked: Hold | None, course: Course | None
    ) -> None:
        """Play ``snapshot`` on; ``blocked`` is the gang with the reservation."""
        self._base = snapshot
        self._began = self.now = snapshot.now
        self._is_timed = course is not None
        # When others end is asked once for all gangs, and answered as for the first of them.
        since = -math.inf if blocked is None else blocked.gang.arrived
        self._course = course or _Expected(since)
        reservation = None if blocked is None else blocked.reservation
        self._reserved = -math.inf if reservation is None else reservation.expected
        self._step_ends = -math.inf
        self._used = snapshot.used.copy()
        self._usage = {name: dict(held) for name, held in snapshot.queue_usage.items()}
        self._quotas: dict[Key, Quota] = dict(snapshot.quotas)
        self._occupants = snapshot.occupants
        self._axis = snapshot.nodes.axis
        self.waiting = {gang.uid: gang for gang in snapshot.waiting}
        self._running = {each.gang.uid: each for each in snapshot.running}
        self._held = {uid: [self._held_by(each)] for uid, each in self._running.items()}
        self._ends: list[tuple[float, str]] = []
        """A heap; an entry is stale where its gang has left or ends at another time."""
        self._end: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        for each in snapshot.running:
            self._set_end(each.gang.uid, self._course.found(each, self.now))
        windows = snapshot.nodes.windows.values()
        self._windows = sorted({m for w in windows for m in (w.begins, w.ends) if m > self.now})
        self._wakes: list[float] = []
        """A heap of moments at which time alone may change a decision."""
        self._pause = _BEAT_SECONDS
        self._is_news = False
        if self._is_timed:
            for gang in snapshot.waiting:
                self._wake_at_bound(gang)
            for each in snapshot.running:
                self._wake_of(each)

    @property
    def may_change(self) -> bool:
        """True while a decision could still do anything that the play is about."""
        return bool(self.waiting) or (self._is_timed and self._has_elastic)

    @property
    def _has_elastic(self) -> bool:
        return any(each.gang.is_elastic for each in self._running.values())

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is by now."""
        table = RunningTable.of(self._running.values(), self._axis)
        return replace(
            self._base,
            now=self.now,
            used=self._used.copy(),
            waiting=tuple(self.waiting.values()),
            queue_usage={name: dict(held) for name, held in self._usage.items()},
            running=table.gangs,
            known_table=table,
            growable=(),  # when new nodes would come, nobody knows
            quotas=dict(self._quotas),
            occupants=self._occupants,
        )

    def _held_by(self, running: RunningGang) -> _Held:
        return _Held(*running.usage(self._axis), running.current)

    def _set_end(self, uid: str, end: float) -> None:
        if self._end.get(uid) != end:
            self._end[uid] = end
            heapq.heappush(self._ends, (end, uid))

    def _wake_at_bound(self, gang: Gang) -> None:
        if self._is_timed:
            self._wake(moment_past(gang.arrived, self._base.overdue_after_seconds(gang)))

    def _wake_of(self, running: RunningGang) -> None:
        """Decide again when ``running`` may be stopped, and when its last resize has settled."""
        if not self._is_timed:
            return
        settings, own = self._base.settings, running.gang.min_runtime_seconds
        if settings.preemption:
            least = settings.min_runtime_seconds if own is None else own
            least = min(least, self._base.max_min_runtime_seconds(running.gang))
            self._wake(moment_at(running.started, least))
        if running.gang.is_elastic:
            self._wake(moment_at(running.resized, settings.resize_settle_seconds))

    def _wake(self, moment: float) -> None:
        if moment > self.now:
            heapq.heappush(self._wakes, moment)

    # --- time ---

    def next_moment(self, decision: Decision, bounds: Bounds) -> float | None:
        """Return when to decide again, POSIX seconds; None where nothing is left to happen."""
        if decision.preempted or decision.vacated:
            return self.now  # their places are free
        shrunk = any(each.reason is Reason.SHRUNK for each in decision.resized)
        if self._is_timed and (shrunk or any(a.gang.is_elastic for a in decision.admitted)):
            return self.now  # likewise; and who has just started may grow
        while self._ends and self._end.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        coming = [self._ends[0][0]] if self._ends else []
        coming += [moment for moment in self._windows if moment > self.now][:1]
        coming += self._wakes[:1]
        if not coming:
            return None
        is_news = self._is_news or bool(decision.admitted or decision.resized)
        self._pause = _BEAT_SECONDS if is_news else 2 * self._pause
        if self._base.settings.preemption:
            coming.append(decision.next_stop(self.now))
        if self._is_timed and (self._base.settings.preemption or self._has_elastic):
            coming.append(self.now + self._pause)
        first = max(self.now, min(coming))
        if first <= self.now or not bounds.coarseness:
            return first
        if first <= self._step_ends:
            # What has started in this step and soon ends would cost a cycle each.
            return self._step_ends
        step = max(bounds.coarseness * (first - self._began), bounds.least_step_seconds)
        self._step_ends = last = first + step
        if first <= self._reserved <= last:
            self._step_ends = last = self._reserved  # the first gang's start is foreseen exactly
        # Nothing waits for the end of a step in which nothing else happens.
        within = [end for end, uid in self._ends if end <= last and self._end.get(uid) == end]
        within += [moment for moment in self._wakes if moment <= last]
        return max([first, *within])

    def advance(self, moment: float) -> None:
        """Let time go on to ``moment``, and those that are due by then leave."""
        self._is_news = False
        self.now = moment
        while self._ends and self._ends[0][0] <= moment:
            end, uid = heapq.heappop(self._ends)
            if self._end.get(uid) == end:
                self._is_news = True
                self._note_end(uid, end)
                self._leave(uid)
        while self._wakes and self._wakes[0] <= moment:
            self._is_news = True
            heapq.heappop(self._wakes)

    def let_all_end(self) -> None:
        """Let all that run end when they do; nothing else happens any more."""
        for uid, end in self._end.items():
            self._note_end(uid, end)

    def _note_end(self, uid: str, end: float) -> None:
        if not self._running[uid].is_leaving:
            self.ended[uid] = end

    # --- what happens ---

    def apply(self, decision: Decision) -> None:
        """Carry ``decision`` out at once. Gangs that stop make room first."""
        for action in decision.actions:
            match action:
                case Preempt() | Vacate():
                    self._stop(action.gang.uid, is_preempted=isinstance(action, Preempt))
                case Resize():
                    self._resize(action)
                case Hold():
                    self._park(action)
        for admit in decision.admitted:
            self._start(admit)

    def _start(self, admit: Admit) -> None:
        uid = admit.gang.uid
        gang = self.waiting.pop(uid).in_line(self.now)
        held = _Held(*usage_of(admit.gang, admit.placement, self._axis), admit.gang)
        # Newcomers of a gang that runs already hold places beside it, and leave with it.
        self._held.setdefault(uid, []).append(held)
        self._take(held, admit.placement)
        if uid not in self._running:
            running = self._running[uid] = RunningGang(
                gang, admit.placement, self.now, is_opportunistic=admit.is_opportunistic
            )
            self._set_end(uid, self._course.started(running, self.now))
            self._wake_of(running)

    def _stop(self, uid: str, is_preempted: bool) -> None:
        running = self._running.get(uid)
        if running is None:
            return
        self._leave(uid)
        if running.is_leaving or uid in self.waiting:
            return
        ran, gang = running.elapsed_seconds(self.now), self._course.stopped(running, self.now)
        self.waiting[uid] = replace(
            gang,
            arrived=gang.arrived + ran,  # the time it ran does not count as wait
            interrupted=True,
            displaced=not is_preempted,
            evictions=gang.evictions + is_preempted,
            yields=gang.yields + (is_preempted and running.is_opportunistic),
            attained_seconds=gang.attained_seconds + ran,
        )
        self._wake_at_bound(self.waiting[uid])

    def _resize(self, action: Resize) -> None:
        uid = action.running.gang.uid
        before = self._running.get(uid)
        if before is None or len(self._held[uid]) != 1:
            return
        after = replace(before, placement=action.placement, resized=self.now, _used={})
        after, end = self._course.resized(before, after, self.now)
        self._free(self._held.pop(uid).pop())
        self._occupants = self._occupants.without([uid])
        held = self._held_by(after)
        self._running[uid], self._held[uid] = after, [held]
        self._take(held, after.placement)
        if end is not None:
            self._set_end(uid, end)
        self._wake_of(after)

    def _park(self, hold: Hold) -> None:
        # Who stands in no line does not wait meanwhile.
        uid = hold.gang.uid
        gang = self.waiting[uid]
        if hold.is_parked and gang.parked is None:
            self.waiting[uid] = replace(gang, parked=self.now)
        elif not hold.is_parked and gang.parked is not None:
            self.waiting[uid] = gang.in_line(self.now)
            self._wake_at_bound(self.waiting[uid])

    def _leave(self, uid: str) -> None:
        del self._running[uid], self._end[uid]
        for held in self._held.pop(uid):
            self._free(held)
        self._occupants = self._occupants.without([uid])

    def _take(self, held: _Held, placement: Placement) -> None:
        np.add.at(self._used, held.rows, held.usage)
        if pods := pods_at(held.gang, placement):
            self._occupants = self._occupants.plus(pods)
        self._charge(held.gang, 1)

    def _free(self, held: _Held) -> None:
        np.subtract.at(self._used, held.rows, held.usage)
        self._charge(held.gang, -1)

    def _charge(self, gang: Gang, times: int) -> None:
        self._usage[gang.queue] = _plus(self._usage.get(gang.queue, {}), gang.demand, times)
        for name, asked in gang.charges.items():
            quota = self._quotas.get((gang.namespace, name))
            if quota is not None:
                used = _plus(quota.used, asked, times)
                self._quotas[gang.namespace, name] = replace(quota, used=used)


def _plus(held: Amounts, amounts: Amounts, times: int) -> dict[str, int]:
    # Pods of a gang may be gone before it is, and then count nowhere: never below nothing.
    return {**held, **{n: max(0, held.get(n, 0) + times * a) for n, a in amounts.items()}}
