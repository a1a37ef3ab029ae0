"""TRADL: a first accuracy target as soon as possible, everything after it as capacity allows.

Users take a model over when it reaches a first target and let it improve afterwards. Until then a
gang ranks by its time to that target; afterwards it is best effort: behind all others, by arrival.

In TRADL users state two accuracies. A gang states none, so the first target is a given share of the
whole fall of its loss, and the second the end of its steps. Gangs without speed, length or loss
curve have no known target: they come between the two groups, by arrival.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from bireme.core.bounds import Within, check_bounds
from bireme.core.gangs import Gang
from bireme.core.policy import GangSizes, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LossCurve
from bireme.heuristics import ranking, sizing
from bireme.heuristics.ranking import SortKey

_BISECTIONS = 60
"""Halvings of the range of steps: more than a float's precision needs."""

FirstTarget: TypeAlias = Annotated[
    float, Within(0, 1), "share of the whole fall of the loss that makes the first target"
]


@dataclass(frozen=True, slots=True)
class TradlOrder:
    """Shortest time to the first accuracy target first, gangs past it last.

    The score is minus the time to the target in seconds, at the requested size. No gang has a
    preemption priority: gangs past their target make room by their size, not by a stop.
    Source: Zheng et al., "Target-Based Resource Allocation for Deep Learning Applications in a
    Multi-Tenancy System", HPEC 2019, as RLPTO (Lu et al.) summarises it in section II.
    """

    first_target: FirstTarget = 0.9

    def __post_init__(self) -> None:
        check_bounds(self)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return three groups: on the way to the first target, target unknown, past it."""
        pool = sizing.CapacityPool((), snapshot)
        return ranking.rank_by(gangs, lambda gang: self._sort_key(gang, pool, snapshot))

    def _sort_key(
        self, gang: Gang, pool: sizing.CapacityPool, snapshot: ClusterSnapshot
    ) -> SortKey:
        """Return the key: group (0 first), and seconds to the target in the first group."""
        steps = steps_to_target(gang, self.first_target, snapshot)
        if steps is None:
            return SortKey((1,), 0.0)
        if steps <= 0:
            return SortKey((2,), 0.0)
        requested_sizes = {task.name: task.replicas for task in gang.tasks}
        seconds = sizing.seconds_for(steps, pool.steps_per_second(gang, requested_sizes))
        return SortKey((0, seconds), -seconds) if math.isfinite(seconds) else SortKey((1,), 0.0)


@dataclass(frozen=True, slots=True)
class TradlSizer:
    """Largest cut of the time to the first target first; best effort gets what is left.

    Source: as :class:`TradlOrder`; the gain per resource is that of Optimus.
    """

    first_target: FirstTarget = 0.9

    def __post_init__(self) -> None:
        check_bounds(self)

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes: minima to all, then gangs before their first target, then gangs past it."""
        pool = sizing.CapacityPool(ranked, snapshot)
        measured = pool.split_measured(_has_target)
        first = {
            entry.gang.uid: steps_to_target(entry.gang, self.first_target, snapshot) or 0.0
            for entry in measured
        }
        unfinished = [entry for entry in measured if first[entry.gang.uid] > 0]
        finished = [entry for entry in measured if first[entry.gang.uid] <= 0]
        sizing.hand_out(pool, unfinished, sizing.minus_seconds(pool, first))
        last = {entry.gang.uid: sizing.steps_left(entry.gang, snapshot) for entry in finished}
        sizing.hand_out(pool, finished, sizing.minus_seconds(pool, last))
        return pool.proposal()


def _has_target(gang: Gang) -> bool:
    return gang.speed is not None and gang.loss is not None and gang.remaining_steps is not None


def steps_to_target(gang: Gang, share: float, snapshot: ClusterSnapshot) -> float | None:
    """Return the steps until ``share`` of the fall of the loss; None if unknown, at most 0 past."""
    if gang.loss is None or gang.remaining_steps is None or gang.speed is None:
        return None
    target = _first_step_at(gang.loss, share, gang.done_steps + gang.remaining_steps)
    return target - sizing.steps_done(gang, snapshot)


def _first_step_at(curve: LossCurve, share: float, end: float) -> float:
    """Return the step at which ``share`` of the fall from step 0 to step ``end`` has happened."""
    start, last = curve.loss(0.0), curve.loss(end)
    target = start - share * (start - last)
    if not target < start:
        return 0.0
    low, high = 0.0, end
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if curve.loss(middle) <= target else (middle, high)
    return high
