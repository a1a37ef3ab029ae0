"""Scale-up: the nodes to request for gangs that fit nowhere now.

Each gang that lacks only capacity is tried, in order,

    1. on the free capacity, with the nodes that are coming already: it waits for those;
    2. with new nodes of one pool: the pool that needs the fewest, ties by name;
    3. with new nodes of all pools, where no single one has nodes for all its tasks;
    4. on late nodes as well: they may never come, so they are counted on last.

A later gang does not count again the capacity that a gang takes, limits of queues included. No gang
starts by this: it waits for the nodes as it would for other gangs to end. Reservations stay as they
are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from bireme.core import messages
from bireme.core.decision import Action, Decision, Hold, NodeRequest
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import HOSTNAME_LABEL, GrowablePool, Node, NodeTable, feasible
from bireme.core.placement import (
    CLUSTER_LEVEL,
    FreeCapacity,
    Placement,
    Take,
    TaskPlacement,
    keeps_affinity,
    usage_of,
)
from bireme.core.pod_rules import NOBODY, Occupants, shape_alone
from bireme.core.policy import Placer
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.reservations import CapacityLedger
from bireme.core.resources import ATTACHABLE, Amounts, BoolArray, IntArray
from bireme.core.running import sum_by_row
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class _Need:
    """The nodes that a gang waits for.

    Attributes:
        nodes: Nodes that do not exist yet, by pool.
        new_requests: The part of ``nodes`` that nobody has requested yet, by pool.
        existing: Names of existing nodes on whose free capacity it also counts.
    """

    gang: Gang
    nodes: Mapping[str, int]
    new_requests: Mapping[str, int]
    existing: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReclaimableUsage:
    """Usage of gangs that stop once the gang ``uid`` fits: int64, (nodes, resources)."""

    uid: str
    usage: IntArray


@dataclass(eq=False)
class ScaleUp:
    """Scale-up of the pools of one snapshot.

    ``placer`` belongs to the rules: a learned placer knows only the nodes of the snapshot.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    explain: bool
    _open: dict[str, int] = field(default_factory=dict)
    """By pool, the new nodes that are coming or were requested in this cycle."""
    _infeasible: set[object] = field(default_factory=set)
    """Shapes that no node helps: the pools' remaining room only shrinks."""
    _last: dict[object, tuple[Placement, IntArray, IntArray]] = field(default_factory=dict)
    """Places of the last gang of a shape, their rows, and its usage there."""
    _takers: dict[object, tuple[GrowablePool, ...]] = field(default_factory=dict)

    @cached_property
    def _pools(self) -> tuple[GrowablePool, ...]:
        return tuple(sorted(self.snapshot.growable, key=lambda pool: pool.name))

    @cached_property
    def _late(self) -> tuple[GrowablePool, ...]:
        return tuple(pool for pool in self._pools if pool.is_late(self.snapshot.now))

    @cached_property
    def _in_time(self) -> tuple[GrowablePool, ...]:
        return tuple(pool for pool in self._pools if pool not in self._late)

    @cached_property
    def _extension(self) -> "ExtendedNodes":
        # One new node per waiting replica is enough. The number is rounded up to a power of two,
        # since it changes with every cycle and the table is cached.
        replicas = sum(gang.at_minimum.replicas for gang in self.snapshot.waiting)
        return extend_nodes(self.snapshot.nodes, self._pools, 1 << replicas.bit_length())

    def never_fits(self, gang: Gang) -> str | None:
        """Return why ``gang`` would not fit with all nodes that pools may ever have, or None."""
        cluster = "the empty cluster, with all pools at their maximum,"
        never = messages.never_fits(gang, self._extension.table, self.placer, cluster)
        return None if never and gang.has_spread and self._fits_on_some(gang) else never

    def may_help(self, gang: Gang) -> bool:
        """Return whether a pool gets, or may get, nodes for a replica of ``gang`` in time."""
        pools = (pool for pool in self._pools_for(gang) if pool not in self._late)
        return any(pool.room + pool.coming for pool in pools)

    def _fits_on_some(self, gang: Gang) -> bool:
        """Return whether ``gang`` fits if pools get only some of their possible nodes."""
        table = self._extension.table
        key = ("fits_on_some", shape_alone(gang), getattr(self.placer, "name", ""))
        if key not in table.memo:
            room = messages.idle_capacity(table)
            search = _NodeSearch(messages.alone(gang), room, self.placer, fills=False)
            rows = [self._extension.new[p.name][: gang.replicas] for p in self._pools_for(gang)]
            sets = (*rows, np.concatenate(rows)) if rows else ()
            existing = self._extension.existing
            fits = any(search.fewest(existing, new) is not None for new in sets)
            table.remember(key, fits)
        return bool(table.memo[key])

    def apply(
        self,
        decision: Decision,
        short: Iterable[Gang],
        ledger: CapacityLedger,
        queues: QueueTree,
        blocked: Gang | None,
        reclaimable: ReclaimableUsage | None,
    ) -> Decision:
        """Return ``decision`` with node requests, and their gangs held as ScalingUp.

        Args:
            short: Gangs that lack only capacity, in order, at the size they may start at.
            ledger, queues: Their state after the admission pass; they stay unchanged.
            blocked: The gang that holds the reservation.
            reclaimable: Usage that is freed for one of ``short``, which needs no nodes for it.
        """
        needs = {
            need.gang.uid: need for need in self._needs(short, ledger, queues, blocked, reclaimable)
        }
        kept_names = {name for need in needs.values() for name in need.existing}
        names = self.snapshot.nodes.names
        actions: list[Action] = []
        for action in decision.actions:
            if isinstance(action, Hold):
                if action.reservation is not None:
                    kept_names.update(
                        names[row] for row in action.reservation.placement.node_rows()
                    )
                if action.gang.uid in needs:
                    action = self._hold_for_nodes(action, needs[action.gang.uid])
            actions.append(action)
        requests = tuple(
            NodeRequest(p, n, need.gang)
            for need in needs.values()
            for p, n in need.new_requests.items()
        )
        if decision.unreached:  # unreached gangs may count on any node: give up none
            kept_names.update(names)
            requests += tuple(NodeRequest(p.name, 0, decision.unreached[0]) for p in self._pools)
        return replace(
            decision,
            actions=tuple(actions),
            node_requests=requests,
            kept_nodes=frozenset(kept_names),
        )

    def _hold_for_nodes(self, hold: Hold, need: _Need) -> Hold:
        message = hold.message
        if self.explain:
            late_pools = [pool for pool in self._pools_for(need.gang) if pool in self._late]
            text = messages.scaling_up(need.nodes, late_pools, self.snapshot.now)
            message = f"{text}; {message}"
        return replace(hold, reason=Reason.SCALING_UP, message=message)

    def _needs(
        self,
        short: Iterable[Gang],
        ledger: CapacityLedger,
        queues: QueueTree,
        blocked: Gang | None,
        reclaimable: ReclaimableUsage | None,
    ) -> list[_Need]:
        """Return the needs of ``short``, without gangs that no node helps or that need none."""
        # Reset each time: after an orderer is overruled, the cycle is decided again.
        self._open = {pool.name: pool.coming for pool in self._pools}
        if not any(pool.coming + pool.room for pool in self._pools):
            return []
        self._infeasible.clear()
        self._last.clear()
        now = lasting = self._wide(ledger.now)
        if ledger.lasting is not ledger.now:
            lasting = self._wide(ledger.lasting)
        needs, is_behind_blocked = [], False
        # On exit, the queues have their state after the admission pass again.
        with queues.without(()):
            for gang in short:
                placement = None
                if (
                    queues.excess(gang.queue, gang.demand, beside_reserved=is_behind_blocked)
                    is None
                ):
                    room = lasting if is_behind_blocked and not ledger.ends_in_time(gang) else now
                    if reclaimable is not None and gang.uid == reclaimable.uid:
                        room = self._wide(ledger.now, reclaimable.usage)
                    placement = self._find_placement(gang, room)
                if placement is None:
                    # With nodes of its own, it would not need its reserved places.
                    is_behind_blocked |= blocked is not None and gang.uid == blocked.uid
                    continue
                queues.take(gang.queue, gang.demand)
                for capacity in {now, lasting}:  # one object where nothing is reserved
                    capacity.take(gang, placement)
                needs.append(self._need(gang, placement))
        return [need for need in needs if need.nodes]

    def _wide(self, capacity: FreeCapacity, extra: IntArray | None = None) -> FreeCapacity:
        free = capacity.free if extra is None else capacity.free + extra
        return self._extension.with_free(free, capacity.nodes.axis.names, capacity.occupants)

    def _find_placement(self, gang: Gang, room: FreeCapacity) -> Placement | None:
        """Return places for ``gang``, on as few new nodes as possible."""
        key = (self.snapshot.shape(gang), id(room))
        if key in self._infeasible:
            return None
        if key in self._last and not gang.has_rules:
            last, rows, usage = self._last[key]
            # Equal gangs share new nodes while these have room.
            if bool(((room.free[rows] >= usage) | (usage == 0)).all()):
                return last
        # Filling ignores rules between pods of one gang.
        search = _NodeSearch(gang, room, self.placer, fills=not gang.has_rules)
        placement = self._search(search)
        if placement is not None and self._exists(placement):
            # The admission pass found no places: other gangs took them, or the placer fills
            # differently.
            placement = search.place(self._extension.existing)
            if placement is None:
                placement = self._search(replace(search, fills=False))
        if placement is None:
            self._infeasible.add(key)
        else:
            used = sum_by_row(*usage_of(gang, placement, self._extension.table.axis))
            self._last[key] = (placement, *used)
        return placement

    def _search(self, search: "_NodeSearch") -> Placement | None:
        existing = self._rows(self._in_time)
        placement = search.fewest(existing) or self._with_new(search, existing)
        if placement is None and self._late:
            placement = search.fewest(self._rows(self._pools))
        return placement

    def _exists(self, placement: Placement) -> bool:
        """Return whether all of its nodes exist."""
        return not any(self._extension.is_new[task.rows].any() for task in placement.tasks)

    def _rows(self, pools: Sequence[GrowablePool]) -> IntArray:
        """Return rows of existing nodes, and of nodes that ``pools`` were asked for."""
        new = (self._extension.new[pool.name][: self._open[pool.name]] for pool in pools)
        return np.concatenate([self._extension.existing, *new])

    def _with_new(self, search: "_NodeSearch", existing: IntArray) -> Placement | None:
        """Return places with new nodes of the pool that needs the fewest, else of all pools."""
        best: Placement | None = None
        min_new, every = math.inf, []
        for pool in self._pools_for(search.gang):
            opened = self._open[pool.name]
            # Each new node gets at least one replica, so more nodes than replicas never help.
            new = self._extension.new[pool.name][opened : opened + search.gang.replicas]
            if pool in self._late or not len(new):
                continue
            every.append(new)
            placement = search.fewest(existing, new, min_new)
            if placement is not None:
                number = int(rows_in_use(placement, len(search.room.nodes))[new].sum())
                if number < min_new:
                    min_new, best = number, placement
        if best is not None:
            return best
        if len(every) < 2:
            return None
        return search.fewest(existing, np.concatenate(every))

    def _pools_for(self, gang: Gang) -> tuple[GrowablePool, ...]:
        """Pools whose nodes take a replica of at least one of its tasks."""
        shape = self.snapshot.shape(gang)
        pools = self._takers.get(shape)
        if pools is None:
            pools = tuple(pool for pool in self._pools if self._extension.takes(pool.name, gang))
            self._takers[shape] = pools
        return pools

    def _need(self, gang: Gang, placement: Placement) -> _Need:
        """Return the nodes that ``placement`` takes, and count the new ones as requested."""
        used = rows_in_use(placement, len(self._extension.table))
        nodes: dict[str, int] = {}
        requests: dict[str, int] = {}
        for name, new in self._extension.new.items():
            indices = np.flatnonzero(used[new])
            if len(indices):
                nodes[name] = len(indices)
                # A pool provides its nodes in order: the nodes before the last one come too.
                requests[name] = max(0, int(indices[-1]) + 1 - self._open[name])
                self._open[name] += requests[name]
        existing = np.flatnonzero(used[self._extension.existing])
        names = self.snapshot.nodes.names
        return _Need(gang, nodes, requests, frozenset(names[row] for row in existing.tolist()))


