"""Making room: the fewest running gangs that shrink or stop so that one blocked gang fits.

Candidates are asked by :class:`CandidateKind`, among those of a kind first the gangs that started
opportunistically, then the lowest preemption priority, then the most recent start. A running gang
shrinks or stops only for one that comes before it in the policy's order *and* has a strictly higher
preemption priority (of two gangs of one canary, also by the canary's own claim), or whose queue
takes back its guarantee. Of its equals, which neither a class nor a queue puts below it, only those
stop that can resume (``Gang.is_resumable``), however late it is. An orderer may ask for more where
a gang would stop (``stop_priority`` of :class:`~bireme.core.policy.Ranked`). What an elastic gang
holds beyond the size it asked for, or beyond what the sizer wants, it gives up for any gang that
waits.

The eviction budget holds against all but a queue that takes back its guarantee, and a gang that
gives back what it was lent. A queue whose gang has its turn late, behind one with which the queue
borrows, takes nothing back from a gang that has its turn before: that one would start again first.

A gang that started opportunistically (:mod:`bireme.core.reservations`) also stops for a gang that
comes before it and is the first that is blocked, whatever their priorities.

A gang that a PodDisruptionBudget keeps stops only for a queue that takes back its guarantee, for a
gang of the priority from which budgets do not hold, or where it started opportunistically, and is
asked last, as kube-scheduler does.

Nothing is decided unless the whole gang then fits, its queue's limits included.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core.elastic import smaller
from bireme.core.gangs import Gang
from bireme.core.overdue import OverdueLine
from bireme.core.placement import FreeCapacity, Placement, pods_at, usage_of
from bireme.core.pod_rules import NOBODY, Occupants
from bireme.core.policy import CanaryClaim, Placer, Ranked, TotalOrder
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.reservations import CapacityLedger
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, ResourceAxis
from bireme.core.ruled_placement import keeps_rules
from bireme.core.running import RunningGang, RunningTable, summed
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot


class CandidateKind(IntEnum):
    """Ways to make room, first to be asked first."""

    LEAVE = 1
    """It is being stopped already: its places come free by themselves."""
    GIVE_BACK = 2
    """It gives up what it holds beyond the size it asked for, or beyond what the sizer wants."""
    SHRINK = 3
    """It shrinks to its minimum."""
    STOP = 4
    OVERRIDE = 5
    """It stops although a PodDisruptionBudget keeps its pods."""


# An attribute of an enumeration is looked up slowly, and searches compare kinds very often.
_LEAVE: Final = CandidateKind.LEAVE


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way in which one running gang makes room.

    A candidate frees what its gang holds after the gang's earlier candidates, so several of one
    gang add up.

    Attributes:
        kept: The places it holds afterwards; None when it stops.
        given_back: The amounts its queue gets back.
        rows, usage: Freed resources and their nodes, shapes (entries,) and (entries, resources).
    """

    kind: CandidateKind
    running: RunningGang
    kept: Placement | None
    given_back: Amounts
    rows: IntArray
    usage: IntArray

    @property
    def uid(self) -> str:
        """Uid of the gang."""
        return self.running.gang.uid

    @property
    def queue(self) -> str:
        """Queue of the gang."""
        return self.running.gang.queue


@dataclass(frozen=True, slots=True)
class _Reach:
    """Bounds on the candidates of a gang: lower in priority, later in order, not longer overdue.

    ``stop_priority`` is the priority against gangs that would stop. ``overrides`` tells whether
    budgets do not hold against the priority of the gang; ``claim`` is what a canary gives it
    against the canary's other gangs. ``stated`` is what was stated of it (:func:`_stated`).
    """

    priority: float
    stop_priority: float
    place: int
    overdue: float
    overrides: bool = False
    claim: CanaryClaim | None = None
    stated: tuple[int, int] = (0, 0)

    def comes_before(self, place: IntArray | int, overdue: FloatArray | float) -> BoolArray | bool:
        """Return whether the gang has its turn before others, which are one or an array of them."""
        if self.overdue > 0:  # the most overdue first, whatever the order
            return overdue < self.overdue
        return (place > self.place) & (overdue <= 0)

    def covers(self, other: "_Reach") -> bool:
        return (
            self.priority >= other.priority
            and self.stop_priority >= other.stop_priority
            and self.place <= other.place
            and self.overdue >= other.overdue
            and self.overrides >= other.overrides
            # Both are of one queue, so of one canary.
            and _height(self.claim) >= _height(other.claim)
            and _height(self.claim, stops=True) >= _height(other.claim, stops=True)
            and self.stated >= other.stated  # of one queue, so by the class alone
        )


