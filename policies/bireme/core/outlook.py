"""Outlook: when every waiting gang should start, by playing a snapshot forward with the same cycle.

It is a :class:`~bireme.core.play.Play` of the policy in force, with the run times that reservations
count on, for the gang that has the reservation. What the play admits is foreseen to start at that
moment. Gangs that it does not reach have a position and no start.
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


def look_ahead(
    snapshot: ClusterSnapshot,
    decision: Decision,
    policy: Policy,
    bounds: Bounds = USUAL,
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
