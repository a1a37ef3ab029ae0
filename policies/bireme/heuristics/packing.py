"""The default placer: a whole gang on the fastest GPUs, in the smallest topology domain.

GPU models come first: a gang over two models waits for the slower one, and one model trains several
times as fast as another (:mod:`bireme.core.gpus`), which no topology outweighs. So the nodes of the
fastest models are tried alone, then those of the next, then both together, and so on.

Inter-node traffic slows distributed training, so levels are tried from the narrowest (one node) to
the widest (the cluster). Within a level, the gang goes to the domain with the least free capacity
that holds it. Inside the domain the same rule runs again, level by level, so that a gang of several
racks fills racks.

Intra-job rules (Du et al. 2023): workers are placed with a parameter server in their own
topology domain (``roleAffinity``, hard or soft), and parameter servers are spread over the nodes
of their workers (anti-affinity, soft).

Greedy, not exhaustive: bin packing is NP-hard. For gangs with one kind of replica it finds a
placement whenever there is one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, TypeAlias

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import AffinityMode, Gang, Role, Task
from bireme.core.gpus import GPU
from bireme.core.nodes import HOSTNAME_LABEL, Codes, NodeTable
from bireme.core.placement import FreeCapacity, Placement, Take, make_placement
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.running import RunningGang

# --- dividing replicas among bins (nodes, racks, ...) ---
#
# ``room``, int64 of shape (bins,), is how many replicas each bin takes; counts have the same shape,
# with counts <= room and counts.sum() == replicas. Callers have checked room.sum() >= replicas.
# No loop runs over bins.


def pack(room: IntArray, replicas: int, tightness: FloatArray) -> IntArray:
    """Use the fewest bins: the roomiest first, then the tightest bin that holds the remainder.

    Ties go to the lower index.
    """
    counts = np.zeros_like(room)
    if replicas <= 0:
        return counts
    bins = np.flatnonzero(room)
    order = bins[np.lexsort((bins, tightness[bins], -room[bins]))]
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, replicas))  # bins that are full before the last one
    counts[order[:whole]] = room[order[:whole]]
    remainder = replicas - int(counts.sum())
    rest = order[whole:]
    # Best fit: the bin with the least free capacity, so that large holes stay whole.
    holding = rest[room[rest] >= remainder]
    last = holding[np.lexsort((holding, tightness[holding]))[0]]
    counts[last] = remainder
    return counts


def spread(room: IntArray, replicas: int, first: IntArray | None = None) -> IntArray:
    """Divide as evenly as possible: no bin gets two while another with room has none.

    The odd replicas go to the bins highest in ``first``, shape (bins,); ties by index.
    """
    low, high = 0, replicas
    while low < high:  # find the largest level q with sum(min(room, q)) <= replicas
        middle = (low + high + 1) // 2
        if int(np.minimum(room, middle).sum()) <= replicas:
            low = middle
        else:
            high = middle - 1
    counts = np.minimum(room, low)
    odd = replicas - int(counts.sum())
    if odd:
        preference = np.zeros(len(room)) if first is None else -first
        open_bins = np.flatnonzero(room > counts)
        odd_bins = open_bins[np.lexsort((open_bins, preference[open_bins]))[:odd]]
        counts[odd_bins] += 1
    return counts


def beside(
    room: IntArray,
    used: IntArray,
    replicas: int,
    inside: Callable[[IntArray, int], IntArray],
    outside: Callable[[IntArray, int], IntArray],
) -> IntArray:
    """Divide by ``inside`` over the bins in use (``used`` > 0), the remainder by ``outside``."""
    own_room = np.where(used > 0, room, 0)
    within = min(replicas, int(own_room.sum()))
    counts = inside(own_room, within)
    if within < replicas:
        counts = counts + outside(np.where(used > 0, 0, room), replicas - within)
    return counts


def spread_beside(room: IntArray, used: IntArray, replicas: int) -> IntArray:
    """Spread over the bins in use (``used`` > 0), the busiest first; the remainder elsewhere."""
    return beside(room, used, replicas, lambda own_room, n: spread(own_room, n, first=used), spread)


# --- workers beside parameter servers: every worker's domain holds a PS of its own job ---
#
# Kubernetes' required podAffinity from worker to PS, decided for the whole job at once. The room of
# a domain is counted with one server already in it, on the node where that costs the fewest
# workers. The workers then go to the fewest domains, at most one per server; every domain used gets
# its server, and the servers left over are spread beside the workers or near them.

Counts: TypeAlias = dict[str, IntArray]
FillPlainly: TypeAlias = Callable[[Gang, FreeCapacity, BoolArray, int], Counts | None]


def pair_of(gang: Gang, capacity: FreeCapacity) -> "Pair | None":
    """Return the gang's PS and worker task, if they have an affinity; else None."""
    tasks = {task.role: task for task in gang.tasks}
    roles = [task.role for task in gang.tasks]
    mode = gang.role_affinity.mode
    # Only for exactly one task of each role: with several, "its own PS" has no meaning.
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
    def is_infeasible(self) -> bool:
        """True if the affinity is required and even all nodes together do not allow it."""
        everywhere = np.ones(len(self.codes), dtype=np.bool_)
        return self.is_required and self.worker_shares(everywhere) is None

    @property
    def on_nodes(self) -> bool:
        """True where a worker must meet its PS on the very same node."""
        return (
            self.level is None or self.capacity.nodes.topology_levels[self.level] == HOSTNAME_LABEL
        )

    @cached_property
    def codes(self) -> IntArray:
        """Code of the domain where worker and PS meet, shape (nodes,); -1 if there is none."""
        if self.level is None or self.on_nodes:
            return np.arange(len(self.capacity.nodes))
        return self.capacity.nodes.domains[self.level].astype(np.int64)

    @cached_property
    def room(self) -> IntArray:
        """Workers that every node takes, shape (nodes,)."""
        return self.capacity.replicas(self.workers)

    @cached_property
    def cost(self) -> IntArray:
        """Workers that one server displaces on every node; more than the room if none fits."""
        takes_one = self.capacity.replicas(self.servers) > 0
        one = Take(self.capacity.nodes.axis.usage(self.servers.request), takes_one.astype(np.int64))
        remaining = self.capacity.replicas(self.workers, (one,))
        return np.where(takes_one, self.room - remaining, int(self.room.sum()) + 1)

    def worker_shares(self, inside: BoolArray) -> IntArray | None:
        """Return workers per meeting domain, over the fewest; None if too few fit."""
        room = self._room_beside_one_server(inside & (self.codes >= 0))
        np.minimum(room, self.workers.replicas, out=room)
        if int(room.sum()) < self.workers.replicas:
            return None
        tightness = self.capacity.tightness
        if not self.on_nodes:
            tightness = _per_domain(self.codes, inside & (self.codes >= 0), tightness).round(9)
        shares = pack(room, self.workers.replicas, tightness)
        return shares if np.count_nonzero(shares) <= self.servers.replicas else None

    def _room_beside_one_server(self, member: BoolArray) -> IntArray:
        """Return the workers that every domain takes beside one server; 0 if it cannot hold one."""
        if self.on_nodes:
            together = np.where(member, self.room - self.cost, 0)
        else:
            cheapest = np.full(len(member), int(self.room.sum()) + 1, dtype=np.int64)
            np.minimum.at(cheapest, self.codes[member], self.cost[member])
            together = _per_domain(self.codes, member, self.room).astype(np.int64) - cheapest
        return np.where(together > 0, together, 0)

    def one_server(self, inside: BoolArray, workers: int) -> Counts:
        """Return the tightest filling: one server where it costs least, then workers."""
        site = np.zeros(len(inside), dtype=np.int64)
        site[np.flatnonzero(inside)[np.argmin(self.cost[inside])]] = 1
        take = Take(self.capacity.nodes.axis.usage(self.servers.request), site)
        room = np.where(inside, self.capacity.replicas(self.workers, (take,)), 0)
        packed = pack(np.minimum(room, workers), workers, self.capacity.tightness)
        return {self.servers.name: site, self.workers.name: packed}


