"""Dolphin: the split between parameter servers and workers with the shortest iteration.

A job keeps the number of replicas it asks for, n; what is chosen is how many of them serve and
how many work:

    minimise 1 / steps_per_second(p, w)  over  p + w <= n

Lee et al. model the iteration as computation D*c/w plus communication over servers and workers;
here the job's own speed law takes its place (the first law of Optimus has the same two terms).
The split is found by enumeration, jobs in rank order, within what the earlier ones have left.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import Allotment, Pool, Sizes, demand_of

_SIZES_TRIED = 64
"""Sizes of one task that are tried; where there are more, they are spaced geometrically, so that
a job that asks for thousands of replicas cannot make a decision slow."""


class Dolphin:
    """Fastest split between parameter servers and workers, by enumeration.

    Source: Lee et al., "Dolphin: Runtime Optimization for Distributed Machine Learning", ICML
    ML Systems Workshop 2016; speed law from Optimus (Peng et al., EuroSys 2018, section 3.2).
    """

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Gangs without a speed get what they ask for; tasks of other roles stay as asked."""
        pool = Pool(ranked, snapshot)
        for allotment in pool.measured(lambda gang: gang.speed is not None):
            fixed = {task.name: allotment.low[task.name] for task in _split_tasks(allotment.gang)}
            pool.fill(allotment, {**allotment.asked, **fixed})
            pool.resize(allotment, _fastest(pool, allotment))
        return pool.proposal()


def _split_tasks(gang: Gang) -> list[Task]:
    """The first task of servers and the first of workers, where the gang has them."""
    first: dict[Role, Task] = {}
    for task in gang.tasks:
        first.setdefault(task.role, task)
    return [first[role] for role in (Role.PS, Role.WORKER) if role in first]


def _fastest(pool: Pool, allotment: Allotment) -> dict[str, int]:
    """The fastest split that fits; ties go to the fewest replicas, then to the fewest servers."""
    gang, held = allotment.gang, dict(allotment.sizes)

    def fits(sizes: Sizes) -> bool:
        return pool.fits(demand_of(gang, {n: sizes[n] - held[n] for n in held}).items())

    return min(
        filter(fits, _splits(allotment)),
        key=lambda sizes: (-pool.steps_per_second(gang, sizes), sum(sizes.values())),
        default=held,
    )


def _splits(allotment: Allotment) -> Iterator[dict[str, int]]:
    """Sizes whose servers and workers together are at most as many as were asked for."""
    split = _split_tasks(allotment.gang)
    if not split:
        return
    budget = sum(allotment.asked[task.name] for task in split)
    *servers, last = split
    ranges = [_tried(allotment.low[task.name], allotment.high[task.name]) for task in servers]
    for chosen in itertools.product(*ranges):
        rest = min(allotment.high[last.name], budget - sum(chosen))
        for size in _tried(allotment.low[last.name], rest):
            sizes = zip((task.name for task in split), (*chosen, size), strict=True)
            yield {**allotment.sizes, **dict(sizes)}


def _tried(low: int, high: int) -> list[int]:
    """Sizes from ``low`` to ``high``: all of them, or both ends and a geometric grid between."""
    if high - low < _SIZES_TRIED:
        return list(range(low, high + 1))
    grid = np.rint(np.geomspace(low, high, _SIZES_TRIED)).astype(np.int64)
    return [int(size) for size in np.unique(grid)]
