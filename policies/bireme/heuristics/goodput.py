"""Goodput: sizes that maximise the speedup of all gangs together, weighed against restarts.

    goodput(sizes)  = steps per second * statistical efficiency, the latter 1 where not measured
    speedup(sizes)  = goodput(sizes) / goodput(an equal share of the cluster)
    fitness         = (1/J * sum of speedup^p)^(1/p)

p = 1 maximises the sum; below 1 the fitness is fairer, and at p = -1, Pollux' default, one starved
gang weighs much. A running gang that would change size has its speedup multiplied by Pollux'
restart factor (T - N*delta) / (T + delta): T its age, N its restarts so far, delta the cost of one.

The defaults are not those of Pollux (p = -1, delta = 30 s). On training workloads of its authors,
p = 0, the product of the speedups (proportional fairness), and a delta of four times the real cost
of a restart end jobs 3 % sooner, at 0.6 of the p99 wait: sizes change less often.

Pollux searches genetically, Sia by an integer program. Here the fitness is climbed from three
starts (minima, equal shares, present sizes), by the largest gain per resource and then by moving
single replicas between gangs; the best end wins. So it is never worse than equal shares, but need
not be optimal.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from bireme.core.bounds import Within, check_bounds
from bireme.core.gangs import Gang, Task
from bireme.core.policy import GangSizes, Ranked
from bireme.core.resources import Request
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import EfficiencyLaw
from bireme.heuristics import sizing

_MIN_GAIN = 1e-9
"""Smaller improvements are rounding, and their search might never end; smaller shares too."""
_MAX_MOVES = 200
"""The limit on replicas that move between gangs, per start of the search."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Largest fair sum of speedups, with a price on every restart.

    Source: Qiao et al., "Pollux", OSDI 2021, sections 3 and 4.2; Jayaram Subramanya et al.,
    "Sia", SOSP 2023, section 3.
    """

    sizes_measured_only: ClassVar[bool] = True

    fairness_power: Annotated[
        float,
        Within(-10, 1),
        "p of the fitness: 1 is the sum of the speedups, 0 their product, below 0 is fairer; "
        "Pollux has -1",
    ] = 0.0
    restart_seconds: Annotated[
        float,
        Within(0),
        "what a change of size is taken to cost a gang; Pollux has the 30 s that it measured",
    ] = 120.0

    def __post_init__(self) -> None:
        check_bounds(self)

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return sizes of gangs with known speed; the others count with their requested size."""
        pool = sizing.CapacityPool(ranked, snapshot, sizing.settling(snapshot))
        worth = _Worth(self, pool, snapshot)
        measured = pool.split_measured(lambda gang: worth.request_goodput(gang) > 0)
        ends = []
        for start in (_from_minimum, sizing.share_equally, _from_present):
            for allotment in measured:
                pool.resize(allotment, allotment.low)
            start(pool, measured)
            self._climb(pool, measured, worth)
            ends.append([dict(entry.sizes) for entry in measured])
        best = max(ends, key=lambda end: sum(map(worth, measured, end)))
        for allotment, sizes in zip(measured, best, strict=True):
            pool.resize(allotment, sizes)
        return {allotment.gang.uid: dict(allotment.sizes) for allotment in measured}

    def _climb(
        self, pool: sizing.CapacityPool, measured: Sequence[sizing.Allotment], worth: "_Worth"
    ) -> None:
        sizing.hand_out(pool, measured, worth)
        for _ in range(_MAX_MOVES):
            if not _move(pool, measured, worth):
                break
        sizing.hand_out(pool, measured, worth)