def _per_domain(codes: IntArray, member: BoolArray, amounts: IntArray | FloatArray) -> FloatArray:
    """Sum over the members of every domain, shape (nodes,): codes are below that."""
    total = np.bincount(codes[member], weights=amounts[member], minlength=len(codes))
    return np.asarray(total, dtype=np.float64)


def fill_together(
    gang: Gang, pair: Pair, inside: BoolArray, fill_plainly: FillPlainly
) -> Counts | None:
    """Return replicas per node with the affinity kept, all ``inside``; None if that fails."""
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
    """Fill every used domain with its workers and an even part of the servers, or one server."""
    servers, workers = pair.servers, pair.workers
    counts = {task.name: np.zeros(len(inside), dtype=np.int64) for task in (servers, workers)}
    used = np.flatnonzero(shares)
    for index, domain in enumerate(used):
        even = servers.replicas // len(used) + (index < servers.replicas % len(used))
        sizes = {servers.name: int(even), workers.name: int(shares[domain])}
        part = gang.with_sizes({task.name: sizes.get(task.name, 0) for task in gang.tasks})
        within = inside & (pair.codes == domain)
        filled = fill_plainly(part, pair.capacity, within, pair.level or 0)
        if filled is None:
            filled = pair.one_server(within, sizes[workers.name])
        counts = {name: counts[name] + filled[name] for name in counts}
    return counts


