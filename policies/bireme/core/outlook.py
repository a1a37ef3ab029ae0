"""Outlook: when every waiting gang should start, by playing a snapshot forward with the same cycle.

From the decision of a cycle on, time goes on from one expected end to the next. There the gangs
that are due leave, and :func:`~bireme.core.cycle.run_cycle` decides on those that still wait, with
the policy in force. What it then admits is foreseen to start at that moment. These are the rules:

*   A running gang ends when a reservation counts on it
    (:meth:`~bireme.core.running.RunningGang.expected_end`), for the gang that has the reservation.
    So one without an estimate, by its owner or by the history of run times, may end at any moment
    and counts as ending now. A gang that starts in the play runs for as long as its estimate, or
    ends at once without one. A start that rests on such gangs alone is foreseen at once.
*   A gang that is stopped leaves at once, waits again, and later runs for its whole estimate.
*   Nobody arrives, nothing fails, node pools do not grow, and estimates are right.
*   Volumes that pods of a node share take no place of it.
*   No time is a decision of its own: a wait bound that passes, or service that takes a step, counts
    from the next end on. So a stop for service is foreseen late.

**It is bounded.** Steps grow with how far ahead they are: what ends within one step, a share
``coarseness`` of the time ahead or ``least_step_seconds``, ends together, at the last of the ends
known when the step begins or, if it came later, at the end of the step. So an end counts as late by
a step at most. No step passes the moment of the first decision's reservation. There are at most two
moments to a step, and so a number logarithmic in the horizon, whatever the number of gangs; at one
moment there are several cycles only where gangs are stopped, or end at once. The play stops at the
horizon, or after ``cycles``. Gangs that were not reached by then have a position and no start.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

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


class Cut(StrEnum):
    """Why an outlook goes no further."""

    ALL_STARTED = "AllStarted"
    NOTHING_ENDS = "NothingEnds"
    """What still waits would wait on, though all that runs had ended."""
    HORIZON = "Horizon"
    CYCLES = "Cycles"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far, and how finely, an outlook goes.

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


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is foreseen for a gang that waits.

    Attributes:
        position: Its number in the order of the decision, from 1; None where it stands in no line,
            because to wait longer cannot help it.
        reason: What it waits for; None where the cycle had no time to decide on it.
        start: When it should start, POSIX seconds; None where that was not foreseen.
    """

    gang: Gang
    position: int | None
    reason: Reason | None
    start: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """The prospects of all waiting gangs, in order of their position, those without one last.

    Attributes:
        now: The moment of the snapshot, POSIX seconds.
        until: How far it reaches, POSIX seconds.
        cycles: How many cycles were played.
        cut: Why it goes no further.
    """

    now: float
    until: float
    prospects: tuple[Prospect, ...]
    cycles: int
    cut: Cut


