"""Maintenance of nodes, announced ahead: nothing starts that would outlast its beginning.

Until a window begins, its node takes gangs that end before, by their estimate; one without an
estimate counts as a run of a day. While the window lasts the node takes none, and what still runs
there when it begins is moved: an elastic gang goes on without those replicas where it can, any
other stops and starts again elsewhere. Where it goes, the same rule holds, so that it is moved once
and not from window to window. When the window ends, the node is as before.

Pods of other controllers are left where they are: only these may stop them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bireme.core import messages
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize, Vacate
from bireme.core.gangs import Gang, Requirement, SelectorOperator
from bireme.core.nodes import NodeTable, without
from bireme.core.placement import Placement, TaskPlacement, keeps_affinity
from bireme.core.policy import Placer
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang, stopping
from bireme.core.snapshot import ClusterSnapshot

UNKNOWN_RUN_SECONDS: Final = 86_400.0
"""How long a gang without an estimate counts as running."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The windows of a snapshot that have not ended, as its cycle is to see them.

    Attributes:
        snapshot: The snapshot with every gang kept off the nodes that it would not leave in time,
            and with the gangs that are moved as leaving.
        kept: By uid, a gang as it is and the nodes that it is kept off.
        moves: What stops or shrinks because a window has begun.
    """

    snapshot: ClusterSnapshot
    kept: Mapping[str, tuple[Gang, tuple[str, ...]]]
    moves: tuple[Vacate | Resize, ...]
    _running: Mapping[str, RunningGang]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, explain: bool) -> "Maintenance | None":
        """Return the maintenance of ``snapshot``; None where no node has a window ahead."""
        now, nodes = snapshot.now, snapshot.nodes
        ahead = [(w.begins, w.ends, name) for name, w in nodes.windows.items() if w.ends > now]
        if not ahead:
            return None  # as in nearly every cluster
        ahead.sort()
        by_end: dict[float, tuple[str, ...]] = {}
        kept: dict[str, tuple[Gang, tuple[str, ...]]] = {}

        def around(gang: Gang) -> Gang:
            run = gang.estimated_seconds
            end = now + (UNKNOWN_RUN_SECONDS if run is None else run)
            if end not in by_end:
                by_end[end] = tuple(sorted(n for begins, _, n in ahead if begins < end))
            names = by_end[end]
            if not names:
                return gang
            kept[gang.uid] = gang, names
            return off_nodes(gang, names)

        begun = [nodes.row[name] for begins, _, name in ahead if begins <= now]
        moves = tuple(_moves(snapshot, np.array(sorted(begun), dtype=np.int64), explain))
        moved = {move.gang.uid: move for move in moves}
        running: list[RunningGang] = []
        for each in snapshot.running:
            move = moved.get(each.gang.uid)
            if isinstance(move, Vacate):
                each = stopping(each)
            elif isinstance(move, Resize):  # nothing else is done to it in this cycle
                each = replace(
                    each, gang=replace(each.gang, is_elastic=False, is_preemptible=False)
                )
            elif each.gang.is_elastic:
                each = replace(each, gang=around(each.gang))
            if each.is_leaving and each.gang.displaced:
                each = replace(each, gang=around(each.gang))  # where it goes, it stays
            running.append(each)
        seen = replace(
            snapshot,
            waiting=tuple(map(around, snapshot.waiting)),
            running=tuple(running),
            known_table=None,
        )
        return cls(seen, kept, moves, {each.gang.uid: each for each in snapshot.running})

    def decided(self, decision: Decision, placer: Placer, explain: bool) -> Decision:
        """Return what was decided on :attr:`snapshot` as a decision on the one it was made of."""
        actions = (self._restored(action, placer, explain) for action in decision.actions)
        return replace(decision, actions=(*self.moves, *actions))

    def _restored(self, action: Action, placer: Placer, explain: bool) -> Action:
        if isinstance(action, Preempt | Resize | Vacate):
            return replace(action, running=self._running[action.gang.uid])
        gang, names = self.kept.get(action.gang.uid, (action.gang, ()))
        if not names:
            return action
        if isinstance(action, Admit):
            return replace(action, gang=_as_given(action.gang, gang))
        return self._held(replace(action, gang=gang), names, placer, explain)

    def _held(self, hold: Hold, names: tuple[str, ...], placer: Placer, explain: bool) -> Hold:
        """Return the hold of a gang that is kept off ``names``, with words about that."""
        nodes = self.snapshot.nodes
        if hold.reason in (Reason.NEVER_FITS, Reason.NODES_NOT_READY):
            if messages.never_fits(hold.gang, nodes, placer):
                return hold
            # It would fit on the nodes that it is kept off, once their windows are over.
            words = messages.maintenance_ahead(hold.gang, names, self.snapshot)
            return replace(hold, reason=Reason.MAINTENANCE_AHEAD, message=words)
        if not explain or hold.reason not in _OF_CAPACITY:
            return hold
        words = messages.maintenance_ahead(hold.gang, names, self.snapshot)
        return replace(hold, message=f"{hold.message}; {words}")


_OF_CAPACITY: Final = (Reason.WAITING_FOR_CAPACITY, Reason.WAITING_BEHIND, Reason.SCALING_UP)


def off_nodes(gang: Gang, names: tuple[str, ...]) -> Gang:
    """Return ``gang`` such that it is not placed on the nodes ``names``, of which there is one."""
    not_there = Requirement("metadata.name", SelectorOperator.NOT_IN, names)
    tasks = (replace(t, constraints=without(t.constraints, not_there)) for t in gang.tasks)
    return replace(gang, tasks=tuple(tasks))


def _as_given(gang: Gang, given: Gang) -> Gang:
    """Return ``gang``, at the size it has, with the constraints that ``given`` has."""
    known = {task.name: task.constraints for task in given.tasks}
    tasks = (replace(task, constraints=known[task.name]) for task in gang.tasks)
    return replace(gang, tasks=tuple(tasks))


def _moves(snapshot: ClusterSnapshot, rows: IntArray, explain: bool) -> list[Vacate | Resize]:
    """Return what is done to the gangs on ``rows``, the nodes whose windows have begun."""
    moves: list[Vacate | Resize] = []
    for running in snapshot.running if len(rows) else ():
        gang = running.gang
        there = np.intersect1d(running.placement.node_rows(), rows)
        is_others = gang.kind == "PodGroup"
        if not len(there) or running.is_leaving or is_others or not gang.is_preemptible:
            continue
        if running.kept_by_budget:
            continue  # known for a minute; then it is asked again
        left = left_after(running, there, snapshot.nodes)
        names = [snapshot.nodes.names[row] for row in there]
        if left is not None:
            words = messages.moved("shrunk", names, snapshot.nodes) if explain else ""
            moves.append(Resize(running, left, words, Reason.SHRUNK))
        else:
            words = messages.moved("stopped", names, snapshot.nodes) if explain else ""
            moves.append(Vacate(running, words))
    return moves


def left_after(
    running: RunningGang, rows: IntArray | Collection[int], nodes: NodeTable
) -> Placement | None:
    """Return the places on which an elastic gang goes on without those on ``rows``.

    None where it cannot: it is not elastic, loses its first replica, or would be too small.
    """
    gang = running.gang
    gone: Sequence[int] = list(rows)
    if not gang.is_elastic or running.anchor_row in gone:
        return None
    tasks = []
    for task in running.placement.tasks:
        stays = ~np.isin(task.rows, gone)
        if stays.any():
            tasks.append(TaskPlacement(task.task, task.rows[stays], task.counts[stays]))
    sizes = {task.task: int(task.counts.sum()) for task in tasks}
    least = {task.name: task.replicas for task in gang.at_minimum.tasks}
    if not tasks or any(sizes.get(name, 0) < fewest for name, fewest in least.items()):
        return None
    if not keeps_affinity(gang, tasks, nodes):
        return None
    return Placement(tuple(tasks), running.placement.level, running.placement.domain)