@dataclass(eq=False)
class Preemptor:
    """Makes room for blocked gangs during one cycle.

    ``ledger`` and ``queues`` are those of the admission pass and change between two calls.

    Attributes:
        wanted: The sizer's sizes by uid and task name.
        overdue: The line of gangs past their wait bound.
        chosen: Uids of gangs that make room in this cycle; each does so once.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    queues: QueueTree
    order: TotalOrder
    ledger: CapacityLedger
    wanted: Mapping[str, Mapping[str, int]]
    overdue: OverdueLine
    chosen: set[str] = field(default_factory=set)
    _too_large: set[object] = field(default_factory=set)
    """Shape and queue of gangs that do not fit even when the leaving gangs have left."""
    _hopeless: dict[object, _Reach] = field(default_factory=dict)
    """By shape and queue, the farthest reach that was not enough."""

    @cached_property
    def _candidates(self) -> "Candidates":
        return Candidates(self.snapshot, self.order, self.wanted, self.overdue)

    @cached_property
    def _has_elastic(self) -> bool:
        return bool(self.snapshot.running_table.is_elastic.any())

    @cached_property
    def _are_opportunistic(self) -> BoolArray:
        table = self.snapshot.running_table
        # A PodDisruptionBudget, which anybody may write, makes nobody the owner of lent places.
        return np.asarray(table.is_opportunistic & table.is_preemptible & ~table.is_leaving)

    @cached_property
    def _has_opportunistic(self) -> bool:
        return bool(self._are_opportunistic.any())

    @cached_property
    def _has_leaving(self) -> bool:
        return bool(self.snapshot.running_table.is_leaving.any())

    def waits_for_leaving(self, gang: Gang) -> Placement | None:
        """Return where ``gang`` fits once those being stopped have left; None if it does not."""
        key = (self.snapshot.shape(gang), gang.queue)
        if not (self._has_leaving or self.chosen) or key in self._too_large:
            return None
        placement = self._search(gang).fits(self._candidates.leaving)
        if placement is None:
            self._too_large.add(key)
        return placement

    def make_room(self, entry: Ranked, gang: Gang) -> tuple[list[Candidate], Placement] | None:
        """Return the gangs that make room for a waiting one, and its places at the size ``gang``.

        One candidate per gang, its last; None when nothing that is allowed helps.
        """
        if self.is_hopeless(entry, gang):
            return None
        reach = self._reach(entry)
        found = self._least(gang, reach, self.yielding(entry))
        if found is None:
            self._hopeless[self.snapshot.shape(gang), gang.queue] = reach
            return None
        chosen, placement = found
        kind = self._candidates.kind
        new = [at for at, each in zip(chosen, kind[chosen].tolist(), strict=True) if each != _LEAVE]
        victims = {candidate.uid: candidate for candidate in map(self._candidates.__getitem__, new)}
        self.chosen |= victims.keys()
        self._candidates.note_chosen(new)
        # For the gangs that come after, these leave anyway, and may leave more than was needed.
        kind[new] = CandidateKind.LEAVE
        self._too_large.clear()
        self._hopeless.clear()
        return list(victims.values()), placement

    def is_hopeless(self, entry: Ranked, gang: Gang) -> bool:
        """Return whether it is known already that no gang makes room for a waiting one."""
        if not (self._has_elastic or self._may_stop_others(entry)):
            return True
        if self._may_be_owed(entry) and self.yielding(entry).any():
            return False
        if self._is_lowest(entry):
            return True
        known = self._hopeless.get((self.snapshot.shape(gang), gang.queue))
        return known is not None and known.covers(self._reach(entry))

    def yielding(self, entry: Ranked) -> BoolArray:
        """Return which running gangs yield to ``entry``, shape (gangs,).

        They started opportunistically and come after it, and it is the first that is blocked.
        """
        table = self.snapshot.running_table
        if not self._may_be_owed(entry):
            return np.zeros(len(table.gangs), dtype=np.bool_)
        reach, overdue = self._reach(entry), self.overdue.seconds_at_start
        places, priorities = _places_and_priorities(table, self.order)
        comes_after = reach.comes_before(places, overdue)
        if reach.overdue <= 0:
            # An order may put what runs first among equals. Who passed it by being lent its places
            # came after it when it started, and still does unless its priority is higher now.
            has_passed = table.started >= entry.gang.arrived
            comes_after |= has_passed & (priorities <= reach.priority) & (overdue <= 0)
        return np.asarray(self._are_opportunistic & comes_after)

    def _may_be_owed(self, entry: Ranked) -> bool:
        # What is reserved is for the first that is blocked. Cheap: it is asked for each that waits.
        is_first = self._has_opportunistic and self.ledger.reservation is None
        return is_first and self._may_stop_others(entry)

    def would_yield(self, entry: Ranked, blocked: Ranked) -> bool:
        """Return whether ``entry``, started now, would yield to ``blocked``, which waits on.

        Not if its owner has said how long it runs undisturbed, nor if it has been stopped too often
        already.
        """
        gang, settings = entry.gang, self.snapshot.settings
        if not (gang.is_preemptible and gang.is_resumable and self._may_stop_others(blocked)):
            return False
        if gang.min_runtime_seconds is not None or gang.uid in self.snapshot.running_by_uid:
            return False
        beyond = gang.evictions - settings.eviction_budget
        if beyond >= 0 and beyond >= _granted(np.array([gang.attained_seconds]), settings)[0]:
            return False
        # What it uses of a guarantee or a quota might be what the other lacks when its turn comes.
        if self.queues.has_guarantees and gang.queue != blocked.gang.queue:
            return False
        if gang.charges and gang.namespace == blocked.gang.namespace:
            return False
        reach, overdue = self._reach(blocked), self._overdue_seconds(gang)
        return bool(reach.comes_before(self.order.places[gang.uid][0], overdue))

    def _search(self, gang: Gang) -> "VictimSearch":
        return VictimSearch(gang, self._candidates, self.ledger, self.queues, self.placer)

    def _may_stop_others(self, entry: Ranked) -> bool:
        may = self.snapshot.settings.preemption and bool(self.snapshot.running)
        return may and entry.gang.may_preempt and entry.preemption_priority is not None

    def _is_lowest(self, entry: Ranked) -> bool:
        """Return whether no running gang has a lower priority, and nothing else helps."""
        # A lower bound on the priorities is cheap; the order of all running gangs is not.
        if self._has_elastic or self.queues.has_guarantees or entry.preemption_priority is None:
            return False
        return entry.preemption_priority <= self.order.lowest_running_priority

    def _reach(self, waiting: Ranked) -> _Reach:
        place, entry = self.order.places[waiting.gang.uid]
        if entry.preemption_priority is None or not self._may_stop_others(waiting):
            return _Reach(-math.inf, -math.inf, len(self.order.ranked), 0.0)
        late = self._overdue_seconds(entry.gang)
        overrides = entry.gang.priority >= self.snapshot.settings.budget_override_priority
        priority = entry.preemption_priority
        stop_priority = _least_of(priority, entry.stop_priority)
        stated, claim = _stated(entry.gang, self.snapshot), entry.canary_claim
        return _Reach(priority, stop_priority, place, late, overrides, claim, stated)

    def _overdue_seconds(self, gang: Gang) -> float:
        return math.inf if gang.displaced else self.overdue.seconds(gang)

    def _least(
        self, gang: Gang, reach: _Reach, yielding: BoolArray
    ) -> tuple[list[int], Placement] | None:
        """Return the fewest candidates that are enough, and the places of ``gang`` then."""
        candidates = self._candidates
        is_leaving = candidates.kind == _LEAVE
        is_open = ~candidates.is_of_chosen | is_leaving
        is_asked = is_open & (candidates.kind <= CandidateKind.GIVE_BACK)
        # A gang that started past its wait bound would go before all others again, so it is not
        # stopped for one that is less overdue.
        above = (
            (candidates.priority < np.where(candidates.stops, reach.stop_priority, reach.priority))
            & (candidates.place > reach.place)
            & ((candidates.overdue <= reach.overdue) | ~candidates.stops)
        )
        # A stop for an equal needs the consent of who loses by it.
        may_stop = candidates.may_stop_for(reach.stated) & ~candidates.is_worn
        above &= may_stop | ~candidates.stops
        if reach.claim is not None:
            above &= candidates.yield_to(reach.claim)
        if not reach.overrides:  # a reclaim still may
            above &= candidates.kind < CandidateKind.OVERRIDE
        # An elastic one shrinks first: its candidates add up.
        yields = candidates.are_of(yielding)
        above |= yields
        if not math.isinf(reach.priority):
            is_asked |= is_open & above
            if self.queues.has_guarantees:
                # Whom a gang may reclaim from does not depend on rank: the tree is asked of each.
                ranks, gives = above.tolist(), yields.tolist()
                # Each of these has its turn before the gang again once it has stopped.
                is_ahead = (candidates.stops & (candidates.place < reach.place)).tolist()
                every = [*candidates.leaving, *np.flatnonzero(is_open & ~is_leaving).tolist()]
                return self._search(gang).fewest(
                    self._permitted(gang, every, ranks, gives, is_ahead),
                    lambda chosen: self._permitted(gang, chosen, ranks, gives, is_ahead) == chosen,
                )
        others = np.flatnonzero(is_asked & ~is_leaving).tolist()
        return self._search(gang).fewest([*candidates.leaving, *others]) if others else None

    def _permitted(
        self,
        gang: Gang,
        asked: Iterable[int],
        above: Sequence[bool],
        yields: Sequence[bool],
        is_ahead: Sequence[bool],
    ) -> list[int]:
        """Return those of ``asked`` that guarantees allow, all of them together."""
        candidates, found = self._candidates, []
        refused: set[str] = set()
        with self.queues.without(candidates.given_back(candidates.leaving)):
            for at in asked:
                candidate = candidates[at]
                queue, lost = candidate.queue, candidate.given_back
                if candidates.kind[at] == _LEAVE:
                    found.append(at)
                elif candidate.uid not in refused and (
                    candidate.kind is CandidateKind.GIVE_BACK
                    or yields[at]
                    or self.queues.may_evict(
                        gang.queue, gang.demand, queue, lost, above[at], is_ahead[at]
                    )
                ):
                    found.append(at)
                    self.queues.give_back(queue, lost)
                else:
                    # Its later candidates free what it holds after this one.
                    refused.add(candidate.uid)
        return found


# --- the search for the fewest candidates ---


class VictimSearch:
    """Finds the fewest candidates with which one blocked gang fits.

    1. Find the shortest beginning of the candidates that is enough, by bisection.
    2. Spare those whose places the gang does not take, the last to be asked first, without asking
       the placer again.
    3. Spare the rest one by one, asking the placer each time.

    Lists of candidates hold their indices, first those that leave anyway, each part ascending.
    """

    def __init__(
        self,
        gang: Gang,
        candidates: "Candidates",
        ledger: CapacityLedger,
        queues: QueueTree,
        placer: Placer,
    ) -> None:
        self._gang, self._candidates, self._ledger = gang, candidates, ledger
        self._queues, self._placer = queues, placer
        self._asked = ledger.now.nodes.axis.usage(gang.demand)
        # Limits are asked about each trial only where they are in the way of the gang now.
        self._is_over_limit = not self._is_within_limits()
        self._is_counted_on = candidates.of(ledger.counted_on)[candidates.owner]

    def fits(self, chosen: Sequence[int]) -> Placement | None:
        """Return where the gang fits after ``chosen``, within every limit of its queue, or None."""
        free = self._room(chosen)
        # Sums are cheap and rule out most trials before the placer is asked.
        if (np.maximum(free, 0).sum(axis=0) < self._asked).any():
            return None
        if self._is_over_limit:
            with self._queues.without(self._candidates.given_back(chosen)):
                if not self._is_within_limits():
                    return None
        nodes = self._ledger.now.nodes
        room = FreeCapacity(nodes, nodes.allocatable - free, self._occupants(chosen))
        return self._placer.place(self._gang, room)

    def fewest(
        self, asked: list[int], may: Callable[[list[int]], bool] = lambda _: True
    ) -> tuple[list[int], Placement] | None:
        """Return the fewest of ``asked`` that are enough, and the places then; None if all are not.

        ``may`` returns whether these alone may be taken, where that depends on the others.
        """
        leaving = self._count_leaving(asked)
        best = self.fits(asked) if len(asked) > leaving else None
        if best is None:
            return None
        low, high = max(leaving + 1, self._lower_bound(asked)), len(asked)
        step = 1
        while low < high:
            # Gallop, then bisect: the lower bound is mostly close, and every trial asks the placer.
            middle = min(low + step - 1, (low + high) // 2)
            step *= 2
            placement = self.fits(asked[:middle])
            if placement is None:
                low = middle + 1
            else:
                high, best = middle, placement
        return self._spared(asked[:high], best, may)

    def _count_leaving(self, chosen: Sequence[int]) -> int:
        """Return how many of ``chosen``, the first ones, leave anyway."""
        return int((self._candidates.kind[chosen] == _LEAVE).sum())

    def _room(self, chosen: Sequence[int]) -> IntArray:
        candidates = self._candidates
        is_chosen = np.zeros(len(candidates), dtype=np.bool_)
        is_chosen[list(chosen)] = True
        entries = is_chosen[candidates.owner]
        return self._ledger.room_after(
            candidates.rows[entries], candidates.usage[entries], self._is_counted_on[entries]
        )

    def _occupants(self, chosen: Sequence[int]) -> Occupants:
        """Return the pods that rules see once ``chosen`` are gone; all of one that only shrinks."""
        if not self._gang.has_rules:
            return NOBODY
        candidates = (self._candidates[at] for at in chosen)
        gone = (each.uid for each in candidates if each.kept is None)
        return self._ledger.occupants_after(self._gang, gone)

    def _keeps_rules(self, chosen: Sequence[int], placement: Placement) -> bool:
        """Return whether ``placement`` keeps the rules beside all pods but those of ``chosen``."""
        # A gang whose places are not taken may be in the way all the same: a pod that stays counts
        # for a spread, and for what is to be near.
        if not self._gang.has_rules:
            return True
        nodes = self._ledger.now.nodes
        used = nodes.allocatable - self._room(chosen)
        room = FreeCapacity(nodes, used, self._occupants(chosen))
        return keeps_rules(self._gang, placement, room)

    def _is_within_limits(self) -> bool:
        gang = self._gang
        return self._queues.excess(gang.queue, gang.demand, beside_reserved=True) is None

    def _lower_bound(self, asked: Sequence[int]) -> int:
        """Return a lower bound on how many of ``asked``, from the first, free enough."""
        free = np.maximum(self._ledger.now.free, 0).sum(axis=0)
        freed = free + np.cumsum(self._candidates.freed[asked], axis=0)
        enough = (freed >= self._asked).all(axis=1)
        return int(enough.argmax()) + 1 if enough.any() else len(asked)

    def _spared(
        self, chosen: list[int], placement: Placement, may: Callable[[list[int]], bool]
    ) -> tuple[list[int], Placement]:
        """Return ``chosen`` without those the gang can do without; its places may change."""
        leaving = self._count_leaving(chosen)
        needed = self._needed(chosen, leaving, placement)
        if may(needed) and self._keeps_rules(needed, placement):
            chosen = needed
        staying: set[str] = set()
        room = self._room(chosen)
        for at in chosen[: leaving - 1 if leaving else None : -1]:
            uid = self._candidates[at].uid
            if uid in staying:
                continue
            found = None
            if self._may_be_spared(at, room):
                rest = [other for other in chosen if other != at]
                found = self.fits(rest) if may(rest) else None
            if found is None:
                staying.add(uid)
            else:
                chosen, placement, room = rest, found, self._room(rest)
        return chosen, placement

    def _may_be_spared(self, at: int, room: IntArray) -> bool:
        """Return False where by sums alone the gang does not fit in ``room`` without ``at``."""
        candidates = self._candidates
        entries = candidates.entries(at)
        if self._is_counted_on[entries].any():
            return True  # what it holds is not all of it missing from what is free for good
        rows, usage = summed(candidates.rows[entries], candidates.usage[entries])
        lost = np.maximum(room[rows], 0) - np.maximum(room[rows] - usage, 0)
        return bool((np.maximum(room, 0).sum(axis=0) - lost.sum(axis=0) >= self._asked).all())

    def _needed(self, chosen: list[int], leaving: int, placement: Placement) -> list[int]:
        """Return ``chosen`` without those that neither ``placement`` nor the limits need.

        The first ``leaving`` leave anyway.
        """
        candidates, nodes = self._candidates, self._ledger.now.nodes
        # Its shared volumes are looked at when the rules are.
        rows, used = summed(*usage_of(self._gang, placement, nodes.axis))
        slack = self._room(chosen)[rows] - used
        position = np.full(len(nodes), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        where = position[candidates.rows]
        touching = set(np.unique(candidates.owner[where >= 0]).tolist())
        there = self._occupants(chosen[:leaving])
        against = there.owners_against(pods_at(self._gang, placement), nodes)
        is_short = bool(((slack < 0) & (used > 0)).any())
        staying: set[str] = set()
        needed = []
        gone = candidates.given_back(chosen if self._is_over_limit else ())
        with self._queues.without(gone):
            for at in chosen[: leaving - 1 if leaving else None : -1]:
                candidate = candidates[at]
                left, is_left_short = slack, is_short
                if at in touching and candidate.uid not in staying:
                    entries = candidates.entries(at)
                    at_rows = where[entries]
                    lost = candidates.usage[entries][at_rows >= 0]
                    at_rows = at_rows[at_rows >= 0]
                    left = slack.copy()
                    np.subtract.at(left, at_rows, lost)
                    is_left_short = bool(((left < 0) & (used > 0)).any())
                is_against = candidate.kept is None and candidate.uid in against
                if (
                    candidate.uid in staying
                    or is_left_short
                    or is_against
                    or not self._may_hold(candidate)
                ):
                    staying.add(candidate.uid)
                    needed.append(at)
                else:
                    slack, is_short = left, is_left_short
        return chosen[:leaving] + needed[::-1]

    def _may_hold(self, candidate: Candidate) -> bool:
        """Return whether limits allow the gang beside ``candidate``; if so, count it again."""
        if not self._is_over_limit:
            return True
        self._queues.take(candidate.queue, candidate.given_back)
        if self._is_within_limits():
            return True
        self._queues.give_back(candidate.queue, candidate.given_back)
        return False


# --- the candidates of a cycle ---


class Candidates:
    """All candidates of a cycle as arrays, first to be asked first.

    Attributes:
        kind: Kind of each candidate, shape (candidates,). One that was chosen becomes a LEAVE for
            the gangs that come after.
        priority: The preemption priority of its gang; infinite where the orderer gives none.
        place: The place of its gang in the order.
        overdue: Seconds its gang was past its wait bound when it started, if it is in the line of
            such gangs; else 0.
        rows, usage: Freed by all of them, shapes (entries,) and (entries, resources).
        is_worn: Only a guarantee stops its gang, shape (candidates,).
        owner: The candidate of each entry, ascending, shape (entries,).
        is_of_chosen: True for all candidates of gangs that make room, shape (candidates,).
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        order: TotalOrder,
        wanted: Mapping[str, Mapping[str, int]],
        overdue: OverdueLine,
    ) -> None:
        self._axis = snapshot.nodes.axis
        self._table = table = snapshot.running_table
        is_kept, is_worn = _are_protected(snapshot), _are_worn(snapshot)
        # Most running gangs can only stop or leave; their Candidate is made when it is asked for.
        plain = np.flatnonzero(table.is_leaving | ~(table.is_elastic | is_kept))
        made = [
            (at, candidate)
            for at in np.flatnonzero(table.is_elastic & ~table.is_leaving).tolist()
            for candidate in _candidates_of(table.gangs[at], snapshot, wanted, bool(is_kept[at]))
        ]
        gangs = np.concatenate([plain, np.array([at for at, _ in made], dtype=np.int64)])
        stops = np.where(table.is_kept_by_budget, CandidateKind.OVERRIDE, CandidateKind.STOP)
        kinds = np.where(table.is_leaving, CandidateKind.LEAVE, stops)[plain]
        own_kinds = np.array([candidate.kind for _, candidate in made], dtype=np.int64)
        kind = np.concatenate([kinds, own_kinds])
        places, priorities = _places_and_priorities(table, order)
        started = np.where(kind == CandidateKind.LEAVE, 0.0, -table.started[gangs])
        # What was lent goes back first.
        keys = gangs, started, priorities[gangs], ~table.is_opportunistic[gangs]
        turn = np.lexsort((*keys, is_worn[gangs], kind))
        self._gangs: IntArray = gangs[turn]
        self.kind: IntArray = kind[turn]
        self.priority: FloatArray = priorities[self._gangs]
        self.place: IntArray = places[self._gangs]
        self.overdue: FloatArray = overdue.seconds_at_start[self._gangs]
        stated = [_stated(held.gang, snapshot) for held in table.gangs]
        self._stated: IntArray = np.array(stated, dtype=np.int64).reshape(-1, 2)[self._gangs]
        self._is_resumable: BoolArray = table.is_resumable[self._gangs]
        self.is_worn: BoolArray = is_worn[self._gangs]
        index = np.argsort(turn)
        own = index[len(plain) :].tolist()
        self._made = {at: candidate for at, (_, candidate) in zip(own, made, strict=True)}
        self._order = order
        self._of: dict[frozenset[str], BoolArray] = {}

        candidate_of = np.full(len(table.gangs), -1, dtype=np.int64)
        candidate_of[plain] = index[: len(plain)]
        owner = candidate_of[table.owner]
        is_plain = owner >= 0
        parts = [candidate for _, candidate in made]
        owners = np.repeat(np.array(own, dtype=np.int64), [len(part.rows) for part in parts])
        rows = np.concatenate([table.rows[is_plain], *(part.rows for part in parts)])
        usage = np.concatenate([table.usage[is_plain], *(part.usage for part in parts)])
        owners = np.concatenate([owner[is_plain], owners])
        by_owner = np.argsort(owners, kind="stable")
        self.rows: IntArray = rows[by_owner]
        self.usage: IntArray = usage[by_owner]
        self.owner: IntArray = owners[by_owner]
        self._offsets = np.searchsorted(self.owner, np.arange(len(self.kind) + 1)).tolist()
        self.is_of_chosen: BoolArray = np.zeros(len(self.kind), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.kind)

    def entries(self, at: int) -> slice:
        """Return the entries of one candidate."""
        return slice(self._offsets[at], self._offsets[at + 1])

    def yield_to(self, claim: CanaryClaim) -> BoolArray:
        """Return whose gang the canary of ``claim``, if it is one of its own, puts below it."""
        gangs = (self._table.gangs[at].gang for at in self._gangs.tolist())
        theirs = (self._order.places[gang.uid][1].canary_claim for gang in gangs)
        heights, count = (_height(claim), _height(claim, stops=True)), len(self)
        return np.fromiter(
            (
                each is None
                or each.canary != claim.canary
                or (each.priority is not None and each.priority < heights[stops])
                for each, stops in zip(theirs, self.stops.tolist(), strict=True)
            ),
            np.bool_,
            count,
        )

    def may_stop_for(self, stated: tuple[int, int]) -> BoolArray:
        """Return whose gang can resume, or is less important than one of which ``stated`` is so."""
        return self._is_resumable | (self._stated < np.array(stated)).any(axis=1)

    def are_of(self, which: BoolArray) -> BoolArray:
        """Return which candidates are of running gangs for which ``which``, (gangs,), is true."""
        return which[self._gangs]

    def note_chosen(self, chosen: Sequence[int]) -> None:
        """Take note that the gangs of these candidates make room."""
        self.is_of_chosen |= np.isin(self._gangs, self._gangs[chosen])

    @property
    def stops(self) -> BoolArray:
        """Which candidates are gangs that would stop, shape (candidates,)."""
        return self.kind >= CandidateKind.STOP

    @property
    def leaving(self) -> list[int]:
        """Candidates that are taken anyway: what they leave beyond others' need is anybody's."""
        return np.flatnonzero(self.kind == _LEAVE).tolist()

    def given_back(self, chosen: Iterable[int]) -> Iterator[tuple[str, Amounts]]:
        """Yield queue and amounts that it gets back, for each of ``chosen``."""
        for at in chosen:
            yield self[at].queue, self[at].given_back

    def __getitem__(self, at: int) -> Candidate:
        candidate = self._made.get(at)
        if candidate is None:
            running = self._table.gangs[self._gangs[at]]
            candidate = _candidate(CandidateKind(self.kind[at]), running, running, None, self._axis)
            self._made[at] = candidate
        return candidate

    @cached_property
    def freed(self) -> IntArray:
        """Amounts that each frees over all nodes, shape (candidates, resources)."""
        freed: IntArray = np.zeros((len(self), len(self._axis)), dtype=np.int64)
        np.add.at(freed, self.owner, self.usage)
        return freed

    def of(self, uids: frozenset[str]) -> BoolArray:
        """Return which candidates are of these gangs, shape (candidates,)."""
        if uids not in self._of:  # the same few sets are asked about all through a cycle
            gangs = self._table.gangs
            found = np.fromiter((held.gang.uid in uids for held in gangs), np.bool_, len(gangs))
            self._of[uids] = found[self._gangs]
        return self._of[uids]


