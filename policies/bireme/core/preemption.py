"""Making room: who must shrink or stop so that one blocked gang fits, and as few as possible.

Stopping follows the order of starting. A running gang stops or shrinks only for one that comes
before it in the policy's order *and* has a strictly higher claim (the part of the score that
waiting alone does not raise), or whose queue takes back its guarantee. One that started past its
wait bound would go before all others again: it is not stopped for a gang that is less overdue.
What an elastic gang was lent beyond the size it asked for, it gives up for anybody who waits.

Which steps there are is in :mod:`bireme.core.preemption`, how the fewest are found in
below; here is which of them a gang may ask for. All of it is a trial: nothing is
decided unless the whole gang then fits, its queue's limits included.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from bireme.core.elastic import smaller
from bireme.core.gangs import Gang
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer, Ranked, TotalOrder
from bireme.core.queue_tree import QueueTree
from bireme.core.reservations import Ledger
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, ResourceAxis
from bireme.core.running import RunningGang, RunningTable, summed, usage_of
from bireme.core.snapshot import ClusterSnapshot

# Who could make room in a cycle, step by step, in the order in which they are asked.
#
#     1. Gangs that are being stopped already: their places come free by themselves.
#     2. Elastic gangs give up what they were lent beyond the size they asked for.
#     3. Elastic gangs shrink to their minimum.
#     4. Gangs stop.
#
# Among steps of a kind the lowest claim goes first, then the most recent start. A step frees what
# its gang holds after its earlier steps, so several steps of one gang simply add up. Gangs that may
# not be stopped now have no step 4; one whose size has just changed keeps it, and has none at all.


class Kind(IntEnum):
    """What a step does, first to be asked first."""

    LEAVE = 1
    GIVE_BACK = 2
    SHRINK = 3
    STOP = 4


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One running gang makes room.

    Attributes:
        kept: What it holds afterwards; None when it stops.
        given_back: What its queue gets back by this step.
        rows, usage: Where and what comes free, shapes (entries,) and (entries, resources).
    """

    kind: Kind
    running: RunningGang
    kept: Placement | None
    given_back: Amounts
    rows: IntArray
    usage: IntArray

    @property
    def uid(self) -> str:
        """That of the gang."""
        return self.running.gang.uid

    @property
    def queue(self) -> str:
        """That of the gang."""
        return self.running.gang.queue