# --- existing and new nodes in one table ---

_KEY: Final = "extended_nodes"


@dataclass(frozen=True, eq=False)
class ExtendedNodes:
    """A table of the existing nodes and of new ones.

    New nodes are copies of their pool's template, so that filters, capacity, affinity and topology
    treat them like any other.

    Attributes:
        existing: Rows of the existing nodes, in the order of their own table.
        new: Rows of the new nodes by pool, in the order in which they are counted.
    """

    table: NodeTable
    existing: IntArray
    new: dict[str, IntArray]
    templates: tuple[Node, ...]

    @cached_property
    def is_new(self) -> BoolArray:
        """True for new nodes, shape (nodes,)."""
        mask = np.ones(len(self.table), dtype=np.bool_)
        mask[self.existing] = False
        return mask

    @property
    def copies(self) -> dict[str, int]:
        """Number of new nodes of each pool."""
        return {name: len(rows) for name, rows in self.new.items()}

    def takes(self, pool: str, gang: Gang) -> bool:
        """Return whether an empty new node of ``pool`` takes a replica of any task of ``gang``."""
        rows, table = self.new[pool], self.table
        if not len(rows):
            return False
        offer = table.allocatable[rows[0]] - table.fixed[rows[0]]
        requests = ((task, table.axis.request(task.request)) for task in gang.tasks)
        return any(
            request is not None
            and bool((request <= offer).all())
            and bool(feasible(task.constraints, table)[rows[0]])
            for task, request in requests
        )

    def with_free(
        self, free: IntArray, axis_names: Sequence[str], occupants: Occupants = NOBODY
    ) -> FreeCapacity:
        """Return the capacity with ``free`` on existing nodes, and all of the new nodes.

        ``free`` is int64, shape (existing nodes, resources ``axis_names``).
        """
        table = self.table
        remaining = table.allocatable - table.fixed
        remaining[self.existing] = 0
        columns = np.array([table.axis.names.index(name) for name in axis_names])
        remaining[self.existing[:, None], columns] = free
        moved_occupants = occupants.remap(self.existing)
        return FreeCapacity(table, table.allocatable - remaining, moved_occupants)


