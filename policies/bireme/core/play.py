"""Play: a policy plays a snapshot forward with the same cycle.

From the decision of a cycle on, time advances from one expected end to the next. There the gangs
that are due leave, and :func:`~bireme.core.cycle.run_cycle` decides on the waiting gangs with the
given policy. These are the rules:

*   A :class:`WorkModel` determines how long gangs run. By default a running gang ends when a
    reservation counts on it (:meth:`~bireme.core.running.RunningGang.expected_end`), for the gang
    that has the reservation. A gang without an estimate, by its owner or by the history of run
    times, may end at any moment and counts as ending now. A gang that starts in the play runs for
    its estimate, or ends at once without one. A start that depends only on such gangs is foreseen
    at once. A stopped gang leaves at once, waits again, and later runs for its whole estimate.
*   No gang arrives, nothing fails, node pools do not grow, and the course's run times are exact.
*   Volumes that pods of a node share take no place of it.
*   By default time alone causes no decision, and the play ends when all have started. A wait bound
    that passes, or service that takes a step, counts from the next end on, so a stop for service is
    foreseen late. With a given course it is not. The cycle then also runs when a wait bound or a
    minimum run time passes, and when a resize has settled. While a gang waits or is elastic, it
    also runs a minute after the last event, then after twice as long each time. The play goes on
    until all have ended.

**It is bounded.** Steps grow with their distance in time. A step is a share ``coarseness`` of the
time ahead, or ``least_step_seconds``. Ends within one step coincide at the last of the ends that
are known when the step begins, or at the end of the step if new ends came later. So an end is late
by at most one step. No step passes the moment of the first decision's reservation. A step has at
most two moments, so their number is logarithmic in the horizon, whatever the number of gangs.
Several cycles at one moment occur only where gangs are stopped, or end at once. The play stops at
the horizon, or after ``cycles``.
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
"""Interval from the last event to a cycle, while time alone may change a decision."""


class Cut(StrEnum):
    """Why a play ends."""

    ALL_STARTED = "AllStarted"
    NOTHING_ENDS = "NothingEnds"
    """The rest cannot start even on an empty cluster."""
    HORIZON = "Horizon"
    CYCLES = "Cycles"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far, and how finely, a play goes.

    Attributes:
        horizon_seconds: Nothing later is foreseen.
        cycles: The limit on played cycles.
        coarseness: Share of the time ahead within which ends coincide; 0 keeps each apart.
        least_step_seconds: Ends within this time coincide, however near they are.
    """

    horizon_seconds: float = 30 * 86_400.0
    cycles: int = 512
    coarseness: float = 0.03
    least_step_seconds: float = 10.0


USUAL: Final = Bounds()


class WorkModel(Protocol):
    """The work of gangs in one play: it learns the events of each gang and returns its end.

    Ends are POSIX seconds.
    """

    def end_of_running(self, running: RunningGang, now: float) -> float:
        """Return when a gang ends that runs as the play begins."""
        ...

    def end_of_new(self, running: RunningGang, now: float) -> float:
        """Return when a gang ends that starts now."""
        ...

    def resize(
        self, old: RunningGang, new: RunningGang, now: float
    ) -> tuple[RunningGang, float | None]:
        """Return a gang after a change of size or places now, and when it ends.

        None keeps its previous end.
        """
        ...

    def stop(self, running: RunningGang, now: float) -> Gang:
        """Return a gang that loses its places now, with the known state of its work."""
        ...


@dataclass(frozen=True, slots=True)
class _Expected:
    """Every start lasts as long as a gang that is blocked since ``since`` may expect."""

    since: float

    def end_of_running(self, running: RunningGang, now: float) -> float:
        return running.expected_end(now, self.since)

    end_of_new = end_of_running

    def resize(
        self, old: RunningGang, new: RunningGang, now: float
    ) -> tuple[RunningGang, float | None]:
        return new, None

    def stop(self, running: RunningGang, now: float) -> Gang:
        return running.gang