def _height(claim: CanaryClaim | None, *, stops: bool = False) -> float:
    """Return what a claim may be compared by; a gang without one has nothing above it."""
    if claim is None:
        return math.inf
    if claim.priority is None:
        return -math.inf
    return _least_of(claim.priority, claim.stop_priority) if stops else claim.priority


def _least_of(preemption_priority: float, stop_priority: float | None) -> float:
    return preemption_priority if stop_priority is None else min(preemption_priority, stop_priority)


def may_stop_by_rank(gang: Gang, other: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``other`` may be stopped for ``gang`` because that comes before it."""
    mine, theirs = _stated(gang, snapshot), _stated(other, snapshot)
    return other.is_resumable or theirs[0] < mine[0] or theirs[1] < mine[1]


def _stated(gang: Gang, snapshot: ClusterSnapshot) -> tuple[int, int]:
    """Return what people have stated of ``gang``: user priority of its queue, class value."""
    queue = snapshot.queues.get(gang.queue)
    return (Queue(gang.queue) if queue is None else queue).user_priority, gang.priority


def _places_and_priorities(table: RunningTable, order: TotalOrder) -> tuple[IntArray, FloatArray]:
    """Return place in the order and preemption priority per running gang; 0 where it leaves."""
    places = np.zeros(len(table.gangs), dtype=np.int64)
    priorities = np.zeros(len(table.gangs), dtype=np.float64)
    staying = np.flatnonzero(~table.is_leaving)
    found = [order.places[table.gangs[at].gang.uid] for at in staying.tolist()]
    places[staying] = [place for place, _ in found]
    given = (entry.preemption_priority for _, entry in found)
    priorities[staying] = [math.inf if priority is None else priority for priority in given]
    return places, priorities


def _are_protected(snapshot: ClusterSnapshot) -> BoolArray:
    """Return which running gangs may not be stopped, or not yet."""
    table = snapshot.running_table
    is_new = (_run_seconds(snapshot) < least_runtimes(snapshot)) & ~table.is_opportunistic
    return np.asarray(~table.is_preemptible | is_new)


def _are_worn(snapshot: ClusterSnapshot) -> BoolArray:
    """Return which running gangs have made room so often that only a guarantee stops them.

    Giving back what was lent does not count: a tenant could collect such stops as a shield.
    """
    table, settings = snapshot.running_table, snapshot.settings
    granted = _granted(table.earlier_seconds + _run_seconds(snapshot), settings)
    return np.asarray(table.evictions - table.yields >= settings.eviction_budget + granted)


def _run_seconds(snapshot: ClusterSnapshot) -> FloatArray:
    """Return for how long each running gang has run since its start, shape (gangs,)."""
    # A clock that was set back makes a start lie in the future: it has run for 0 seconds.
    return np.maximum(0.0, snapshot.now - snapshot.running_table.started)


def _granted(ran: FloatArray, settings: SchedulingSettings) -> IntArray:
    """Return how many evictions beyond the budget go with run times ``ran``, of equal shape.

    One at the backoff and one more at each doubling of it. Without any, one long gang could keep a
    wide one waiting for days, and all that is reserved for that one idle. With one for each hour, a
    gang that saves no checkpoints might never end: so the starts that are left to it grow.
    """
    if not settings.eviction_backoff_seconds:
        return np.zeros(len(ran), dtype=np.int64)
    # x is 0.5 to 1 times two to the power of the exponent
    return np.maximum(np.frexp(ran / settings.eviction_backoff_seconds)[1].astype(np.int64), 0)


def least_runtimes(snapshot: ClusterSnapshot) -> FloatArray:
    """Return how long each running gang is left alone after its start, seconds, shape (gangs,)."""
    settings, table = snapshot.settings, snapshot.running_table
    is_unset = np.isnan(table.least_seconds)
    least = np.where(is_unset, settings.min_runtime_seconds, table.least_seconds)
    # Else the owner of a job could keep a queue from its guarantee for any time.
    least = np.minimum(least, settings.max_min_runtime_seconds)
    if snapshot.has_runtime_caps:
        most = [snapshot.max_min_runtime_seconds(held.gang) for held in table.gangs]
        least = np.minimum(least, np.array(most, dtype=np.float64))
    return np.asarray(least, dtype=np.float64)


def _candidates_of(
    running: RunningGang,
    snapshot: ClusterSnapshot,
    wanted: Mapping[str, Mapping[str, int]],
    is_protected: bool,
) -> Iterator[Candidate]:
    """Yield the candidates of an elastic gang that is not being stopped."""
    gang, axis = running.gang, snapshot.nodes.axis
    held = running
    # While it settles after a resize it makes no room at all, or gangs would be resized in circles.
    if snapshot.now - running.resized < snapshot.settings.resize_settle_seconds:
        return
    asked = {task.name: task.replicas for task in gang.tasks}
    least = {task.name: task.replicas for task in gang.at_minimum.tasks}
    # The sizer would take the rest in this cycle anyway, for nobody in particular.
    sized = wanted.get(gang.uid, asked)
    free = {n: max(least[n], min(size, sized.get(n, size))) for n, size in asked.items()}
    for kind, sizes in ((CandidateKind.GIVE_BACK, free), (CandidateKind.SHRINK, least)):
        kept = smaller(held, sizes, snapshot.nodes)
        if kept is not None:
            after = RunningGang(gang, kept, running.started, anchor_row=running.anchor_row)
            yield _candidate(kind, running, held, after, axis)
            held = after
    if not is_protected:
        kind = CandidateKind.OVERRIDE if running.kept_by_budget else CandidateKind.STOP
        yield _candidate(kind, running, held, None, axis)


def _candidate(
    kind: CandidateKind,
    running: RunningGang,
    held: RunningGang,
    after: RunningGang | None,
    axis: ResourceAxis,
) -> Candidate:
    """Return the candidate: ``running``, by now ``held``, gives up what is not in ``after``."""
    rows, usage = held.usage(axis)
    if after is None:
        return Candidate(kind, running, None, held.current.demand, rows, usage)
    kept_rows, kept = after.usage(axis)
    lost = {name: count - after.sizes.get(name, 0) for name, count in held.sizes.items()}
    given_back = running.gang.resized({t.name: 0 for t in running.gang.tasks} | lost).demand
    rows, usage = np.concatenate([rows, kept_rows]), np.concatenate([usage, -kept])
    return Candidate(kind, running, after.placement, given_back, rows, usage)
