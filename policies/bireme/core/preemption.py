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
from bireme.core.running import RunningGang, RunningTable, sum_by_row
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot


class CandidateKind(IntEnum):
    """Ways to make room, in the order in which they are tried."""

    LEAVE = 1
    """The gang is stopping already: its places become free anyway."""
    GIVE_BACK = 2
    """The gang gives up replicas beyond its requested size, or beyond the sizer's target."""
    SHRINK = 3
    """The gang shrinks to its minimum."""
    STOP = 4
    OVERRIDE = 5
    """The gang stops although a PodDisruptionBudget protects its pods."""


# An attribute of an enumeration is looked up slowly, and searches compare kinds very often.
_LEAVE: Final = CandidateKind.LEAVE


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One way in which one running gang makes room.

    A candidate frees only what the gang's earlier candidates leave, so several of one gang add up.

    Attributes:
        remaining: The places that the gang holds afterwards; None when it stops.
        given_back: The amounts that its queue gets back.
        rows, usage: Freed resources and their nodes, shapes (entries,) and (entries, resources).
    """

    kind: CandidateKind
    running: RunningGang
    remaining: Placement | None
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
class _PreemptionRights:
    """Bounds on a gang's candidates: lower priority, later in the order, not longer overdue.

    ``stop_priority`` is the priority against gangs that would stop. ``overrides`` is true where the
    gang's priority overrides PodDisruptionBudgets. ``claim`` is the gang's rank among the gangs of
    its canary. ``user_rank`` comes from :func:`_user_rank`.
    """

    priority: float
    stop_priority: float
    place: int
    overdue: float
    overrides: bool = False
    claim: CanaryClaim | None = None
    user_rank: tuple[int, int] = (0, 0)

    def comes_before(self, place: IntArray | int, overdue: FloatArray | float) -> BoolArray | bool:
        """Return whether the gang has its turn before one other, or before each of an array."""
        if self.overdue > 0:  # the most overdue first, whatever the order
            return overdue < self.overdue
        return (place > self.place) & (overdue <= 0)

    def dominates(self, other: "_PreemptionRights") -> bool:
        return (
            self.priority >= other.priority
            and self.stop_priority >= other.stop_priority
            and self.place <= other.place
            and self.overdue >= other.overdue
            and self.overrides >= other.overrides
            # Both are of one queue, so of one canary.
            and _comparable_priority(self.claim) >= _comparable_priority(other.claim)
            and _comparable_priority(self.claim, stops=True)
            >= _comparable_priority(other.claim, stops=True)
            and self.user_rank >= other.user_rank  # the queue is the same, so the class decides
        )


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
    _infeasible: dict[object, _PreemptionRights] = field(default_factory=dict)
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
        places, priorities = _places_and_priorities(table, self.order)
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
            and beyond >= _extra_evictions(np.array([gang.attained_seconds]), settings)[0]
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

    def _rights(self, waiting: Ranked) -> _PreemptionRights:
        place, entry = self.order.places[waiting.gang.uid]
        if entry.preemption_priority is None or not self._may_stop_others(waiting):
            return _PreemptionRights(-math.inf, -math.inf, len(self.order.ranked), 0.0)
        overdue = self._overdue_seconds(entry.gang)
        overrides = entry.gang.priority >= self.snapshot.settings.budget_override_priority
        priority = entry.preemption_priority
        stop_priority = _least_of(priority, entry.stop_priority)
        user_rank, claim = _user_rank(entry.gang, self.snapshot), entry.canary_claim
        return _PreemptionRights(
            priority, stop_priority, place, overdue, overrides, claim, user_rank
        )

    def _overdue_seconds(self, gang: Gang) -> float:
        return math.inf if gang.displaced else self.overdue.seconds(gang)

    def _find_victims(
        self, gang: Gang, reach: _PreemptionRights, yielding: BoolArray
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


# --- the candidates of a cycle ---


class Candidates:
    """All candidates of a cycle as arrays, in the order in which they are tried.

    Attributes:
        kind: Kind of each candidate, shape (candidates,). A chosen one becomes a LEAVE for later
            gangs.
        priority: The preemption priority of its gang; infinite where the orderer gives none.
        place: The place of its gang in the order.
        overdue: Seconds its gang was past its wait bound at its start, if it is in the line of
            overdue gangs; else 0.
        rows, usage: Resources that all of them free, shapes (entries,) and (entries, resources).
        is_worn: Only a guarantee stops its gang, shape (candidates,).
        owner: The candidate of each entry, ascending, shape (entries,).
        is_of_chosen: True for all candidates of gangs that make room, shape (candidates,).
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        order: TotalOrder,
        target_sizes: Mapping[str, Mapping[str, int]],
        overdue: OverdueLine,
    ) -> None:
        self._axis = snapshot.nodes.axis
        self._table = table = snapshot.running_table
        is_kept, is_worn = _are_protected(snapshot), _are_worn(snapshot)
        # Most running gangs can only stop or leave; their Candidate is built on demand.
        plain = np.flatnonzero(table.is_leaving | ~(table.is_elastic | is_kept))
        elastic = [
            (gang_index, candidate)
            for gang_index in np.flatnonzero(table.is_elastic & ~table.is_leaving).tolist()
            for candidate in _candidates_of(
                table.gangs[gang_index], snapshot, target_sizes, bool(is_kept[gang_index])
            )
        ]
        gangs = np.concatenate(
            [plain, np.array([gang_index for gang_index, _ in elastic], dtype=np.int64)]
        )
        stops = np.where(table.is_kept_by_budget, CandidateKind.OVERRIDE, CandidateKind.STOP)
        kinds = np.where(table.is_leaving, CandidateKind.LEAVE, stops)[plain]
        own_kinds = np.array([candidate.kind for _, candidate in elastic], dtype=np.int64)
        kind = np.concatenate([kinds, own_kinds])
        places, priorities = _places_and_priorities(table, order)
        started = np.where(kind == CandidateKind.LEAVE, 0.0, -table.started[gangs])
        # Borrowed places are returned first.
        keys = gangs, started, priorities[gangs], ~table.is_opportunistic[gangs]
        turn = np.lexsort((*keys, is_worn[gangs], kind))
        self._gangs: IntArray = gangs[turn]
        self.kind: IntArray = kind[turn]
        self.priority: FloatArray = priorities[self._gangs]
        self.place: IntArray = places[self._gangs]
        self.overdue: FloatArray = overdue.seconds_at_start[self._gangs]
        user_rank = [_user_rank(running.gang, snapshot) for running in table.gangs]
        self._user_rank: IntArray = np.array(user_rank, dtype=np.int64).reshape(-1, 2)[self._gangs]
        self._is_resumable: BoolArray = table.is_resumable[self._gangs]
        self.is_worn: BoolArray = is_worn[self._gangs]
        index = np.argsort(turn)
        elastic_numbers = index[len(plain) :].tolist()
        self._instances = {
            number: candidate
            for number, (_, candidate) in zip(elastic_numbers, elastic, strict=True)
        }
        self._order = order
        self._of: dict[frozenset[str], BoolArray] = {}

        candidate_of = np.full(len(table.gangs), -1, dtype=np.int64)
        candidate_of[plain] = index[: len(plain)]
        owner = candidate_of[table.owner]
        is_plain = owner >= 0
        parts = [candidate for _, candidate in elastic]
        owners = np.repeat(
            np.array(elastic_numbers, dtype=np.int64), [len(part.rows) for part in parts]
        )
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

    def entries(self, index: int) -> slice:
        """Return the entries of one candidate."""
        return slice(self._offsets[index], self._offsets[index + 1])

    def yield_to(self, claim: CanaryClaim) -> BoolArray:
        """Return which gangs rank below ``claim``, or belong to no gang of its canary."""
        gangs = (self._table.gangs[index].gang for index in self._gangs.tolist())
        claims = (self._order.places[gang.uid][1].canary_claim for gang in gangs)
        heights, count = (
            (_comparable_priority(claim), _comparable_priority(claim, stops=True)),
            len(self),
        )
        return np.fromiter(
            (
                other is None
                or other.canary != claim.canary
                or (other.priority is not None and other.priority < heights[stops])
                for other, stops in zip(claims, self.stops.tolist(), strict=True)
            ),
            np.bool_,
            count,
        )

    def may_stop_for(self, user_rank: tuple[int, int]) -> BoolArray:
        """Return which gangs can resume, or rank below ``user_rank``."""
        return self._is_resumable | (self._user_rank < np.array(user_rank)).any(axis=1)

    def are_of(self, which: BoolArray) -> BoolArray:
        """Return the candidates of the running gangs in the mask ``which``, shape (gangs,)."""
        return which[self._gangs]

    def note_chosen(self, indices: Sequence[int]) -> None:
        """Record that the gangs of these candidates make room."""
        self.is_of_chosen |= np.isin(self._gangs, self._gangs[indices])

    @property
    def stops(self) -> BoolArray:
        """Mask of the candidates that would stop their gang, shape (candidates,)."""
        return self.kind >= CandidateKind.STOP

    @property
    def leaving(self) -> list[int]:
        """Candidates of stopping gangs: their unused capacity is free for later gangs."""
        return np.flatnonzero(self.kind == _LEAVE).tolist()

    def usage_by_queue(self, indices: Iterable[int]) -> Iterator[tuple[str, Amounts]]:
        """Yield the queue and the amounts that it gets back, for each of ``indices``."""
        for index in indices:
            yield self[index].queue, self[index].given_back

    def __getitem__(self, index: int) -> Candidate:
        candidate = self._instances.get(index)
        if candidate is None:
            running = self._table.gangs[self._gangs[index]]
            candidate = _candidate(
                CandidateKind(self.kind[index]), running, running, None, self._axis
            )
            self._instances[index] = candidate
        return candidate

    @cached_property
    def total_usage(self) -> IntArray:
        """Amounts that each candidate frees over all nodes, shape (candidates, resources)."""
        total_usage: IntArray = np.zeros((len(self), len(self._axis)), dtype=np.int64)
        np.add.at(total_usage, self.owner, self.usage)
        return total_usage

    def of(self, uids: frozenset[str]) -> BoolArray:
        """Return which candidates are of these gangs, shape (candidates,)."""
        if uids not in self._of:  # one cycle asks for the same few sets
            gangs = self._table.gangs
            is_member = np.fromiter(
                (running.gang.uid in uids for running in gangs), np.bool_, len(gangs)
            )
            self._of[uids] = is_member[self._gangs]
        return self._of[uids]


