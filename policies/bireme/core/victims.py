"""Who could make room in a cycle, step by step, in the order in which they are asked.

    1. Gangs that are being stopped already: their places come free by themselves.
    2. Elastic gangs give up what they were lent beyond the size they asked for.
    3. Elastic gangs shrink to their minimum.
    4. Gangs stop.

Among steps of a kind the lowest claim goes first, then the most recent start. A step frees what
its gang holds after its earlier steps, so several steps of one gang simply add up. Gangs that may
not be stopped now have no step 4; one whose size has just changed keeps it, and has none at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from bireme.core.order import TotalOrder
from bireme.core.placement import Placement
from bireme.core.resizing import smaller
from bireme.core.resources import Amounts, BoolArray, FloatArray, IntArray, ResourceAxis
from bireme.core.running import RunningGang
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

    Attributes:
        steps: In order.
        kind, claim, place, overdue: Of each step, shape (steps,). Its gang's are the claim (where
            an orderer gives none, infinite), the place in the order, and by how many seconds it
            was past its wait bound when it started: so much it would be again if it were stopped.
        freed: What each frees over all nodes, shape (steps, resources).
        rows, usage: What all free, step after step, shapes (entries,) and (entries, resources).
        owner: The step of each entry, shape (entries,).
    """

    def __init__(self, snapshot: ClusterSnapshot, order: TotalOrder) -> None:
        axis = snapshot.nodes.axis
        found = []
        for running in snapshot.running:
            uid = running.gang.uid
            if running.is_leaving:
                step = _step(Kind.LEAVE, running, running, None, axis)
                found.append(((step.kind, 0.0, 0.0, uid), 0, 0.0, step))
            else:
                place, entry = order.places[uid]
                claim = np.inf if entry.claim is None else entry.claim
                late = _overdue_at_start(running, snapshot)
                found += [
                    ((step.kind, claim, -running.started, uid), place, late, step)
                    for step in _steps_of(running, snapshot)
                ]
        found.sort(key=lambda entry: entry[0])
        self.steps = tuple(entry[3] for entry in found)
        self.kind: IntArray = np.array([entry[0][0] for entry in found], dtype=np.int64)
        self.claim: FloatArray = np.array([entry[0][1] for entry in found], dtype=np.float64)
        self.place: IntArray = np.array([entry[1] for entry in found], dtype=np.int64)
        self.overdue: FloatArray = np.array([entry[2] for entry in found], dtype=np.float64)
        entries = [(step.rows, step.usage) for step in self.steps]
        none = (np.zeros(0, dtype=np.int64), np.zeros((0, len(axis)), dtype=np.int64))
        self.rows: IntArray = np.concatenate([none[0], *(rows for rows, _ in entries)])
        self.usage: IntArray = np.concatenate([none[1], *(usage for _, usage in entries)])
        self.owner: IntArray = np.repeat(np.arange(len(found)), [len(rows) for rows, _ in entries])
        self.freed: IntArray = np.zeros((len(found), len(axis)), dtype=np.int64)
        np.add.at(self.freed, self.owner, self.usage)
        self._of: dict[frozenset[str], BoolArray] = {}

    def of(self, uids: frozenset[str]) -> BoolArray:
        """Which steps are of these gangs, shape (steps,); remembered."""
        if uids not in self._of:
            found = (step.uid in uids for step in self.steps)
            self._of[uids] = np.fromiter(found, np.bool_, len(self.steps))
        return self._of[uids]


def _steps_of(running: RunningGang, snapshot: ClusterSnapshot) -> Iterator[Step]:
    """The steps of a gang that is not being stopped."""
    gang, axis = running.gang, snapshot.nodes.axis
    held = running
    if gang.is_elastic:
        if snapshot.now - running.resized < snapshot.settings.resize_settle_seconds:
            return
        for kind, size in ((Kind.GIVE_BACK, gang), (Kind.SHRINK, gang.at_minimum)):
            kept = smaller(held, {t.name: t.replicas for t in size.tasks}, snapshot.nodes)
            if kept is not None:
                after = RunningGang(gang, kept, running.started, anchor_row=running.anchor_row)
                yield _step(kind, running, held, after, axis)
                held = after
    if not _is_protected(running, snapshot):
        yield _step(Kind.STOP, running, held, None, axis)


def _overdue_at_start(running: RunningGang, snapshot: ClusterSnapshot) -> float:
    gang = running.gang
    return max(0.0, running.started - gang.arrived - snapshot.wait_bound_seconds(gang))


def _is_protected(running: RunningGang, snapshot: ClusterSnapshot) -> bool:
    """Whether the gang may not be stopped, or not now, or has made room too often."""
    settings = snapshot.settings
    least = running.gang.min_runtime_seconds
    least = settings.min_runtime_seconds if least is None else least
    return (
        not running.gang.is_preemptible
        or running.elapsed_seconds(snapshot.now) < least
        or running.gang.evictions >= settings.eviction_budget
    )


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
