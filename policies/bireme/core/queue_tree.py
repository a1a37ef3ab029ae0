"""The queue tree of a cycle: limits, guarantees, fair share, and the turns between queues.

A queue with all queues below it is a branch, and what a queue holds is what its branch holds. A
limit caps the branch. A guarantee protects it against other branches, in the resources it names.
What a branch holds beyond its guarantee is borrowed. Siblings borrow by weighted dominant share
where one of them sets a weight, else in the policy's order.

A branch is guaranteed what its queue states, or what the branches below it are guaranteed together
where that is more, and never more than its limit. So levels never contradict each other: a
guarantee given to a team also holds against gangs outside its department. Where the guarantees of
siblings add up to more than there is, they are kept first come, first served.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from bireme.core.accelerators import DEFAULT, GPU_UNITS, Accelerators
from bireme.core.errors import SnapshotError
from bireme.core.policy import Ranked
from bireme.core.queues import Queue
from bireme.core.resources import Amounts, add

MAX_LEVELS = 16
"""The most queues from a queue up to its root, both included."""

_OWN = "\0own"
"""Ends the name of the branch that stands for a queue's own gangs beside the queues below it."""

Excess: TypeAlias = tuple[str, dict[str, tuple[int, int, int]]]
"""A queue, and the resources beyond its limit: name -> (asked, used, limit)."""

Overuse: TypeAlias = tuple[str, dict[str, tuple[int, int]]]
"""A queue, and the resources of which it holds more than its limit: name -> (used, limit)."""


def names_units(queues: Mapping[str, Queue]) -> bool:
    """Return whether a queue is limited to, or guaranteed, accelerators in units."""
    return any(GPU_UNITS in stated for q in queues.values() for stated in (q.limit, q.guaranteed))


