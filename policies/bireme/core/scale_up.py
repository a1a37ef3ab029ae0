"""Scale-up: the nodes to ask for, for gangs that fit nowhere now.

In order, each gang that only lacks room is tried

    1. on what is free, with the nodes that are coming already: it waits for those;
    2. with new nodes of one pool beside: the pool that needs the fewest, ties by name;
    3. with new nodes of all pools, where no single one has nodes for all its tasks;
    4. on nodes that are late as well: they may never come, so they are counted on last.

What a gang takes, the next one does not count again, limits of queues included. No gang starts by
this: it waits for the nodes as it would for others to leave, and reservations stay as they are.
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
from bireme.core.running import summed
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class _Need:
    """The nodes that a gang waits for.

    Attributes:
        nodes: Nodes that do not exist yet, by pool.
        asked: Those of them that nothing has asked for before, by pool.
        beside: Names of existing nodes whose free room it also counts on.
    """

    gang: Gang
    nodes: Mapping[str, int]
    asked: Mapping[str, int]
    beside: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lent:
    """What gangs use that stop once the gang ``to``, a uid, fits: int64, (nodes, resources)."""

    to: str
    usage: IntArray


@dataclass(eq=False)
class ScaleUp:
    """Scale-up of the pools of one snapshot.

    ``placer`` is that of the rules: a learned one knows only the nodes of the snapshot.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    explain: bool
    _open: dict[str, int] = field(default_factory=dict)
    """By pool, the new nodes that are coming, or have been asked for in this cycle."""
    _hopeless: set[object] = field(default_factory=set)
    """Shapes that no node helps: what pools can give only shrinks."""
    _last: dict[object, tuple[Placement, IntArray, IntArray]] = field(default_factory=dict)
    """Places of the last gang of a shape, their rows, and what it uses there."""
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
    def _extended(self) -> "ExtendedNodes":
        # A new node for each replica that waits is enough. Rounded up to a power of two, as the
        # number of replicas changes with every cycle and the table is kept.
        replicas = sum(gang.at_minimum.replicas for gang in self.snapshot.waiting)
        return extended_nodes(self.snapshot.nodes, self._pools, 1 << replicas.bit_length())

    def never_fits(self, gang: Gang) -> str | None:
        """Return why ``gang`` would not fit with all nodes pools may ever have, or None."""
        cluster = "the empty cluster, with its pools at their most,"
        never = messages.never_fits(gang, self._extended.table, self.placer, cluster)
        return None if never and gang.has_spread and self._fits_on_some(gang) else never

    def may_help(self, gang: Gang) -> bool:
        """Return whether a pool may get, or gets, nodes that take a replica of ``gang`` in time."""
        pools = (pool for pool in self._pools_for(gang) if pool not in self._late)
        return any(pool.room + pool.coming for pool in pools)

    def _fits_on_some(self, gang: Gang) -> bool:
        """Return whether ``gang`` fits where pools get only some of the nodes they may have."""
        table = self._extended.table
        key = ("fits_on_some", shape_alone(gang), getattr(self.placer, "name", ""))
        if key not in table.memo:
            room = messages.unused(table)
            search = _NodeSearch(messages.alone(gang), room, self.placer, fills=False)
            rows = [self._extended.new[p.name][: gang.replicas] for p in self._pools_for(gang)]
            sets = (*rows, np.concatenate(rows)) if rows else ()
            there = self._extended.existing
            fits = any(search.fewest(there, new) is not None for new in sets)
            table.remember(key, fits)
        return bool(table.memo[key])

    def apply(
        self,
        decision: Decision,
        short: Iterable[Gang],
        ledger: CapacityLedger,
        queues: QueueTree,
        blocked: Gang | None,
        lent: Lent | None,
    ) -> Decision:
        """Return ``decision`` with node requests, and their gangs held as ScalingUp.

        Args:
            short: Gangs that only lack room, first in order first, at the size they may start at.
            ledger, queues: As the admission pass left them; they stay as they are.
            blocked: The gang that holds the reservation.
            lent: What the first of ``short`` gets back, and needs no nodes for; None for nothing.
        """
        needs = {need.gang.uid: need for need in self._needs(short, ledger, queues, blocked, lent)}
        kept = {name for need in needs.values() for name in need.beside}
        names = self.snapshot.nodes.names
        actions: list[Action] = []
        for action in decision.actions:
            if isinstance(action, Hold):
                if action.reservation is not None:
                    kept.update(names[at] for at in action.reservation.placement.node_rows())
                if action.gang.uid in needs:
                    action = self._held_for_nodes(action, needs[action.gang.uid])
            actions.append(action)
        requests = tuple(
            NodeRequest(p, n, need.gang) for need in needs.values() for p, n in need.asked.items()
        )
        if decision.unreached:  # nothing is given up that these might count on
            kept.update(names)
            requests += tuple(NodeRequest(p.name, 0, decision.unreached[0]) for p in self._pools)
        return replace(
            decision, actions=tuple(actions), node_requests=requests, kept_nodes=frozenset(kept)
        )

    def _held_for_nodes(self, hold: Hold, need: _Need) -> Hold:
        message = hold.message
        if self.explain:
            late = [pool for pool in self._pools_for(need.gang) if pool in self._late]
            text = messages.scaling_up(need.nodes, late, self.snapshot.now)
            message = f"{text}; {message}"
        return replace(hold, reason=Reason.SCALING_UP, message=message)

    def _needs(
        self,
        short: Iterable[Gang],
        ledger: CapacityLedger,
        queues: QueueTree,
        blocked: Gang | None,
        lent: Lent | None,
    ) -> list[_Need]:
        """Return the needs of ``short``, without gangs that no node helps or that need none."""
        # Anew each time: where an orderer was overruled, the cycle is decided again.
        self._open = {pool.name: pool.coming for pool in self._pools}
        if not any(pool.coming + pool.room for pool in self._pools):
            return []
        self._hopeless.clear()
        self._last.clear()
        now = lasting = self._wide(ledger.now)
        if ledger.lasting is not ledger.now:
            lasting = self._wide(ledger.lasting)
        needs, behind = [], False
        # On leaving, the queues are as the admission pass left them.
        with queues.without(()):
            for gang in short:
                placement = None
                if queues.excess(gang.queue, gang.demand, beside_reserved=behind) is None:
                    room = lasting if behind and not ledger.ends_in_time(gang) else now
                    if lent is not None and gang.uid == lent.to:
                        room = self._wide(ledger.now, lent.usage)
                    placement = self._placed(gang, room)
                if placement is None:
                    # With nodes of its own it would need nothing that is kept for it.
                    behind |= blocked is not None and gang.uid == blocked.uid
                    continue
                queues.take(gang.queue, gang.demand)
                for capacity in {now, lasting}:  # one object where nothing is reserved
                    capacity.take(gang, placement)
                needs.append(self._need(gang, placement))
        return [need for need in needs if need.nodes]

    def _wide(self, capacity: FreeCapacity, lent: IntArray | None = None) -> FreeCapacity:
        free = capacity.free if lent is None else capacity.free + lent
        return self._extended.with_free(free, capacity.nodes.axis.names, capacity.occupants)

    def _placed(self, gang: Gang, room: FreeCapacity) -> Placement | None:
        """Return places for ``gang``, on as few new nodes as possible."""
        key = (self.snapshot.shape(gang), id(room))
        if key in self._hopeless:
            return None
        if key in self._last and not gang.has_rules:
            last, rows, usage = self._last[key]
            # Equal gangs share new nodes as long as they last.
            if bool(((room.free[rows] >= usage) | (usage == 0)).all()):
                return last
        # Filling knows no rules between pods of one gang.
        search = _NodeSearch(gang, room, self.placer, fills=not gang.has_rules)
        placement = self._found(search)
        if placement is not None and self._exists(placement):
            # The admission pass found no places: others have them now, or the placer fills
            # otherwise.
            placement = search.place(self._extended.existing)
            if placement is None:
                placement = self._found(replace(search, fills=False))
        if placement is None:
            self._hopeless.add(key)
        else:
            used = summed(*usage_of(gang, placement, self._extended.table.axis))
            self._last[key] = (placement, *used)
        return placement

    def _found(self, search: "_NodeSearch") -> Placement | None:
        there = self._rows(self._in_time)
        placement = search.fewest(there) or self._with_new(search, there)
        if placement is None and self._late:
            placement = search.fewest(self._rows(self._pools))
        return placement

    def _exists(self, placement: Placement) -> bool:
        """Return whether all of its nodes exist."""
        return not any(self._extended.is_new[task.rows].any() for task in placement.tasks)

    def _rows(self, pools: Sequence[GrowablePool]) -> IntArray:
        """Return rows of existing nodes, and of those that ``pools`` were asked for."""
        new = (self._extended.new[pool.name][: self._open[pool.name]] for pool in pools)
        return np.concatenate([self._extended.existing, *new])

    def _with_new(self, search: "_NodeSearch", there: IntArray) -> Placement | None:
        """Return places with new nodes of the pool that needs the fewest, else of all pools."""
        best: Placement | None = None
        fewest, every = math.inf, []
        for pool in self._pools_for(search.gang):
            opened = self._open[pool.name]
            # Each new node gets a replica at least, so more nodes than replicas never help.
            new = self._extended.new[pool.name][opened : opened + search.gang.replicas]
            if pool in self._late or not len(new):
                continue
            every.append(new)
            placement = search.fewest(there, new, fewest)
            if placement is not None:
                number = int(used_rows(placement, len(search.room.nodes))[new].sum())
                if number < fewest:
                    fewest, best = number, placement
        if best is not None:
            return best
        if len(every) < 2:
            return None
        return search.fewest(there, np.concatenate(every))

    def _pools_for(self, gang: Gang) -> tuple[GrowablePool, ...]:
        """Pools whose nodes take a replica of any of its tasks."""
        shape = self.snapshot.shape(gang)
        found = self._takers.get(shape)
        if found is None:
            found = tuple(pool for pool in self._pools if self._extended.takes(pool.name, gang))
            self._takers[shape] = found
        return found

    def _need(self, gang: Gang, placement: Placement) -> _Need:
        """Return the nodes that ``placement`` takes, and count the new ones as asked for."""
        used = used_rows(placement, len(self._extended.table))
        nodes: dict[str, int] = {}
        asked: dict[str, int] = {}
        for name, new in self._extended.new.items():
            at = np.flatnonzero(used[new])
            if len(at):
                nodes[name] = len(at)
                # A pool gives its nodes one after another: those before the last one come too.
                asked[name] = max(0, int(at[-1]) + 1 - self._open[name])
                self._open[name] += asked[name]
        existing = np.flatnonzero(used[self._extended.existing])
        names = self.snapshot.nodes.names
        return _Need(gang, nodes, asked, frozenset(names[row] for row in existing.tolist()))


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
        """Return the capacity with ``free`` on existing nodes, and all of the new ones.

        ``free`` is int64, shape (existing nodes, resources ``axis_names``).
        """
        table = self.table
        left = table.allocatable - table.fixed
        left[self.existing] = 0
        columns = np.array([table.axis.names.index(name) for name in axis_names])
        left[self.existing[:, None], columns] = free
        there = occupants.moved(self.existing)
        return FreeCapacity(table, table.allocatable - left, there)


