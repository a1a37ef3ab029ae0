"""Preemption: finds the fewest running gangs that must shrink or stop for one blocked gang.

Candidates are tried by :class:`CandidateKind`. Within a kind, gangs that started opportunistically
come first, then the lowest preemption priority, then the most recent start.

A running gang shrinks or stops only for a gang that precedes it in the policy's order *and* has a
strictly higher preemption priority. Two gangs of one canary are also compared by the canary's own
claim. A queue that reclaims its guarantee needs neither. A gang whose class and queue do not rank
below the blocked gang stops only if it can resume (``Gang.is_resumable``), however overdue the
blocked gang is. An orderer may require a higher priority for a stop (``stop_priority`` of
:class:`~bireme.core.policy.Ranked`). An elastic gang gives up its replicas beyond its requested
size, or beyond the sizer's target, for any waiting gang.

The eviction budget protects a gang from all but a queue that reclaims its guarantee. It does not
protect a gang on borrowed places. A gang may have a late turn because its queue borrows for an
earlier gang. It then reclaims nothing from a gang with an earlier turn, which would restart first.

A gang that started opportunistically (:mod:`bireme.core.reservations`) also stops for the first
blocked gang, if that precedes it, whatever their priorities.

A gang under a PodDisruptionBudget is tried last, as in kube-scheduler. It stops only for a queue
that reclaims its guarantee, for a gang whose priority overrides budgets, or if it started
opportunistically.

Nothing is decided unless the whole gang then fits, its queue's limits included.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core.candidates import (
    Candidate,
    CandidateKind,
    Candidates,
    PreemptionRights,
    extra_evictions,
    places_and_priorities,
    rank_by_user,
    stop_priority_of,
)
from bireme.core.gangs import Gang
from bireme.core.overdue import OverdueLine
from bireme.core.placement import FreeCapacity, Placement, pods_at, usage_of
from bireme.core.pod_rules import NOBODY, Occupants
from bireme.core.policy import Placer, Ranked, TotalOrder
from bireme.core.queue_tree import QueueTree
from bireme.core.reservations import CapacityLedger
from bireme.core.resources import BoolArray, IntArray
from bireme.core.ruled_placement import keeps_rules
from bireme.core.running import sum_by_row
from bireme.core.snapshot import ClusterSnapshot

# An attribute of an enumeration is looked up slowly, and searches compare kinds very often.
_LEAVE: Final = CandidateKind.LEAVE


@dataclass(eq=False)
class Preemptor:
    """Makes room for blocked gangs during one cycle.

    ``ledger`` and ``queues`` are those of the admission pass and change between two calls.

    Attributes:
        target_sizes: The sizer's sizes by uid and task name.
        overdue: The line of gangs past their wait bound.
        victim_uids: Uids of gangs that make room in this cycle; each does so once.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    queues: QueueTree
    order: TotalOrder
    ledger: CapacityLedger
    target_sizes: Mapping[str, Mapping[str, int]]
    overdue: OverdueLine
    victim_uids: set[str] = field(default_factory=set)
    _too_large: set[object] = field(default_factory=set)
    """Shape and queue of gangs that do not fit even after all stopping gangs have ended."""
    _infeasible: dict[object, PreemptionRights] = field(default_factory=dict)
    """The strongest rights that were not enough, by shape and queue."""

    @cached_property
    def _candidates(self) -> "Candidates":
        return Candidates(self.snapshot, self.order, self.target_sizes, self.overdue)

    @cached_property
    def _has_elastic(self) -> bool:
        return bool(self.snapshot.running_table.is_elastic.any())

    @cached_property
    def _are_opportunistic(self) -> BoolArray:
        table = self.snapshot.running_table
        # Any user can create a PodDisruptionBudget, so it does not protect a gang on borrowed
        # places.
        return np.asarray(table.is_opportunistic & table.is_preemptible & ~table.is_leaving)

    @cached_property
    def _has_opportunistic(self) -> bool:
        return bool(self._are_opportunistic.any())

    @cached_property
    def _has_leaving(self) -> bool:
        return bool(self.snapshot.running_table.is_leaving.any())

    def waits_for_leaving(self, gang: Gang) -> Placement | None:
        """Return where ``gang`` fits once all stopping gangs have ended; None if it does not."""
        key = (self.snapshot.shape(gang), gang.queue)
        if not (self._has_leaving or self.victim_uids) or key in self._too_large:
            return None
        placement = self._search(gang).fits(self._candidates.leaving)
        if placement is None:
            self._too_large.add(key)
        return placement

    def make_room(self, entry: Ranked, gang: Gang) -> tuple[list[Candidate], Placement] | None:
        """Return the gangs that make room for a waiting one, and its places at the size ``gang``.

        The list has one candidate per gang, its last; None if no permitted candidates suffice.
        """
        if self.is_known_infeasible(entry, gang):
            return None
        reach = self._rights(entry)
        solution = self._find_victims(gang, reach, self.yielding(entry))
        if solution is None:
            self._infeasible[self.snapshot.shape(gang), gang.queue] = reach
            return None
        indices, placement = solution
        kind = self._candidates.kind
        new = [
            index
            for index, entry_kind in zip(indices, kind[indices].tolist(), strict=True)
            if entry_kind != _LEAVE
        ]
        victims = {candidate.uid: candidate for candidate in map(self._candidates.__getitem__, new)}
        self.victim_uids |= victims.keys()
        self._candidates.note_chosen(new)
        # Later gangs treat the victims as stopping already: spare capacity is free for them.
        kind[new] = CandidateKind.LEAVE
        self._too_large.clear()
        self._infeasible.clear()
        return list(victims.values()), placement

    def is_known_infeasible(self, entry: Ranked, gang: Gang) -> bool:
        """Return whether an earlier search has shown that no gang can make room for this one."""
        if not (self._has_elastic or self._may_stop_others(entry)):
            return True
        if self._may_be_owed(entry) and self.yielding(entry).any():
            return False
        if self._is_lowest(entry):
            return True
        previous = self._infeasible.get((self.snapshot.shape(gang), gang.queue))
        return previous is not None and previous.dominates(self._rights(entry))

    def yielding(self, entry: Ranked) -> BoolArray:
        """Return which running gangs yield to ``entry``, shape (gangs,).

        Those gangs started opportunistically and come after ``entry``, the first blocked gang.
        """
        table = self.snapshot.running_table
        if not self._may_be_owed(entry):
            return np.zeros(len(table.gangs), dtype=np.bool_)
        reach, overdue = self._rights(entry), self.overdue.seconds_at_start
        places, priorities = places_and_priorities(table, self.order)
        comes_after = reach.comes_before(places, overdue)
        if reach.overdue <= 0:
            # An order may put running gangs first among equals. A gang on borrowed places started
            # after this one arrived, so it came later; it still does unless its priority is higher.
            has_passed = table.started >= entry.gang.arrived
            comes_after |= has_passed & (priorities <= reach.priority) & (overdue <= 0)
        return np.asarray(self._are_opportunistic & comes_after)

    def _may_be_owed(self, entry: Ranked) -> bool:
        # The reservation belongs to the first blocked gang. This check is cheap: it runs for every
        # waiting gang.
        is_first = self._has_opportunistic and self.ledger.reservation is None
        return is_first and self._may_stop_others(entry)

    def would_yield(self, entry: Ranked, blocked: Ranked) -> bool:
        """Return whether ``entry``, started now, would yield to ``blocked``, which keeps waiting.

        A gang does not yield within a minimum runtime of its own, nor once its eviction budget is
        spent.
        """
        gang, settings = entry.gang, self.snapshot.settings
        if not (gang.is_preemptible and gang.is_resumable and self._may_stop_others(blocked)):
            return False
        if gang.min_runtime_seconds is not None or gang.uid in self.snapshot.running_by_uid:
            return False
        beyond = gang.evictions - settings.eviction_budget
        if (
            beyond >= 0
            and beyond >= extra_evictions(np.array([gang.attained_seconds]), settings)[0]
        ):
            return False
        # It could use guarantee or quota that the blocked gang needs.
        if self.queues.has_guarantees and gang.queue != blocked.gang.queue:
            return False
        if gang.charges and gang.namespace == blocked.gang.namespace:
            return False
        reach, overdue = self._rights(blocked), self._overdue_seconds(gang)
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

    def _rights(self, waiting: Ranked) -> PreemptionRights:
        place, entry = self.order.places[waiting.gang.uid]
        if entry.preemption_priority is None or not self._may_stop_others(waiting):
            return PreemptionRights(-math.inf, -math.inf, len(self.order.ranked), 0.0)
        overdue = self._overdue_seconds(entry.gang)
        overrides = entry.gang.priority >= self.snapshot.settings.budget_override_priority
        priority = entry.preemption_priority
        stop_priority = stop_priority_of(priority, entry.stop_priority)
        user_rank, claim = rank_by_user(entry.gang, self.snapshot), entry.canary_claim
        return PreemptionRights(
            priority, stop_priority, place, overdue, overrides, claim, user_rank
        )

    def _overdue_seconds(self, gang: Gang) -> float:
        return math.inf if gang.displaced else self.overdue.seconds(gang)

    def _find_victims(
        self, gang: Gang, reach: PreemptionRights, yielding: BoolArray
    ) -> tuple[list[int], Placement] | None:
        """Return the fewest candidates that are enough, and the places of ``gang`` then."""
        candidates = self._candidates
        is_leaving = candidates.kind == _LEAVE
        is_open = ~candidates.is_of_chosen | is_leaving
        is_asked = is_open & (candidates.kind <= CandidateKind.GIVE_BACK)
        # A gang that started past its wait bound would precede all others again, so it does not
        # stop for a less overdue gang.
        is_outranked = (
            (candidates.priority < np.where(candidates.stops, reach.stop_priority, reach.priority))
            & (candidates.place > reach.place)
            & ((candidates.overdue <= reach.overdue) | ~candidates.stops)
        )
        # A gang of equal rank stops only if it can resume.
        may_stop = candidates.may_stop_for(reach.user_rank) & ~candidates.is_worn
        is_outranked &= may_stop | ~candidates.stops
        if reach.claim is not None:
            is_outranked &= candidates.yield_to(reach.claim)
        if not reach.overrides:  # reclaiming a guarantee is not affected
            is_outranked &= candidates.kind < CandidateKind.OVERRIDE
        # An elastic gang shrinks first: its candidates add up.
        yields = candidates.are_of(yielding)
        is_outranked |= yields
        if not math.isinf(reach.priority):
            is_asked |= is_open & is_outranked
            if self.queues.has_guarantees:
                # Reclaiming does not depend on rank, so the queue tree decides on each candidate.
                ranks, gives = is_outranked.tolist(), yields.tolist()
                # These gangs would precede the blocked gang again once they have stopped.
                is_ahead = (candidates.stops & (candidates.place < reach.place)).tolist()
                every = [*candidates.leaving, *np.flatnonzero(is_open & ~is_leaving).tolist()]
                return self._search(gang).fewest(
                    self._filter_by_guarantees(gang, every, ranks, gives, is_ahead),
                    lambda subset: (
                        self._filter_by_guarantees(gang, subset, ranks, gives, is_ahead) == subset
                    ),
                )
        eligible = np.flatnonzero(is_asked & ~is_leaving).tolist()
        return self._search(gang).fewest([*candidates.leaving, *eligible]) if eligible else None

    def _filter_by_guarantees(
        self,
        gang: Gang,
        indices: Iterable[int],
        is_outranked: Sequence[bool],
        yields: Sequence[bool],
        is_ahead: Sequence[bool],
    ) -> list[int]:
        """Return those of ``indices`` that guarantees allow together."""
        candidates, allowed = self._candidates, []
        refused: set[str] = set()
        with self.queues.without(candidates.usage_by_queue(candidates.leaving)):
            for index in indices:
                candidate = candidates[index]
                queue, lost = candidate.queue, candidate.given_back
                if candidates.kind[index] == _LEAVE:
                    allowed.append(index)
                elif candidate.uid not in refused and (
                    candidate.kind is CandidateKind.GIVE_BACK
                    or yields[index]
                    or self.queues.may_evict(
                        gang.queue, gang.demand, queue, lost, is_outranked[index], is_ahead[index]
                    )
                ):
                    allowed.append(index)
                    self.queues.give_back(queue, lost)
                else:
                    # The gang's later candidates build on this one.
                    refused.add(candidate.uid)
        return allowed