class Steps:
    """All steps of a cycle, first to be asked first, and what is asked of them as arrays.

    Of the many running gangs that could only stop, steps are made when somebody asks for one.

    Attributes:
        kind, claim, place, overdue: Of each step, shape (steps,). A step that was chosen for
            somebody is a LEAVE to all who come after. Its gang's are the claim (where
            an orderer gives none, infinite), the place in the order, and by how many seconds it
            was past its wait bound when it started: so much it would be again if it were stopped.
        rows, usage: What all free, shapes (entries,) and (entries, resources).
        owner: The step of each entry, shape (entries,).
    """

    def __init__(self, snapshot: ClusterSnapshot, order: TotalOrder) -> None:
        self._axis = snapshot.nodes.axis
        self._table = table = snapshot.running_table
        is_kept = _are_protected(snapshot)
        plain = np.flatnonzero(table.is_leaving | ~(table.is_elastic | is_kept))
        made = [
            (at, step)
            for at in np.flatnonzero(table.is_elastic & ~table.is_leaving).tolist()
            for step in _steps_of(table.gangs[at], snapshot, is_protected=bool(is_kept[at]))
        ]
        gangs = np.concatenate([plain, np.array([at for at, _ in made], dtype=np.int64)])
        kinds = np.where(table.is_leaving[plain], Kind.LEAVE, Kind.STOP)
        kind = np.concatenate([kinds, np.array([step.kind for _, step in made], dtype=np.int64)])
        places, claims = _standing(table, order)
        started = np.where(kind == Kind.LEAVE, 0.0, -table.started[gangs])
        turn = np.lexsort((gangs, started, claims[gangs], kind))
        self._gangs: IntArray = gangs[turn]
        self.kind: IntArray = kind[turn]
        self.claim: FloatArray = claims[self._gangs]
        self.place: IntArray = places[self._gangs]
        self.overdue: FloatArray = _overdue_at_start(snapshot)[self._gangs]
        index = np.argsort(turn)
        own = index[len(plain) :].tolist()
        self._made = {at: step for at, (_, step) in zip(own, made, strict=True)}
        self._list_entries(plain, index)
        self._of: dict[frozenset[str], BoolArray] = {}

    def _list_entries(self, plain: IntArray, index: IntArray) -> None:
        """Find ``rows``, ``usage``, ``owner``; step ``index[n]`` is that of gang ``plain[n]``."""
        table = self._table
        step_of = np.full(len(table.gangs), -1, dtype=np.int64)
        step_of[plain] = index[: len(plain)]
        owner = step_of[table.owner]
        has_step = owner >= 0
        made = self._made.items()
        lengths = [len(step.rows) for _, step in made]
        owners = np.repeat(np.array(list(self._made), dtype=np.int64), lengths)
        self.rows = np.concatenate([table.rows[has_step], *(step.rows for _, step in made)])
        self.usage = np.concatenate([table.usage[has_step], *(step.usage for _, step in made)])
        self.owner = np.concatenate([owner[has_step], owners])

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def leaving(self) -> list[int]:
        """Steps that are taken anyway: what they leave beyond others' need is anybody's."""
        return np.flatnonzero(self.kind == Kind.LEAVE).tolist()

    def __getitem__(self, at: int) -> Step:
        step = self._made.get(at)
        if step is None:
            running = self._table.gangs[self._gangs[at]]
            step = _step(Kind(self.kind[at]), running, running, None, self._axis)
            self._made[at] = step
        return step

    @cached_property
    def freed(self) -> IntArray:
        """What each frees over all nodes, shape (steps, resources)."""
        freed: IntArray = np.zeros((len(self), len(self._axis)), dtype=np.int64)
        np.add.at(freed, self.owner, self.usage)
        return freed

    def of(self, uids: frozenset[str]) -> BoolArray:
        """Which steps are of these gangs, shape (steps,); remembered."""
        if uids not in self._of:
            gangs = self._table.gangs
            found = np.fromiter((held.gang.uid in uids for held in gangs), np.bool_, len(gangs))
            self._of[uids] = found[self._gangs]
        return self._of[uids]


def _standing(table: RunningTable, order: TotalOrder) -> tuple[IntArray, FloatArray]:
    """Place in the order and claim of every running gang; 0 where it is being stopped."""
    places = np.zeros(len(table.gangs), dtype=np.int64)
    claims = np.zeros(len(table.gangs), dtype=np.float64)
    staying = np.flatnonzero(~table.is_leaving)
    found = [order.places[table.gangs[at].gang.uid] for at in staying.tolist()]
    places[staying] = [place for place, _ in found]
    claims[staying] = [math.inf if entry.claim is None else entry.claim for _, entry in found]
    return places, claims


def _overdue_at_start(snapshot: ClusterSnapshot) -> FloatArray:
    table = snapshot.running_table
    bounds = [snapshot.wait_bound_seconds(held.gang) for held in table.gangs]
    late = np.maximum(0.0, table.started - table.arrived - np.array(bounds, dtype=np.float64))
    return np.where(table.is_leaving, 0.0, late)


def _are_protected(snapshot: ClusterSnapshot) -> BoolArray:
    """Which running gangs may not be stopped, or not now, or have made room too often."""
    settings, table = snapshot.settings, snapshot.running_table
    unsaid = np.isnan(table.least_seconds)
    least = np.where(unsaid, settings.min_runtime_seconds, table.least_seconds)
    return np.asarray(
        ~table.is_preemptible
        | (np.maximum(0.0, snapshot.now - table.started) < least)
        | (table.evictions >= settings.eviction_budget)
    )


def _steps_of(
    running: RunningGang, snapshot: ClusterSnapshot, is_protected: bool
) -> Iterator[Step]:
    """The steps of an elastic gang that is not being stopped."""
    gang, axis = running.gang, snapshot.nodes.axis
    held = running
    if snapshot.now - running.resized < snapshot.settings.resize_settle_seconds:
        return
    for kind, size in ((Kind.GIVE_BACK, gang), (Kind.SHRINK, gang.at_minimum)):
        kept = smaller(held, {t.name: t.replicas for t in size.tasks}, snapshot.nodes)
        if kept is not None:
            after = RunningGang(gang, kept, running.started, anchor_row=running.anchor_row)
            yield _step(kind, running, held, after, axis)
            held = after
    if not is_protected:
        yield _step(Kind.STOP, running, held, None, axis)