class Play:
    """A snapshot played forward: iterated, the moments of it, each with the decision made then.

    The first is the decision that it begins with, at the moment of the snapshot. ``policy`` is
    asked as in a cycle, so it must not learn from being asked.

    Attributes:
        until: How far it has come, POSIX seconds.
        cycles: How many cycles were played so far.
        cut: Why it goes no further; Cycles while it could.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        decision: Decision,
        policy: Policy,
        bounds: Bounds = Bounds(),
    ) -> None:
        self._snapshot, self._decision = snapshot, decision
        self._policy, self._bounds = policy, bounds
        self.until = snapshot.now
        self.cycles = 0
        self.cut = Cut.CYCLES

    def __iter__(self) -> Iterator[tuple[float, Decision]]:
        snapshot, bounds, told = self._snapshot, self._bounds, self._decision
        world = _World(snapshot, next((h for h in told.held if h.reservation is not None), None))
        while True:
            yield world.now, told
            world.apply(told)
            if not world.waiting:
                self.cut = Cut.ALL_STARTED
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


def look_ahead(
    snapshot: ClusterSnapshot,
    decision: Decision,
    policy: Policy,
    bounds: Bounds = Bounds(),
) -> Outlook:
    """Return when the gangs that ``decision``, made on ``snapshot``, leaves waiting should start.

    ``policy`` is asked as in a cycle, so it must not learn from being asked.
    """
    play, starts = Play(snapshot, decision, policy, bounds), dict[str, float]()
    for moment, told in play:
        for admit in told.admitted:
            starts.setdefault(admit.gang.uid, moment)  # the first, if it is stopped again
    return Outlook(snapshot.now, play.until, _prospects(decision, starts), play.cycles, play.cut)


def _prospects(decision: Decision, starts: Mapping[str, float]) -> tuple[Prospect, ...]:
    held = [
        Prospect(hold.gang, hold.position, hold.reason, starts.get(hold.gang.uid))
        for hold in decision.held
    ]
    held.sort(key=lambda each: (each.position is None, each.position or 0, each.gang.uid))
    in_line = [each for each in held if each.position is not None]
    parked = held[len(in_line) :]
    # Those that the cycle had no time for come after those that it had.
    taken = {each.position for each in in_line}
    free = (n for n in range(1, len(in_line) + len(decision.unreached) + 1) if n not in taken)
    unreached = [
        Prospect(gang, next(free), None, starts.get(gang.uid)) for gang in decision.unreached
    ]
    in_line = sorted([*in_line, *unreached], key=lambda each: (each.position or 0, each.gang.uid))
    return (*in_line, *parked)


# --- the cluster that is played forward ---


@dataclass(frozen=True, slots=True)
class _Held:
    """What a gang gives back when it leaves."""

    rows: IntArray
    usage: IntArray
    gang: Gang


class _World:
    """A cluster in which time goes on; ``snapshot`` itself is left as it is."""

    def __init__(self, snapshot: ClusterSnapshot, blocked: Hold | None) -> None:
        """Play ``snapshot`` on; ``blocked`` is the gang with the reservation."""
        self._base = snapshot
        self._began = self.now = snapshot.now
        # When others end is asked once for all gangs, and answered as for the first of them.
        self._blocked_since = -math.inf if blocked is None else blocked.gang.arrived
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
        for each in snapshot.running:
            self._set_end(each)
        windows = snapshot.nodes.windows.values()
        self._windows = sorted({m for w in windows for m in (w.begins, w.ends) if m > self.now})

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

    def _set_end(self, running: RunningGang) -> None:
        uid = running.gang.uid
        end = self._end[uid] = running.expected_end(self.now, self._blocked_since)
        heapq.heappush(self._ends, (end, uid))

    # --- time ---

    def next_moment(self, decision: Decision, bounds: Bounds) -> float | None:
        """Return when to decide again, POSIX seconds; None where nothing is left to happen."""
        if decision.preempted or decision.vacated:
            return self.now  # their places are free
        while self._ends and self._end.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        coming = [self._ends[0][0]] if self._ends else []
        coming += [moment for moment in self._windows if moment > self.now][:1]
        if not coming:
            return None
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
        return max([first, *within])

    def advance(self, moment: float) -> None:
        """Let time go on to ``moment``, and those that are due by then leave."""
        self.now = moment
        while self._ends and self._ends[0][0] <= moment:
            end, uid = heapq.heappop(self._ends)
            if self._end.get(uid) == end:
                self._leave(uid)

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
            self._running[uid] = RunningGang(gang, admit.placement, self.now)
            self._set_end(self._running[uid])

    def _stop(self, uid: str, is_preempted: bool) -> None:
        running = self._running.get(uid)
        if running is None:
            return
        self._leave(uid)
        if running.is_leaving or uid in self.waiting:
            return
        ran, gang = running.elapsed_seconds(self.now), running.gang
        self.waiting[uid] = replace(
            gang,
            arrived=gang.arrived + ran,  # the time it ran does not count as wait
            interrupted=True,
            evictions=gang.evictions + is_preempted,
            attained_seconds=gang.attained_seconds + ran,
        )

    def _resize(self, action: Resize) -> None:
        uid = action.running.gang.uid
        before = self._running.get(uid)
        if before is None or len(self._held[uid]) != 1:
            return
        after = replace(before, placement=action.placement, resized=self.now, _used={})
        self._free(self._held.pop(uid).pop())
        self._occupants = self._occupants.without([uid])
        held = self._held_by(after)
        self._running[uid], self._held[uid] = after, [held]
        self._take(held, after.placement)

    def _park(self, hold: Hold) -> None:
        # Who stands in no line does not wait meanwhile.
        uid = hold.gang.uid
        gang = self.waiting[uid]
        if hold.is_parked and gang.parked is None:
            self.waiting[uid] = replace(gang, parked=self.now)
        elif not hold.is_parked and gang.parked is not None:
            self.waiting[uid] = gang.in_line(self.now)

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
