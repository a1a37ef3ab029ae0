"""Expected start times: a range per waiting gang, with the coverage that it states.

A reservation foresees one moment: when enough gangs have ended, if all run as long as estimated.
Estimates err, so the ratios of actual to foreseen wait are remembered. Two of them turn the next
foreseen moment into a range: one start in twenty was below the lower, one in twenty above the
upper.

    [now + r_(k) f, now + r_(n + 1 - k) f],   k = floor((n + 1) / 20)

f is the foreseen wait and r_(k) the k-th smallest of the n ratios. If the next ratio is
exchangeable with them, the range holds the start with a probability of at least 90 % (split
conformal prediction, Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; each
end separately as in Romano, Patterson and Candès, NeurIPS 2019).

If run times are unknown, a foreseen moment is worth little. So the waits themselves are remembered,
too. The waits that lasted as long as this one so far give a second range in the same way. The
narrower of the two is reported. The choice costs some coverage: 80 % is guaranteed.
``docs/results/simulations/estimates.md`` measures how often ranges held.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bireme.core.decision import Admit, Decision, Hold, Reservation
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot

_ONE_IN: Final = 20
"""The inverse of the share of starts that may be outside a range at each end."""
COVERAGE: Final = 1 - 2 / _ONE_IN
REMEMBERED: Final = 256
"""Ratios, and waits: enough to know their tails, and few enough to follow the users."""
_MIN_SECONDS: Final = 10.0
"""The shortest foreseen wait: a decision and a start take their time as well."""
_MAX_FORESEEN: Final = 8


@dataclass(frozen=True, slots=True)
class StartRange:
    """Expected start of a gang, POSIX seconds.

    Attributes:
        earliest: While ``coverage`` is None, the foreseen moment; the start may come sooner.
        latest: While ``coverage`` is None, the expected end of the last gang on the reserved
            nodes; None if one of them has no estimate, or has outrun it.
        coverage: Share of starts that such ranges hold; None while too few gangs have started.
    """

    earliest: float
    latest: float | None
    coverage: float | None = None


@dataclass(slots=True)
class _Wait:
    """The foreseen moments of a continuing wait.

    Attributes:
        began: When places were first kept for the gang, POSIX seconds.
        foreseen: The time of each forecast, POSIX seconds, and the seconds that it foresaw.
    """

    began: float
    foreseen: list[tuple[float, float]] = field(default_factory=list)

    def note(self, now: float, seconds: float) -> None:
        # One forecast at a time: forecasts of successive cycles in one wait would err alike.
        has_passed = not self.foreseen or now > sum(self.foreseen[-1])
        if seconds > 0 and has_passed and len(self.foreseen) < _MAX_FORESEEN:
            self.foreseen.append((now, max(seconds, _MIN_SECONDS)))


class StartRanges:
    """Start ranges from the errors of earlier forecasts."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=REMEMBERED)
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._waits: dict[str, _Wait] = {}

    def update(self, snapshot: ClusterSnapshot, decision: Decision) -> dict[str, StartRange]:
        """Learn from a decision with ``explain``; return the known ranges, by uid.

        The method must see every decision: admitted gangs teach, and gangs that no longer wait are
        forgotten.
        """
        waiting: dict[str, _Wait] = {}
        ranges: dict[str, StartRange] = {}
        for action in decision.actions:
            if isinstance(action, Admit):
                self._learn(action.gang.uid, snapshot.now)
            elif isinstance(action, Hold):
                uid = action.gang.uid
                wait = self._waits.get(uid)
                if (reservation := _foreseeing(action)) is not None:
                    wait = wait or _Wait(snapshot.now)
                    wait.note(snapshot.now, reservation.expected - snapshot.now)
                    if (start_range := self._range(wait, reservation, snapshot)) is not None:
                        ranges[uid] = start_range
                if wait is not None:
                    waiting[uid] = wait  # even without a reservation: the gang may get one again
        unreached = (gang.uid for gang in decision.unreached)
        self._waits = waiting | {uid: self._waits[uid] for uid in unreached if uid in self._waits}
        return ranges

    def _learn(self, uid: str, now: float) -> None:
        wait = self._waits.get(uid)
        if wait is not None:  # never negative, whatever the clocks say
            self._ratios.extend(
                max(0.0, now - moment) / seconds for moment, seconds in wait.foreseen
            )
            self._seconds.append(max(0.0, now - wait.began))

    def _range(
        self, wait: _Wait, reservation: Reservation, snapshot: ClusterSnapshot
    ) -> StartRange | None:
        expected, now = reservation.expected, snapshot.now
        # A continuing wait already exceeds the shorter ones: they say nothing about its end.
        longer = [seconds for seconds in self._seconds if seconds > now - wait.began]
        ranges = [_between(longer, wait.began, 1.0)]
        if expected > now:
            # From now on: the part that has passed cannot err any more.
            ranges.append(_between(self._ratios, now, max(expected - now, _MIN_SECONDS)))
        learned = [ends for ends in ranges if ends is not None]
        if learned:
            earliest, latest = min(learned, key=lambda ends: ends[1] - ends[0])
            return StartRange(earliest, latest, COVERAGE)
        if expected > now:
            return StartRange(expected, _last_end(reservation, snapshot))
        return None


def _foreseeing(hold: Hold) -> Reservation | None:
    # If other gangs stop for it, the wait takes only seconds.
    return None if hold.reason is Reason.WAITING_FOR_PREEMPTION else hold.reservation


def _between(errors: Sequence[float], began: float, seconds: float) -> tuple[float, float] | None:
    """Return the range from ``began`` on, with ``errors`` in units of ``seconds``; None if few."""
    tail = (len(errors) + 1) // _ONE_IN
    if not tail:
        return None
    ordered = sorted(errors)
    return began + ordered[tail - 1] * seconds, began + ordered[-tail] * seconds


def _last_end(reservation: Reservation, snapshot: ClusterSnapshot) -> float | None:
    """Return the expected end of the last gang on the reserved nodes, if all have one."""
    table = snapshot.running_table
    is_there = np.isin(table.rows, reservation.placement.node_rows())
    ends = table.expected_ends(snapshot.now, -np.inf)[np.unique(table.owner[is_there])]
    if not len(ends) or ends.min() <= snapshot.now:
        return None  # a gang without an estimate, or beyond it, may run for ever
    return max(reservation.expected, float(ends.max()))
