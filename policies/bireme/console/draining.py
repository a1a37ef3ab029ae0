"""What a drain of nodes would move, decided by the operator's own cycle on a copy of the cluster.

An eviction is a loss to the gang as a whole: it starts again where it fits, from its last
checkpoint. An elastic gang merely goes on smaller, as long as its first replica and its minimum
stay. Nothing is asked of, or done to, the cluster itself.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.resources import IntArray, add
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one gang.

    Attributes:
        replicas: How many of its replicas are on the nodes that are drained.
        shrinks: Whether it goes on without them.
        starts_again: Whether it would be started elsewhere at once.
        message: Where, or why not, in the operator's own words.
    """

    gang: Gang
    replicas: int
    shrinks: bool
    starts_again: bool
    message: str


def preview(snapshot: ClusterSnapshot, drained: Collection[str], policy: Policy) -> list[Move]:
    """What becomes of every gang on the nodes called ``drained``, by namespace and name.

    Raises KeyError for a node that is not in ``snapshot``.
    """
    rows = np.array(sorted(snapshot.nodes.row[name] for name in drained), dtype=np.int64)
    there = {r.gang.uid: r for r in snapshot.running if _on(r, rows)}
    whole = {uid: r for uid, r in there.items() if not _goes_on(r, rows)}
    decision = run_cycle(_without(snapshot, whole, drained), policy)
    moves = [_move(running, rows, uid in whole, decision) for uid, running in there.items()]
    return sorted(moves, key=lambda move: move.gang.key)


def _on(running: RunningGang, rows: IntArray) -> int:
    """How many of its replicas are on ``rows``."""
    return sum(_counted(running, rows).values())


def _counted(running: RunningGang, rows: IntArray) -> dict[str, int]:
    return {
        task.task: int(task.counts[np.isin(task.rows, rows)].sum())
        for task in running.placement.tasks
    }


def _goes_on(running: RunningGang, rows: IntArray) -> bool:
    """Whether an elastic gang can do without its replicas there."""
    if not running.gang.is_elastic or running.anchor_row in rows:
        return False
    lost = _counted(running, rows)
    least = {task.name: task.replicas for task in running.gang.at_minimum.tasks}
    sizes = running.sizes
    return all(sizes.get(name, 0) - lost.get(name, 0) >= fewest for name, fewest in least.items())


def _without(
    snapshot: ClusterSnapshot,
    whole: dict[str, RunningGang],
    drained: Collection[str],
) -> ClusterSnapshot:
    """The cluster after the drain: its nodes are cordoned, and gangs of them wait again."""
    nodes = NodeTable(
        [replace(n, is_cordoned=n.is_cordoned or n.name in drained) for n in snapshot.nodes.nodes],
        snapshot.nodes.topology_levels,
    )
    used, queue_usage = snapshot.used.copy(), {**snapshot.queue_usage}
    for running in whole.values():
        at, amounts = running.usage(snapshot.nodes.axis)
        np.subtract.at(used, at, amounts)
        queue = running.gang.queue
        queue_usage[queue] = add(dict(queue_usage.get(queue, {})), running.current.demand, -1)
    again = [replace(running.gang, arrived=snapshot.now) for running in whole.values()]
    return replace(
        snapshot,
        nodes=nodes,
        used=used,
        waiting=(*snapshot.waiting, *again),
        queue_usage=queue_usage,
        running=tuple(r for r in snapshot.running if r.gang.uid not in whole),
        known_table=None,
    )


def _move(running: RunningGang, rows: IntArray, is_whole: bool, decision: Decision) -> Move:
    gang, replicas = running.gang, _on(running, rows)
    if not is_whole:
        left = sum(running.sizes.values()) - replicas
        return Move(gang, replicas, True, False, f"goes on with {left} replicas")
    for admit in decision.admitted:
        if admit.gang.uid == gang.uid:
            return Move(gang, replicas, False, True, admit.message)
    held = next(hold for hold in decision.held if hold.gang.uid == gang.uid)
    return Move(gang, replicas, False, False, f"{held.reason}: {held.message}")
