"""Turns: which gangs a cycle considers, so that one tenant's waiting gangs do not slow others down.

Two limits end a cycle before it has considered every gang.

1.  **The limit of a namespace** (:func:`within_limit`). In the order of the cycle, the first gangs
    of a namespace are within its limit: as many as the settings allow, and of as many different
    shapes. The cycle holds the other gangs without a decision. They do not block later gangs of
    other namespaces. They follow in the same order once the gangs before them have started or are
    gone, so a limit lets no gang pass a higher one of its namespace. Gangs that lost a node, then
    gangs past their wait bound, come first, so each is considered in time. Gangs with a recent
    NeverFits verdict come last: no gang waits for them. The first gang is always within the limit,
    whatever its shape.

2.  **The time of a cycle** (:class:`CycleBudget`). The cycle visits gangs in order until the time
    is up. It does not reach the rest: they keep their last verdict, and no later gang passes them.
    In the next cycle the missed namespaces go first, the most often missed before the others. The
    policy's order then holds within a namespace, and between namespaces missed equally often. Two
    gangs precede them all: the first gang that lost a node or is past its wait bound, and the gang
    with the reservation. They keep their places whatever the rotation. So each namespace has its
    turn after at most as many cycles as there are namespaces, and the wait bound still holds.

The caller measures time; without a clock, as in the simulator, the time never ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bireme.core.cycle_trace import CycleTrace
from bireme.core.decision import Action, Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.pod_rules import shape_alone
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings

MIN_VISITS: Final = 3
"""A cycle visits at least as many gangs, however long that takes: the two that precede all others,
and one more."""
_BEYOND: Final = Reason.OVER_NAMESPACE_LIMIT
_NEVER_FITS_SECONDS: Final = 300.0
"""The time for which a gang with a NeverFits verdict stays last in its namespace."""


def _always() -> bool:
    return True


# --- the line of a namespace ---


@dataclass(frozen=True, slots=True)
class OverLimitGang:
    """A gang over the limit of its namespace.

    Attributes:
        place: Its number in its namespace, from 1.
        length: Gangs within the limit.
        are_shapes_many: The number of shapes is the limit, not the number of gangs.
        never_fits_hold: Its recent NeverFits verdict, if any.
    """

    entry: Ranked
    place: int
    length: int
    are_shapes_many: bool
    never_fits_hold: Hold | None


def within_limit(
    entries: Sequence[Ranked], settings: SchedulingSettings, turns: "CycleBudget"
) -> tuple[Sequence[Ranked], list[OverLimitGang]]:
    """Return the gangs within the limit of their namespace, and those over it, in their order."""
    by_namespace: dict[str, list[Ranked]] = {}
    for entry in entries:
        by_namespace.setdefault(entry.gang.namespace, []).append(entry)
    beyond = [gang for line in by_namespace.values() for gang in _beyond(line, settings, turns)]
    if not beyond:
        return entries, beyond
    cut = {over.entry.gang.uid: over for over in beyond}
    turn = [entry.gang.uid for entry in entries]
    return (
        [entry for entry in entries if entry.gang.uid not in cut],
        [cut[uid] for uid in turn if uid in cut],
    )


def _beyond(
    entries: Sequence[Ranked], settings: SchedulingSettings, turns: "CycleBudget"
) -> list[OverLimitGang]:
    """Return the gangs of one namespace that are over its limit."""
    length, are_shapes_many = _length(entries, settings)
    if length == len(entries):
        return []
    verdicts = {
        entry.gang.uid: hold for entry in entries if (hold := turns.never_fits_verdict(entry.gang))
    }
    if verdicts:
        # A stable sort: the others keep their order.
        entries = sorted(entries, key=lambda entry: entry.gang.uid in verdicts)
        length, are_shapes_many = _length(entries, settings)
    return [
        OverLimitGang(entry, place, length, are_shapes_many, verdicts.get(entry.gang.uid))
        for place, entry in enumerate(entries[length:], length + 1)
    ]


def _length(entries: Sequence[Ranked], settings: SchedulingSettings) -> tuple[int, bool]:
    """Return how many of ``entries`` are within the limit, and whether shapes set the limit."""
    limit = settings.namespace_pending_limit
    cost, shapes = 0.0, set[object]()
    for place, entry in enumerate(entries[:limit]):
        if entry.gang.shape in shapes:
            continue  # most gangs of a long queue repeat a shape
        cost += _cost(entry.gang, shapes)
        if cost > settings.namespace_shape_limit and place:
            return place, True
    return min(len(entries), limit), False


def _cost(gang: Gang, shapes: set[object]) -> float:
    """Return the cost that a new shape adds to a cycle; add the shape to ``shapes``."""
    shapes.add(gang.shape)
    # Each task is placed beside every other task.
    cost = float(len(gang.tasks) ** 2)
    if not gang.has_rules:
        return cost
    # Gangs whose rules use labels of their own fit alike, but it takes time to find that out.
    bare_shape = shape_alone(gang)
    if bare_shape in shapes:
        return cost / 4
    shapes.add(bare_shape)
    return cost


# --- the time of a cycle ---


@dataclass(frozen=True, slots=True)
class CycleBudget:
    """The times and earlier cycles from which a cycle chooses the gangs that it visits.

    Attributes:
        is_time_left: Called before each visit; False ends the cycle after MIN_VISITS.
        missed_cycles: By namespace, the number of consecutive cycles that did not reach
            all its gangs.
        reserved: Uid of the gang with the reservation in the last of these cycles; or empty.
        never_fit: Recent NeverFits verdicts by gang uid, each with its time, POSIX seconds.
    """

    is_time_left: Callable[[], bool] = _always
    missed_cycles: Mapping[str, int] = field(default_factory=dict)
    reserved: str = ""
    never_fit: Mapping[str, tuple[float, Hold]] = field(default_factory=dict)
    trace: CycleTrace | None = None
    """Records the steps of the cycle; None for a cycle without a trace."""

    def end_step(self, name: str, gangs: int) -> None:
        """Trace the step of the cycle that ends now."""
        if self.trace is not None:
            self.trace.end_step(name, gangs)

    def end_visit(self, gang: Gang, actions: Sequence[Action]) -> None:
        """Trace the visit of ``gang`` that ends now."""
        if self.trace is not None:
            self.trace.end_visit(gang, actions)

    def never_fits_verdict(self, gang: Gang) -> Hold | None:
        """Return the recent NeverFits verdict of ``gang``, unless an edit made it void."""
        _, hold = self.never_fit.get(gang.uid, (0.0, None))
        return hold if hold is not None and _asks_the_same(hold.gang, gang) else None

    def groups(self, urgent: Sequence[Ranked], ordinary: Sequence[Ranked]) -> list["Group"]:
        """Return ``urgent`` and ``ordinary`` in groups that have their turns in order."""
        if not self.missed_cycles:
            return [Group(urgent, ordinary)]
        hurried = (
            entry.gang.uid for entry in urgent if self.never_fits_verdict(entry.gang) is None
        )
        heads = {next(hurried, ""), self.reserved}
        first = Group(*(_of(part, lambda e: e.gang.uid in heads) for part in (urgent, ordinary)))
        groups = [first]
        for number in sorted({0, *self.missed_cycles.values()}, reverse=True):
            is_turn = self._has_turn(number, heads)
            groups.append(Group(_of(urgent, is_turn), _of(ordinary, is_turn)))
        return groups

    def _has_turn(self, number: int, heads: set[str]) -> Callable[[Ranked], bool]:
        def has_turn(entry: Ranked) -> bool:
            gang = entry.gang
            return gang.uid not in heads and self.missed_cycles.get(gang.namespace, 0) == number

        return has_turn

    def after(self, decision: Decision, now: float) -> "CycleBudget":
        """Return the turns of the cycle that follows ``decision``, made at ``now``."""
        verdicts = {h.gang.uid: (now, h) for h in decision.held if h.reason is Reason.NEVER_FITS}
        recent = {
            uid: (moment, hold)
            for uid, (moment, hold) in self.never_fit.items()
            if now - moment < _NEVER_FITS_SECONDS
            if uid not in verdicts or _asks_the_same(verdicts[uid][1].gang, hold.gang)
        }
        return replace(
            self,
            missed_cycles=self._count_missed(decision),
            reserved=_reservation_holder(decision) if decision.unreached else "",
            never_fit=verdicts | recent,
        )

    def _count_missed(self, decision: Decision) -> dict[str, int]:
        namespaces = {gang.namespace for gang in decision.unreached}
        visited = (h for h in decision.held if h.ranked and h.reason is not _BEYOND)
        reached = {admit.gang.namespace for admit in decision.admitted}
        reached |= {hold.gang.namespace for hold in visited}
        # A namespace that used the whole cycle alone had its turn.
        if len(reached) == 1:
            namespaces -= reached
        return {name: self.missed_cycles.get(name, 0) + 1 for name in namespaces}


@dataclass(frozen=True, slots=True)
class Group:
    """Gangs that have their turns together: ``urgent`` ones first, all in order."""

    urgent: Sequence[Ranked]
    ordinary: Sequence[Ranked]


def _of(entries: Sequence[Ranked], belongs: Callable[[Ranked], bool]) -> list[Ranked]:
    return [entry for entry in entries if belongs(entry)]


def _asks_the_same(gang: Gang, other: Gang) -> bool:
    """Return whether the two gangs are equal in all that decides where they may start."""
    return gang.queue == other.queue and gang.tasks == other.tasks


def _reservation_holder(decision: Decision) -> str:
    """Return the uid of the gang with an open reservation; or empty."""
    holds: Iterable[Hold] = (
        hold
        for hold in decision.held
        if hold.reservation is not None and hold.reason is not Reason.WAITING_FOR_PREEMPTION
    )
    return next((hold.gang.uid for hold in holds), "")
