"""Outlook: the expected start of every waiting gang, from a snapshot played forward.

It is a :class:`~bireme.core.play.Play` of the policy in force with the same cycle. It uses the run
times on which reservations count, for the gang that has the reservation. The moment at which the
play admits a gang is its foreseen start. Gangs that the play does not reach have a position and no
start.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.play import USUAL, Bounds, Cut, Play
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Prospect:
    """The expected start of a waiting gang.

    Attributes:
        position: Its number in the order of the decision, from 1; None if waiting longer cannot
            help it.
        reason: The reason for its wait; None if the cycle had no time to decide on it.
        start: The foreseen start, POSIX seconds; None if there is none.
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
        until: The end of the play, POSIX seconds.
        cycles: The number of played cycles.
        cut: Why the play ended.
    """

    now: float
    until: float
    prospects: tuple[Prospect, ...]
    cycles: int
    cut: Cut


def look_ahead(
    snapshot: ClusterSnapshot,
    decision: Decision,
    policy: Policy,
    bounds: Bounds = USUAL,
) -> Outlook:
    """Return the expected starts of the gangs that ``decision``, made on ``snapshot``, holds.

    ``policy`` decides as in a cycle, so it must not learn from these calls.
    """
    play, starts = Play(snapshot, decision, policy, bounds), dict[str, float]()
    for moment, step_decision in play:
        for admit in step_decision.admitted:
            starts.setdefault(admit.gang.uid, moment)  # a later start follows a stop in the play
    return Outlook(snapshot.now, play.until, prospects_of(decision, starts), play.cycles, play.cut)


def prospects_of(decision: Decision, starts: Mapping[str, float]) -> tuple[Prospect, ...]:
    """Return the prospects of the gangs that ``decision`` holds or did not reach, in their order.

    ``starts`` are the foreseen starts by uid, POSIX seconds.
    """
    prospects = [
        Prospect(hold.gang, hold.position, hold.reason, starts.get(hold.gang.uid))
        for hold in decision.held
    ]
    prospects.sort(key=lambda p: (p.position is None, p.position or 0, p.gang.uid))
    in_line = [prospect for prospect in prospects if prospect.position is not None]
    parked = prospects[len(in_line) :]
    # Unreached gangs come after the gangs that the cycle reached.
    positions = {prospect.position for prospect in in_line}
    free = (n for n in range(1, len(in_line) + len(decision.unreached) + 1) if n not in positions)
    unreached = [
        Prospect(gang, next(free), None, starts.get(gang.uid)) for gang in decision.unreached
    ]
    in_line = sorted([*in_line, *unreached], key=lambda p: (p.position or 0, p.gang.uid))
    return (*in_line, *parked)
