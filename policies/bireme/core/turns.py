"""Turns: whom a cycle reaches, so that the waiting gangs of one tenant do not slow down others.

Two things end a cycle before it has looked at every gang.

1.  **The line of a namespace** (:func:`in_line`). In the order of the cycle, the first gangs of a
    namespace stand in its line: as many as the settings allow, and of as many different shapes. The
    others are held and stand in nobody's way: nothing is decided on them, also where a gang of
    another namespace starts that comes after them. They follow in the same order once those before
    them have started or are gone, so a limit lets no gang pass a higher one of its namespace. Gangs
    that lost a node, then those past their wait bound, are first in the line too, so each gets to
    its front in time. Those that were told lately that they never fit stand at its end: nobody
    waits for them. The first gang is always in line, whatever its shape.

2.  **The time of a cycle** (:class:`Turns`). Gangs are visited in order until the time is up. The
    rest is not reached: it keeps its last verdict, and nobody has passed it, as all of it comes
    after those that were reached. In the next cycle the namespaces that were missed go first, the
    more often missed before the others. Order then holds within a namespace, and between those
    missed as often. Before all of them go the first of those that lost a node or are past their
    wait bound, and the gang that has the reservation: rotation costs neither its places. So each
    namespace has its turn after at most as many cycles as there are namespaces, and the wait bound
    keeps its promise.

Time is measured outside; where nobody does, as in the simulator, it never ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bireme.core.decision import Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.pod_rules import shape_alone
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings

MIN_VISITS: Final = 3
"""A cycle reaches so many gangs however long that takes: the two that go before all others, and one
more."""
_BEYOND: Final = Reason.OVER_NAMESPACE_LIMIT
_NEVER_FITS_SECONDS: Final = 300.0
"""For so long a gang that was told that it never fits stands at the end of its line."""


def _always() -> bool:
    return True


# --- the line of a namespace ---


@dataclass(frozen=True, slots=True)
class Beyond:
    """A gang beyond the line of its namespace.

    Attributes:
        place: Its number in the line, from 1, if the line had no end.
        length: Gangs in line.
        are_shapes_many: The shapes of those in line are the limit, not their number.
        told: What it was told lately, if that was that it never fits.
    """

    entry: Ranked
    place: int
    length: int
    are_shapes_many: bool
    told: Hold | None


def in_line(
    entries: Sequence[Ranked], settings: SchedulingSettings, turns: "Turns"
) -> tuple[Sequence[Ranked], list[Beyond]]:
    """Return those of ``entries`` that stand in line, and those beyond, both in their order."""
    by_namespace: dict[str, list[Ranked]] = {}
    for entry in entries:
        by_namespace.setdefault(entry.gang.namespace, []).append(entry)
    beyond = [found for line in by_namespace.values() for found in _beyond(line, settings, turns)]
    if not beyond:
        return entries, beyond
    cut = {each.entry.gang.uid: each for each in beyond}
    turn = [entry.gang.uid for entry in entries]
    return (
        [entry for entry in entries if entry.gang.uid not in cut],
        [cut[uid] for uid in turn if uid in cut],
    )


def _beyond(
    entries: Sequence[Ranked], settings: SchedulingSettings, turns: "Turns"
) -> list[Beyond]:
    """Return the gangs of one namespace that are beyond its line."""
    length, are_shapes_many = _length(entries, settings)
    if length == len(entries):
        return []
    told = {entry.gang.uid: hold for entry in entries if (hold := turns.told(entry.gang))}
    if told:
        # A stable sort: the others keep their order.
        entries = sorted(entries, key=lambda entry: entry.gang.uid in told)
        length, are_shapes_many = _length(entries, settings)
    return [
        Beyond(entry, place, length, are_shapes_many, told.get(entry.gang.uid))
        for place, entry in enumerate(entries[length:], length + 1)
    ]


def _length(entries: Sequence[Ranked], settings: SchedulingSettings) -> tuple[int, bool]:
    """Return how many of ``entries`` stand in line, and whether it is shapes that end it."""
    most = settings.namespace_pending_limit
    cost, seen = 0.0, set[object]()
    for place, entry in enumerate(entries[:most]):
        if entry.gang.shape in seen:
            continue  # as most of a long line
        cost += _cost(entry.gang, seen)
        if cost > settings.namespace_shape_limit and place:
            return place, True
    return min(len(entries), most), False


def _cost(gang: Gang, seen: set[object]) -> float:
    """Return what a ``gang`` of a new shape adds to the cost of a cycle; add it to ``seen``."""
    seen.add(gang.shape)
    # Each task is placed beside each other task.
    cost = float(len(gang.tasks) ** 2)
    if not gang.has_rules:
        return cost
    # Gangs with rules by labels of their own fit alike, but to find that takes a while as well.
    alone = shape_alone(gang)
    if alone in seen:
        return cost / 4
    seen.add(alone)
    return cost


# --- the time of a cycle ---


@dataclass(frozen=True, slots=True)
class Turns:
    """What a cycle must know of time, and of earlier cycles, to choose whom it reaches.

    Attributes:
        is_time_left: Asked before each visit; False ends the cycle after MIN_VISITS.
        missed: By namespace, how many cycles in a row ended before they had reached all its gangs.
        reserved: Uid of the gang that had the reservation in the last one of them; or empty.
        never_fit: By uid of gangs that were told lately that they never fit, when they were, POSIX
            seconds, and what.
    """

    is_time_left: Callable[[], bool] = _always
    missed: Mapping[str, int] = field(default_factory=dict)
    reserved: str = ""
    never_fit: Mapping[str, tuple[float, Hold]] = field(default_factory=dict)

    def told(self, gang: Gang) -> Hold | None:
        """Return what ``gang`` was told lately, if that was that it never fits."""
        _, hold = self.never_fit.get(gang.uid, (0.0, None))
        return hold if hold is not None and _asks_the_same(hold.gang, gang) else None

    def groups(self, urgent: Sequence[Ranked], others: Sequence[Ranked]) -> list["Group"]:
        """Return ``urgent`` and ``others`` in groups, which have their turns one after another."""
        if not self.missed:
            return [Group(urgent, others)]
        hurried = (entry.gang.uid for entry in urgent if self.told(entry.gang) is None)
        heads = {next(hurried, ""), self.reserved}
        first = Group(*(_of(part, lambda e: e.gang.uid in heads) for part in (urgent, others)))
        found = [first]
        for number in sorted({0, *self.missed.values()}, reverse=True):
            is_turn = self._has_turn(number, heads)
            found.append(Group(_of(urgent, is_turn), _of(others, is_turn)))
        return found

    def _has_turn(self, number: int, heads: set[str]) -> Callable[[Ranked], bool]:
        def has_turn(entry: Ranked) -> bool:
            gang = entry.gang
            return gang.uid not in heads and self.missed.get(gang.namespace, 0) == number

        return has_turn

    def after(self, decision: Decision, now: float) -> "Turns":
        """Return the turns of the cycle that follows ``decision``, made at ``now``."""
        told = {h.gang.uid: (now, h) for h in decision.held if h.reason is Reason.NEVER_FITS}
        recent = {
            uid: (at, hold)
            for uid, (at, hold) in self.never_fit.items()
            if now - at < _NEVER_FITS_SECONDS
            if uid not in told or _asks_the_same(told[uid][1].gang, hold.gang)
        }
        return replace(
            self,
            missed=self._missed_after(decision),
            reserved=_reserved(decision) if decision.unreached else "",
            never_fit=told | recent,
        )

    def _missed_after(self, decision: Decision) -> dict[str, int]:
        missed = {gang.namespace for gang in decision.unreached}
        visited = (h for h in decision.held if h.ranked and h.reason is not _BEYOND)
        reached = {admit.gang.namespace for admit in decision.admitted}
        reached |= {hold.gang.namespace for hold in visited}
        # One that a cycle spent all its time on had its turn.
        if len(reached) == 1:
            missed -= reached
        return {name: self.missed.get(name, 0) + 1 for name in missed}


@dataclass(frozen=True, slots=True)
class Group:
    """Gangs that have their turns together: ``urgent`` ones first, all in order."""

    urgent: Sequence[Ranked]
    others: Sequence[Ranked]


def _of(entries: Sequence[Ranked], belongs: Callable[[Ranked], bool]) -> list[Ranked]:
    return [entry for entry in entries if belongs(entry)]


def _asks_the_same(gang: Gang, other: Gang) -> bool:
    """Return whether nothing was edited that decides where and in which queue it may start."""
    return gang.queue == other.queue and gang.tasks == other.tasks


def _reserved(decision: Decision) -> str:
    """Return the uid of the gang that places are kept for until others end; or empty."""
    found: Iterable[Hold] = (
        hold
        for hold in decision.held
        if hold.reservation is not None and hold.reason is not Reason.WAITING_FOR_PREEMPTION
    )
    return next((hold.gang.uid for hold in found), "")
