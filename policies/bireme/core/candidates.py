"""Candidates of preemption: running gangs that may shrink or stop, in the order of trial."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core.elastic import smaller
from bireme.core.gangs import Gang
from bireme.core.overdue import OverdueLine
from bireme.core.placement import Placement
from bireme.core.policy import CanaryClaim, TotalOrder
from bireme.core.queues import Queue
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, ResourceAxis
from bireme.core.running import RunningGang, RunningTable
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


# An attribute of an enumeration is looked up slowly, and arrays compare kinds very often.
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
class PreemptionRights:
    """Bounds on a gang's candidates: lower priority, later in the order, not longer overdue.

    ``stop_priority`` is the priority against gangs that would stop. ``overrides`` is true where the
    gang's priority overrides PodDisruptionBudgets. ``claim`` is the gang's rank among the gangs of
    its canary. ``user_rank`` comes from :func:`rank_by_user`.
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

    def dominates(self, other: "PreemptionRights") -> bool:
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
        places, priorities = places_and_priorities(table, order)
        started = np.where(kind == CandidateKind.LEAVE, 0.0, -table.started[gangs])
        # Borrowed places are returned first.
        keys = gangs, started, priorities[gangs], ~table.is_opportunistic[gangs]
        turn = np.lexsort((*keys, is_worn[gangs], kind))
        self._gangs: IntArray = gangs[turn]
        self.kind: IntArray = kind[turn]
        self.priority: FloatArray = priorities[self._gangs]
        self.place: IntArray = places[self._gangs]
        self.overdue: FloatArray = overdue.seconds_at_start[self._gangs]
        user_rank = [rank_by_user(running.gang, snapshot) for running in table.gangs]
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
    return stop_priority_of(claim.priority, claim.stop_priority) if stops else claim.priority


def stop_priority_of(preemption_priority: float, stop_priority: float | None) -> float:
    return preemption_priority if stop_priority is None else min(preemption_priority, stop_priority)


def may_stop_by_rank(gang: Gang, other: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``other`` may stop for ``gang`` because ``gang`` precedes it."""
    mine, theirs = rank_by_user(gang, snapshot), rank_by_user(other, snapshot)
    return other.is_resumable or theirs[0] < mine[0] or theirs[1] < mine[1]


def rank_by_user(gang: Gang, snapshot: ClusterSnapshot) -> tuple[int, int]:
    """Return the rank that users give ``gang``: its queue's user priority, its class value."""
    queue = snapshot.queues.get(gang.queue)
    return (Queue(gang.queue) if queue is None else queue).user_priority, gang.priority


def places_and_priorities(table: RunningTable, order: TotalOrder) -> tuple[IntArray, FloatArray]:
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
    granted = extra_evictions(table.earlier_seconds + _run_seconds(snapshot), settings)
    return np.asarray(table.evictions - table.yields >= settings.eviction_budget + granted)


def _run_seconds(snapshot: ClusterSnapshot) -> FloatArray:
    """Return the seconds since the start of each running gang, shape (gangs,)."""
    # After a clock step backwards, a start may lie in the future: the run time is then 0.
    return np.maximum(0.0, snapshot.now - snapshot.running_table.started)


def extra_evictions(ran: FloatArray, settings: SchedulingSettings) -> IntArray:
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
