"""Sizers that use measured speeds: Optimus, SLAQ and Dolphin.

Every gang first gets its minimum. Optimus and SLAQ then give one replica at a time to the gang that
gains most per unit of its dominant share; they differ in what counts as a gain. Dolphin keeps the
number of replicas and divides it between parameter servers and workers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from bireme.core.bounds import Within, check_bounds
from bireme.core.gangs import Gang, Role, Task
from bireme.core.policy import GangSizes, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LossCurve
from bireme.heuristics import sizing

# --- Optimus: replicas go where they shorten the remaining time most, per resource they take ---
#
#     gain of one more replica of task t = (R(sizes) - R(sizes + t)) / D(t)
#     R(sizes) = steps left / steps per second,  D(t) = dominant share of one replica of t
#
# The paper takes D as an amount of the dominant resource; ours is that amount as a share of the
# cluster, so that gains in different resources compare. Growth ends if an extra server or worker
# alone does not help, even if both together would: the paper's rule looks one replica ahead.


class Optimus:
    """Largest cut of the remaining time per resource first.

    Source: Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning
    Clusters", EuroSys 2018, section 4.1.
    """

    def __init__(self, price: Callable[[sizing.Allotment, Task], float] | None = None) -> None:
        """``price`` is that of one more replica; None stands for D(t), its dominant share."""
        self._price = price

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes; gangs of unknown speed or length get their request first."""
        pool = sizing.CapacityPool(ranked, snapshot)
        measured = pool.split_measured(
            lambda g: g.speed is not None and g.remaining_steps is not None
        )
        remaining = {entry.gang.uid: sizing.steps_left(entry.gang, snapshot) for entry in measured}
        sizing.hand_out(pool, measured, sizing.minus_seconds(pool, remaining), self._price)
        return pool.proposal()


# --- SLAQ: replicas go where the loss should fall most in the next scheduling epoch ---
#
# Losses of different models do not compare, so every fall is divided by the job's largest fall in
# one step. Both families of curves in the paper fall ever more slowly, so that is the first step:
# loss(0) - loss(1).
#
#     value = (loss(k) - loss(k + epoch * steps per second)) / (loss(0) - loss(1))
#
# k is the number of steps so far. Gains are per dominant share, where the paper counts cores.


@dataclass(frozen=True, slots=True)
class Slaq:
    """Largest predicted fall of the normalised loss per resource first.

    Source: Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning",
    SoCC 2017, sections 3 and 4.
    """

    epoch_seconds: Annotated[
        float, Within(1), "how far ahead losses are predicted; gangs cannot move every few seconds"
    ] = 600.0

    def __post_init__(self) -> None:
        check_bounds(self)

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes; gangs without a speed or a loss curve get their request first."""
        pool = sizing.CapacityPool(ranked, snapshot)
        measured = pool.split_measured(
            lambda gang: gang.speed is not None and gang.loss is not None
        )
        done = {entry.gang.uid: sizing.steps_done(entry.gang, snapshot) for entry in measured}

        def value(allotment: sizing.Allotment, sizes: sizing.Sizes) -> float:
            gang = allotment.gang
            steps = pool.steps_per_second(gang, sizes) * self.epoch_seconds
            return _relative_fall(gang.loss, done[gang.uid], steps) if gang.loss else 0.0

        sizing.hand_out(pool, measured, value)
        return pool.proposal()


def _relative_fall(curve: LossCurve, done: float, steps: float) -> float:
    largest = curve.loss(0.0) - curve.loss(1.0)
    if not largest > 0:
        return 0.0
    return (curve.loss(done) - curve.loss(done + steps)) / largest


# --- Dolphin: the split between parameter servers and workers with the shortest iteration ---
#
# A job keeps its requested number of replicas, n; the sizer chooses how many of them serve and how
# many work:
#
#     minimise 1 / steps_per_second(p, w)  over  p + w <= n
#
# Lee et al. model the iteration as computation D*c/w plus communication over servers and workers;
# here the job's own speed law takes its place (the first law of Optimus has the same two terms).
# The split is found by enumeration, jobs in rank order, within the remaining capacity.

_SIZES_TRIED = 64
"""The limit on sizes of one task that are tried. More sizes are spaced geometrically, so that a
job with thousands of replicas cannot make a decision slow."""


class Dolphin:
    """Fastest split between parameter servers and workers, by enumeration.

    Source: Lee et al., "Dolphin: Runtime Optimization for Distributed Machine Learning", ICML
    ML Systems Workshop 2016; speed law from Optimus (Peng et al., EuroSys 2018, section 3.2).
    """

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes; gangs without a speed and tasks of other roles get their request."""
        pool = sizing.CapacityPool(ranked, snapshot)
        for allotment in pool.split_measured(lambda gang: gang.speed is not None):
            fixed = {task.name: allotment.low[task.name] for task in _split_tasks(allotment.gang)}
            pool.fill(allotment, {**allotment.requested, **fixed})
            pool.resize(allotment, _fastest(pool, allotment))
        return pool.proposal()


def _split_tasks(gang: Gang) -> list[Task]:
    """Return the first task of servers and the first of workers, if the gang has them."""
    first: dict[Role, Task] = {}
    for task in gang.tasks:
        first.setdefault(task.role, task)
    return [first[role] for role in (Role.PS, Role.WORKER) if role in first]


def _fastest(pool: sizing.CapacityPool, allotment: sizing.Allotment) -> dict[str, int]:
    """Return the fastest split that fits; ties: fewest replicas, then fewest servers."""
    gang, current = allotment.gang, dict(allotment.sizes)

    def fits(sizes: sizing.Sizes) -> bool:
        return pool.fits(
            sizing.demand_of(gang, {n: sizes[n] - current[n] for n in current}).items()
        )

    return min(
        filter(fits, _splits(allotment)),
        key=lambda sizes: (-pool.steps_per_second(gang, sizes), sum(sizes.values())),
        default=current,
    )


def _splits(allotment: sizing.Allotment) -> Iterator[dict[str, int]]:
    """Yield sizes whose servers and workers together are at most their requested number."""
    split = _split_tasks(allotment.gang)
    if not split:
        return
    budget = sum(allotment.requested[task.name] for task in split)
    *servers, last = split
    ranges = [_grid(allotment.low[task.name], allotment.high[task.name]) for task in servers]
    for server_sizes in itertools.product(*ranges):
        rest = min(allotment.high[last.name], budget - sum(server_sizes))
        for size in _grid(allotment.low[last.name], rest):
            sizes = zip((task.name for task in split), (*server_sizes, size), strict=True)
            yield {**allotment.sizes, **dict(sizes)}


def _grid(low: int, high: int) -> list[int]:
    """Return sizes from ``low`` to ``high``: all, or both ends and a geometric grid between."""
    if high - low < _SIZES_TRIED:
        return list(range(low, high + 1))
    grid = np.rint(np.geomspace(low, high, _SIZES_TRIED)).astype(np.int64)
    return [int(size) for size in np.unique(grid)]