def extend_nodes(nodes: NodeTable, pools: Sequence[GrowablePool], max_new: int) -> ExtendedNodes:
    """Return ``nodes`` with the nodes that pools may get, at most ``max_new`` per pool.

    ``pools`` have different names.
    """
    templates = tuple(pool.template for pool in pools)
    copies = {pool.name: min(pool.coming + pool.room, max_new) for pool in pools}
    # Between cycles, only the numbers of coming and possible nodes change, and mostly not even
    # their sum.
    cached = nodes.memo.get(_KEY)
    if (
        isinstance(cached, ExtendedNodes)
        and cached.templates == templates
        and cached.copies == copies
    ):
        return cached
    attachable = {
        name: int(nodes.allocatable[:, column].max(initial=0))
        for column, name in enumerate(nodes.axis.names)
        if name.startswith(ATTACHABLE)
    }
    new = {
        pool.name: [_copy(pool, index, attachable) for index in range(copies[pool.name])]
        for pool in pools
    }
    everything = [*nodes.nodes, *(node for of_pool in new.values() for node in of_pool)]
    table = nodes.with_nodes(everything)

    def rows(members: Iterable[Node]) -> IntArray:
        return np.array([table.row[node.name] for node in members], dtype=np.int64)

    by_pool = {name: rows(of_pool) for name, of_pool in new.items()}
    fresh = ExtendedNodes(table, rows(nodes.nodes), by_pool, templates)
    nodes.remember(_KEY, fresh)
    return fresh