# --- the search for the fewest candidates ---


class VictimSearch:
    """Finds the fewest candidates with which one blocked gang fits.

    1. Find the shortest prefix of the candidates that is enough, by bisection.
    2. Prune candidates whose places the gang does not take, the last first, without the placer.
    3. Prune the rest one by one, with a placer call each.

    Lists of candidates hold their indices: first the stopping gangs, then the rest, each ascending.
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
        self._demand = ledger.now.nodes.axis.usage(gang.demand)
        # Trials check limits only if a limit blocks the gang now.
        self._is_over_limit = not self._is_within_limits()
        self._is_counted_on = candidates.of(ledger.counted_on)[candidates.owner]

    def fits(self, selection: Sequence[int]) -> Placement | None:
        """Return where the gang fits after ``selection``, within all queue limits, or None."""
        free = self._room(selection)
        # Sums are cheap and reject most trials before the placer runs.
        if (np.maximum(free, 0).sum(axis=0) < self._demand).any():
            return None
        if self._is_over_limit:
            with self._queues.without(self._candidates.usage_by_queue(selection)):
                if not self._is_within_limits():
                    return None
        nodes = self._ledger.now.nodes
        room = FreeCapacity(nodes, nodes.allocatable - free, self._occupants(selection))
        return self._placer.place(self._gang, room)

    def fewest(
        self, indices: list[int], may: Callable[[list[int]], bool] = lambda _: True
    ) -> tuple[list[int], Placement] | None:
        """Return the fewest of ``indices`` that are enough, and the places; None if all are not.

        ``may`` returns whether a subset may be taken, where that depends on its other members.
        """
        leaving = self._count_leaving(indices)
        best = self.fits(indices) if len(indices) > leaving else None
        if best is None:
            return None
        low, high = max(leaving + 1, self._lower_bound(indices)), len(indices)
        step = 1
        while low < high:
            # Gallop, then bisect: the lower bound is mostly close, and every trial calls the
            # placer.
            middle = min(low + step - 1, (low + high) // 2)
            step *= 2
            placement = self.fits(indices[:middle])
            if placement is None:
                low = middle + 1
            else:
                high, best = middle, placement
        return self._prune(indices[:high], best, may)

    def _count_leaving(self, selection: Sequence[int]) -> int:
        """Return how many of ``selection``, from its start, belong to stopping gangs."""
        return int((self._candidates.kind[selection] == _LEAVE).sum())

    def _room(self, selection: Sequence[int]) -> IntArray:
        candidates = self._candidates
        is_chosen = np.zeros(len(candidates), dtype=np.bool_)
        is_chosen[list(selection)] = True
        entries = is_chosen[candidates.owner]
        return self._ledger.room_after(
            candidates.rows[entries], candidates.usage[entries], self._is_counted_on[entries]
        )

    def _occupants(self, selection: Sequence[int]) -> Occupants:
        """Return the pods that rules see after ``selection``; a shrinking gang keeps all pods."""
        if not self._gang.has_rules:
            return NOBODY
        candidates = (self._candidates[index] for index in selection)
        stopped_uids = (candidate.uid for candidate in candidates if candidate.remaining is None)
        return self._ledger.occupants_after(self._gang, stopped_uids)

    def _keeps_rules(self, selection: Sequence[int], placement: Placement) -> bool:
        """Return whether ``placement`` keeps the rules beside all pods except the victims'."""
        # A gang can block the placement without holding its places: each of its pods counts for
        # topology spread and affinity.
        if not self._gang.has_rules:
            return True
        nodes = self._ledger.now.nodes
        used = nodes.allocatable - self._room(selection)
        room = FreeCapacity(nodes, used, self._occupants(selection))
        return keeps_rules(self._gang, placement, room)

    def _is_within_limits(self) -> bool:
        gang = self._gang
        return self._queues.excess(gang.queue, gang.demand, beside_reserved=True) is None

    def _lower_bound(self, indices: Sequence[int]) -> int:
        """Return a lower bound on the length of a prefix of ``indices`` that frees enough."""
        free = np.maximum(self._ledger.now.free, 0).sum(axis=0)
        total_usage = free + np.cumsum(self._candidates.total_usage[indices], axis=0)
        enough = (total_usage >= self._demand).all(axis=1)
        return int(enough.argmax()) + 1 if enough.any() else len(indices)

    def _prune(
        self, selection: list[int], placement: Placement, may: Callable[[list[int]], bool]
    ) -> tuple[list[int], Placement]:
        """Return ``selection`` without candidates that the gang does not need, and its places."""
        leaving = self._count_leaving(selection)
        needed = self._prune_by_places(selection, leaving, placement)
        if may(needed) and self._keeps_rules(needed, placement):
            selection = needed
        staying: set[str] = set()
        room = self._room(selection)
        for index in selection[: leaving - 1 if leaving else None : -1]:
            uid = self._candidates[index].uid
            if uid in staying:
                continue
            alternative = None
            if self._may_prune(index, room):
                rest = [other for other in selection if other != index]
                alternative = self.fits(rest) if may(rest) else None
            if alternative is None:
                staying.add(uid)
            else:
                selection, placement, room = rest, alternative, self._room(rest)
        return selection, placement

    def _may_prune(self, index: int, room: IntArray) -> bool:
        """Return False if sums alone show that the gang does not fit without this candidate."""
        candidates = self._candidates
        entries = candidates.entries(index)
        if self._is_counted_on[entries].any():
            return True  # the long-term free capacity already counts part of its usage
        rows, usage = sum_by_row(candidates.rows[entries], candidates.usage[entries])
        lost = np.maximum(room[rows], 0) - np.maximum(room[rows] - usage, 0)
        return bool((np.maximum(room, 0).sum(axis=0) - lost.sum(axis=0) >= self._demand).all())

    def _prune_by_places(
        self, selection: list[int], leaving: int, placement: Placement
    ) -> list[int]:
        """Return ``selection`` without candidates that neither ``placement`` nor limits need.

        The first ``leaving`` entries belong to stopping gangs.
        """
        candidates, nodes = self._candidates, self._ledger.now.nodes
        # Shared volumes are checked together with the rules.
        rows, used = sum_by_row(*usage_of(self._gang, placement, nodes.axis))
        slack = self._room(selection)[rows] - used
        position = np.full(len(nodes), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        where = position[candidates.rows]
        touching = set(np.unique(candidates.owner[where >= 0]).tolist())
        occupants = self._occupants(selection[:leaving])
        against = occupants.owners_against(pods_at(self._gang, placement), nodes)
        is_short = bool(((slack < 0) & (used > 0)).any())
        staying: set[str] = set()
        needed = []
        returned = candidates.usage_by_queue(selection if self._is_over_limit else ())
        with self._queues.without(returned):
            for index in selection[: leaving - 1 if leaving else None : -1]:
                candidate = candidates[index]
                remaining, is_remaining_short = slack, is_short
                if index in touching and candidate.uid not in staying:
                    entries = candidates.entries(index)
                    touched_rows = where[entries]
                    lost = candidates.usage[entries][touched_rows >= 0]
                    touched_rows = touched_rows[touched_rows >= 0]
                    remaining = slack.copy()
                    np.subtract.at(remaining, touched_rows, lost)
                    is_remaining_short = bool(((remaining < 0) & (used > 0)).any())
                is_against = candidate.remaining is None and candidate.uid in against
                if (
                    candidate.uid in staying
                    or is_remaining_short
                    or is_against
                    or not self._may_hold(candidate)
                ):
                    staying.add(candidate.uid)
                    needed.append(index)
                else:
                    slack, is_short = remaining, is_remaining_short
        return selection[:leaving] + needed[::-1]

    def _may_hold(self, candidate: Candidate) -> bool:
        """Return whether limits allow the gang beside ``candidate``; if so, charge it again."""
        if not self._is_over_limit:
            return True
        self._queues.take(candidate.queue, candidate.given_back)
        if self._is_within_limits():
            return True
        self._queues.give_back(candidate.queue, candidate.given_back)
        return False