class QueueTree:
    """The queues of one cycle and what they hold; :meth:`take` keeps it up to date.

    Args:
        queues: By name.
        usage: Amounts that each queue's own gangs hold, by queue name. A name that is no queue (any
            more) stands alone, without limit and guarantee.
        total: Amounts of the cluster; shares are measured against them.
        accelerators: What counts towards :data:`~bireme.core.accelerators.GPU_UNITS`, where a queue
            names that. No request does, so it is added to all amounts that come in.

    Raises:
        SnapshotError: An amount in ``usage`` is negative.
    """

    def __init__(
        self,
        queues: Mapping[str, Queue],
        usage: Mapping[str, Amounts],
        total: Amounts,
        accelerators: Accelerators = DEFAULT,
    ) -> None:
        self._queues = queues
        self.accelerators = accelerators
        self._has_units = names_units(queues)
        self._total = self._counted(total)
        self._levels = _QueueLevels(queues)
        self._limits: dict[str, tuple[str, ...]] = {}
        self._used: dict[str, dict[str, int]] = {}
        # Numbers of changes by branch: what the tournament remembers is valid for one number.
        self._changes: Counter[str] = Counter()
        self._before: dict[str, dict[str, int]] | None = None
        # Branches that have sent a gang with which they borrow: what they send next came late.
        self._borrowing: set[str] = set()
        self._reserved: Mapping[str, Amounts] = {}
        for name, held in usage.items():
            self.take(name, held)

    @property
    def has_guarantees(self) -> bool:
        """True where any queue is guaranteed anything."""
        return bool(self._levels.guarantees)

    def path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and those above it, itself first."""
        return self._levels.path(queue)

    def fault(self, queue: str) -> str | None:
        """Return why no gang of ``queue`` can be admitted, with the remedy; None when they can."""
        return self._levels.faults.get(queue)

    def admits(self, queue: str) -> bool:
        """Return whether the queue exists, is open, and has a sound place in the tree."""
        known = self._queues.get(queue)
        return known is not None and known.is_open and self.fault(queue) is None

    def overuse(self, queue: str) -> Overuse | None:
        """Return the first queue from ``queue`` upwards that holds more than its limit."""
        for name in self._limited(queue):
            held, limit = self.used(name), self._queues[name].limit
            beyond = {r: (held[r], limit[r]) for r in sorted(limit) if held.get(r, 0) > limit[r]}
            if beyond:
                return name, beyond
        return None

    def used(self, queue: str) -> Amounts:
        """Return the amounts that the branch of ``queue`` holds."""
        return self._used.get(queue, {})

    def guarantee(self, queue: str) -> Amounts:
        """Return the amounts that the branch of ``queue`` is guaranteed."""
        return self._levels.guarantees.get(queue, {})

    def take(self, queue: str, demand: Amounts) -> None:
        """Count ``demand`` in every branch of ``queue``. Raises SnapshotError if it is negative."""
        self._shift(queue, self._counted(_sound(queue, demand)), 1)

    def give_back(self, queue: str, demand: Amounts) -> None:
        """Take ``demand`` back from every branch of ``queue``; raises as :meth:`take`."""
        self._shift(queue, self._counted(_sound(queue, demand)), -1)

    def _counted(self, demand: Amounts) -> Amounts:
        """Return ``demand`` with its accelerators in units, where a queue names these."""
        if not self._has_units or GPU_UNITS in demand:
            return demand
        return self.accelerators.with_units(demand)

    def _shift(self, queue: str, demand: Amounts, times: int) -> None:
        for name in self._levels.route(queue):
            # A new dict each time: without() keeps the old ones to go back to.
            self._used[name] = add(self._used.get(name, {}), demand, times)
            self._changes[name] += 1

    @contextmanager
    def without(self, gone: Iterable[tuple[str, Amounts]]) -> Iterator[None]:
        """Within the context, act as if ``gone``, pairs of queue and demand, had stopped.

        On leaving, everything is as before, also what was taken and given back in between.
        """
        # Only the outer dict is copied: _shift replaces amounts and never changes them in place.
        used, before = self._used, self._before
        self._used = dict(used)
        try:
            for queue, demand in gone:
                self.give_back(queue, demand)
            self._before = dict(self._used)
            yield
        finally:
            self._changes.update(n for n, held in self._used.items() if held is not used.get(n))
            self._used, self._before = used, before

    def reserve(self, queue: str, demand: Amounts) -> None:
        """Keep room for ``demand`` in every limit from ``queue`` upwards, for one waiting gang."""
        self._reserved = dict.fromkeys(self.path(queue), self._counted(demand))

    def excess(self, queue: str, demand: Amounts, beside_reserved: bool = False) -> Excess | None:
        """Return the first queue from ``queue`` upwards whose limit ``demand`` more would pass."""
        demand = self._counted(_sound(queue, demand))
        for name in self._limited(queue):
            used = self.used(name)
            if beside_reserved and name in self._reserved:
                used = add(used, self._reserved[name])
            if found := self._queues[name].excess(used, demand):
                return name, found
        return None

    def _limited(self, queue: str) -> tuple[str, ...]:
        """Return the queue and those above it, as far as they have a limit."""
        found = self._limits.get(queue)  # asked for every waiting gang, so it is remembered
        if found is None:
            path = self.path(queue)
            found = tuple(n for n in path if n in self._queues and self._queues[n].limit)
            self._limits[queue] = found
        return found

    def is_limited(self, queue: str) -> bool:
        """Return whether the queue, or one above it, has a limit."""
        return bool(self._limited(queue))

    def excess_when_empty(self, queue: str, demand: Amounts) -> Excess | None:
        """Return the first queue from ``queue`` upwards whose limit ``demand`` alone would pass."""
        demand = self._counted(demand)
        for name in self._limited(queue):
            if found := self._queues[name].excess({}, demand):
                return name, found
        return None

    def is_within_guarantee(self, queue: str, demand: Amounts) -> bool:
        """Return whether the branch of ``queue`` with ``demand`` more is within its guarantee.

        In the resources that the guarantee names and ``demand`` asks; False if there are none.
        """
        return self._fits_guarantee(queue, self._counted(demand), self.used(queue))

    def _fits_guarantee(self, branch: str, demand: Amounts, beside: Amounts) -> bool:
        named = self._covered(branch, demand)
        return bool(named) and all(
            beside.get(name, 0) + demand[name] <= amount for name, amount in named.items()
        )

    def _covered(self, branch: str, demand: Amounts) -> dict[str, int]:
        """Return the branch's guarantee of resources that ``demand`` asks."""
        guarantee = self.guarantee(branch).items()
        return {name: amount for name, amount in guarantee if demand.get(name, 0) > 0}

    def may_evict(
        self,
        queue: str,
        demand: Amounts,
        victim_queue: str,
        victim_demand: Amounts,
        ranks_above: bool,
        is_ahead: bool = False,
    ) -> bool:
        """Return whether a gang that asks ``demand`` may have what ``victim_queue`` holds.

        ``victim_demand`` is what the victim would lose. Of several victims, lowest rank first,
        each is given back before the next is asked about, all within one :meth:`without`.

        - Reclaim. Of the branches that part below the lowest queue above both, the gang's stays
          within its guarantee with the gang. The victim may go, unless a branch it is part of on
          its own side is within its guarantee.
        - Rank. Otherwise the gang borrows. The victim may go if the gang ranks above it and every
          branch it is part of still holds, in one resource, all its guarantee without it. In a
          branch that both are part of, it suffices that the gang alone fits the guarantee.

        So a branch within its guarantee loses nothing to others, and one above it is left below it
        at most by the last gang it loses to a reclaim. Nothing goes straight back: the gang that
        reclaimed is within its guarantee, where no other branch can touch it, and one that lost to
        rank would borrow again, and ranks below. The rule between branches is that of Kueue's
        hierarchical cohorts.

        A gang has its turn late where a gang before it made its branch borrow. A victim that has
        its turn before it (``is_ahead``) would go straight back, into the places that the gang has
        reclaimed. So it may not go.
        """
        if not self.has_guarantees:
            return ranks_above
        demand, victim_demand = self._counted(demand), self._counted(victim_demand)
        ours, theirs = self._levels.apart(queue, victim_queue)
        if self._may_reclaim(ours, demand):
            if is_ahead and ours[-1] in self._borrowing:
                return False
            return not any(self._is_safe(branch, victim_demand) for branch in theirs)
        # Without the shared branches in the rule, two queues whose highest gangs exceed their
        # guarantees would evict each other for ever.
        return ranks_above and all(
            self._can_spare(branch, victim_demand)
            or (branch not in theirs and self._fits_guarantee(branch, demand, {}))
            for branch in self._levels.route(victim_queue)
        )

    def _may_reclaim(self, ours: Sequence[str], demand: Amounts) -> bool:
        """Return whether the largest of ``ours`` stays within its guarantee with ``demand``."""
        before = self._used if self._before is None else self._before
        return (
            bool(ours)
            and self.is_within_guarantee(ours[-1], demand)
            # It, or a branch below, did so before the trial: stopping own gangs must not entitle.
            and any(self._fits_guarantee(name, demand, before.get(name, {})) for name in ours)
        )

    def _is_safe(self, branch: str, held: Amounts) -> bool:
        """Return whether the branch, which ``held`` is a part of, is within its guarantee."""
        used, named = self.used(branch), self._covered(branch, held)
        return bool(named) and all(used.get(name, 0) <= amount for name, amount in named.items())

    def _can_spare(self, branch: str, held: Amounts) -> bool:
        """Return whether the branch without ``held`` has, in one resource, all its guarantee."""
        used, named = self.used(branch), self._covered(branch, held)
        return not named or any(
            used.get(name, 0) - held[name] >= amount for name, amount in named.items()
        )

    def dominant_share(self, queue: str) -> float:
        """Return the dominant share of what the branch of ``queue`` borrows, over its weight.

        max over resources r of max(0, used_r - guaranteed_r) / (total_r * weight): weighted
        dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.3) in what lies above the
        guarantee.
        """
        held, guarantee, known = self.used(queue), self.guarantee(queue), self._queues.get(queue)
        # A running gang's queue may be deleted: it counts with weight 1.
        weight = (known.weight if known else None) or 1
        return max(
            (
                max(0, amount - guarantee.get(name, 0)) / (self._total[name] * weight)
                for name, amount in held.items()
                if self._total.get(name, 0) > 0  # its last node may just have gone
            ),
            default=0.0,
        )

    def merge(self, ranked: Sequence[Ranked]) -> Iterator[Ranked]:
        """Yield ``ranked`` in turns between queues, given what they hold at each turn.

        A tournament down the tree, anew for every gang. At each level, every branch sends the gang
        that would be its next, and the winner is

            1. a branch that stays within its guarantee with that gang, before one that borrows;
            2. among equals, if one of the siblings sets a weight, that of the lowest
               :meth:`dominant_share`;
            3. among equals, that of the gang which comes first in ``ranked``.

        The caller may take and give back between two gangs.
        """
        if not self._levels.guarantees and not self._levels.weighted:
            yield from ranked
            return
        top = self._branches(ranked)
        while (turn := self._winner(top.below)) is not None:
            turn.leaf.waiting.popleft()
            branch: _Branch | None = turn.leaf
            while branch is not None:
                if branch.key[0]:
                    self._borrowing.add(branch.name)
                branch.seen, branch = -1, branch.above
            yield turn.entry

    def _branches(self, ranked: Sequence[Ranked]) -> "_Branch":
        """Return a branch above all branches with waiting gangs."""
        top = _Branch("")
        known: dict[str, _Branch] = {}
        for rank, entry in enumerate(ranked):
            branch = top
            for name in reversed(self._levels.route(entry.gang.queue)):
                if name not in known:
                    known[name] = _Branch(name, branch)
                    branch.below.append(known[name])
                branch = known[name]
            branch.waiting.append(_Turn(rank, entry, branch))
        return top

    def _winner(self, branches: "list[_Branch]") -> "_Turn | None":
        """Return the gang whose turn it is among siblings; drop branches without a waiting gang."""
        # A branch sends the same gang until something in it changes, so a turn costs a look at the
        # siblings along one path, not at the whole tree.
        for branch in [b for b in branches if b.seen != self._changes[b.name]]:
            branch.seen = self._changes[branch.name]
            if branch.below:
                branch.turn = self._winner(branch.below)
            else:
                branch.turn = branch.waiting[0] if branch.waiting else None
            if branch.turn is None:
                branches.remove(branch)
            else:
                branch.key = (*self._rank(branch), branch.turn.rank)
        return min(branches, key=lambda branch: branch.key).turn if branches else None

    def _rank(self, branch: "_Branch") -> tuple[bool, float]:
        demand = branch.turn.entry.gang.demand if branch.turn else {}
        borrows = not self.is_within_guarantee(branch.name, demand)
        is_weighed = self._levels.above(branch.name) in self._levels.weighted
        return borrows, self.dominant_share(branch.name) if is_weighed else 0.0


