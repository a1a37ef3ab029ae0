"""Who could make room in a cycle, step by step, in the order in which they are asked.

    1. Gangs that are being stopped already: their places come free by themselves.
    2. Elastic gangs give up what they were lent beyond the size they asked for.
    3. Elastic gangs shrink to their minimum.
    4. Gangs stop.

Among steps of a kind the lowest claim goes first, then the most recent start. A step frees what
its gang holds after its earlier steps, so several steps of one gang simply add up. Gangs that may
not be stopped now have no step 4; one whose size has just changed keeps it, and has none at all.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from bireme.core.order import TotalOrder
from bireme.core.placement import Placement
from bireme.core.resizing import smaller
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, ResourceAxis
from bireme.core.running import RunningGang, RunningTable
from bireme.core.snapshot import ClusterSnapshot


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