def _with_others(
    gang: Gang, counts: Counts, capacity: FreeCapacity, inside: BoolArray
) -> Counts | None:
    """Add missing replicas beside the pair or near it: the remaining servers, a chief, ..."""
    axis = capacity.nodes.axis
    nothing = np.zeros(len(inside), dtype=np.int64)
    takes = [
        Take(axis.usage(task.request), counts[task.name])
        for task in gang.tasks
        if task.name in counts
    ]
    for task in sorted(gang.tasks, key=lambda task: task.role is not Role.PS):
        present = counts.get(task.name, nothing)
        missing = task.replicas - int(present.sum())
        room = np.where(inside, capacity.replicas(task, takes), 0)
        room = np.minimum(room, missing)
        if int(room.sum()) < missing:
            return None
        used = sum(counts.values(), nothing)
        if task.role is Role.PS:
            added = spread_beside(room, used, missing)
        else:
            packed = partial(pack, tightness=capacity.tightness)
            added = beside(room, used, missing, packed, packed)
        counts[task.name] = present + added
        takes.append(Take(axis.usage(task.request), added))
    return counts


# --- the default placer ---

RESTART_SECONDS = 120.0
"""Assumed cost of a restart beyond the lost work, as in :mod:`bireme.heuristics.goodput`."""

_DOMAINS_TRIED = 16
"""The limit on domains of one level that are tried in full. Sums over a domain overestimate its
room for several kinds of replicas; after so many failures the next wider level is the better
choice."""


