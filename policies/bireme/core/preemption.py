"""Making room: who must shrink or stop so that one blocked gang fits, and as few as possible.

Stopping follows the order of starting. A running gang stops or shrinks only for one that comes
before it in the policy's order *and* has a strictly higher claim (the part of the score that
waiting alone does not raise), or whose queue takes back its guarantee. One that started past its
wait bound would go before all others again: it is not stopped for a gang that is less overdue.
What an elastic gang was lent beyond the size it asked for, it gives up for anybody who waits.

Which steps there are is in :mod:`bireme.core.victims`, how the fewest are found in
:mod:`bireme.core.trial`; here is which of them a gang may ask for. All of it is a trial: nothing is
decided unless the whole gang then fits, its queue's limits included.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.ledger import Ledger
from bireme.core.order import TotalOrder
from bireme.core.placement import Placement
from bireme.core.policy import Placer, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.trial import Trial
from bireme.core.victims import Kind, Step, Steps


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far a gang's asking goes: to lower claims, later in the order and not longer overdue."""

    claim: float
    place: int
    overdue: float

    def covers(self, other: "_Reach") -> bool:
        """Whether every step that ``other`` may ask for is within this reach too."""
        return (
            self.claim >= other.claim
            and self.place <= other.place
            and self.overdue >= other.overdue
        )


@dataclass(eq=False)
class Preemption:
    """The preemptions of one cycle, over one snapshot; ``ledger`` and ``queues`` as they change."""

    snapshot: ClusterSnapshot
    placer: Placer
    queues: QueueTree
    order: TotalOrder
    ledger: Ledger
    chosen: set[str] = field(default_factory=set)
    """Uids of gangs that make room: they do so once."""
    _too_large: set[object] = field(default_factory=set)
    """What does not fit even when the leaving gangs have left: until others leave, too."""
    _hopeless: dict[object, _Reach] = field(default_factory=dict)
    """The farthest reach that was not enough, until then."""

    @functools.cached_property
    def _steps(self) -> Steps:
        return Steps(self.snapshot, self.order)

    @functools.cached_property
    def _has_elastic(self) -> bool:
        return bool(self.snapshot.running_table.is_elastic.any())

    @functools.cached_property
    def _has_leaving(self) -> bool:
        return bool(self.snapshot.running_table.is_leaving.any())

    def waits_for_leaving(self, gang: Gang) -> Placement | None:
        """Where ``gang`` fits once those that are being stopped have left; None if it does not."""
        key = (gang.shape, gang.queue)
        if not (self._has_leaving or self.chosen) or key in self._too_large:
            return None
        trial = Trial(gang, self._steps, self.ledger, self.queues, self.placer)
        placement = trial.fits(self._steps.leaving)
        if placement is None:
            self._too_large.add(key)
        return placement

    def make_room(self, entry: Ranked, gang: Gang) -> tuple[list[Step], Placement] | None:
        """What others do for a waiting gang, and its places at the size ``gang`` then.

        The last step of each that makes room; None when nothing that may be done helps. Who was
        chosen is remembered, nothing else is decided.
        """
        if self.is_hopeless(entry, gang):
            return None
        reach = self._reach(entry)
        found = self._least(gang, reach)
        if found is None:
            self._hopeless[gang.shape, gang.queue] = reach
            return None
        chosen, placement = found
        kind = self._steps.kind
        new = [at for at in chosen if kind[at] != Kind.LEAVE]
        victims = {step.uid: step for step in map(self._steps.__getitem__, new)}
        self.chosen |= victims.keys()
        kind[new] = Kind.LEAVE
        self._too_large.clear()
        self._hopeless.clear()
        return list(victims.values()), placement

    def is_hopeless(self, entry: Ranked, gang: Gang) -> bool:
        """Whether it is known already that nobody makes room for a waiting gang."""
        if not (self._has_elastic or self._may_stop_others(entry)):
            return True
        if self._is_lowest(entry):
            return True
        known = self._hopeless.get((gang.shape, gang.queue))
        return known is not None and known.covers(self._reach(entry))

    def _may_stop_others(self, entry: Ranked) -> bool:
        may = self.snapshot.settings.preemption and bool(self.snapshot.running)
        return may and entry.gang.may_preempt and entry.claim is not None

    def _is_lowest(self, entry: Ranked) -> bool:
        """Whether a waiting gang has no higher claim than any that runs, and nothing else helps."""
        if self._has_elastic or self.queues.has_guarantees or entry.claim is None:
            return False
        return entry.claim <= self.order.lowest_running_claim

    def _reach(self, waiting: Ranked) -> _Reach:
        place, entry = self.order.places[waiting.gang.uid]
        if entry.claim is None or not self._may_stop_others(waiting):
            return _Reach(-math.inf, len(self.order.ranked), 0.0)
        late = self.snapshot.overdue_seconds(entry.gang)
        return _Reach(entry.claim, place, math.inf if entry.gang.displaced else late)

    def _least(self, gang: Gang, reach: _Reach) -> tuple[list[int], Placement] | None:
        """The fewest steps that are enough, and the places of ``gang`` then."""
        steps = self._steps
        is_open = ~steps.of(frozenset(self.chosen)) | (steps.kind == Kind.LEAVE)
        is_for_all = is_open & (steps.kind <= Kind.GIVE_BACK)
        above = (
            (steps.claim < reach.claim)
            & (steps.place > reach.place)
            & ((steps.overdue <= reach.overdue) | (steps.kind < Kind.STOP))
        )
        is_asked = is_for_all if math.isinf(reach.claim) else is_for_all | (is_open & above)
        may_reclaim = self.queues.has_guarantees and not math.isinf(reach.claim)
        if not may_reclaim and not (is_asked & (steps.kind > Kind.LEAVE)).any():
            return None
        trial = Trial(gang, steps, self.ledger, self.queues, self.placer)
        others = np.flatnonzero((is_open if may_reclaim else is_asked) & (steps.kind > Kind.LEAVE))
        asked = [*steps.leaving, *others.tolist()]
        if not may_reclaim:
            return trial.least(asked)
        ranks = above.tolist()
        asked = self._permitted(gang, asked, ranks)
        return trial.least(asked, lambda chosen: self._permitted(gang, chosen, ranks) == chosen)

    def _permitted(self, gang: Gang, asked: Iterable[int], above: Sequence[bool]) -> list[int]:
        """Those of ``asked`` that guarantees allow, all of them together."""
        steps, found = self._steps, []
        refused: set[str] = set()
        leaving = [steps[at] for at in steps.leaving]
        with self.queues.without((step.queue, step.given_back) for step in leaving):
            for at in asked:
                step = steps[at]
                if steps.kind[at] == Kind.LEAVE:
                    found.append(at)
                elif step.uid not in refused and (
                    step.kind is Kind.GIVE_BACK
                    or self.queues.may_evict(
                        gang.queue, gang.demand, step.queue, step.given_back, ranks_above=above[at]
                    )
                ):
                    found.append(at)
                    self.queues.give_back(step.queue, step.given_back)
                else:
                    refused.add(step.uid)
        return found
