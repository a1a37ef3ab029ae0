"""Workers beside parameter servers: every worker's topology domain holds a PS of its own job.

The rule is Kubernetes' required podAffinity from worker to PS, decided for the whole job at once.
What a domain takes is counted with one server already in it, on the node where that costs the
fewest workers. The workers then go to the fewest domains, at most one per server; every domain
used gets its server, and the servers left over are spread beside the workers or near them. A
domain is a node, which is one vectorised pass, or wider, and then filled as a small gang.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bireme.core.capacity import FreeCapacity, Take
from bireme.core.gangs import AffinityMode, Gang, Role, Task
from bireme.core.nodes import HOST_LEVEL
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.heuristics.filling import pack, pack_beside, spread_beside

Counts: TypeAlias = dict[str, IntArray]
FillPlainly: TypeAlias = Callable[[Gang, FreeCapacity, BoolArray, int], Counts | None]


def pair_of(gang: Gang, capacity: FreeCapacity) -> "Pair | None":
    """The gang's PS and worker task, where their affinity is wished for; else None.

    It speaks of exactly one task of each role: "its own PS" of several would mean nothing.
    """
    tasks = {task.role: task for task in gang.tasks}
    roles = [task.role for task in gang.tasks]
    mode = gang.role_affinity.mode
    if mode is AffinityMode.NONE or roles.count(Role.PS) != 1 or roles.count(Role.WORKER) != 1:
        return None
    levels, key = capacity.nodes.topology_levels, gang.role_affinity.topology_key
    level = levels.index(key) if key in levels else None
    return Pair(tasks[Role.PS], tasks[Role.WORKER], capacity, level, mode is AffinityMode.REQUIRED)


@dataclass(frozen=True, eq=False)
class Pair:
    """A PS task and a worker task that belong together, against one state of the capacity.

    ``level`` is the level at which a worker must meet a PS; None (a label that is no topology
    level) means the node itself.
    """

    servers: Task
    workers: Task
    capacity: FreeCapacity
    level: int | None
    is_required: bool

    @property
    def first_wider_level(self) -> int:
        """The narrowest level whose domains hold several meeting domains."""
        return 0 if self.level is None else self.level + 1

    @property
    def is_hopeless(self) -> bool:
        """Whether the affinity is required and not even all nodes together allow it."""
        everywhere = np.ones(len(self.codes), dtype=np.bool_)
        return self.is_required and self.worker_shares(everywhere) is None

    @property
    def on_nodes(self) -> bool:
        """Whether a worker must meet its PS on the very same node."""
        return self.level is None or self.capacity.nodes.topology_levels[self.level] == HOST_LEVEL

    @cached_property
    def codes(self) -> IntArray:
        """Code of the domain where worker and PS meet, shape (nodes,); -1 where there is none."""
        if self.level is None or self.on_nodes:
            return np.arange(len(self.capacity.nodes))
        return self.capacity.nodes.domains[self.level].astype(np.int64)

    @cached_property
    def room(self) -> IntArray:
        """Workers every node takes, shape (nodes,)."""
        return self.capacity.replicas(self.workers)

    @cached_property
    def cost(self) -> IntArray:
        """How many fewer beside one server; more than there is room where none fits."""
        takes_one = self.capacity.replicas(self.servers) > 0
        one = Take(self.capacity.nodes.axis.usage(self.servers.request), takes_one.astype(np.int64))
        beside = self.capacity.replicas(self.workers, (one,))
        return np.where(takes_one, self.room - beside, int(self.room.sum()) + 1)

    def worker_shares(self, inside: BoolArray) -> IntArray | None:
        """Workers per meeting domain, over the fewest; None when too few fit beside servers."""
        room = self._room_beside_one_server(inside & (self.codes >= 0))
        np.minimum(room, self.workers.replicas, out=room)
        if int(room.sum()) < self.workers.replicas:
            return None
        tightness = self.capacity.tightness
        if not self.on_nodes:
            tightness = _per_domain(self.codes, inside & (self.codes >= 0), tightness).round(9)
        shares = pack(room, tightness, self.workers.replicas)
        return shares if np.count_nonzero(shares) <= self.servers.replicas else None

    def _room_beside_one_server(self, member: BoolArray) -> IntArray:
        """Workers every domain takes once it holds one server; 0 where it cannot hold one."""
        if self.on_nodes:
            together = np.where(member, self.room - self.cost, 0)
        else:
            cheapest = np.full(len(member), int(self.room.sum()) + 1, dtype=np.int64)
            np.minimum.at(cheapest, self.codes[member], self.cost[member])
            together = _per_domain(self.codes, member, self.room).astype(np.int64) - cheapest
        return np.where(together > 0, together, 0)

    def one_server(self, inside: BoolArray, workers: int) -> Counts:
        """The tightest filling of a domain: one server where it costs least, then workers."""
        site = np.zeros(len(inside), dtype=np.int64)
        site[np.flatnonzero(inside)[np.argmin(self.cost[inside])]] = 1
        take = Take(self.capacity.nodes.axis.usage(self.servers.request), site)
        room = np.where(inside, self.capacity.replicas(self.workers, (take,)), 0)
        packed = pack(np.minimum(room, workers), self.capacity.tightness, workers)
        return {self.servers.name: site, self.workers.name: packed}


def _per_domain(codes: IntArray, member: BoolArray, amounts: IntArray | FloatArray) -> FloatArray:
    """Sums over the members of every domain, shape (nodes,): codes are below that."""
    total = np.bincount(codes[member], weights=amounts[member], minlength=len(codes))
    return np.asarray(total, dtype=np.float64)


def fill_together(
    gang: Gang, pair: Pair, inside: BoolArray, fill_plainly: FillPlainly
) -> Counts | None:
    """Replicas per node with the affinity kept, all ``inside``; None when that fails."""
    shares = pair.worker_shares(inside)
    if shares is None:
        return None
    if pair.on_nodes:
        with_one = (shares > 0).astype(np.int64)
        counts = {pair.workers.name: shares, pair.servers.name: with_one}
    else:
        counts = _fill_domains(gang, pair, shares, inside, fill_plainly)
    return _with_others(gang, counts, pair.capacity, inside)


def _fill_domains(
    gang: Gang, pair: Pair, shares: IntArray, inside: BoolArray, fill_plainly: FillPlainly
) -> Counts:
    """Every used domain with its workers and an even part of the servers, or one of them."""
    servers, workers = pair.servers, pair.workers
    counts = {task.name: np.zeros(len(inside), dtype=np.int64) for task in (servers, workers)}
    used = np.flatnonzero(shares)
    for index, domain in enumerate(used):
        even = servers.replicas // len(used) + (index < servers.replicas % len(used))
        sizes = {servers.name: int(even), workers.name: int(shares[domain])}
        part = gang.resized({task.name: sizes.get(task.name, 0) for task in gang.tasks})
        within = inside & (pair.codes == domain)
        filled = fill_plainly(part, pair.capacity, within, pair.level or 0)
        if filled is None:
            filled = pair.one_server(within, sizes[workers.name])
        counts = {name: counts[name] + filled[name] for name in counts}
    return counts


def _with_others(
    gang: Gang, counts: Counts, capacity: FreeCapacity, inside: BoolArray
) -> Counts | None:
    """What is still missing, beside the pair or near it: left-over servers, a chief, ..."""
    axis = capacity.nodes.axis
    nothing = np.zeros(len(inside), dtype=np.int64)
    takes = [
        Take(axis.usage(task.request), counts[task.name])
        for task in gang.tasks
        if task.name in counts
    ]
    for task in sorted(gang.tasks, key=lambda task: task.role is not Role.PS):
        placed = counts.get(task.name, nothing)
        missing = task.replicas - int(placed.sum())
        room = np.where(inside, capacity.replicas(task, takes), 0)
        room = np.minimum(room, missing)
        if int(room.sum()) < missing:
            return None
        used = sum(counts.values(), nothing)
        if task.role is Role.PS:
            added = spread_beside(room, used, missing)
        else:
            added = pack_beside(room, used, missing, capacity.tightness)
        counts[task.name] = placed + added
        takes.append(Take(axis.usage(task.request), added))
    return counts