class Packing:
    """Best fit into the smallest topology domain of the fastest GPUs, with PS/worker affinity.

    Source: Du et al., EURASIP JWCN 2023:45, for the rules inside a job; best fit for the rest.
    """

    def __init__(
        self,
        least_speedup: Annotated[
            float,
            Within(1),
            "GPU models count alike unless one trains so many times as fast as the other; a large"
            " number: all do",
        ] = 1.25,
        moves: Annotated[
            int, Within(0, 1), "1: where nobody waits, running gangs move to faster GPUs"
        ] = 1,
    ) -> None:
        self._least_speedup, self._moves = least_speedup, bool(moves)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return nodes for all replicas of ``gang``, or None."""
        if any(name == GPU for task in gang.tasks for name, _ in task.request):
            for mask in _by_speed(capacity.nodes, self._least_speedup):
                placement = self._pack(gang, capacity.only_on(mask, GPU))
                if placement is not None:
                    return placement
        return self._pack(gang, capacity)

    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        """Return faster GPUs to which moving ``running`` pays off, or None.

        A job that has run for ``t`` seconds goes on, in the median, for as long again
        (Harchol-Balter
        and Downey, TOCS 1997). So a move pays off, even if all work is lost, if GPUs that are ``s``
        times as fast do ``2t`` in less than the coming ``t``, with the time of a restart.
        """
        nodes, lasted = capacity.nodes, running.elapsed_seconds(now)
        column = nodes.axis.column(GPU)
        if not self._moves or column is None or lasted <= RESTART_SECONDS:
            return None
        rows, usage = running.usage(nodes.axis)
        own_speed = nodes.gpu_speeds[rows[usage[:, column] > 0]].min(initial=np.inf)
        min_speed = max(self._least_speedup, 2 * lasted / (lasted - RESTART_SECONDS))
        fast = (nodes.gpu_speeds >= min_speed * own_speed) & (nodes.allocatable[:, column] > 0)
        for mask in (*_by_speed(nodes, self._least_speedup), fast):
            inside = mask & fast
            if not inside.any():
                continue
            placement = self._pack(running.current, capacity.only_on(inside, GPU))
            if placement is not None:
                return placement
        return None

    def _pack(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        room = {task.name: capacity.replicas(task) for task in gang.tasks}
        if any(int(np.minimum(room[t.name], t.replicas).sum()) < t.replicas for t in gang.tasks):
            return None
        pair = pair_of(gang, capacity)
        cluster = len(capacity.nodes.topology_levels)
        for level in range(cluster + 1):
            if pair is not None and level == pair.first_wider_level and pair.is_infeasible:
                return None
            for inside in _domains(gang, capacity, room, level):
                counts = _fill(gang, pair, capacity, inside, level)
                if counts is not None:
                    return make_placement(gang, capacity.nodes, counts)
        return None


def _by_speed(nodes: NodeTable, least_speedup: float) -> list[BoolArray]:
    """Return sets of nodes, as masks, to try before all nodes; none if their GPUs are alike.

    The fastest models, the next alone, both, the third alone, ... Each model is tried alone first:
    a gang that needs slower GPUs anyway leaves the faster ones to others.
    """
    key = _by_speed, least_speedup
    cached = nodes.memo.get(key)
    if isinstance(cached, list):
        return cached
    column = nodes.axis.column(GPU)
    masks: list[BoolArray] = []
    if column is not None:
        untried = nodes.allocatable[:, column] > 0
        faster = np.zeros_like(untried)
        while untried.any():
            alike = untried & (nodes.gpu_speeds * least_speedup >= nodes.gpu_speeds[untried].max())
            untried = untried & ~alike
            masks.append(alike)
            if faster.any():
                masks.append(faster | alike)
            faster = faster | alike
        del masks[-1:]  # all nodes with GPUs
    nodes.remember(key, masks)
    return masks


def _domains(
    gang: Gang, capacity: FreeCapacity, room: dict[str, IntArray], level: int
) -> list[BoolArray]:
    """Return domains of ``level`` that may hold the gang, tightest first, as masks over nodes."""
    if level == len(capacity.nodes.topology_levels):
        return [np.ones(len(capacity.nodes), dtype=np.bool_)]
    codes = capacity.nodes.domains[level]
    total = _totals_by_domain(codes, capacity.nodes.topology_levels[level] == HOSTNAME_LABEL)
    possible = total(np.ones(len(codes), dtype=np.int64)) > 0
    for task in gang.tasks:
        enough = np.minimum(room[task.name], task.replicas)
        possible &= total(enough) >= task.replicas
    if len(gang.tasks) > 1:
        for name, amount in gang.demand.items():
            column = capacity.nodes.axis.column(name)
            if column is None:
                return []
            possible &= total(np.maximum(capacity.free[:, column], 0)) >= amount
    if not possible.any():
        return []
    free_in = total(capacity.tightness)
    codes_possible = np.flatnonzero(possible)
    tightest = codes_possible[
        np.lexsort((codes_possible, np.round(free_in[codes_possible], 9)))[:_DOMAINS_TRIED]
    ]
    return [codes == code for code in tightest]


def _totals_by_domain(
    codes: Codes, are_nodes: bool
) -> Callable[[IntArray | FloatArray], IntArray | FloatArray]:
    """Return a sum over the nodes of every domain, shape (domains,), of values by node."""
    if are_nodes:  # every domain is its node, and most gangs are small and end at this level
        return lambda values: values
    member = codes >= 0
    member_codes = codes[member]
    size = int(codes.max(initial=-1)) + 1
    return lambda values: np.bincount(member_codes, weights=values[member], minlength=size)


def _fill(
    gang: Gang, pair: Pair | None, capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """Replicas per node for every task, all inside one domain of ``level``; None if it fails."""
    if pair is None or level < pair.first_wider_level:
        return _fill_plainly(gang, capacity, inside, level)
    together = fill_together(gang, pair, inside, _fill_plainly)
    if together is not None or pair.is_required:
        return together
    return _fill_plainly(gang, capacity, inside, level)


def _fill_plainly(
    gang: Gang, capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """Fill task after task, the scarcest kind first; if that fails, in the reverse order."""
    # Kinds with the most devices first, parameter servers last among equals.
    devices = capacity.nodes.devices
    tasks = sorted(gang.tasks, key=lambda task: (-devices(task), task.role is Role.PS, task.name))
    counts = _fill_in_order(tasks, capacity, inside, level)
    if counts is None and len(tasks) > 1:
        counts = _fill_in_order(tasks[::-1], capacity, inside, level)
    return counts


def _fill_in_order(
    tasks: Sequence[Task], capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """Place one task after another; later ones prefer the nodes in use."""
    counts: dict[str, IntArray] = {}
    takes: list[Take] = []
    used = np.zeros(len(capacity.nodes), dtype=np.int64)
    for task in tasks:
        room = np.where(inside, capacity.replicas(task, takes), 0)
        room = np.minimum(room, task.replicas)
        if int(room.sum()) < task.replicas:
            return None
        if task.role is Role.PS and takes:
            task_counts = spread_beside(room, used, task.replicas)
        else:
            packed = partial(pack, tightness=capacity.tightness)
            by_level = partial(pack_by_level, capacity=capacity, level=level)
            task_counts = beside(room, used, task.replicas, packed, by_level)
        counts[task.name] = task_counts
        used = used + task_counts
        takes.append(Take(capacity.nodes.axis.usage(task.request), task_counts))
    return counts


def pack_by_level(room: IntArray, replicas: int, capacity: FreeCapacity, level: int) -> IntArray:
    """Pack into the fewest domains of the next narrower level, and so on down to nodes."""
    if level == 0 or capacity.nodes.topology_levels[level - 1] == HOSTNAME_LABEL:
        return pack(room, replicas, capacity.tightness)
    codes = capacity.nodes.domains[level - 1]
    # Nodes without this level's label count as one domain of their own.
    codes = np.where(codes < 0, codes.max(initial=-1) + 1, codes)
    domain_room = np.bincount(codes, weights=room).astype(np.int64)
    tightness = np.bincount(codes, weights=capacity.tightness).astype(np.float64).round(9)
    shares = pack(domain_room, replicas, tightness)
    counts = np.zeros_like(room)
    for domain in np.flatnonzero(shares):
        within = np.where(codes == domain, room, 0)
        counts += pack_by_level(within, int(shares[domain]), capacity, level - 1)
    return counts


# --- the skeleton of every simple placer: a rule that divides one task among nodes ---
#
# Such rules ignore roles and the fit of several tasks, so two cases go to Packing: gangs whose
# roles must meet in one domain, and gangs of several tasks for which the rule found no places. So
# the rule never decides whether a gang of one task fits, only where it goes.

Divide: TypeAlias = Callable[[Task, IntArray, FreeCapacity], IntArray]
"""``divide(task, room, capacity)``: replicas per node, int64 of shape (nodes,).

