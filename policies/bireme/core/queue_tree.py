"""What the queues of a cycle hold, level by level, and what follows: limits, turns, evictions.

What a queue holds is what its own gangs and those of all queues below it hold: its branch. A
limit caps the branch. A guarantee is a claim of the branch against others. It speaks of the
resources it names alone: a gang that asks none of them is not covered by it, and an empty
guarantee covers nobody. What is held beyond it is borrowed, and who gets it is decided sibling by
sibling: by weighted dominant share where one of them sets a weight, else by the policy's order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from bireme.core.errors import SnapshotError
from bireme.core.policy import Ranked
from bireme.core.queue_levels import QueueLevels
from bireme.core.queue_turns import turns
from bireme.core.queues import Queue
from bireme.core.resources import Amounts, add

Excess = tuple[str, dict[str, tuple[int, int, int]]]
"""A queue, and what passes its limit: resource -> (asked, used, limit)."""


class QueueTree:
    """The queues of one cycle and what they hold; :meth:`take` keeps it up to date.

    Args:
        queues: By name.
        usage: What each queue's own gangs hold, by queue name. A name that is no queue (any more)
            stands alone, without limit and guarantee.
        total: What the cluster has; shares are measured against it.

    Raises:
        SnapshotError: An amount in ``usage`` is negative.
    """

    def __init__(
        self, queues: Mapping[str, Queue], usage: Mapping[str, Amounts], total: Amounts
    ) -> None:
        self._queues = queues
        self._total = total
        self._levels = QueueLevels(queues)
        self._limits: dict[str, tuple[str, ...]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._changes: Counter[str] = Counter()
        self._before: dict[str, dict[str, int]] | None = None
        self._reserved: Mapping[str, Amounts] = {}
        for name, held in usage.items():
            self.take(name, held)

    @property
    def has_guarantees(self) -> bool:
        """Whether any queue is guaranteed anything."""
        return bool(self._levels.guarantees)

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and those above it, itself first."""
        return self._levels.path(queue)

    def fault(self, queue: str) -> str | None:
        """Why gangs of ``queue`` cannot be judged, with the remedy; None when they can."""
        return self._levels.faults.get(queue)

    def used(self, queue: str) -> Amounts:
        """What the branch of ``queue`` holds."""
        return self._used.get(queue, {})

    def guarantee(self, queue: str) -> Amounts:
        """What the branch of ``queue`` is guaranteed."""
        return self._levels.guarantees.get(queue, {})

    def take(self, queue: str, demand: Amounts) -> None:
        """A gang of ``queue`` starts, or grows by ``demand``. Raises SnapshotError if negative."""
        self._shift(queue, _sound(queue, demand), 1)

    def give_back(self, queue: str, demand: Amounts) -> None:
        """A gang of ``queue`` stops, or shrinks by ``demand``. Raises SnapshotError if negative."""
        self._shift(queue, _sound(queue, demand), -1)

    def _shift(self, queue: str, demand: Amounts, times: int) -> None:
        for name in self._levels.route(queue):
            self._used[name] = add(self._used.get(name, {}), demand, times)
            self._changes[name] += 1

    @contextmanager
    def without(self, gone: Iterable[tuple[str, Amounts]]) -> Iterator[None]:
        """As if ``gone``, pairs of queue and demand, had stopped: a trial.

        Afterwards all is as before, also what was taken and given back in between.
        """
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
        """Every limit from ``queue`` upwards keeps room for ``demand``, for one gang that waits."""
        self._reserved = dict.fromkeys(self.path(queue), demand)

    def excess(self, queue: str, demand: Amounts, beside_reserved: bool = False) -> Excess | None:
        """The first queue, from ``queue`` upwards, whose limit ``demand`` more would pass."""
        _sound(queue, demand)
        for name in self._limited(queue):
            used = self.used(name)
            if beside_reserved and name in self._reserved:
                used = add(used, self._reserved[name])
            if found := self._queues[name].excess(used, demand):
                return name, found
        return None

    def _limited(self, queue: str) -> tuple[str, ...]:
        """Those of the queue and the ones above it that have a limit; remembered."""
        found = self._limits.get(queue)
        if found is None:
            path = self.path(queue)
            found = tuple(n for n in path if n in self._queues and self._queues[n].limit)
            self._limits[queue] = found
        return found

    def is_limited(self, queue: str) -> bool:
        """Whether the queue, or one above it, has a limit."""
        return bool(self._limited(queue))

    def excess_when_empty(self, queue: str, demand: Amounts) -> Excess | None:
        """The first queue, from ``queue`` upwards, whose limit ``demand`` alone would pass."""
        for name in self._limited(queue):
            if found := self._queues[name].excess({}, demand):
                return name, found
        return None

    def is_within_guarantee(self, queue: str, demand: Amounts) -> bool:
        """Whether the branch of ``queue``, with ``demand`` more, holds no more than its guarantee.

        In the resources that the guarantee names and ``demand`` asks; False if there are none.
        """
        return self._fits_guarantee(queue, demand, self.used(queue))

    def _fits_guarantee(self, branch: str, demand: Amounts, beside: Amounts) -> bool:
        named = self._covered(branch, demand)
        return bool(named) and all(
            beside.get(name, 0) + demand[name] <= amount for name, amount in named.items()
        )

    def _covered(self, branch: str, demand: Amounts) -> dict[str, int]:
        """The part of the branch's guarantee that speaks of what ``demand`` asks."""
        guarantee = self.guarantee(branch).items()
        return {name: amount for name, amount in guarantee if demand.get(name, 0) > 0}

    def may_evict(
        self,
        queue: str,
        demand: Amounts,
        victim_queue: str,
        victim_demand: Amounts,
        ranks_above: bool,
    ) -> bool:
        """Whether a gang of ``queue`` that asks ``demand`` may have what ``victim_queue`` holds.

        ``victim_demand`` is what the victim would lose. Of several victims, lowest rank first,
        each is given back before the next is asked about, all within one :meth:`without`.

        - Reclaim. Of the branches that part below the lowest queue above both, the gang's stays
          within its guarantee with the gang. (So did it, or a branch of the gang's below it, when
          the trial began: nobody becomes entitled by stopping gangs of its own.) The victim may
          go, unless a branch it is part of on its own side is within its guarantee.
        - Rank. Otherwise the gang borrows. The victim may go if the gang ranks above it and every
          branch it is part of still holds, in one resource, all its guarantee without it. In a
          branch that both are part of, it suffices that the gang alone fits the guarantee.

        So a branch within its guarantee loses nothing to others. One above it is left below it at
        most by the last gang it loses to a reclaim, which did not fit beside those that stay.
        Nothing goes straight back: whoever reclaimed is within its guarantee, where no other
        branch can touch it, and whoever lost to rank would borrow again, and ranks below. But for
        the last clause, two queues whose highest gangs exceed their guarantees would evict each
        other for ever. The rule between branches is that of Kueue's hierarchical cohorts.
        """
        if not self.has_guarantees:
            return ranks_above
        ours, theirs = self._levels.apart(queue, victim_queue)
        if self._may_reclaim(ours, demand):
            return not any(self._is_safe(branch, victim_demand) for branch in theirs)
        return ranks_above and all(
            self._can_spare(branch, victim_demand)
            or (branch not in theirs and self._fits_guarantee(branch, demand, {}))
            for branch in self._levels.route(victim_queue)
        )

    def _may_reclaim(self, ours: Sequence[str], demand: Amounts) -> bool:
        """Whether the largest of ``ours`` is within its guarantee, and one of them was before."""
        before = self._used if self._before is None else self._before
        return (
            bool(ours)
            and self.is_within_guarantee(ours[-1], demand)
            and any(self._fits_guarantee(name, demand, before.get(name, {})) for name in ours)
        )

    def _is_safe(self, branch: str, held: Amounts) -> bool:
        """Whether the branch, which ``held`` is a part of, is within its guarantee."""
        used, named = self.used(branch), self._covered(branch, held)
        return bool(named) and all(used.get(name, 0) <= amount for name, amount in named.items())

    def _can_spare(self, branch: str, held: Amounts) -> bool:
        """Whether the branch without ``held`` still has, in one resource, all its guarantee."""
        used, named = self.used(branch), self._covered(branch, held)
        return not named or any(
            used.get(name, 0) - held[name] >= amount for name, amount in named.items()
        )

    def dominant_share(self, queue: str) -> float:
        """What the branch of ``queue`` borrows: its dominant share, over the queue's weight.

        max over resources r of max(0, used_r - guaranteed_r) / (total_r * weight): weighted
        dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.3) in what lies above the
        guarantee. A resource that the cluster does not have is left out.
        """
        held, guarantee, known = self.used(queue), self.guarantee(queue), self._queues.get(queue)
        weight = (known.weight if known else None) or 1
        return max(
            (
                max(0, amount - guarantee.get(name, 0)) / (self._total[name] * weight)
                for name, amount in held.items()
                if self._total.get(name, 0) > 0
            ),
            default=0.0,
        )

    def merge(self, ranked: Sequence[Ranked]) -> Iterator[Ranked]:
        """``ranked`` in the order of turns between queues, given what they hold at each turn.

        A tournament down the tree, anew for every gang. At each level, every branch stands for
        the gang that would be its next, and the winner is

            1. a branch that stays within its guarantee with that gang, before one that borrows;
            2. among equals, if one of the siblings sets a weight, that of the lowest
               :meth:`dominant_share`;
            3. among equals, that of the gang which comes first in ``ranked``.

        The caller may take and give back between two gangs. Where nobody sets a guarantee or a
        weight, this is the order of ``ranked``.
        """
        if not self._levels.guarantees and not self._levels.weighted:
            return iter(ranked)
        return turns(ranked, self._levels.route, self._standing, self._changes)

    def _standing(self, branch: str, demand: Amounts) -> tuple[bool, float]:
        """How a branch whose next gang asks ``demand`` stands among its siblings; lowest first."""
        borrows = not self.is_within_guarantee(branch, demand)
        is_weighed = self._levels.above(branch) in self._levels.weighted
        return borrows, self.dominant_share(branch) if is_weighed else 0.0


def _sound(queue: str, demand: Amounts) -> Amounts:
    if min(demand.values(), default=0) < 0:
        raise SnapshotError(
            f"queue {queue!r} is to take or give back {dict(demand)}; amounts are never negative"
        )
    return demand
