"""Shared parts of all sizers: one pool of capacity, and the gangs that get replicas out of it.

A sizer divides the total capacity of ready nodes; the placer decides whether a size finds places.
The pool first gives every gang its minimum; the sizer's own rule divides the rest. Gangs whose
minimum no longer fits, and running ones that cannot change, are left out.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bireme.core.gangs import Gang, Task
from bireme.core.policy import Ranked
from bireme.core.resources import Request, add
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot

Sizes: TypeAlias = Mapping[str, int]
"""Replicas by task name."""


@dataclass(eq=False, slots=True)
class Allotment:
    """A gang, the bounds of its size, and its size so far (none at first)."""

    gang: Gang
    running: RunningGang | None
    low: Sizes
    high: Sizes
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def requested(self) -> dict[str, int]:
        """Its size at submission, within its bounds."""
        return {
            task.name: min(max(task.replicas, self.low[task.name]), self.high[task.name])
            for task in self.gang.tasks
        }

    @property
    def present(self) -> dict[str, int]:
        """Its size if it runs; empty if it waits, or if the size is not within its bounds."""
        if self.running is None:
            return {}
        current = self.running.sizes
        sizes = {task.name: current.get(task.name, 0) for task in self.gang.tasks}
        is_within = all(self.low[n] <= size <= self.high[n] for n, size in sizes.items())
        return sizes if is_within else {}

    @property
    def growable(self) -> list[Task]:
        """Tasks that may have more replicas than now."""
        return [task for task in self.gang.tasks if self.sizes[task.name] < self.high[task.name]]

    def furthest_behind(self, tasks: Iterable[Task]) -> Task:
        """Return the task that is furthest behind the requested proportions."""
        return min(tasks, key=lambda task: self.sizes[task.name] / task.replicas)


def bounds(gang: Gang) -> tuple[Sizes, Sizes]:
    """Return the smallest and the largest size; only elastic gangs may exceed their request."""
    low = {task.name: task.replicas for task in gang.at_minimum.tasks}
    high = {task.name: task.maximum if gang.is_elastic else task.replicas for task in gang.tasks}
    return low, {name: max(low[name], size) for name, size in high.items()}


class CapacityPool:
    """Capacity of the ready nodes as one sum, in exact integers by resource name.

    Attributes:
        total: The sum over all ready nodes.
        largest: The largest amount of one node.
        free: Amounts that no gang holds, except gangs that get their size here.
        allotments: Gangs that have at least their minimum, in rank order.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        snapshot: ClusterSnapshot,
        is_settling: Callable[[RunningGang], bool] | None = None,
    ) -> None:
        names, ready = snapshot.nodes.axis.names, snapshot.nodes.accepts
        offered = snapshot.nodes.allocatable[ready]
        remaining = (offered - snapshot.used[ready]).sum(axis=0)
        self.total: dict[str, int] = dict(zip(names, offered.sum(axis=0).tolist(), strict=True))
        self.largest: dict[str, int] = dict(
            zip(names, offered.max(axis=0, initial=0).tolist(), strict=True)
        )
        self.free: dict[str, int] = dict(zip(names, remaining.tolist(), strict=True))
        candidates = []
        for entry in ranked:
            running = snapshot.running_by_uid.get(entry.gang.uid)
            if running is not None:
                is_fixed = running.is_leaving or not entry.gang.is_elastic
                if is_fixed or (is_settling is not None and is_settling(running)):
                    continue
                self._give_back(running, snapshot)
            candidates.append(Allotment(entry.gang, running, *bounds(entry.gang)))
        # Running gangs first, then by rank: no growth keeps a gang from starting.
        for allotment in sorted(candidates, key=lambda candidate: candidate.running is None):
            if self.fits(allotment.gang.at_minimum.demand.items()):
                self.resize(allotment, allotment.low)
        self.allotments = [allotment for allotment in candidates if allotment.sizes]

    def _give_back(self, running: RunningGang, snapshot: ClusterSnapshot) -> None:
        """Count the usage of ``running`` on nodes that take pods as free."""
        requests = {task.name: task.request for task in running.gang.tasks}
        for task in running.placement.tasks:
            count = int(task.counts[snapshot.nodes.accepts[task.rows]].sum())
            self._release(requests[task.task], count)

    def _release(self, request: Request, times: int) -> None:
        for name, amount in request:
            if name in self.free:
                self.free[name] += times * amount

    def fits(self, amounts: Iterable[tuple[str, int]]) -> bool:
        """Return whether ``amounts`` (resource name, amount) are free."""
        return all(amount <= max(0, self.free.get(name, 0)) for name, amount in amounts)

    def resize_if_it_fits(self, allotment: Allotment, sizes: Sizes) -> None:
        """Give ``allotment`` the size ``sizes`` if the additional amounts are free."""
        current = demand_of(allotment.gang, allotment.sizes)
        target = demand_of(allotment.gang, sizes)
        if self.fits((name, amount - current.get(name, 0)) for name, amount in target.items()):
            self.resize(allotment, sizes)

    def resize(self, allotment: Allotment, sizes: Sizes) -> None:
        """Give ``allotment`` the size ``sizes`` instead of its present one."""
        for task in allotment.gang.tasks:
            change = sizes[task.name] - allotment.sizes.get(task.name, 0)
            if change:
                self._release(task.request, -change)
                allotment.sizes[task.name] = sizes[task.name]

    def grow(self, allotment: Allotment, task: Task) -> None:
        """Give ``allotment`` one replica of ``task`` more."""
        self.resize(allotment, with_change(allotment.sizes, task, 1))

    def fill(self, allotment: Allotment, limit: Sizes) -> None:
        """Grow towards ``limit`` while it fits, all tasks at the same pace."""
        while growing := [
            task
            for task in allotment.growable
            if allotment.sizes[task.name] < limit[task.name] and self.fits(task.request)
        ]:
            self.grow(
                allotment, min(growing, key=lambda t: allotment.sizes[t.name] / limit[t.name])
            )

    def split_measured(self, is_measured: Callable[[Gang], bool]) -> list[Allotment]:
        """Give unmeasured gangs their requested size; return the measured gangs, by rank."""
        for allotment in self.allotments:
            if not is_measured(allotment.gang):
                self.fill(allotment, allotment.requested)
        return [entry for entry in self.allotments if is_measured(entry.gang)]

    def dominant_share(self, amounts: Iterable[tuple[str, int]]) -> float:
        """Return the largest share of the cluster among ``amounts`` (Ghodsi et al., NSDI'11)."""
        return max((amount / self.total[name] for name, amount in amounts), default=0.0)

    def share_of(self, allotment: Allotment) -> float:
        """Return the dominant share of the size of ``allotment``."""
        return self.dominant_share(demand_of(allotment.gang, allotment.sizes).items())

    def nodes(self, gang: Gang, sizes: Sizes) -> int:
        """Return the fewest nodes that could hold ``sizes``, if all were as large as the
        largest.
        """
        demand = demand_of(gang, sizes)
        needed = (
            -(-amount // max(1, self.largest.get(name, 0))) for name, amount in demand.items()
        )
        return max(1, *needed)

    def steps_per_second(self, gang: Gang, sizes: Sizes) -> float:
        """Return the predicted speed at ``sizes``, packed; 0 for an unmeasured ``gang``."""
        if gang.speed is None:
            return 0.0
        return gang.speed.steps_per_second(sizes, self.nodes(gang, sizes))

    def proposal(self) -> dict[str, dict[str, int]]:
        """Return the sizes so far, as a sizer answers."""
        return {entry.gang.uid: dict(entry.sizes) for entry in self.allotments}


def demand_of(gang: Gang, sizes: Sizes) -> dict[str, int]:
    """Return the demand of ``gang`` with ``sizes[task name]`` replicas, in exact integers."""
    demand: dict[str, int] = {}
    for task in gang.tasks:
        demand = add(demand, task.request, sizes[task.name])
    return demand


def with_change(sizes: Sizes, task: Task, change: int) -> dict[str, int]:
    """Return ``sizes`` with ``change`` more replicas of ``task``."""
    return {**sizes, task.name: sizes[task.name] + change}


def settling(snapshot: ClusterSnapshot) -> Callable[[RunningGang], bool]:
    """Return a test of gangs that started or changed their size too recently for a change."""

    def is_settling(running: RunningGang) -> bool:
        since = max(running.started, running.resized)
        return snapshot.now - since < snapshot.settings.resize_settle_seconds

    return is_settling


def hand_out(
    pool: CapacityPool,
    allotments: Sequence[Allotment],
    value: Callable[[Allotment, Sizes], float],
    price: Callable[[Allotment, Task], float] | None = None,
) -> None:
    """Give one replica at a time to the gang that gains most for its price.

    The gain is the increase of ``value(allotment, sizes)``, the price ``price(allotment, task)``,
    by default the dominant share of one replica. It ends when nothing fits or nothing
    gains. Ties go to the higher rank, then to the first task of the gang.
    """
    heap: list[tuple[float, int, int, int]] = []
    grown = [0] * len(allotments)

    def offer(rank: int) -> None:
        allotment = allotments[rank]
        now = value(allotment, allotment.sizes)
        for place, task in enumerate(allotment.gang.tasks):
            if allotment.sizes[task.name] < allotment.high[task.name] and pool.fits(task.request):
                gain = value(allotment, with_change(allotment.sizes, task, 1)) - now
                if gain > 0:  # not NaN either: two infinities, a size that cannot run
                    paid = price(allotment, task) if price else pool.dominant_share(task.request)
                    heapq.heappush(heap, (-gain / paid, rank, place, grown[rank]))

    for rank in range(len(allotments)):
        offer(rank)
    while heap:
        _, rank, place, version = heapq.heappop(heap)
        task = allotments[rank].gang.tasks[place]
        # Older offers are for a previous size of the gang; capacity only shrinks.
        if version == grown[rank] and pool.fits(task.request):
            pool.grow(allotments[rank], task)
            grown[rank] += 1
            offer(rank)


def share_equally(pool: CapacityPool, allotments: Sequence[Allotment]) -> None:
    """Raise the lowest dominant share, replica by replica, until nothing fits.

    Within a gang, the task that is furthest behind its requested proportion goes first. Ties go to
    the higher rank.
    """
    heap = [(pool.share_of(entry), rank) for rank, entry in enumerate(allotments)]
    heapq.heapify(heap)
    while heap:
        _, rank = heapq.heappop(heap)
        allotment = allotments[rank]
        growing = [task for task in allotment.growable if pool.fits(task.request)]
        if growing:
            pool.grow(allotment, allotment.furthest_behind(growing))
            heapq.heappush(heap, (pool.share_of(allotment), rank))


def steps_run(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the steps at the present size in this run; 0 for a waiting or unmeasured gang."""
    # Steps before the last change of size are no longer among its remaining steps.
    running = snapshot.running_by_uid.get(gang.uid)
    if gang.speed is None or running is None or not running.sizes:
        return 0.0
    speed = gang.speed.steps_per_second(running.sizes, len(running.placement.node_rows()))
    steps = speed * max(0.0, snapshot.now - max(running.started, running.resized))
    return steps if gang.remaining_steps is None else min(steps, gang.remaining_steps)


def steps_left(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the remaining steps of ``gang``; infinite if unknown."""
    remaining = gang.remaining_steps
    if remaining is None:
        return math.inf
    # A gang that should be done by now and still runs gets one step, or it would get no replicas.
    return max(remaining - steps_run(gang, snapshot), min(remaining, 1.0))


def steps_done(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the steps since training began, over all runs."""
    return gang.done_steps + steps_run(gang, snapshot)


def seconds_for(steps: float, steps_per_second: float) -> float:
    """Return the seconds that ``steps`` take; infinite if it cannot run."""
    return steps / steps_per_second if steps_per_second > 0 else math.inf


def minus_seconds(
    pool: CapacityPool, steps: Mapping[str, float]
) -> Callable[[Allotment, Sizes], float]:
    """Return the value of a size: minus the seconds that ``steps[uid]`` take."""

    def value(allotment: Allotment, sizes: Sizes) -> float:
        gang = allotment.gang
        return -seconds_for(steps[gang.uid], pool.steps_per_second(gang, sizes))

    return value
