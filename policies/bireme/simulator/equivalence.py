"""Gangs that wait, those that are alike in line behind each other.

Two gangs are kin when they differ in nothing but name and arrival. An orderer that sets
``keeps_kin_in_line`` promises two things:

*   among kin, whoever came first ranks first and has at least as high a claim;
*   how two gangs rank does not depend on who else waits.

Then a cycle need not see a whole line. Capacity only shrinks while the order is walked down, so
once one gang is held, its kin behind it would be held too, and those change nothing for others.
Where thousands wait, most of them for one GPU, that is what makes long simulations possible.
"""

import bisect
from collections.abc import Hashable, Mapping
from dataclasses import fields
from operator import attrgetter

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason

FIRST_DEPTH = 2
"""How many of each line a cycle sees at first: one that may start, and one that says enough."""

_ROOM_IS_MADE = frozenset({Reason.WAITING_FOR_PREEMPTION, Reason.SCALING_UP})

_traits = attrgetter(*(f.name for f in fields(Gang) if f.name not in ("uid", "name", "arrived")))


def may_thin(policy: Policy, queues: Mapping[str, Queue]) -> bool:
    """Whether the decisions of ``policy`` are the same when lines are cut short.

    A sizer shares out among all that wait. So do queues with weights or guarantees, which look at
    who is next in each of them.
    """
    is_plain = all(queue.weight is None and not queue.guaranteed for queue in queues.values())
    orderers = [policy.orderer, *([policy.rules.orderer] if policy.rules else [])]
    keep_lines = all(getattr(orderer, "keeps_kin_in_line", False) for orderer in orderers)
    return keep_lines and policy.sizer is None and is_plain


class Lines:
    """All gangs that wait."""

    def __init__(self) -> None:
        self._gangs: dict[str, Gang] = {}
        self._kin: dict[str, Hashable] = {}
        self._lines: dict[Hashable, list[Gang]] = {}

    def __len__(self) -> int:
        return len(self._gangs)

    def __contains__(self, uid: str) -> bool:
        return uid in self._gangs

    def add(self, gang: Gang) -> None:
        """``gang`` waits."""
        kin = _kin_of(gang)
        self._gangs[gang.uid], self._kin[gang.uid] = gang, kin
        bisect.insort(self._lines.setdefault(kin, []), gang, key=_age)

    def remove(self, uid: str) -> None:
        """A gang waits no longer."""
        gang, kin = self._gangs.pop(uid), self._kin.pop(uid)
        line = self._lines[kin]
        del line[bisect.bisect_left(line, _age(gang), key=_age)]
        if not line:
            del self._lines[kin]

    def everyone(self) -> tuple[Gang, ...]:
        """All of them."""
        return tuple(self._gangs.values())

    def fronts(self, depths: Mapping[Hashable, int]) -> tuple[Gang, ...]:
        """The first of every line, as many as ``depths`` says, else ``FIRST_DEPTH``."""
        return tuple(
            gang
            for kin, line in self._lines.items()
            for gang in line[: depths.get(kin, FIRST_DEPTH)]
        )

    def open_lines(self, decision: Decision, depths: Mapping[Hashable, int]) -> list[Hashable]:
        """Lines of which ``decision`` has not seen enough, by kin.

        Enough is the whole line, or a last one that is held. One for which others make room, or
        nodes are asked for, says nothing about those behind it: so it may be for them too.
        """
        held = {hold.gang.uid for hold in decision.held if hold.reason not in _ROOM_IS_MADE}
        depth_of = {kin: depths.get(kin, FIRST_DEPTH) for kin in self._lines}
        return [
            kin
            for kin, line in self._lines.items()
            if len(line) > depth_of[kin] and line[depth_of[kin] - 1].uid not in held
        ]

    def verdicts(self, decision: Decision) -> dict[str, str]:
        """The last reason of all that wait, by uid; who was not seen has that of its kin."""
        own = {hold.gang.uid: hold.reason.value for hold in decision.held}
        shared = {self._kin[uid]: reason for uid, reason in own.items() if uid in self._kin}
        return {uid: own.get(uid) or shared.get(kin, "") for uid, kin in self._kin.items()}


def _age(gang: Gang) -> tuple[float, str]:
    return gang.arrived, gang.uid


def _kin_of(gang: Gang) -> Hashable:
    traits = _traits(gang)
    try:
        hash(traits)
    except TypeError:  # a speed law that cannot be compared: it has no kin
        return gang.uid
    return traits
