"""Which nodes to ask for: gangs that fit nowhere now, tried against nodes that do not exist yet.

In order, each gang that only lacks room is tried

    1. on what is free, with the nodes that come already: it waits for those;
    2. with new nodes of one pool beside: the pool that needs the fewest, ties by name;
    3. with new nodes of all pools, where no single one has nodes for all its tasks;
    4. on nodes that are late as well: they may never come, so that it counts on them last.

What it takes the next one does not count again, limits of queues included. Nobody starts by this:
a gang waits for the nodes as it would for others to leave, and reservations stay as they are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bireme.core import verdicts
from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Action, Decision, Growth, Hold
from bireme.core.fewest_nodes import Search, used_rows
from bireme.core.gangs import Gang
from bireme.core.grown_nodes import GrownNodes, grown_nodes
from bireme.core.ledger import Ledger
from bireme.core.placement import Placement
from bireme.core.policy import Placer
from bireme.core.pools import GrowablePool
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray
from bireme.core.running import summed, usage_of
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class _Need:
    """What a gang waits for: of every pool, nodes that are not there, and of these the new ones.

    ``beside`` names nodes that are there and free for it.
    """

    gang: Gang
    nodes: Mapping[str, int]
    asked: Mapping[str, int]
    beside: frozenset[str]


@dataclass(eq=False)
class Growing:
    """The pools of one snapshot, and how far they were given out.

    ``placer`` is that of rules: new nodes are in no snapshot that a learned one knows.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    explain: bool = True
    _open: dict[str, int] = field(default_factory=dict)
    """How many of the new nodes of each pool come, or have been asked for in this cycle."""
    _hopeless: set[object] = field(default_factory=set)
    """Shapes that nothing helps: what there is to give only shrinks."""
    _last: dict[object, tuple[Placement, IntArray, IntArray]] = field(default_factory=dict)
    """Where the last gang of a shape was placed, in rows, and what it uses there."""
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
    def _grown(self) -> GrownNodes:
        """A new node for each replica that waits, rounded up: their number changes often."""
        replicas = sum(gang.at_minimum.replicas for gang in self.snapshot.waiting)
        return grown_nodes(self.snapshot.nodes, self._pools, 1 << replicas.bit_length())

    def never_fits(self, gang: Gang) -> str | None:
        """Why ``gang`` would not fit with all nodes there may ever be; None if it would."""
        cluster = "the empty cluster, with its pools at their most,"
        return verdicts.never_fits(gang, self._grown.table, self.placer, cluster)

    def grown(
        self,
        decision: Decision,
        short: Iterable[Gang],
        ledger: Ledger,
        queues: QueueTree,
        blocked: Gang | None,
    ) -> Decision:
        """``decision`` with the nodes to ask for, and the gangs that wait for them told so.

        Args:
            short: Gangs that only lack room, first in order first, at the size they may start at.
            ledger, queues: As the walk down the order left them; they stay as they are.
            blocked: The gang that holds the reservation.
        """
        needs = {need.gang.uid: need for need in self._needs(short, ledger, queues, blocked)}
        kept = {name for need in needs.values() for name in need.beside}
        names = self.snapshot.nodes.names
        actions: list[Action] = []
        for action in decision.actions:
            if isinstance(action, Hold):
                if action.reservation is not None:
                    kept.update(names[at] for at in action.reservation.placement.node_rows())
                if action.gang.uid in needs:
                    action = self._told(action, needs[action.gang.uid])
            actions.append(action)
        growth = (Growth(p, n, need.gang) for need in needs.values() for p, n in need.asked.items())
        return replace(decision, actions=tuple(actions), growth=tuple(growth), kept=frozenset(kept))

    def _told(self, hold: Hold, need: _Need) -> Hold:
        message = hold.message
        if self.explain:
            late = [pool for pool in self._pools_for(need.gang) if pool in self._late]
            words = verdicts.scaling_up(need.nodes, late, self.snapshot.now)
            message = f"{words}; {message}"
        return replace(hold, reason=Reason.SCALING_UP, message=message)

    def _needs(
        self, short: Iterable[Gang], ledger: Ledger, queues: QueueTree, blocked: Gang | None
    ) -> list[_Need]:
        """What ``short`` wait for; those that nothing helps, or that need no node, are left out."""
        self._open = {pool.name: pool.coming for pool in self._pools}
        if not any(pool.coming + pool.room for pool in self._pools):
            return []
        self._hopeless.clear()
        self._last.clear()
        now = lasting = self._wide(ledger.now)
        if ledger.lasting is not ledger.now:
            lasting = self._wide(ledger.lasting)
        needs, behind = [], False
        with queues.without(()):
            for gang in short:
                placement = None
                if queues.excess(gang.queue, gang.demand, beside_reserved=behind) is None:
                    room = lasting if behind and not ledger.ends_in_time(gang) else now
                    placement = self._placed(gang, room)
                if placement is None:
                    # With nodes of its own it would need nothing that is kept for it.
                    behind |= blocked is not None and gang.uid == blocked.uid
                    continue
                queues.take(gang.queue, gang.demand)
                for capacity in {now, lasting}:
                    capacity.take(gang, placement)
                needs.append(self._need(gang, placement))
        return [need for need in needs if need.nodes]

    def _wide(self, capacity: FreeCapacity) -> FreeCapacity:
        return self._grown.with_free(capacity.free, capacity.nodes.axis.names)

    def _placed(self, gang: Gang, room: FreeCapacity) -> Placement | None:
        """Places for ``gang``, on as few nodes as may be that nobody has asked for yet."""
        key = (gang.shape, id(room))
        if key in self._hopeless:
            return None
        if key in self._last:
            last, rows, usage = self._last[key]
            if bool(((room.free[rows] >= usage) | (usage == 0)).all()):
                return last
        search = Search(gang, room, self.placer)
        placement = self._found(search)
        if placement is not None and self._is_there(placement):
            # The walk found no places: either others have them now, or the placer fills otherwise.
            placement = search.place(self._grown.standing)
            if placement is None:
                placement = self._found(replace(search, fills=False))
        if placement is None:
            self._hopeless.add(key)
        else:
            used = summed(*usage_of(gang, placement, self._grown.table.axis))
            self._last[key] = (placement, *used)
        return placement

    def _found(self, search: Search) -> Placement | None:
        there = self._rows(self._in_time)
        placement = search.fewest(there) or self._with_new(search, there)
        if placement is None and self._late:
            placement = search.fewest(self._rows(self._pools))
        return placement

    def _is_there(self, placement: Placement) -> bool:
        """Whether all of its nodes are there."""
        return not any(self._grown.is_new[task.rows].any() for task in placement.tasks)

    def _rows(self, pools: Sequence[GrowablePool]) -> IntArray:
        """Nodes that are there, and those that ``pools`` were asked for."""
        new = (self._grown.new[pool.name][: self._open[pool.name]] for pool in pools)
        return np.concatenate([self._grown.standing, *new])

    def _with_new(self, search: Search, there: IntArray) -> Placement | None:
        """With new nodes of the pool that needs the fewest of them, or else of all pools."""
        best: Placement | None = None
        fewest, every = math.inf, []
        for pool in self._pools_for(search.gang):
            opened = self._open[pool.name]
            # Each of the new nodes it takes has one of its replicas at least.
            new = self._grown.new[pool.name][opened : opened + search.gang.replicas]
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
        found = self._takers.get(gang.shape)
        if found is None:
            found = tuple(pool for pool in self._pools if self._grown.takes(pool.name, gang))
            self._takers[gang.shape] = found
        return found

    def _need(self, gang: Gang, placement: Placement) -> _Need:
        """What ``placement`` takes of nodes that are not there, which are asked for by this."""
        used = used_rows(placement, len(self._grown.table))
        nodes: dict[str, int] = {}
        asked: dict[str, int] = {}
        for name, new in self._grown.new.items():
            at = np.flatnonzero(used[new])
            if len(at):
                nodes[name] = len(at)
                asked[name] = max(0, int(at[-1]) + 1 - self._open[name])
                self._open[name] += asked[name]
        standing = np.flatnonzero(used[self._grown.standing])
        names = self.snapshot.nodes.names
        return _Need(gang, nodes, asked, frozenset(names[row] for row in standing.tolist()))