``room``, of the same shape, is how many each node takes, at most all; together they take all.
"""
Cost: TypeAlias = Callable[[IntArray, IntArray], FloatArray]
"""``cost(rows, held)``: the cost of one more replica on ``rows`` that already got ``held``."""


class RulePlacer(ABC):
    """Base of placers with one rule for every task of a gang."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return nodes for all replicas of ``gang``, or None."""
        return place_by(gang, capacity, self.divide)

    @abstractmethod
    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """Divide one task among nodes; see :data:`Divide`."""


def place_by(gang: Gang, capacity: FreeCapacity, divide: Divide) -> Placement | None:
    """Return nodes for all replicas of ``gang`` by the rule ``divide``, or None."""
    pair = pair_of(gang, capacity)
    if pair is None or not pair.is_required:
        counts = _divide_tasks(gang, capacity, divide)
        if counts is not None:
            return make_placement(gang, capacity.nodes, counts)
    return Packing().place(gang, capacity) if len(gang.tasks) > 1 else None


def _divide_tasks(gang: Gang, capacity: FreeCapacity, divide: Divide) -> dict[str, IntArray] | None:
    counts: dict[str, IntArray] = {}
    nodes = capacity.nodes
    tasks = sorted(gang.tasks, key=lambda task: (-nodes.devices(task), task.name))
    for index, task in enumerate(tasks):
        room = np.minimum(capacity.replicas(task), task.replicas)
        if int(room.sum()) < task.replicas:
            return None
        task_counts = counts[task.name] = divide(task, room, capacity)
        if index + 1 < len(tasks):
            free = capacity.free - task_counts[:, None] * nodes.axis.usage(task.request)
            capacity = FreeCapacity(nodes, nodes.allocatable - free)
    return counts


