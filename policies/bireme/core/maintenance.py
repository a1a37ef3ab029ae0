"""Maintenance of nodes, announced ahead: no gang starts that would run into a window.

Before a window begins, its node takes gangs that end earlier, by their estimate. A gang without an
estimate counts as running for a day. During the window the node takes none, and running gangs leave
it: an elastic gang goes on without those replicas if it can, any other stops and starts again on
other nodes. The same rule holds for its new place, so it moves once and not from window to window.
After the window the node is as before.

Pods of other controllers stay: only these controllers may stop them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bireme.core import messages
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize, Vacate
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable, without
from bireme.core.placement import Placement, TaskPlacement, keeps_affinity
from bireme.core.pod_constraints import Requirement, SelectorOperator
from bireme.core.policy import Placer
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang, stopping
from bireme.core.snapshot import ClusterSnapshot

UNKNOWN_RUN_SECONDS: Final = 86_400.0
"""The assumed run time of a gang without an estimate."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The windows of a snapshot that have not ended, and their effect on its cycle.

    Attributes:
        snapshot: The snapshot in which no gang may use nodes that it would not leave in time, and
            moved gangs count as leaving.
        exclusions: By uid, an unchanged gang and the nodes that it may not use.
        moves: Stops and shrinks because a window has begun.
    """

    snapshot: ClusterSnapshot
    exclusions: Mapping[str, tuple[Gang, tuple[str, ...]]]
    moves: tuple[Vacate | Resize, ...]
    _running: Mapping[str, RunningGang]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, explain: bool) -> "Maintenance | None":
        """Return the maintenance of ``snapshot``; None where no node has a window ahead."""
        now, nodes = snapshot.now, snapshot.nodes
        windows = [(w.begins, w.ends, name) for name, w in nodes.windows.items() if w.ends > now]
        if not windows:
            return None  # the usual case
        windows.sort()
        by_end: dict[float, tuple[str, ...]] = {}
        exclusions: dict[str, tuple[Gang, tuple[str, ...]]] = {}

        def around(gang: Gang) -> Gang:
            run = gang.estimated_seconds
            end = now + (UNKNOWN_RUN_SECONDS if run is None else run)
            if end not in by_end:
                by_end[end] = tuple(sorted(n for begins, _, n in windows if begins < end))
            names = by_end[end]
            if not names:
                return gang
            exclusions[gang.uid] = gang, names
            return off_nodes(gang, names)

        begun_rows = [nodes.row[name] for begins, _, name in windows if begins <= now]
        moves = tuple(_moves(snapshot, np.array(sorted(begun_rows), dtype=np.int64), explain))
        moved = {move.gang.uid: move for move in moves}
        running: list[RunningGang] = []
        for current in snapshot.running:
            move = moved.get(current.gang.uid)
            if isinstance(move, Vacate):
                current = stopping(current)
            elif isinstance(move, Resize):  # nothing else is done to it in this cycle
                current = replace(
                    current, gang=replace(current.gang, is_elastic=False, is_preemptible=False)
                )
            elif current.gang.is_elastic:
                current = replace(current, gang=around(current.gang))
            if current.is_leaving and current.gang.displaced:
                current = replace(current, gang=around(current.gang))  # its new place is final
            running.append(current)
        planned = replace(
            snapshot,
            waiting=tuple(map(around, snapshot.waiting)),
            running=tuple(running),
            known_table=None,
        )
        return cls(
            planned, exclusions, moves, {current.gang.uid: current for current in snapshot.running}
        )

    def apply(self, decision: Decision, placer: Placer, explain: bool) -> Decision:
        """Return a decision on :attr:`snapshot` as a decision on the original snapshot."""
        actions = (self._restore(action, placer, explain) for action in decision.actions)
        return replace(decision, actions=(*self.moves, *actions))

    def _restore(self, action: Action, placer: Placer, explain: bool) -> Action:
        if isinstance(action, Preempt | Resize | Vacate):
            return replace(action, running=self._running[action.gang.uid])
        gang, names = self.exclusions.get(action.gang.uid, (action.gang, ()))
        if not names:
            return action
        if isinstance(action, Admit):
            return replace(action, gang=_as_given(action.gang, gang))
        return self._explain_hold(replace(action, gang=gang), names, placer, explain)

    def _explain_hold(
        self, hold: Hold, names: tuple[str, ...], placer: Placer, explain: bool
    ) -> Hold:
        """Return the hold of a gang that may not use ``names``, with a message about that."""
        nodes = self.snapshot.nodes
        if hold.reason in (Reason.NEVER_FITS, Reason.NODES_NOT_READY):
            if messages.never_fits(hold.gang, nodes, placer):
                return hold
            # It would fit on the excluded nodes once their windows are over.
            text = messages.maintenance_ahead(hold.gang, names, self.snapshot)
            return replace(hold, reason=Reason.MAINTENANCE_AHEAD, message=text)
        if not explain or hold.reason not in _OF_CAPACITY:
            return hold
        text = messages.maintenance_ahead(hold.gang, names, self.snapshot)
        return replace(hold, message=f"{hold.message}; {text}")


_OF_CAPACITY: Final = (Reason.WAITING_FOR_CAPACITY, Reason.WAITING_BEHIND, Reason.SCALING_UP)


def off_nodes(gang: Gang, names: tuple[str, ...]) -> Gang:
    """Return ``gang`` with its placement excluded from the nodes ``names``; at least one."""
    not_there = Requirement("metadata.name", SelectorOperator.NOT_IN, names)
    tasks = (replace(t, constraints=without(t.constraints, not_there)) for t in gang.tasks)
    return replace(gang, tasks=tuple(tasks))


def _as_given(gang: Gang, original: Gang) -> Gang:
    """Return ``gang``, at its size, with the constraints of ``original``."""
    constraints = {task.name: task.constraints for task in original.tasks}
    tasks = (replace(task, constraints=constraints[task.name]) for task in gang.tasks)
    return replace(gang, tasks=tuple(tasks))


def _moves(snapshot: ClusterSnapshot, rows: IntArray, explain: bool) -> list[Vacate | Resize]:
    """Return the stops and shrinks of gangs on ``rows``, the nodes whose windows have begun."""
    moves: list[Vacate | Resize] = []
    for running in snapshot.running if len(rows) else ():
        gang = running.gang
        affected_rows = np.intersect1d(running.placement.node_rows(), rows)
        is_others = gang.kind == "PodGroup"
        if not len(affected_rows) or running.is_leaving or is_others or not gang.is_preemptible:
            continue
        if running.kept_by_budget:
            continue  # the budget's answer is cached for a minute; then the move is tried again
        remaining = placement_without(running, affected_rows, snapshot.nodes)
        names = [snapshot.nodes.names[row] for row in affected_rows]
        if remaining is not None:
            text = messages.maintenance_move("shrunk", names, snapshot.nodes) if explain else ""
            moves.append(Resize(running, remaining, text, Reason.SHRUNK))
        else:
            text = messages.maintenance_move("stopped", names, snapshot.nodes) if explain else ""
            moves.append(Vacate(running, text))
    return moves


def placement_without(
    running: RunningGang, rows: IntArray | Collection[int], nodes: NodeTable
) -> Placement | None:
    """Return the places of an elastic gang without those on ``rows``.

    None if it cannot go on: it is not elastic, loses its first replica, or would be too small.
    """
    gang = running.gang
    excluded_rows: Sequence[int] = list(rows)
    if not gang.is_elastic or running.anchor_row in excluded_rows:
        return None
    tasks = []
    for task in running.placement.tasks:
        stays = ~np.isin(task.rows, excluded_rows)
        if stays.any():
            tasks.append(TaskPlacement(task.task, task.rows[stays], task.counts[stays]))
    sizes = {task.task: int(task.counts.sum()) for task in tasks}
    min_sizes = {task.name: task.replicas for task in gang.at_minimum.tasks}
    if not tasks or any(sizes.get(name, 0) < minimum for name, minimum in min_sizes.items()):
        return None
    if not keeps_affinity(gang, tasks, nodes):
        return None
    return Placement(tuple(tasks), running.placement.level, running.placement.domain)