def extended_nodes(nodes: NodeTable, pools: Sequence[GrowablePool], most: int) -> ExtendedNodes:
    """Return ``nodes`` with those that are coming or may be asked for, at most ``most`` per pool.

    ``pools`` have different names.
    """
    templates = tuple(pool.template for pool in pools)
    copies = {pool.name: min(pool.coming + pool.room, most) for pool in pools}
    # From cycle to cycle only the numbers of nodes that are coming or may be asked for change, and
    # mostly not even their sum.
    known = nodes.memo.get(_KEY)
    if isinstance(known, ExtendedNodes) and known.templates == templates and known.copies == copies:
        return known
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

    def rows(found: Iterable[Node]) -> IntArray:
        return np.array([table.row[node.name] for node in found], dtype=np.int64)

    by_pool = {name: rows(of_pool) for name, of_pool in new.items()}
    fresh = ExtendedNodes(table, rows(nodes.nodes), by_pool, templates)
    nodes.remember(_KEY, fresh)
    return fresh


def _copy(pool: GrowablePool, index: int, attachable: Amounts) -> Node:
    name = f"{pool.name}/{index}"  # no node of a cluster has a name with a slash
    labels = {**pool.template.labels, HOSTNAME_LABEL: name}
    # A template does not say how many volumes a node can have attached: as many as those there are.
    offer = {**attachable, **pool.template.allocatable}
    fresh = replace(pool.template, name=name, labels=labels, allocatable=offer)
    return replace(fresh, is_ready=True, is_cordoned=False, is_leaving=False)