@dataclass(slots=True)
class _Worth:
    """Contribution of a gang at a size to the fitness; computed once per gang and size."""

    parameters: Goodput
    pool: sizing.CapacityPool
    snapshot: ClusterSnapshot
    _contributions: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)
    _requested: dict[str, float] = field(default_factory=dict)
    _fair: dict[str, float] = field(default_factory=dict)
    _efficiency: dict[str, EfficiencyLaw | None] = field(default_factory=dict)
    _changes: dict[tuple[str, tuple[int, ...], int], list[tuple[float, Task]]] = field(
        default_factory=dict
    )

    def __call__(self, allotment: sizing.Allotment, sizes: sizing.Sizes) -> float:
        gang = allotment.gang
        key = (gang.uid, tuple(sizes[task.name] for task in gang.tasks))
        if key not in self._contributions:
            speedup = self._goodput(gang, sizes) / self._fair_goodput(allotment)
            self._contributions[key] = self._term(speedup * self._restart_factor(allotment, sizes))
        return self._contributions[key]

    def changes(self, allotment: sizing.Allotment, change: int) -> list[tuple[float, Task]]:
        """Return the gain of ``change`` replicas more, for every task whose bounds allow it."""
        key = (allotment.gang.uid, tuple(allotment.sizes.values()), change)
        if key not in self._changes:
            now = self(allotment, allotment.sizes)
            low, high = allotment.low, allotment.high
            gains = []
            for task in allotment.gang.tasks:
                sizes = sizing.with_change(allotment.sizes, task, change)
                if low[task.name] <= sizes[task.name] <= high[task.name]:
                    difference = self(allotment, sizes) - now
                    if not math.isnan(difference):  # NaN: neither size can run
                        gains.append((difference, task))
            self._changes[key] = gains
        return self._changes[key]

    def request_goodput(self, gang: Gang) -> float:
        """Return the goodput at the requested size; 0 if it is not measured."""
        if gang.uid not in self._requested:
            requested_sizes = {task.name: task.replicas for task in gang.tasks}
            self._requested[gang.uid] = self._goodput(gang, requested_sizes)
        return self._requested[gang.uid]

    def _fair_goodput(self, allotment: sizing.Allotment) -> float:
        """Return the goodput at the smallest size with an equal share, or at the largest."""
        gang = allotment.gang
        if gang.uid not in self._fair:
            fair = replace(allotment, sizes=dict(allotment.low))
            equal = 1 / len(self.pool.allotments) - _MIN_GAIN
            while self.pool.share_of(fair) < equal and (growable := fair.growable):
                fair.sizes[fair.furthest_behind(growable).name] += 1
            # If it cannot run at that size, its requested size is the reference.
            self._fair[gang.uid] = self._goodput(gang, fair.sizes) or self.request_goodput(gang)
        return self._fair[gang.uid]

    def _goodput(self, gang: Gang, sizes: sizing.Sizes) -> float:
        if gang.uid not in self._efficiency:
            law = gang.speed
            self._efficiency[gang.uid] = law if isinstance(law, EfficiencyLaw) else None
        efficiency = self._efficiency[gang.uid]
        speed = self.pool.steps_per_second(gang, sizes)
        return speed * efficiency.statistical_efficiency(sizes) if efficiency else speed

    def _restart_factor(self, allotment: sizing.Allotment, sizes: sizing.Sizes) -> float:
        running = allotment.running
        if running is None or sizes == allotment.present:
            return 1.0
        if max(running.started, running.resized) >= self.snapshot.now:
            return 1.0  # a restart would cost no work yet
        age = max(0.0, self.snapshot.now - running.gang.arrived)
        cost = self.parameters.restart_seconds
        restarts = running.gang.evictions + (running.resized > running.started)
        return max(0.0, age - restarts * cost) / (age + cost) if age + cost > 0 else 1.0

    def _term(self, speedup: float) -> float:
        power = self.parameters.fairness_power
        if power > 0:
            return math.pow(speedup, power)
        if speedup <= 0:
            return -math.inf
        return -math.pow(speedup, power) if power < 0 else math.log(speedup)


def _from_minimum(pool: sizing.CapacityPool, measured: Sequence[sizing.Allotment]) -> None:
    """Stay at the minima."""


def _from_present(pool: sizing.CapacityPool, measured: Sequence[sizing.Allotment]) -> None:
    """Keep running gangs at their size, if that is within their bounds and fits."""
    for allotment in measured:
        if present := allotment.present:
            pool.resize_if_it_fits(allotment, present)


def _move(pool: sizing.CapacityPool, measured: Sequence[sizing.Allotment], worth: _Worth) -> bool:
    """Move the replica whose move gains most; False if none gains."""
    givers, takers = (_best_changes(measured, worth, change) for change in (-1, +1))
    moves = [
        (gain + loss, taker, grown_task, giver, shrunk_task)
        for taker_request, wishes in takers.items()
        for given_up, offers in givers.items()
        if pool.fits(_difference(taker_request, given_up))
        for gain, taker, grown_task in wishes
        for loss, giver, shrunk_task in offers
        if giver != taker and gain + loss > _MIN_GAIN
    ]
    if not moves:
        return False
    _, taker, grown_task, giver, shrunk_task = max(
        moves, key=lambda move: (move[0], -move[1], -move[3])
    )
    pool.resize(measured[giver], sizing.with_change(measured[giver].sizes, shrunk_task, -1))
    pool.grow(measured[taker], grown_task)
    return True


def _best_changes(
    measured: Sequence[sizing.Allotment], worth: _Worth, change: int
) -> dict[Request, list[tuple[float, int, Task]]]:
    """Return the best two changes (difference, rank, task) of different gangs, by request."""
    # Whether a move fits depends only on the two requests, and no third gang can do better.
    best: dict[Request, dict[int, tuple[float, int, Task]]] = {}
    for rank, allotment in enumerate(measured):
        for difference, task in worth.changes(allotment, change):
            candidates = best.setdefault(task.request, {})
            if rank not in candidates or difference > candidates[rank][0]:
                candidates[rank] = (difference, rank, task)
    return {
        request: heapq.nlargest(2, candidates.values(), key=lambda entry: (entry[0], -entry[1]))
        for request, candidates in best.items()
    }


def _difference(request: Request, given_up: Request) -> list[tuple[str, int]]:
    """Return the amounts by which ``request`` exceeds ``given_up``."""
    returned = dict(given_up)
    return [(name, amount - returned.get(name, 0)) for name, amount in request]