class Play:
    """A snapshot played forward: iteration yields its moments, each with the decision made then.

    The first is the given decision, at the moment of the snapshot. ``policy`` decides as in a
    cycle, so it must not learn from these calls. With a ``course`` the play goes on until all have
    ended, and time alone causes decisions.

    Attributes:
        until: The present time of the play, POSIX seconds.
        cycles: The number of cycles so far.
        cut: Why it ends; Cycles while it could go on.
        ended: When gangs ended, by uid, POSIX seconds. A gang that is stopping as the play begins
            does not end by that.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        policy: Policy,
        bounds: Bounds = USUAL,
        course: WorkModel | None = None,
    ) -> None:
        self._snapshot, self._decision = snapshot, decision
        # Most plays know no speeds, so a move would only cost.
        self._policy = replace(policy, may_move=False)
        self._bounds, self._course = bounds, course
        self.until = snapshot.now
        self.cycles = 0
        self.cut = Cut.CYCLES
        self.ended: Mapping[str, float] = {}

    @property
    def reach(self) -> float:
        """Time before which nothing unknown happens, POSIX seconds; infinity if never."""
        match self.cut:
            case Cut.CYCLES:
                return self.until
            case Cut.HORIZON:
                return self._snapshot.now + self._bounds.horizon_seconds
            case Cut.ALL_STARTED | Cut.NOTHING_ENDS:
                return math.inf

    def __iter__(self) -> Iterator[tuple[float, Decision]]:
        snapshot, bounds, decision = self._snapshot, self._bounds, self._decision
        blocked = next((hold for hold in decision.held if hold.reservation is not None), None)
        world = _World(snapshot, blocked, self._course)
        self.ended = world.ended
        while True:
            yield world.now, decision
            world.apply(decision)
            if not world.may_change:
                self.cut = Cut.ALL_STARTED
                world.let_all_end()
                return
            moment = world.next_moment(decision, bounds)
            if moment is None:
                self.cut = Cut.NOTHING_ENDS
                return
            if moment > snapshot.now + bounds.horizon_seconds:
                self.cut = Cut.HORIZON
                return
            if self.cycles >= bounds.cycles:
                return
            world.advance(moment)
            decision = run_cycle(world.snapshot(), self._policy, explain=False)
            self.until = world.now
            self.cycles += 1


# --- the cluster that is played forward ---


@dataclass(frozen=True, slots=True)
class _GangUsage:
    """The usage that a gang frees when it leaves."""

    rows: IntArray
    usage: IntArray
    gang: Gang


class _World:
    """A cluster in which time advances; ``snapshot`` itself stays unchanged."""

    def __init__(
        self, snapshot: ClusterSnapshot, blocked: Hold | None, course: WorkModel | None
    ) -> None:
        """Play ``snapshot`` on; ``blocked`` is the gang with the reservation."""
        self._base = snapshot
        self._began = self.now = snapshot.now
        self._is_timed = course is not None
        # The ends of others are computed once for all gangs, as for the first blocked gang.
        since = -math.inf if blocked is None else blocked.gang.arrived
        self._course = course or _Expected(since)
        reservation = None if blocked is None else blocked.reservation
        self._reserved = -math.inf if reservation is None else reservation.expected
        self._step_ends = -math.inf
        self._used = snapshot.used.copy()
        self._usage = {name: dict(amounts) for name, amounts in snapshot.queue_usage.items()}
        self._quotas: dict[Key, Quota] = dict(snapshot.quotas)
        self._occupants = snapshot.occupants
        self._axis = snapshot.nodes.axis
        self.waiting = {gang.uid: gang for gang in snapshot.waiting}
        self._running = {running.gang.uid: running for running in snapshot.running}
        self._holdings = {uid: [self._usage_of(running)] for uid, running in self._running.items()}
        self._ends: list[tuple[float, str]] = []
        """A heap; an entry is stale if its gang has left or ends at another time."""
        self._end: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        for running in snapshot.running:
            self._set_end(running.gang.uid, self._course.end_of_running(running, self.now))
        windows = snapshot.nodes.windows.values()
        self._windows = sorted({m for w in windows for m in (w.begins, w.ends) if m > self.now})
        self._wakes: list[float] = []
        """A heap of moments at which time alone may change a decision."""
        self._pause = _BEAT_SECONDS
        self._is_news = False
        if self._is_timed:
            for gang in snapshot.waiting:
                self._wake_at_bound(gang)
            for running in snapshot.running:
                self._wake_of(running)

    @property
    def may_change(self) -> bool:
        """True while a decision could still change the result of the play."""
        return bool(self.waiting) or (self._is_timed and self._has_elastic)

    @property
    def _has_elastic(self) -> bool:
        return any(running.gang.is_elastic for running in self._running.values())

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster at the present moment."""
        table = RunningTable.of(self._running.values(), self._axis)
        return replace(
            self._base,
            now=self.now,
            used=self._used.copy(),
            waiting=tuple(self.waiting.values()),
            queue_usage={name: dict(amounts) for name, amounts in self._usage.items()},
            running=table.gangs,
            known_table=table,
            growable=(),  # nobody knows when new nodes would come
            quotas=dict(self._quotas),
            occupants=self._occupants,
        )

    def _usage_of(self, running: RunningGang) -> _GangUsage:
        return _GangUsage(*running.usage(self._axis), running.current)

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
        settings, own_seconds = self._base.settings, running.gang.min_runtime_seconds
        if settings.preemption:
            min_seconds = settings.min_runtime_seconds if own_seconds is None else own_seconds
            min_seconds = min(min_seconds, self._base.max_min_runtime_seconds(running.gang))
            self._wake(moment_at(running.started, min_seconds))
        if running.gang.is_elastic:
            self._wake(moment_at(running.resized, settings.resize_settle_seconds))

    def _wake(self, moment: float) -> None:
        if moment > self.now:
            heapq.heappush(self._wakes, moment)

    # --- time ---

    def next_moment(self, decision: Decision, bounds: Bounds) -> float | None:
        """Return when to decide again, POSIX seconds; None if no events remain."""
        if decision.preempted or decision.vacated:
            return self.now  # their places are free
        shrunk = any(resize.reason is Reason.SHRUNK for resize in decision.resized)
        if self._is_timed and (shrunk or any(a.gang.is_elastic for a in decision.admitted)):
            return self.now  # likewise; a gang that has just started may grow
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
            # Gangs that start and soon end within this step would cost a cycle each.
            return self._step_ends
        step = max(bounds.coarseness * (first - self._began), bounds.least_step_seconds)
        self._step_ends = last = first + step
        if first <= self._reserved <= last:
            self._step_ends = last = self._reserved  # the first gang's start is foreseen exactly
        # A step without further events ends early.
        within = [end for end, uid in self._ends if end <= last and self._end.get(uid) == end]
        within += [moment for moment in self._wakes if moment <= last]
        return max([first, *within])

    def advance(self, moment: float) -> None:
        """Advance time to ``moment``, and let gangs leave that are due by then."""
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
        """Let all running gangs end at their times; nothing else happens any more."""
        for uid, end in self._end.items():
            self._note_end(uid, end)

    def _note_end(self, uid: str, end: float) -> None:
        if not self._running[uid].is_leaving:
            self.ended[uid] = end

    # --- events ---

    def apply(self, decision: Decision) -> None:
        """Execute ``decision`` at once. Gangs that stop make room first."""
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
        usage = _GangUsage(*usage_of(admit.gang, admit.placement, self._axis), admit.gang)
        # New pods of a gang that runs already hold places beside it, and leave with it.
        self._holdings.setdefault(uid, []).append(usage)
        self._take(usage, admit.placement)
        if uid not in self._running:
            running = self._running[uid] = RunningGang(
                gang, admit.placement, self.now, is_opportunistic=admit.is_opportunistic
            )
            self._set_end(uid, self._course.end_of_new(running, self.now))
            self._wake_of(running)

    def _stop(self, uid: str, is_preempted: bool) -> None:
        running = self._running.get(uid)
        if running is None:
            return
        self._leave(uid)
        if running.is_leaving or uid in self.waiting:
            return
        ran, gang = running.elapsed_seconds(self.now), self._course.stop(running, self.now)
        self.waiting[uid] = replace(
            gang,
            arrived=gang.arrived + ran,  # its run time does not count as waiting time
            interrupted=True,
            displaced=not is_preempted,
            evictions=gang.evictions + is_preempted,
            yields=gang.yields + (is_preempted and running.is_opportunistic),
            attained_seconds=gang.attained_seconds + ran,
        )
        self._wake_at_bound(self.waiting[uid])

    def _resize(self, action: Resize) -> None:
        uid = action.running.gang.uid
        old = self._running.get(uid)
        if old is None or len(self._holdings[uid]) != 1:
            return
        new = replace(old, placement=action.placement, resized=self.now, _used={})
        new, end = self._course.resize(old, new, self.now)
        self._free(self._holdings.pop(uid).pop())
        self._occupants = self._occupants.without([uid])
        usage = self._usage_of(new)
        self._running[uid], self._holdings[uid] = new, [usage]
        self._take(usage, new.placement)
        if end is not None:
            self._set_end(uid, end)
        self._wake_of(new)

    def _park(self, hold: Hold) -> None:
        # A parked gang does not wait meanwhile.
        uid = hold.gang.uid
        gang = self.waiting[uid]
        if hold.is_parked and gang.parked is None:
            self.waiting[uid] = replace(gang, parked=self.now)
        elif not hold.is_parked and gang.parked is not None:
            self.waiting[uid] = gang.in_line(self.now)
            self._wake_at_bound(self.waiting[uid])

    def _leave(self, uid: str) -> None:
        del self._running[uid], self._end[uid]
        for usage in self._holdings.pop(uid):
            self._free(usage)
        self._occupants = self._occupants.without([uid])

    def _take(self, usage: _GangUsage, placement: Placement) -> None:
        np.add.at(self._used, usage.rows, usage.usage)
        if pods := pods_at(usage.gang, placement):
            self._occupants = self._occupants.plus(pods)
        self._charge(usage.gang, 1)

    def _free(self, usage: _GangUsage) -> None:
        np.subtract.at(self._used, usage.rows, usage.usage)
        self._charge(usage.gang, -1)

    def _charge(self, gang: Gang, times: int) -> None:
        self._usage[gang.queue] = _plus(self._usage.get(gang.queue, {}), gang.demand, times)
        for name, amounts in gang.charges.items():
            quota = self._quotas.get((gang.namespace, name))
            if quota is not None:
                used = _plus(quota.used, amounts, times)
                self._quotas[gang.namespace, name] = replace(quota, used=used)


def _plus(totals: Amounts, amounts: Amounts, times: int) -> dict[str, int]:
    # Pods of a gang may be gone before it is, and then count nowhere: never below zero.
    return {**totals, **{n: max(0, totals.get(n, 0) + times * a) for n, a in amounts.items()}}