# --- places for one gang on as few new nodes as possible ---

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _NodeSearch:
    """Finds places for ``gang`` in ``room`` with as few new nodes as possible.

    Replicas fill what is free, the fullest nodes first, then the new nodes one after another.
    Without ``fills`` only the placer is asked: for a gang that it refused where filling works.
    """

    gang: Gang
    room: FreeCapacity
    placer: Placer
    fills: bool = True

    @cached_property
    def _tasks(self) -> list[tuple[Task, IntArray]]:
        """Tasks, those with the most devices first, and how many of its replicas each row takes."""
        devices = self.room.nodes.devices
        tasks = sorted(self.gang.tasks, key=lambda task: (-devices(task), task.name))
        return [(task, np.minimum(self.room.replicas(task), task.replicas)) for task in tasks]

    def fewest(
        self, there: IntArray, new: IntArray = _NONE, below: float = math.inf
    ) -> Placement | None:
        """Return the gang on rows ``there`` and as few rows ``new`` as possible, first ones first.

        None where it does not fit on all of them, or fewer than ``below`` of ``new`` are too few.
        """
        low = self._least(there, new)
        if low is None or low >= below:
            return None
        placement = self._filled(there, new) if self.fills else None
        if placement is not None and len(self._tasks) == 1:
            return placement  # with one kind of replica, filling takes the fewest new nodes
        if placement is None:
            placement = self.place(there, new)
        if placement is None and self.gang.has_spread:
            placement = self._on_some(there, new, low)
        if placement is None:
            return None
        # Of several kinds the placer may need fewer nodes than filling did.
        high = self._used(placement, new)
        while low < high:
            middle = (low + high) // 2
            found = self.place(there, new[:middle])
            if found is None:
                low = middle + 1
            else:
                placement, high = found, self._used(found, new)
        return placement

    def _on_some(self, there: IntArray, new: IntArray, low: int) -> Placement | None:
        """Return places on the first ``low`` of ``new`` or more, where all of them are too many.

        An empty node is a domain that keeps a spread from putting more on others.
        """
        size = max(1, low)
        while size < len(new):
            if (placement := self.place(there, new[:size])) is not None:
                return placement
            size *= 2
        return None

    def _least(self, there: IntArray, new: IntArray) -> int | None:
        """Return a lower bound on the new nodes it takes; None where all of them are too few."""
        least = 0
        for task, counts in self._tasks:
            missing = task.replicas - int(counts[there].sum())
            if missing > 0:
                filled = np.cumsum(counts[new])
                if not len(new) or filled[-1] < missing:
                    return None
                least = max(least, int(np.searchsorted(filled, missing)) + 1)
        return least

    def _filled(self, there: IntArray, new: IntArray) -> Placement | None:
        """Place task after task on the fullest nodes; None where that fails."""
        takes: list[Take] = []
        tasks = []
        for task, counts in self._tasks:
            if takes:
                counts = np.minimum(self.room.replicas(task, takes), task.replicas)
            useful = there[counts[there] > 0]
            rows = np.concatenate([useful[np.argsort(counts[useful], kind="stable")], new])
            filled = np.cumsum(counts[rows])
            if not len(rows) or filled[-1] < task.replicas:
                return None
            last = int(np.searchsorted(filled, task.replicas))
            placed = np.zeros_like(counts)
            placed[rows[: last + 1]] = counts[rows[: last + 1]]
            placed[rows[last]] -= filled[last] - task.replicas
            takes.append(Take(self.room.nodes.axis.usage(task.request), placed))
            at = np.flatnonzero(placed)
            tasks.append(TaskPlacement(task.name, at, placed[at]))
        if not keeps_affinity(self.gang, tasks, self.room.nodes):
            return None
        return Placement(tuple(tasks), CLUSTER_LEVEL, "")

    def place(self, there: IntArray, new: IntArray = _NONE) -> Placement | None:
        """Return the placer's answer for rows ``there`` and ``new``."""
        mask = np.zeros(len(self.room.nodes), dtype=np.bool_)
        mask[there] = mask[new] = True
        return self.placer.place(self.gang, self.room.inside(mask, are_all=True))

    def _used(self, placement: Placement, new: IntArray) -> int:
        """Return how many of ``new`` the placement takes: up to the last one it uses."""
        at = np.flatnonzero(used_rows(placement, len(self.room.nodes))[new])
        return int(at[-1]) + 1 if len(at) else 0


def used_rows(placement: Placement, nodes: int) -> BoolArray:
    """Return whether the placement uses a node, shape (nodes,)."""
    used = np.zeros(nodes, dtype=np.bool_)
    for task in placement.tasks:
        used[task.rows] = True
    return used