def _copy(pool: GrowablePool, index: int, attachable: Amounts) -> Node:
    name = f"{pool.name}/{index}"  # no node of a cluster has a name with a slash
    labels = {**pool.template.labels, HOSTNAME_LABEL: name}
    # A template does not state how many volumes a node can attach: assume the largest number here.
    offer = {**attachable, **pool.template.allocatable}
    fresh = replace(pool.template, name=name, labels=labels, allocatable=offer)
    return replace(fresh, is_ready=True, is_cordoned=False, is_leaving=False)


# --- places for one gang on as few new nodes as possible ---

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _NodeSearch:
    """Finds places for ``gang`` in ``room`` with as few new nodes as possible.

    Replicas fill the free capacity, the fullest nodes first, then the new nodes in order. Without
    ``fills``, only the placer decides: for a gang that it refused where filling works.
    """

    gang: Gang
    room: FreeCapacity
    placer: Placer
    fills: bool = True

    @cached_property
    def _tasks(self) -> list[tuple[Task, IntArray]]:
        """Tasks, most devices first, and how many of the task's replicas each row takes."""
        devices = self.room.nodes.devices
        tasks = sorted(self.gang.tasks, key=lambda task: (-devices(task), task.name))
        return [(task, np.minimum(self.room.replicas(task), task.replicas)) for task in tasks]

    def fewest(
        self, existing: IntArray, new: IntArray = _NONE, limit: float = math.inf
    ) -> Placement | None:
        """Return the gang on rows ``existing`` and as few rows ``new`` as possible, in their order.

        None if it does not fit on all of them, or does not fit on fewer than ``limit`` of ``new``.
        """
        low = self._lower_bound(existing, new)
        if low is None or low >= limit:
            return None
        placement = self._fill(existing, new) if self.fills else None
        if placement is not None and len(self._tasks) == 1:
            return placement  # with one kind of replica, filling takes the fewest new nodes
        if placement is None:
            placement = self.place(existing, new)
        if placement is None and self.gang.has_spread:
            placement = self._on_some(existing, new, low)
        if placement is None:
            return None
        # For several kinds of replicas, the placer may need fewer nodes than filling.
        high = self._count_used(placement, new)
        while low < high:
            middle = (low + high) // 2
            alternative = self.place(existing, new[:middle])
            if alternative is None:
                low = middle + 1
            else:
                placement, high = alternative, self._count_used(alternative, new)
        return placement

    def _on_some(self, existing: IntArray, new: IntArray, low: int) -> Placement | None:
        """Return places on at least the first ``low`` of ``new``, where all of them are too many.

        An empty node is a domain, so it keeps a spread from putting more replicas on others.
        """
        size = max(1, low)
        while size < len(new):
            if (placement := self.place(existing, new[:size])) is not None:
                return placement
            size *= 2
        return None

    def _lower_bound(self, existing: IntArray, new: IntArray) -> int | None:
        """Return a lower bound on the number of new nodes; None if all of them are too few."""
        minimum = 0
        for task, counts in self._tasks:
            missing = task.replicas - int(counts[existing].sum())
            if missing > 0:
                filled = np.cumsum(counts[new])
                if not len(new) or filled[-1] < missing:
                    return None
                minimum = max(minimum, int(np.searchsorted(filled, missing)) + 1)
        return minimum

    def _fill(self, existing: IntArray, new: IntArray) -> Placement | None:
        """Place task after task on the fullest nodes; None where that fails."""
        takes: list[Take] = []
        tasks = []
        for task, counts in self._tasks:
            if takes:
                counts = np.minimum(self.room.replicas(task, takes), task.replicas)
            useful = existing[counts[existing] > 0]
            rows = np.concatenate([useful[np.argsort(counts[useful], kind="stable")], new])
            filled = np.cumsum(counts[rows])
            if not len(rows) or filled[-1] < task.replicas:
                return None
            last = int(np.searchsorted(filled, task.replicas))
            replicas = np.zeros_like(counts)
            replicas[rows[: last + 1]] = counts[rows[: last + 1]]
            replicas[rows[last]] -= filled[last] - task.replicas
            takes.append(Take(self.room.nodes.axis.usage(task.request), replicas))
            used = np.flatnonzero(replicas)
            tasks.append(TaskPlacement(task.name, used, replicas[used]))
        if not keeps_affinity(self.gang, tasks, self.room.nodes):
            return None
        return Placement(tuple(tasks), CLUSTER_LEVEL, "")

    def place(self, existing: IntArray, new: IntArray = _NONE) -> Placement | None:
        """Return the placer's answer for rows ``existing`` and ``new``."""
        mask = np.zeros(len(self.room.nodes), dtype=np.bool_)
        mask[existing] = mask[new] = True
        return self.placer.place(self.gang, self.room.inside(mask, are_all=True))

    def _count_used(self, placement: Placement, new: IntArray) -> int:
        """Return how many of ``new`` the placement takes: up to the last one that it uses."""
        used = np.flatnonzero(rows_in_use(placement, len(self.room.nodes))[new])
        return int(used[-1]) + 1 if len(used) else 0


def rows_in_use(placement: Placement, nodes: int) -> BoolArray:
    """Return whether the placement uses a node, shape (nodes,)."""
    used = np.zeros(nodes, dtype=np.bool_)
    for task in placement.tasks:
        used[task.rows] = True
    return used
