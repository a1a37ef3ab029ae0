"""Moves: a running gang stops, but not for another gang, and restarts at once on faster GPUs.

Moves happen only while no gang waits, so that its target places are free and it is first in the
queue for them. The placer decides where a gang would be so much faster that a move pays off
(:class:`~bireme.core.policy.Placer`). This module chooses the gangs for which it is asked. A move
does not count against the gang's ``evictionBudget``: only the gang itself gains by it.
"""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from bireme.core import messages
from bireme.core.canary import PolicySet
from bireme.core.candidates import min_runtimes
from bireme.core.decision import Vacate
from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable
from bireme.core.placement import CLUSTER_LEVEL, Placement
from bireme.core.policy import TotalOrder
from bireme.core.reasons import Reason
from bireme.core.reservations import CapacityLedger
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot

_NEVER: Final = -np.inf


def moves(
    snapshot: ClusterSnapshot,
    deciders: PolicySet,
    order: TotalOrder,
    ledger: CapacityLedger,
    changing: Collection[str],
    explain: bool,
) -> Iterator[Vacate]:
    """Yield the gangs that stop to start again on faster GPUs, in order.

    ``ledger`` has the free capacity after all starts of this cycle, and no reservation.
    ``changing`` are uids of gangs that this cycle stops or resizes anyway.
    """
    if not (snapshot.nodes.differ_in_gpu_speed and snapshot.settings.preemption):
        return  # the usual case
    able = {
        running.gang.uid: running
        for running in _movable(snapshot, deciders, ledger)
        if running.gang.uid not in changing
    }
    for entry in order.ranked if able else ():
        running = able.get(entry.gang.uid)
        if running is None:
            continue
        placement = deciders.faster(running, ledger.now, snapshot.now)
        if placement is None or _is_wider(placement, running, snapshot.nodes):
            continue
        ledger.take(running.current, placement)
        text = messages.faster_gpus(running, placement, snapshot) if explain else ""
        yield Vacate(running, text, Reason.FASTER_GPUS)


def _movable(
    snapshot: ClusterSnapshot, deciders: PolicySet, ledger: CapacityLedger
) -> Iterator[RunningGang]:
    """Yield the running gangs that may stop and that fit on faster GPUs than their own."""
    table, nodes = snapshot.running_table, snapshot.nodes
    column = nodes.axis.column(GPU)
    if column is None:
        return
    speeds = nodes.gpu_speeds
    fastest = speeds[ledger.now.free[:, column] > 0].max(initial=_NEVER)
    own_speeds = np.full(len(table.gangs), np.inf)
    uses = table.usage[:, column] > 0
    np.minimum.at(own_speeds, table.owner[uses], speeds[table.rows[uses]])
    has_run = snapshot.now - table.started >= min_runtimes(snapshot)
    # An elastic gang resizes instead. While it waits, its request differs, so it might return.
    is_able = has_run & table.is_preemptible & table.is_resumable
    is_able &= ~(table.is_elastic | table.is_leaving)
    rows = np.flatnonzero(is_able & ~table.is_kept_by_budget & (own_speeds < fastest))
    # Thousands of running gangs have few shapes, and most fit nowhere else.
    fits: dict[object, bool] = {}
    for row, speed in zip(rows.tolist(), own_speeds[rows].tolist(), strict=True):
        running = table.gangs[row]
        if not _may_move(running, snapshot.now):
            continue
        key = snapshot.shape(running.gang), running.gang.queue, speed, running.placement.level
        if key not in fits:
            placement = deciders.place(running.gang, ledger.now.only_on(speeds > speed, GPU))
            fits[key] = placement is not None and not _is_wider(placement, running, nodes)
        if fits[key]:
            yield running


def _is_wider(placement: Placement, running: RunningGang, nodes: NodeTable) -> bool:
    """Return whether ``placement`` is in a wider topology domain than ``running`` is now."""
    levels = (*nodes.topology_levels, CLUSTER_LEVEL)
    return levels.index(placement.level) > levels.index(running.placement.level)


def _may_move(running: RunningGang, now: float) -> bool:
    gang = running.gang
    # Only kube-scheduler knows all that ties its pods to nodes, such as volumes. The node demands
    # of running pods of other controllers are unknown.
    if gang.kind == "PodGroup":
        return False
    if gang.has_demands or running.is_starting or running.current is not gang:
        return False
    # If the faster nodes refuse it, it loses little of its work: each start is as long as all
    # earlier ones together, so there are few moves.
    return running.elapsed_seconds(now) >= gang.attained_seconds
