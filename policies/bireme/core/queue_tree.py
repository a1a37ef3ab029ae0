"""The queue tree of a cycle: limits, guarantees, fair share, and the turns between queues.

A queue with all queues below it is a branch, and a queue's usage is the usage of its branch. A
limit caps the branch. A guarantee protects it against other branches, in the resources it names.
Usage beyond the guarantee is borrowed. Siblings borrow by weighted dominant share if one of them
sets a weight, else in the policy's order.

The guarantee of a branch is the larger of its queue's own and the sum of the branches below, and
never more than its limit. So levels never contradict each other: a team's guarantee also holds
against gangs outside its department. If the guarantees of siblings exceed the capacity, they are
met first come, first served.
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
"""The limit on queues from a queue up to its root, both included."""

_OWN_GANGS = "\0own"
"""Suffix of the branch that stands for a queue's own gangs beside the queues below it."""

Excess: TypeAlias = tuple[str, dict[str, tuple[int, int, int]]]
"""A queue, and the resources beyond its limit: name -> (asked, used, limit)."""

Overuse: TypeAlias = tuple[str, dict[str, tuple[int, int]]]
"""A queue, and the resources in which it exceeds its limit: name -> (used, limit)."""


def names_units(queues: Mapping[str, Queue]) -> bool:
    """Return whether a limit or guarantee of a queue names accelerators in units."""
    return any(GPU_UNITS in stated for q in queues.values() for stated in (q.limit, q.guaranteed))