class _Turn(NamedTuple):
    """A waiting gang, its place in the policy's order, and the branch it waits in."""

    rank: int
    entry: Ranked
    leaf: "_Branch"


@dataclass(slots=True, eq=False)
class _Branch:
    """A branch in the tournament: its own waiting gangs, and the one that it sends now.

    ``seen`` is the number of changes at which ``turn`` and ``key`` were found; -1 when they must be
    found anew.
    """

    name: str
    above: "_Branch | None" = None
    below: "list[_Branch]" = field(default_factory=list)
    waiting: deque[_Turn] = field(default_factory=deque)
    turn: _Turn | None = None
    key: tuple[bool, float, int] = (True, 0.0, 0)
    seen: int = -1


# --- levels: paths and guarantees, fixed during a cycle ---


class _QueueLevels:
    """The fixed part of a queue tree.

    Attributes:
        guarantees: Guarantee of each branch that has one, by queue name.
        weighted: Queues ("" above the roots) with a queue directly below that sets a weight.
        faults: By queue name, why its place in the tree makes no sense, with the remedy.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self.faults: dict[str, str] = {}
        self._paths = {name: self._climb(name) for name in queues}
        self._inner = {path[1] for path in self._paths.values() if len(path) > 1}
        self.weighted = {self.above(q.name) for q in queues.values() if q.weight is not None}
        self.guarantees = self._guarantees()

    def path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and those above it, itself first; a name that is no queue alone."""
        return self._paths.get(queue) or (queue,)

    def route(self, queue: str) -> tuple[str, ...]:
        """Return the branches that the gangs of ``queue`` count in, the smallest first.

        Its path, and first, where there are queues below it, a branch for its own gangs.
        """
        path = self.path(queue)
        return (queue + _OWN, *path) if queue in self._inner else path

    def apart(self, queue: str, other: str) -> tuple[list[str], list[str]]:
        """Return the routes of two queues without the branches that are on both."""
        ours, theirs = self.route(queue), self.route(other)
        return [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]

    def above(self, branch: str) -> str:
        """Return the queue directly above a branch; "" above a root."""
        route = self.path(branch.removesuffix(_OWN))
        if branch.endswith(_OWN):
            return route[0]
        return route[1] if len(route) > 1 else ""

    def _climb(self, queue: str) -> tuple[str, ...]:
        """Return the path of ``queue``; where it has no end, ``queue`` alone, with a fault."""
        path = [queue]
        while parent := self._queues[path[-1]].parent:
            if parent not in self._queues:
                self.faults[queue] = (
                    f"parent of queue {path[-1]!r} is {parent!r}, which does not exist; "
                    "create that queue or change the parent"
                )
                break
            if parent in path:
                circle = " -> ".join([*path, parent])
                self.faults[queue] = (
                    f"parent of queue {queue!r} leads in a circle, {circle}; "
                    "take the parent from one of them"
                )
                return (queue,)
            if len(path) == MAX_LEVELS:
                self.faults[queue] = (
                    f"parent of queue {queue!r} is {path[1]!r}, which makes more than "
                    f"{MAX_LEVELS} levels; nest queues less deeply"
                )
                return (queue,)
            path.append(parent)
        return tuple(path)

    def _guarantees(self) -> dict[str, Amounts]:
        guarantees: dict[str, Amounts] = {}
        below: dict[str, dict[str, int]] = {}
        # Lower levels first: a branch is guaranteed at least what those below it are together.
        for name in sorted(self._queues, key=lambda name: -len(self._paths[name])):
            queue, lower = self._queues[name], below.get(name, {})
            stated, limit = queue.guaranteed, queue.limit
            most = {n: max(stated.get(n, 0), lower.get(n, 0)) for n in {**stated, **lower}}
            capped = {n: min(amount, limit.get(n, amount)) for n, amount in most.items()}
            if found := {n: amount for n, amount in capped.items() if amount > 0}:
                guarantees[name] = found
                above = self.above(name)
                below[above] = add(below.get(above, {}), found)
        return guarantees


def _sound(queue: str, demand: Amounts) -> Amounts:
    if min(demand.values(), default=0) < 0:
        raise SnapshotError(
            f"queue {queue!r} is to take or give back {dict(demand)}; amounts are never negative"
        )
    return demand
