"""The fewest steps with which one blocked gang fits: who makes room, and who is spared.

The shortest beginning of the steps that is enough is found by bisection. Of these, every step is
spared that the gang can do without, the last to be asked first: at first those whose places it
does not take, without asking the placer anew, then one by one whatever is left.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.ledger import Ledger
from bireme.core.placement import Placement
from bireme.core.policy import Placer
from bireme.core.queue_tree import QueueTree
from bireme.core.resources import IntArray
from bireme.core.running import summed, usage_of
from bireme.core.victims import Kind, Step, Steps


def _any(_: list[int]) -> bool:
    return True


class Trial:
    """One gang, and what would be if some of ``steps`` were taken for it.

    Lists of steps hold their indices, first those that are taken anyway, each part ascending.
    """

    def __init__(
        self, gang: Gang, steps: Steps, ledger: Ledger, queues: QueueTree, placer: Placer
    ) -> None:
        self._gang = gang
        self._steps = steps
        self._ledger = ledger
        self._queues = queues
        self._placer = placer
        self._asked = ledger.now.nodes.axis.usage(gang.demand)
        self._is_over_limit = not self._is_within_limits()
        self._is_counted_on = steps.of(ledger.counted_on)[steps.owner]

    def fits(self, chosen: Sequence[int]) -> Placement | None:
        """Where the gang fits after the steps ``chosen``, within every limit of its queue."""
        free = self._room(chosen)
        if (np.maximum(free, 0).sum(axis=0) < self._asked).any():
            return None
        if self._is_over_limit:
            steps = (self._steps[at] for at in chosen)
            with self._queues.without((step.queue, step.given_back) for step in steps):
                if not self._is_within_limits():
                    return None
        nodes = self._ledger.now.nodes
        return self._placer.place(self._gang, FreeCapacity(nodes, nodes.allocatable - free))

    def least(
        self, asked: list[int], may: Callable[[list[int]], bool] = _any
    ) -> tuple[list[int], Placement] | None:
        """The fewest of ``asked`` that are enough, and the places then; None if all are not.

        ``may`` says whether these alone may be taken, where that depends on the others.
        """
        leaving = int((self._steps.kind[asked] == Kind.LEAVE).sum())
        best = self.fits(asked) if len(asked) > leaving else None
        if best is None:
            return None
        low, high = max(leaving + 1, self._fewest(asked)), len(asked)
        while low < high:
            middle = (low + high) // 2
            placement = self.fits(asked[:middle])
            if placement is None:
                low = middle + 1
            else:
                high, best = middle, placement
        return self._spared(asked[:high], best, may)

    def _room(self, chosen: Sequence[int]) -> IntArray:
        steps = self._steps
        is_chosen = np.zeros(len(steps), dtype=np.bool_)
        is_chosen[list(chosen)] = True
        entries = is_chosen[steps.owner]
        return self._ledger.room_after(
            steps.rows[entries], steps.usage[entries], self._is_counted_on[entries]
        )

    def _is_within_limits(self) -> bool:
        gang = self._gang
        return self._queues.excess(gang.queue, gang.demand, beside_reserved=True) is None

    def _fewest(self, asked: Sequence[int]) -> int:
        """A lower bound on how many of ``asked``, from the first, free as much as is asked."""
        free = np.maximum(self._ledger.now.free, 0).sum(axis=0)
        enough = (free + np.cumsum(self._steps.freed[asked], axis=0) >= self._asked).all(axis=1)
        return int(enough.argmax()) + 1 if enough.any() else len(asked)

    def _spared(
        self, chosen: list[int], placement: Placement, may: Callable[[list[int]], bool]
    ) -> tuple[list[int], Placement]:
        """``chosen`` without what the gang can do without; its places may change by that."""
        needed = self._needed(chosen, placement)
        if may(needed):
            chosen = needed
        staying: set[str] = set()
        for at in reversed(chosen):
            step = self._steps[at]
            if self._steps.kind[at] == Kind.LEAVE or step.uid in staying:
                continue
            rest = [other for other in chosen if other != at]
            found = self.fits(rest) if may(rest) else None
            if found is None:
                staying.add(step.uid)
            else:
                chosen, placement = rest, found
        return chosen, placement

    def _needed(self, chosen: list[int], placement: Placement) -> list[int]:
        """``chosen`` without the steps that neither ``placement`` nor the limits need."""
        steps, nodes = self._steps, self._ledger.now.nodes
        rows, used = summed(*usage_of(self._gang, placement, nodes.axis))
        slack = self._room(chosen)[rows] - used
        position = np.full(len(nodes), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        where = position[steps.rows]
        touching = set(np.unique(steps.owner[where >= 0]).tolist())
        staying: set[str] = set()
        needed = []
        gone = ((steps[at].queue, steps[at].given_back) for at in chosen)
        with self._queues.without(gone if self._is_over_limit else ()):
            for at in reversed(chosen):
                step, left = steps[at], slack
                if at in touching:
                    entries = (steps.owner == at) & (where >= 0)
                    left = slack.copy()
                    np.subtract.at(left, where[entries], steps.usage[entries])
                if (
                    steps.kind[at] == Kind.LEAVE
                    or step.uid in staying
                    or bool(((left < 0) & (used > 0)).any())
                    or not self._may_hold(step)
                ):
                    staying.add(step.uid)
                    needed.append(at)
                else:
                    slack = left
        return needed[::-1]

    def _may_hold(self, step: Step) -> bool:
        """Whether the gang stays within its limits if ``step`` is not taken, which then counts."""
        if not self._is_over_limit:
            return True
        self._queues.take(step.queue, step.given_back)
        if self._is_within_limits():
            return True
        self._queues.give_back(step.queue, step.given_back)
        return False