def _comparable_priority(claim: CanaryClaim | None, *, stops: bool = False) -> float:
    """Return the number by which claims compare; infinite for a gang without a claim."""
    if claim is None:
        return math.inf
    if claim.priority is None:
        return -math.inf
    return _least_of(claim.priority, claim.stop_priority) if stops else claim.priority


def _least_of(preemption_priority: float, stop_priority: float | None) -> float:
    return preemption_priority if stop_priority is None else min(preemption_priority, stop_priority)


def may_stop_by_rank(gang: Gang, other: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``other`` may stop for ``gang`` because ``gang`` precedes it."""
    mine, theirs = _user_rank(gang, snapshot), _user_rank(other, snapshot)
    return other.is_resumable or theirs[0] < mine[0] or theirs[1] < mine[1]


def _user_rank(gang: Gang, snapshot: ClusterSnapshot) -> tuple[int, int]:
    """Return the rank that users give ``gang``: its queue's user priority, its class value."""
    queue = snapshot.queues.get(gang.queue)
    return (Queue(gang.queue) if queue is None else queue).user_priority, gang.priority


def _places_and_priorities(table: RunningTable, order: TotalOrder) -> tuple[IntArray, FloatArray]:
    """Return place in the order and preemption priority per running gang; 0 if stopping."""
    places = np.zeros(len(table.gangs), dtype=np.int64)
    priorities = np.zeros(len(table.gangs), dtype=np.float64)
    staying = np.flatnonzero(~table.is_leaving)
    entries = [order.places[table.gangs[index].gang.uid] for index in staying.tolist()]
    places[staying] = [place for place, _ in entries]
    values = (entry.preemption_priority for _, entry in entries)
    priorities[staying] = [math.inf if priority is None else priority for priority in values]
    return places, priorities


def _are_protected(snapshot: ClusterSnapshot) -> BoolArray:
    """Return which running gangs may not stop, or not yet."""
    table = snapshot.running_table
    is_new = (_run_seconds(snapshot) < min_runtimes(snapshot)) & ~table.is_opportunistic
    return np.asarray(~table.is_preemptible | is_new)


def _are_worn(snapshot: ClusterSnapshot) -> BoolArray:
    """Return which running gangs have spent their eviction budget: only a guarantee stops them.

    A return of borrowed places does not count: a tenant could collect such stops as a shield.
    """
    table, settings = snapshot.running_table, snapshot.settings
    granted = _extra_evictions(table.earlier_seconds + _run_seconds(snapshot), settings)
    return np.asarray(table.evictions - table.yields >= settings.eviction_budget + granted)


def _run_seconds(snapshot: ClusterSnapshot) -> FloatArray:
    """Return the seconds since the start of each running gang, shape (gangs,)."""
    # After a clock step backwards, a start may lie in the future: the run time is then 0.
    return np.maximum(0.0, snapshot.now - snapshot.running_table.started)


def _extra_evictions(ran: FloatArray, settings: SchedulingSettings) -> IntArray:
    """Return the number of evictions that run times ``ran`` add to the budget, of equal shape.

    The backoff allows one, and each doubling of run time one more. Without these, one long gang
    could block a wide one for days, with all its reserved nodes idle. With one per hour, a gang
    without checkpoints might never end. So each run may be longer than the last.
    """
    if not settings.eviction_backoff_seconds:
        return np.zeros(len(ran), dtype=np.int64)
    # x is 0.5 to 1 times two to the power of the exponent
    return np.maximum(np.frexp(ran / settings.eviction_backoff_seconds)[1].astype(np.int64), 0)


def min_runtimes(snapshot: ClusterSnapshot) -> FloatArray:
    """Return the seconds after its start in which each running gang may not stop, (gangs,)."""
    settings, table = snapshot.settings, snapshot.running_table
    is_unset = np.isnan(table.least_seconds)
    bounds = np.where(is_unset, settings.min_runtime_seconds, table.least_seconds)
    # Otherwise a job could withhold its queue's guarantee for any time.
    bounds = np.minimum(bounds, settings.max_min_runtime_seconds)
    if snapshot.has_runtime_caps:
        caps = [snapshot.max_min_runtime_seconds(running.gang) for running in table.gangs]
        bounds = np.minimum(bounds, np.array(caps, dtype=np.float64))
    return np.asarray(bounds, dtype=np.float64)


def _candidates_of(
    running: RunningGang,
    snapshot: ClusterSnapshot,
    target_sizes: Mapping[str, Mapping[str, int]],
    is_protected: bool,
) -> Iterator[Candidate]:
    """Yield the candidates of an elastic gang that is not stopping."""
    gang, axis = running.gang, snapshot.nodes.axis
    current = running
    # A gang that settles after a resize makes no room: gangs would be resized in circles.
    if snapshot.now - running.resized < snapshot.settings.resize_settle_seconds:
        return
    current_sizes = {task.name: task.replicas for task in gang.tasks}
    min_sizes = {task.name: task.replicas for task in gang.at_minimum.tasks}
    # The sizer would shrink the gang to this target in this cycle anyway.
    sized = target_sizes.get(gang.uid, current_sizes)
    free = {
        n: max(min_sizes[n], min(size, sized.get(n, size))) for n, size in current_sizes.items()
    }
    for kind, sizes in ((CandidateKind.GIVE_BACK, free), (CandidateKind.SHRINK, min_sizes)):
        placement = smaller(current, sizes, snapshot.nodes)
        if placement is not None:
            remaining = RunningGang(gang, placement, running.started, anchor_row=running.anchor_row)
            yield _candidate(kind, running, current, remaining, axis)
            current = remaining
    if not is_protected:
        kind = CandidateKind.OVERRIDE if running.kept_by_budget else CandidateKind.STOP
        yield _candidate(kind, running, current, None, axis)


def _candidate(
    kind: CandidateKind,
    running: RunningGang,
    current: RunningGang,
    remaining: RunningGang | None,
    axis: ResourceAxis,
) -> Candidate:
    """Return the candidate with which ``running`` shrinks from ``current`` to ``remaining``."""
    rows, usage = current.usage(axis)
    if remaining is None:
        return Candidate(kind, running, None, current.current.demand, rows, usage)
    remaining_rows, remaining_usage = remaining.usage(axis)
    lost = {name: count - remaining.sizes.get(name, 0) for name, count in current.sizes.items()}
    given_back = running.gang.with_sizes({t.name: 0 for t in running.gang.tasks} | lost).demand
    rows, usage = np.concatenate([rows, remaining_rows]), np.concatenate([usage, -remaining_usage])
    return Candidate(kind, running, remaining.placement, given_back, rows, usage)
