"""The default placer: a whole gang in the smallest topology domain, beside its own kind.

Inter-node traffic is what slows distributed training, so levels are tried from the narrowest
(one node) to the widest (the cluster). Within a level the domain with the least free capacity
that holds the gang is taken, which keeps large holes whole for large gangs. Inside the domain the
same rule runs again, level by level, so that a gang of several racks fills racks, not a sprinkle.

Intra-job rules (Du et al. 2023): workers are placed with a parameter server in their own
topology domain (``roleAffinity``, hard or soft), parameter servers are spread over the nodes
their workers are on (anti-affinity, soft), and replicas are numbered along the topology.

Greedy, not exhaustive: bin packing is NP-hard. For gangs with one kind of replica it finds a
placement whenever there is one.
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.capacity import FreeCapacity, Take
from bireme.core.gangs import Gang, Role, Task
from bireme.core.nodes import HOST_LEVEL
from bireme.core.placement import Placement, make_placement
from bireme.core.resources import BoolArray, IntArray
from bireme.heuristics import affinity
from bireme.heuristics.affinity import Pair
from bireme.heuristics.filling import pack, spread_beside

_DOMAINS_TRIED = 16
"""How many domains of one level are tried in full. Sums over a domain promise room that replicas
of several kinds may not be able to share; the next wider level is the better bet after so many."""


class Packing:
    """Best fit into the smallest topology domain, with PS/worker affinity.

    Source: Du et al., EURASIP JWCN 2023:45, for the rules inside a job; best fit for the rest.
    """

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas of ``gang``, or None."""
        room = {task.name: capacity.replicas(task) for task in gang.tasks}
        if any(int(np.minimum(room[t.name], t.replicas).sum()) < t.replicas for t in gang.tasks):
            return None
        pair = affinity.pair_of(gang, capacity)
        cluster = len(capacity.nodes.topology_levels)
        for level in range(cluster + 1):
            if pair is not None and level == pair.first_wider_level and pair.is_hopeless:
                return None
            for inside in _domains(gang, capacity, room, level):
                counts = _fill(gang, pair, capacity, inside, level)
                if counts is not None:
                    return make_placement(gang, capacity.nodes, counts)
        return None


def _domains(
    gang: Gang, capacity: FreeCapacity, room: dict[str, IntArray], level: int
) -> list[BoolArray]:
    """Domains of ``level`` that may hold the gang, tightest first, as masks over nodes."""
    if level == len(capacity.nodes.topology_levels):
        return [np.ones(len(capacity.nodes), dtype=np.bool_)]
    codes = capacity.nodes.domains[level]
    member = codes >= 0
    size = int(codes.max(initial=-1)) + 1
    possible = np.bincount(codes[member], minlength=size) > 0
    for task in gang.tasks:
        enough = np.minimum(room[task.name], task.replicas)
        per_domain = np.bincount(codes[member], weights=enough[member], minlength=size)
        possible &= per_domain >= task.replicas
    if len(gang.tasks) > 1:
        for name, amount in gang.demand.items():
            column = capacity.nodes.axis.column(name)
            if column is None:
                return []
            free = np.maximum(capacity.free[member, column], 0)
            possible &= np.bincount(codes[member], weights=free, minlength=size) >= amount
    if not possible.any():
        return []
    free_in = np.bincount(codes[member], weights=capacity.tightness[member], minlength=size)
    found = np.flatnonzero(possible)
    tightest = found[np.lexsort((found, np.round(free_in[found], 9)))[:_DOMAINS_TRIED]]
    return [codes == code for code in tightest]


def _fill(
    gang: Gang, pair: Pair | None, capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """Replicas per node for every task, all inside one domain of ``level``; None if it fails."""
    if pair is None or level < pair.first_wider_level:
        return _fill_plainly(gang, capacity, inside, level)
    together = affinity.fill_together(gang, pair, inside, _fill_plainly)
    if together is not None or pair.is_required:
        return together
    return _fill_plainly(gang, capacity, inside, level)


def _fill_plainly(
    gang: Gang, capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """Task after task, the scarcest kind first; where that fails, the other way round."""
    tasks = sorted(gang.tasks, key=_anchor_key)
    counts = _fill_in_order(tasks, capacity, inside, level)
    if counts is None and len(tasks) > 1:
        counts = _fill_in_order(tasks[::-1], capacity, inside, level)
    return counts


def _fill_in_order(
    tasks: Sequence[Task], capacity: FreeCapacity, inside: BoolArray, level: int
) -> dict[str, IntArray] | None:
    """One task after another; later ones prefer the nodes already used."""
    counts: dict[str, IntArray] = {}
    takes: list[Take] = []
    used = np.zeros(len(capacity.nodes), dtype=np.int64)
    for task in tasks:
        room = np.where(inside, capacity.replicas(task, takes), 0)
        room = np.minimum(room, task.replicas)
        if int(room.sum()) < task.replicas:
            return None
        if task.role is Role.PS and takes:
            placed = spread_beside(room, used, task.replicas)
        else:
            placed = _pack_beside(room, used, task.replicas, capacity, level)
        counts[task.name] = placed
        used = used + placed
        takes.append(Take(capacity.nodes.axis.usage(task.request), placed))
    return counts


def _anchor_key(task: Task) -> tuple[int, int, str]:
    """Kinds with the most devices first, parameter servers last among equals."""
    return (-task.devices, task.role is Role.PS, task.name)


def _pack_beside(
    room: IntArray, used: IntArray, replicas: int, capacity: FreeCapacity, level: int
) -> IntArray:
    """Packed onto nodes the gang already uses, then into the rest of the domain."""
    beside = np.where(used > 0, room, 0)
    within = min(replicas, int(beside.sum()))
    placed = pack(beside, capacity.tightness, within)
    if within < replicas:
        rest = np.where(used > 0, 0, room)
        placed = placed + pack_by_level(rest, capacity, replicas - within, level)
    return placed


def pack_by_level(room: IntArray, capacity: FreeCapacity, replicas: int, level: int) -> IntArray:
    """Pack into the fewest domains of the next narrower level, and so on down to nodes."""
    if level == 0 or capacity.nodes.topology_levels[level - 1] == HOST_LEVEL:
        return pack(room, capacity.tightness, replicas)
    codes = capacity.nodes.domains[level - 1]
    # Nodes without this level's label count as one domain of their own.
    codes = np.where(codes < 0, codes.max(initial=-1) + 1, codes)
    domain_room = np.bincount(codes, weights=room).astype(np.int64)
    tightness = np.bincount(codes, weights=capacity.tightness).astype(np.float64).round(9)
    shares = pack(domain_room, tightness, replicas)
    counts = np.zeros_like(room)
    for domain in np.flatnonzero(shares):
        within = np.where(codes == domain, room, 0)
        counts += pack_by_level(within, capacity, int(shares[domain]), level - 1)
    return counts