class QueueTree:
    """The queues of one cycle and their usage; :meth:`take` keeps it up to date.

    Args:
        queues: By name.
        usage: Usage of each queue's own gangs, by queue name. A name without a queue stands alone,
            without limit and guarantee.
        total: Amounts of the cluster; shares are measured against them.
        accelerators: The resources that count towards
            :data:`~bireme.core.accelerators.GPU_UNITS`, if a queue names that. No request does, so
            it is added to all amounts that come in.

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
        self._total = self._with_units(total)
        self._levels = _QueueLevels(queues)
        self._limits: dict[str, tuple[str, ...]] = {}
        self._used: dict[str, dict[str, int]] = {}
        # Numbers of changes by branch: a cached result of the tournament is valid for one number.
        self._changes: Counter[str] = Counter()
        self._before: dict[str, dict[str, int]] | None = None
        # Branches that have sent a gang with which they borrow: their next gangs have a late turn.
        self._borrowing: set[str] = set()
        self._reserved: Mapping[str, Amounts] = {}
        for name, amounts in usage.items():
            self.take(name, amounts)

    @property
    def has_guarantees(self) -> bool:
        """True if any queue has a guarantee."""
        return bool(self._levels.guarantees)

    def path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and its ancestors, itself first."""
        return self._levels.path(queue)

    def fault(self, queue: str) -> str | None:
        """Return why no gang of ``queue`` can be admitted, with the remedy; None when they can."""
        return self._levels.faults.get(queue)

    def admits(self, queue: str) -> bool:
        """Return whether the queue exists, is open, and has a sound place in the tree."""
        spec = self._queues.get(queue)
        return spec is not None and spec.is_open and self.fault(queue) is None

    def overuse(self, queue: str) -> Overuse | None:
        """Return the first queue from ``queue`` upwards that holds more than its limit."""
        for name in self._limit_path(queue):
            used, limit = self.usage(name), self._queues[name].limit
            beyond = {r: (used[r], limit[r]) for r in sorted(limit) if used.get(r, 0) > limit[r]}
            if beyond:
                return name, beyond
        return None

    def usage(self, queue: str) -> Amounts:
        """Return the usage of the branch of ``queue``."""
        return self._used.get(queue, {})

    def guarantee(self, queue: str) -> Amounts:
        """Return the guarantee of the branch of ``queue``."""
        return self._levels.guarantees.get(queue, {})

    def take(self, queue: str, demand: Amounts) -> None:
        """Add ``demand`` to every branch of ``queue``. Raises SnapshotError if it is negative."""
        self._shift(queue, self._with_units(_sound(queue, demand)), 1)

    def give_back(self, queue: str, demand: Amounts) -> None:
        """Subtract ``demand`` from every branch of ``queue``; raises as :meth:`take`."""
        self._shift(queue, self._with_units(_sound(queue, demand)), -1)

    def _with_units(self, demand: Amounts) -> Amounts:
        """Return ``demand`` with its accelerators in units, if a queue names these."""
        if not self._has_units or GPU_UNITS in demand:
            return demand
        return self.accelerators.with_units(demand)

    def _shift(self, queue: str, demand: Amounts, times: int) -> None:
        for name in self._levels.route(queue):
            # A new dict each time: without() keeps the old ones to restore them.
            self._used[name] = add(self._used.get(name, {}), demand, times)
            self._changes[name] += 1

    @contextmanager
    def without(self, released: Iterable[tuple[str, Amounts]]) -> Iterator[None]:
        """Within the context, act as if ``released``, pairs of queue and demand, had stopped.

        On exit, the previous state returns, whatever was taken and given back in between.
        """
        # Only the outer dict is copied: _shift replaces amounts and never changes them in place.
        used, baseline = self._used, self._before
        self._used = dict(used)
        try:
            for queue, demand in released:
                self.give_back(queue, demand)
            self._before = dict(self._used)
            yield
        finally:
            self._changes.update(
                n for n, amounts in self._used.items() if amounts is not used.get(n)
            )
            self._used, self._before = used, baseline

    def reserve(self, queue: str, demand: Amounts) -> None:
        """Keep room for ``demand`` in every limit from ``queue`` upwards, for one waiting gang."""
        self._reserved = dict.fromkeys(self.path(queue), self._with_units(demand))

    def excess(self, queue: str, demand: Amounts, beside_reserved: bool = False) -> Excess | None:
        """Return the first queue from ``queue`` upwards whose limit ``demand`` more would
        exceed.
        """
        demand = self._with_units(_sound(queue, demand))
        for name in self._limit_path(queue):
            used = self.usage(name)
            if beside_reserved and name in self._reserved:
                used = add(used, self._reserved[name])
            if over := self._queues[name].excess(used, demand):
                return name, over
        return None

    def _limit_path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and its ancestors, without those that have no limit."""
        names = self._limits.get(queue)  # cached: it is needed for every waiting gang
        if names is None:
            path = self.path(queue)
            names = tuple(n for n in path if n in self._queues and self._queues[n].limit)
            self._limits[queue] = names
        return names

    def is_limited(self, queue: str) -> bool:
        """Return whether the queue, or one above it, has a limit."""
        return bool(self._limit_path(queue))

    def excess_when_empty(self, queue: str, demand: Amounts) -> Excess | None:
        """Return the first queue from ``queue`` upwards whose limit ``demand`` alone exceeds."""
        demand = self._with_units(demand)
        for name in self._limit_path(queue):
            if over := self._queues[name].excess({}, demand):
                return name, over
        return None

    def is_within_guarantee(self, queue: str, demand: Amounts) -> bool:
        """Return whether the branch of ``queue`` with ``demand`` more is within its guarantee.

        Only resources count that the guarantee names and ``demand`` requests; False if none.
        """
        return self._fits_guarantee(queue, self._with_units(demand), self.usage(queue))

    def _fits_guarantee(self, branch: str, demand: Amounts, used: Amounts) -> bool:
        named = self._guarantee_of(branch, demand)
        return bool(named) and all(
            used.get(name, 0) + demand[name] <= amount for name, amount in named.items()
        )

    def _guarantee_of(self, branch: str, demand: Amounts) -> dict[str, int]:
        """Return the branch's guarantee in the resources of ``demand``."""
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
        """Return whether a gang with ``demand`` may evict a gang of ``victim_queue``.

        ``victim_demand`` is the victim's loss. Several victims, the lowest rank first, are checked
        within one :meth:`without`: each is given back before the next check.

        - Reclaim. Take the branches below the lowest common queue. With the gang, its branch stays
          within its guarantee. The victim may stop, unless one of its branches on its own side is
          within its guarantee.
        - Rank. Otherwise the gang borrows. The victim may stop if the gang outranks it, and every
          branch of the victim still has its whole guarantee, in one resource, without it. In a
          common branch, it suffices that the gang alone fits the guarantee.

        So a branch within its guarantee loses nothing to others. A branch above its guarantee falls
        below it at most by the last gang that a reclaim takes. Nothing goes straight back: the
        reclaiming gang is within its guarantee, which no other branch can touch. A gang that lost
        by rank would borrow again, and ranks lower. The rule between branches is that of Kueue's
        hierarchical cohorts.

        A gang has a late turn if an earlier gang made its branch borrow. A victim with an earlier
        turn (``is_ahead``) would start again at once in the places that the gang has reclaimed. So
        it may not stop.
        """
        if not self.has_guarantees:
            return ranks_above
        demand, victim_demand = self._with_units(demand), self._with_units(victim_demand)
        ours, theirs = self._levels.split_routes(queue, victim_queue)
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
        baseline = self._used if self._before is None else self._before
        return (
            bool(ours)
            and self.is_within_guarantee(ours[-1], demand)
            # Some branch fitted before the trial: stopping own gangs must not create the right.
            and any(self._fits_guarantee(name, demand, baseline.get(name, {})) for name in ours)
        )

    def _is_safe(self, branch: str, amounts: Amounts) -> bool:
        """Return whether the branch, with ``amounts`` as a part of it, is within its guarantee."""
        used, named = self.usage(branch), self._guarantee_of(branch, amounts)
        return bool(named) and all(used.get(name, 0) <= amount for name, amount in named.items())

    def _can_spare(self, branch: str, amounts: Amounts) -> bool:
        """Return whether the branch without ``amounts`` has, in one resource, all its guarantee."""
        used, named = self.usage(branch), self._guarantee_of(branch, amounts)
        return not named or any(
            used.get(name, 0) - amounts[name] >= amount for name, amount in named.items()
        )

    def dominant_share(self, queue: str) -> float:
        """Return the dominant share of the branch's borrowed usage, over its weight.

        max over resources r of max(0, used_r - guaranteed_r) / (total_r * weight): weighted
        dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.3) above the guarantee.
        """
        usage, guarantee, spec = self.usage(queue), self.guarantee(queue), self._queues.get(queue)
        # A running gang's queue may be deleted: it counts with weight 1.
        weight = (spec.weight if spec else None) or 1
        return max(
            (
                max(0, amount - guarantee.get(name, 0)) / (self._total[name] * weight)
                for name, amount in usage.items()
                if self._total.get(name, 0) > 0  # its last node may just have gone
            ),
            default=0.0,
        )

    def merge(self, ranked: Sequence[Ranked]) -> Iterator[Ranked]:
        """Yield ``ranked`` in turns between queues, by their usage at each turn.

        Every gang comes from a new tournament down the tree. At each level, every branch sends its
        next gang, and the winner is

            1. a branch that stays within its guarantee with that gang, before one that borrows;
            2. among equals, if one of the siblings sets a weight, the branch with the lowest
               :meth:`dominant_share`;
            3. among equals, the branch whose gang comes first in ``ranked``.

        The caller may take and give back between two gangs.
        """
        if not self._levels.guarantees and not self._levels.weighted:
            yield from ranked
            return
        top = self._branches(ranked)
        while (turn := self._winner(top.children)) is not None:
            turn.leaf.waiting.popleft()
            branch: _Branch | None = turn.leaf
            while branch is not None:
                if branch.key[0]:
                    self._borrowing.add(branch.name)
                branch.change_number, branch = -1, branch.parent
            yield turn.entry

    def _branches(self, ranked: Sequence[Ranked]) -> "_Branch":
        """Return a branch above all branches with waiting gangs."""
        top = _Branch("")
        branches: dict[str, _Branch] = {}
        for rank, entry in enumerate(ranked):
            branch = top
            for name in reversed(self._levels.route(entry.gang.queue)):
                if name not in branches:
                    branches[name] = _Branch(name, branch)
                    branch.children.append(branches[name])
                branch = branches[name]
            branch.waiting.append(_Turn(rank, entry, branch))
        return top

    def _winner(self, branches: "list[_Branch]") -> "_Turn | None":
        """Return the gang that has its turn among siblings; drop branches without a gang."""
        # A branch sends the same gang until it changes, so a turn visits only the siblings along
        # one path, not the whole tree.
        for branch in [b for b in branches if b.change_number != self._changes[b.name]]:
            branch.change_number = self._changes[branch.name]
            if branch.children:
                branch.turn = self._winner(branch.children)
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
    """A branch in the tournament: its own waiting gangs, and the gang that it sends now.

    ``turn`` and ``key`` are valid for the number of changes ``change_number``; -1 makes them void.
    """

    name: str
    parent: "_Branch | None" = None
    children: "list[_Branch]" = field(default_factory=list)
    waiting: deque[_Turn] = field(default_factory=deque)
    turn: _Turn | None = None
    key: tuple[bool, float, int] = (True, 0.0, 0)
    change_number: int = -1