def fill(room: IntArray, replicas: int, order: IntArray) -> IntArray:
    """Fill node after node in ``order`` (rows) until all replicas are placed."""
    counts = np.zeros_like(room)
    in_order = room[order]
    offsets = in_order.cumsum() - in_order
    counts[order] = np.clip(replicas - offsets, 0, in_order)
    return counts


def by_tightness(capacity: FreeCapacity) -> IntArray:
    """Return the rows of all nodes, the least free first; ties by index."""
    return np.argsort(capacity.tightness.round(9), kind="stable")


def descend(cost: Cost, room: IntArray, replicas: int, tightness: FloatArray) -> IntArray:
    """Place each replica where it costs least now; ties to the tightest node, then by index."""
    rows = np.flatnonzero(room)
    rows = rows[np.argsort(tightness[rows].round(9), kind="stable")]
    taken_counts = np.zeros(len(rows), dtype=np.int64)
    costs = cost(rows, taken_counts)
    for _ in range(replicas):
        best = int(costs.argmin())
        taken_counts[best] += 1
        entry = slice(best, best + 1)
        costs[best] = (
            cost(rows[entry], taken_counts[entry])[0]
            if taken_counts[best] < room[rows[best]]
            else np.inf
        )
    counts = np.zeros_like(room)
    counts[rows] = taken_counts
    return counts


def device_column(task: Task, nodes: NodeTable) -> int | None:
    """Return the column of the device that ``task`` requests, else of the most frequent one."""
    accelerators = nodes.accelerators
    if name := accelerators.largest(task.request):
        return nodes.axis.column(name)
    offered = dict(zip(nodes.axis.names, nodes.allocatable.sum(axis=0).tolist(), strict=True))
    return nodes.axis.column(frequent) if (frequent := accelerators.largest(offered)) else None
