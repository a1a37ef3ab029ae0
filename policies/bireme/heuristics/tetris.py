"""Tetris: gangs that use much of the free capacity go first, and little remaining work helps.

Packing well means using the most abundant resources: the alignment of a demand with free capacity
is their scalar product, each resource as a share of its total. The order weighs alignment with the
cluster against remaining work; the placement aligns every replica with a node.

Grandl et al., "Multi-Resource Packing for Cluster Schedulers", SIGCOMM'14, sections 3.2 and 3.3.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import Gang, Task
from bireme.core.parameters import check_parameters
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import RulePlacer, descend
from bireme.heuristics.ranking import SortKey, rank_by

_MIN_SECONDS = 1.0
"""Remaining time of a gang that has outrun its estimate."""


class TetrisOrder:
    """Best alignment with free capacity plus least remaining work; running gangs never stop.

    The score is ``a + w * e * p``: a the alignment, p one over the remaining work (time times
    demand; 0 if the time is unknown), w its weight, e the mean of a over the mean of p. The mean
    is that of the list, so the order depends on the other gangs in it, as in the paper.
    Source: Grandl et al., Tetris, SIGCOMM'14, sections 3.2 and 3.3.
    """

    def __init__(
        self,
        remaining_work_weight: Annotated[
            float,
            Within(0),
            "how much little remaining work counts beside alignment, which counts 1",
        ] = 1.0,
    ) -> None:
        """Raises SettingError if the weight is below 0."""
        check_parameters(type(self), remaining_work_weight=remaining_work_weight)
        self._remaining_work_weight = remaining_work_weight

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return ``gangs`` by descending score."""
        if not gangs:
            return []
        # Usage of the running gangs counts as free, so that a start does not change the order.
        total = np.array(list(snapshot.total.values()), dtype=np.float64)
        demands = _shares([snapshot.nodes.axis.usage(gang.demand) for gang in gangs], total)
        alignment = (demands * _available_shares(gangs, snapshot, total)).sum(axis=1)
        shortness = _shortness(gangs, demands.sum(axis=1), snapshot)
        # Exactly rounded sums: the order in which the gangs are listed must not matter.
        total_shortness = math.fsum(shortness)
        weight = math.fsum(alignment) / total_shortness if total_shortness else 0.0
        scores = (alignment + self._remaining_work_weight * weight * shortness).tolist()
        by_uid = {gang.uid: score for gang, score in zip(gangs, scores, strict=True)}
        return rank_by(gangs, lambda gang: SortKey((-by_uid[gang.uid],), by_uid[gang.uid]))


class TetrisPlacement(RulePlacer):
    """Every replica on the node whose free capacity its demand aligns with best.

    Demand and free capacity count as shares of what the node offers.
    Source: Grandl et al., Tetris, SIGCOMM'14, section 3.2.
    """

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """Divide by alignment."""
        request = capacity.nodes.axis.usage(task.request)
        offered = np.maximum(capacity.nodes.allocatable, 1)

        def cost(rows: IntArray, placed_counts: IntArray) -> FloatArray:
            free = capacity.free[rows] - placed_counts[:, None] * request
            aligned = (request / offered[rows]) * (np.maximum(free, 0) / offered[rows])
            return np.asarray(-aligned.sum(axis=1), dtype=np.float64)

        return descend(cost, room, task.replicas, capacity.tightness)


def _shares(amounts: Sequence[IntArray] | IntArray, total: FloatArray) -> FloatArray:
    """Return ``amounts``, shape (..., resources), as shares of ``total``; 0 if there is none."""
    values = np.asarray(amounts, dtype=np.float64)
    return np.divide(values, total, out=np.zeros_like(values), where=total > 0)


def _available_shares(
    gangs: Sequence[Gang], snapshot: ClusterSnapshot, total: FloatArray
) -> FloatArray:
    """Return the share of every resource that is free or held by one of ``gangs``."""
    free = total - snapshot.used.sum(axis=0)
    for gang in gangs:
        running = snapshot.running_by_uid.get(gang.uid)
        if running is not None:
            free = free + running.usage(snapshot.nodes.axis)[1].sum(axis=0)
    return np.clip(_shares(free, total), 0.0, 1.0)


def _shortness(gangs: Sequence[Gang], sizes: FloatArray, snapshot: ClusterSnapshot) -> FloatArray:
    """Return one over the remaining work, shape (gangs,); 0 if it is unknown."""
    seconds = [snapshot.remaining_seconds(gang) for gang in gangs]
    bounded = [
        math.inf if remaining is None else max(remaining, _MIN_SECONDS) for remaining in seconds
    ]
    work = np.where(sizes > 0, sizes, math.inf) * np.array(bounded)
    return np.asarray(1.0 / work, dtype=np.float64)