# --- levels: paths and guarantees, fixed during a cycle ---


class _QueueLevels:
    """The fixed part of a queue tree.

    Attributes:
        guarantees: Guarantee of each branch that has one, by queue name.
        weighted: Queues ("" above the roots) with a queue directly below that sets a weight.
        faults: By queue name, why its place in the tree is invalid, with the remedy.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self.faults: dict[str, str] = {}
        self._paths = {name: self._climb(name) for name in queues}
        self._inner = {path[1] for path in self._paths.values() if len(path) > 1}
        self.weighted = {self.above(q.name) for q in queues.values() if q.weight is not None}
        self.guarantees = self._guarantees()

    def path(self, queue: str) -> tuple[str, ...]:
        """Return the queue and its ancestors, itself first; a name without a queue alone."""
        return self._paths.get(queue) or (queue,)

    def route(self, queue: str) -> tuple[str, ...]:
        """Return the branches in which the gangs of ``queue`` count, the smallest first.

        That is its path. If there are queues below it, a branch for its own gangs comes first.
        """
        path = self.path(queue)
        return (queue + _OWN_GANGS, *path) if queue in self._inner else path

    def split_routes(self, queue: str, other: str) -> tuple[list[str], list[str]]:
        """Return the routes of two queues without their common branches."""
        ours, theirs = self.route(queue), self.route(other)
        return [n for n in ours if n not in theirs], [n for n in theirs if n not in ours]

    def above(self, branch: str) -> str:
        """Return the queue directly above a branch; "" above a root."""
        route = self.path(branch.removesuffix(_OWN_GANGS))
        if branch.endswith(_OWN_GANGS):
            return route[0]
        return route[1] if len(route) > 1 else ""

    def _climb(self, queue: str) -> tuple[str, ...]:
        """Return the path of ``queue``; if it never ends, ``queue`` alone, with a fault."""
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
        child_totals: dict[str, dict[str, int]] = {}
        # Lower levels first: the guarantee of a branch is at least the sum of those below it.
        for name in sorted(self._queues, key=lambda name: -len(self._paths[name])):
            queue, lower = self._queues[name], child_totals.get(name, {})
            stated, limit = queue.guaranteed, queue.limit
            combined = {n: max(stated.get(n, 0), lower.get(n, 0)) for n in {**stated, **lower}}
            capped = {n: min(amount, limit.get(n, amount)) for n, amount in combined.items()}
            if guarantee := {n: amount for n, amount in capped.items() if amount > 0}:
                guarantees[name] = guarantee
                parent = self.above(name)
                child_totals[parent] = add(child_totals.get(parent, {}), guarantee)
        return guarantees


def _sound(queue: str, demand: Amounts) -> Amounts:
    if min(demand.values(), default=0) < 0:
        raise SnapshotError(
            f"queue {queue!r} is to take or give back {dict(demand)}; amounts are never negative"
        )
    return demand
