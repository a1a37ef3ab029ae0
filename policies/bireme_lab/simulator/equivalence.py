"""Equivalence classes of waiting gangs, so that a cycle need not see thousands of equal ones.

Two gangs are equivalent when they differ only in uid, name and wait. An orderer that sets
``keeps_equal_gangs_in_order`` guarantees two things. The earlier of two equivalent gangs ranks
first and has at least as high a claim. The rank of two gangs does not depend on other waiting
gangs. Capacity only shrinks while a cycle walks down the order. Once a gang is held, the equivalent
gangs behind it would be held too, and change nothing for others.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Final

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings

FIRST_DEPTH: Final = 2
"""Gangs of each class in the first cycle: one that may start, one that may be held."""

_ROOM_IS_MADE: Final = frozenset({Reason.WAITING_FOR_PREEMPTION, Reason.SCALING_UP})

_IDENTITY_FIELDS: Final = ("uid", "name", "arrived", "parked")
_traits = attrgetter(*(f.name for f in fields(Gang) if f.name not in _IDENTITY_FIELDS))


def may_thin(policy: Policy, queues: Mapping[str, Queue], asks_sizer: bool) -> bool:
    """Return whether ``policy`` decides the same when equivalent gangs are omitted."""
    # Weights and guarantees look at the next gang of each queue; a sizer divides among all gangs.
    is_plain = all(queue.weight is None and not queue.guaranteed for queue in queues.values())
    orderers = [policy.orderer, *([policy.rules.orderer] if policy.rules else [])]
    keep_order = all(getattr(orderer, "keeps_equal_gangs_in_order", False) for orderer in orderers)
    # A canary's gangs change places with each other, so ranks depend on other waiting gangs.
    return keep_order and not asks_sizer and is_plain and not policy.canaries


class WaitingGangs:
    """All gangs that wait, by equivalence class, each class in order of arrival."""

    def __init__(self) -> None:
        self._gangs: dict[str, Gang] = {}
        self._class_of: dict[str, Hashable] = {}
        self._classes: dict[Hashable, list[Gang]] = {}
        self._by_namespace = Counter[str]()

    def __len__(self) -> int:
        return len(self._gangs)

    def __contains__(self, uid: str) -> bool:
        return uid in self._gangs

    def add(self, gang: Gang, now: float) -> None:
        """Add a gang that begins to wait at ``now``."""
        key = _class_key(gang)
        members = self._classes.setdefault(key, [])
        if members and members[0].parked is not None:  # the same reason parks the new gang
            gang = replace(gang, parked=now)
        self._gangs[gang.uid], self._class_of[gang.uid] = gang, key
        self._by_namespace[gang.namespace] += 1
        # Sort by arrival: a gang that was stopped is older than gangs that came after it.
        bisect.insort(members, gang, key=_age)

    def remove(self, uid: str, now: float) -> Gang:
        """Remove a gang from the waiting ones; return it with its wait so far."""
        gang, key = self._gangs.pop(uid), self._class_of.pop(uid)
        self._by_namespace[gang.namespace] -= 1
        members = self._classes[key]
        del members[bisect.bisect_left(members, _age(gang), key=_age)]
        if not members:
            del self._classes[key]
        return gang.in_line(now)

    def is_parked(self, uid: str) -> bool:
        """Return whether a gang is parked: it cannot start however long it waits."""
        return self._gangs[uid].parked is not None

    def park(self, uid: str, now: float) -> None:
        """Park a gang and its equivalents at ``now``; their wait stops growing."""
        self._replace(uid, lambda gang: replace(gang, parked=now))

    def line_up(self, uid: str, now: float) -> list[Gang]:
        """End the parking of a gang and its equivalents, and return them."""
        return self._replace(uid, lambda gang: gang.in_line(now))

    def _replace(self, uid: str, change: Callable[[Gang], Gang]) -> list[Gang]:
        key = self._class_of[uid]
        changed = [change(gang) for gang in self._classes[key]]
        self._gangs.update((gang.uid, gang) for gang in changed)
        self._classes[key] = sorted(changed, key=_age)
        return changed

    def are_in_line(self, settings: SchedulingSettings) -> bool:
        """Return whether every namespace has at most as many gangs as a cycle considers."""
        max_gangs = max(self._by_namespace.values(), default=0)
        return max_gangs <= settings.namespace_pending_limit

    def all_gangs(self) -> tuple[Gang, ...]:
        """Return all waiting gangs, in the order in which they were added."""
        return tuple(self._gangs.values())

    def first_of_each(self, depths: Mapping[Hashable, int]) -> tuple[Gang, ...]:
        """Return the first ``depths`` gangs of every class; ``FIRST_DEPTH`` is the default."""
        return tuple(
            gang
            for key, members in self._classes.items()
            for gang in members[: depths.get(key, FIRST_DEPTH)]
        )

    def heads(self) -> set[str]:
        """Return the uid of the first gang of every class."""
        return {members[0].uid for members in self._classes.values()}

    def classes_to_extend(
        self,
        decision: Decision,
        depths: Mapping[Hashable, int],
        is_overdue: Callable[[Gang], bool],
    ) -> list[Hashable]:
        """Return the classes of which the next cycle must see more gangs.

        The last gang that ``decision`` saw of them was not finally held, and more gangs wait.
        """
        # Preemption or scale-up for one gang may also happen for its equivalents behind it. A less
        # overdue gang may start in places reserved for a blocked gang, a more overdue one may not.
        held_uids = {
            hold.gang.uid
            for hold in decision.held
            if hold.reason not in _ROOM_IS_MADE
            and not (hold.reason is Reason.WAITING_BEHIND and is_overdue(hold.gang))
            and hold.gang.uid not in decision.overdue
        }
        depth_of = {key: depths.get(key, FIRST_DEPTH) for key in self._classes}
        return [
            key
            for key, members in self._classes.items()
            if len(members) > depth_of[key] and members[depth_of[key] - 1].uid not in held_uids
        ]

    def verdicts(self, decision: Decision) -> dict[str, str]:
        """Return the last reason of every waiting gang by uid, from its class if not seen."""
        reasons = {hold.gang.uid: hold.reason.value for hold in decision.held}
        shared = {self._class_of[u]: reason for u, reason in reasons.items() if u in self._class_of}
        return {uid: reasons.get(uid) or shared.get(key, "") for uid, key in self._class_of.items()}


def _age(gang: Gang) -> tuple[float, str]:
    # A parked gang sorts by its wait, as its whole class does: the order holds after the parking.
    since = gang.arrived if gang.parked is None else gang.arrived - gang.parked
    return since, gang.uid


def _class_key(gang: Gang) -> Hashable:
    traits = _traits(gang)
    try:
        hash(traits)
    except TypeError:  # a speed law that has no hash: a class of its own
        return gang.uid
    return traits