def _step(
    kind: Kind,
    running: RunningGang,
    held: RunningGang,
    after: RunningGang | None,
    axis: ResourceAxis,
) -> Step:
    """``running``, by now only ``held``, gives up what is not in ``after``, or everything."""
    rows, usage = held.usage(axis)
    if after is None:
        return Step(kind, running, None, held.current.demand, rows, usage)
    kept_rows, kept = after.usage(axis)
    lost = {name: count - after.sizes.get(name, 0) for name, count in held.sizes.items()}
    without = {task.name: 0 for task in running.gang.tasks}
    return Step(
        kind,
        running,
        after.placement,
        running.gang.resized(without | lost).demand,
        np.concatenate([rows, kept_rows]),
        np.concatenate([usage, -kept]),
    )


# The fewest steps with which one blocked gang fits: who makes room, and who is spared.
#
# The shortest beginning of the steps that is enough is found by bisection. Of these, every step is
# spared that the gang can do without, the last to be asked first: at first those whose places it
# does not take, without asking the placer anew, then one by one whatever is left.


def _any(_: list[int]) -> bool:
    return True


class Trial:
    """One gang, and what would be if some of ``steps`` were taken for it.

    Lists of steps hold their indices, first those that are taken anyway, each part ascending.
    """

    def __init__(
        self, gang: Gang, steps: Steps, ledger: Ledger, queues: QueueTree, placer: Placer
    ) -> None:
        self._gang = gang
        self._steps = steps
        self._ledger = ledger
        self._queues = queues
        self._placer = placer
        self._asked = ledger.now.nodes.axis.usage(gang.demand)
        self._is_over_limit = not self._is_within_limits()
        self._is_counted_on = steps.of(ledger.counted_on)[steps.owner]

    def fits(self, chosen: Sequence[int]) -> Placement | None:
        """Where the gang fits after the steps ``chosen``, within every limit of its queue."""
        free = self._room(chosen)
        if (np.maximum(free, 0).sum(axis=0) < self._asked).any():
            return None
        if self._is_over_limit:
            steps = (self._steps[at] for at in chosen)
            with self._queues.without((step.queue, step.given_back) for step in steps):
                if not self._is_within_limits():
                    return None
        nodes = self._ledger.now.nodes
        return self._placer.place(self._gang, FreeCapacity(nodes, nodes.allocatable - free))

    def least(
        self, asked: list[int], may: Callable[[list[int]], bool] = _any
    ) -> tuple[list[int], Placement] | None:
        """The fewest of ``asked`` that are enough, and the places then; None if all are not.

        ``may`` says whether these alone may be taken, where that depends on the others.
        """
        leaving = int((self._steps.kind[asked] == Kind.LEAVE).sum())
        best = self.fits(asked) if len(asked) > leaving else None
        if best is None:
            return None
        low, high = max(leaving + 1, self._fewest(asked)), len(asked)
        while low < high:
            middle = (low + high) // 2
            placement = self.fits(asked[:middle])
            if placement is None:
                low = middle + 1
            else:
                high, best = middle, placement
        return self._spared(asked[:high], best, may)

    def _room(self, chosen: Sequence[int]) -> IntArray:
        steps = self._steps
        is_chosen = np.zeros(len(steps), dtype=np.bool_)
        is_chosen[list(chosen)] = True
        entries = is_chosen[steps.owner]
        return self._ledger.room_after(
            steps.rows[entries], steps.usage[entries], self._is_counted_on[entries]
        )

    def _is_within_limits(self) -> bool:
        gang = self._gang
        return self._queues.excess(gang.queue, gang.demand, beside_reserved=True) is None

    def _fewest(self, asked: Sequence[int]) -> int:
        """A lower bound on how many of ``asked``, from the first, free as much as is asked."""
        free = np.maximum(self._ledger.now.free, 0).sum(axis=0)
        enough = (free + np.cumsum(self._steps.freed[asked], axis=0) >= self._asked).all(axis=1)
        return int(enough.argmax()) + 1 if enough.any() else len(asked)

    def _spared(
        self, chosen: list[int], placement: Placement, may: Callable[[list[int]], bool]
    ) -> tuple[list[int], Placement]:
        """``chosen`` without what the gang can do without; its places may change by that."""
        needed = self._needed(chosen, placement)
        if may(needed):
            chosen = needed
        staying: set[str] = set()
        for at in reversed(chosen):
            step = self._steps[at]
            if self._steps.kind[at] == Kind.LEAVE or step.uid in staying:
                continue
            rest = [other for other in chosen if other != at]
            found = self.fits(rest) if may(rest) else None
            if found is None:
                staying.add(step.uid)
            else:
                chosen, placement = rest, found
        return chosen, placement

    def _needed(self, chosen: list[int], placement: Placement) -> list[int]:
        """``chosen`` without the steps that neither ``placement`` nor the limits need."""
        steps, nodes = self._steps, self._ledger.now.nodes
        rows, used = summed(*usage_of(self._gang, placement, nodes.axis))
        slack = self._room(chosen)[rows] - used
        position = np.full(len(nodes), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        where = position[steps.rows]
        touching = set(np.unique(steps.owner[where >= 0]).tolist())
        staying: set[str] = set()
        needed = []
        gone = ((steps[at].queue, steps[at].given_back) for at in chosen)
        with self._queues.without(gone if self._is_over_limit else ()):
            for at in reversed(chosen):
                step, left = steps[at], slack
                if at in touching:
                    entries = (steps.owner == at) & (where >= 0)
                    left = slack.copy()
                    np.subtract.at(left, where[entries], steps.usage[entries])
                if (
                    steps.kind[at] == Kind.LEAVE
                    or step.uid in staying
                    or bool(((left < 0) & (used > 0)).any())
                    or not self._may_hold(step)
                ):
                    staying.add(step.uid)
                    needed.append(at)
                else:
                    slack = left
        return needed[::-1]

    def _may_hold(self, step: Step) -> bool:
        """Whether the gang stays within its limits if ``step`` is not taken, which then counts."""
        if not self._is_over_limit:
            return True
        self._queues.take(step.queue, step.given_back)
        if self._is_within_limits():
            return True
        self._queues.give_back(step.queue, step.given_back)
        return False


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far a gang's asking goes: to lower claims, later in the order and not longer overdue."""

    claim: float
    place: int
    overdue: float

    def covers(self, other: "_Reach") -> bool:
        """Whether every step that ``other`` may ask for is within this reach too."""
        return (
            self.claim >= other.claim
            and self.place <= other.place
            and self.overdue >= other.overdue
        )


@dataclass(eq=False)
class Preemption:
    """The preemptions of one cycle, over one snapshot; ``ledger`` and ``queues`` as they change."""

    snapshot: ClusterSnapshot
    placer: Placer
    queues: QueueTree
    order: TotalOrder
    ledger: Ledger
    chosen: set[str] = field(default_factory=set)
    """Uids of gangs that make room: they do so once."""
    _too_large: set[object] = field(default_factory=set)
    """What does not fit even when the leaving gangs have left: until others leave, too."""
    _hopeless: dict[object, _Reach] = field(default_factory=dict)
    """The farthest reach that was not enough, until then."""

    @functools.cached_property
    def _steps(self) -> Steps:
        return Steps(self.snapshot, self.order)

    @functools.cached_property
    def _has_elastic(self) -> bool:
        return bool(self.snapshot.running_table.is_elastic.any())

    @functools.cached_property
    def _has_leaving(self) -> bool:
        return bool(self.snapshot.running_table.is_leaving.any())

    def waits_for_leaving(self, gang: Gang) -> Placement | None:
        """Where ``gang`` fits once those that are being stopped have left; None if it does not."""
        key = (gang.shape, gang.queue)
        if not (self._has_leaving or self.chosen) or key in self._too_large:
            return None
        trial = Trial(gang, self._steps, self.ledger, self.queues, self.placer)
        placement = trial.fits(self._steps.leaving)
        if placement is None:
            self._too_large.add(key)
        return placement

    def make_room(self, entry: Ranked, gang: Gang) -> tuple[list[Step], Placement] | None:
        """What others do for a waiting gang, and its places at the size ``gang`` then.

        The last step of each that makes room; None when nothing that may be done helps. Who was
        chosen is remembered, nothing else is decided.
        """
        if self.is_hopeless(entry, gang):
            return None
        reach = self._reach(entry)
        found = self._least(gang, reach)
        if found is None:
            self._hopeless[gang.shape, gang.queue] = reach
            return None
        chosen, placement = found
        kind = self._steps.kind
        new = [at for at in chosen if kind[at] != Kind.LEAVE]
        victims = {step.uid: step for step in map(self._steps.__getitem__, new)}
        self.chosen |= victims.keys()
        kind[new] = Kind.LEAVE
        self._too_large.clear()
        self._hopeless.clear()
        return list(victims.values()), placement

    def is_hopeless(self, entry: Ranked, gang: Gang) -> bool:
        """Whether it is known already that nobody makes room for a waiting gang."""
        if not (self._has_elastic or self._may_stop_others(entry)):
            return True
        if self._is_lowest(entry):
            return True
        known = self._hopeless.get((gang.shape, gang.queue))
        return known is not None and known.covers(self._reach(entry))

    def _may_stop_others(self, entry: Ranked) -> bool:
        may = self.snapshot.settings.preemption and bool(self.snapshot.running)
        return may and entry.gang.may_preempt and entry.claim is not None

    def _is_lowest(self, entry: Ranked) -> bool:
        """Whether a waiting gang has no higher claim than any that runs, and nothing else helps."""
        if self._has_elastic or self.queues.has_guarantees or entry.claim is None:
            return False
        return entry.claim <= self.order.lowest_running_claim

    def _reach(self, waiting: Ranked) -> _Reach:
        place, entry = self.order.places[waiting.gang.uid]
        if entry.claim is None or not self._may_stop_others(waiting):
            return _Reach(-math.inf, len(self.order.ranked), 0.0)
        late = self.snapshot.overdue_seconds(entry.gang)
        return _Reach(entry.claim, place, math.inf if entry.gang.displaced else late)

    def _least(self, gang: Gang, reach: _Reach) -> tuple[list[int], Placement] | None:
        """The fewest steps that are enough, and the places of ``gang`` then."""
        steps = self._steps
        is_open = ~steps.of(frozenset(self.chosen)) | (steps.kind == Kind.LEAVE)
        is_for_all = is_open & (steps.kind <= Kind.GIVE_BACK)
        above = (
            (steps.claim < reach.claim)
            & (steps.place > reach.place)
            & ((steps.overdue <= reach.overdue) | (steps.kind < Kind.STOP))
        )
        is_asked = is_for_all if math.isinf(reach.claim) else is_for_all | (is_open & above)
        may_reclaim = self.queues.has_guarantees and not math.isinf(reach.claim)
        if not may_reclaim and not (is_asked & (steps.kind > Kind.LEAVE)).any():
            return None
        trial = Trial(gang, steps, self.ledger, self.queues, self.placer)
        others = np.flatnonzero((is_open if may_reclaim else is_asked) & (steps.kind > Kind.LEAVE))
        asked = [*steps.leaving, *others.tolist()]
        if not may_reclaim:
            return trial.least(asked)
        ranks = above.tolist()
        asked = self._permitted(gang, asked, ranks)
        return trial.least(asked, lambda chosen: self._permitted(gang, chosen, ranks) == chosen)

    def _permitted(self, gang: Gang, asked: Iterable[int], above: Sequence[bool]) -> list[int]:
        """Those of ``asked`` that guarantees allow, all of them together."""
        steps, found = self._steps, []
        refused: set[str] = set()
        leaving = [steps[at] for at in steps.leaving]
        with self.queues.without((step.queue, step.given_back) for step in leaving):
            for at in asked:
                step = steps[at]
                if steps.kind[at] == Kind.LEAVE:
                    found.append(at)
                elif step.uid not in refused and (
                    step.kind is Kind.GIVE_BACK
                    or self.queues.may_evict(
                        gang.queue, gang.demand, step.queue, step.given_back, ranks_above=above[at]
                    )
                ):
                    found.append(at)
                    self.queues.give_back(step.queue, step.given_back)
                else:
                    refused.add(step.uid)
        return found
