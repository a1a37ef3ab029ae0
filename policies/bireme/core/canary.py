"""Whom a cycle asks: one policy for all gangs, or beside it canaries for those of their queues.

There is one total order. Every orderer orders all gangs. The canary's then hands out anew the
places that the policy's order gave to the canary's gangs, so that no other gang changes its place.
Its sizer sizes these gangs and its placer places them.

Who stops whom is the policy's claim, as without canaries. Of two gangs of one canary, one makes
room for the other only where the canary's claim allows it too. The canary's claim alone would not
do: claims of two orderers do not compare, and a gang of the canary could stop another by the one,
that one a stranger by the other, and the stranger the first again. As it is, every stop goes down
in the policy's claims, and a canary stops no gang that the policy would not let it stop.

Each is behind its own guardrails: where an answer of a canary is not valid, its rules answer, and
the fault counts as the canary's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bireme.core.gangs import Gang
from bireme.core.guardrails import CheckedPlacer, CheckedSizer, OrderError, Sizes, orderers
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Canary, CanaryClaim, Policy, Ranked, TotalOrder
from bireme.core.queues import Queue, with_those_above
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


def canary_of(queue: str, queues: Mapping[str, Queue], canaries: Sequence[Canary]) -> Canary | None:
    """Return the first of ``canaries`` that names ``queue`` or one above it; None without one."""
    path = with_those_above(queue, queues)
    return next((each for each in canaries if not each.queues.isdisjoint(path)), None)


class OverruledError(OrderError):
    """The orderer of ``decider`` gave no valid answer: the next one of it must order."""

    def __init__(self, decider: "_Decider", why: str) -> None:
        super().__init__(why)
        self.decider = decider


class _Decider:
    """One policy in one cycle, behind its guardrails."""

    def __init__(self, name: str, policy: Policy, snapshot: ClusterSnapshot) -> None:
        self.name = name
        self.placer, self.sizer = CheckedPlacer(policy, snapshot), CheckedSizer(policy.sizer)
        self._orderers = orderers(policy)
        self.orderer = next(self._orderers)
        self._fault = ""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        try:
            return self.orderer.order(gangs, snapshot)
        except OrderError as error:
            raise OverruledError(self, str(error)) from error

    def overrule(self, why: str) -> None:
        """Let the next orderer order: that of the rules, then arrival, which cannot fail."""
        self._fault = self._fault or why  # the first is the policy's own
        self.orderer = next(self._orderers)

    @property
    def fault(self) -> str:
        """What was wrong with its answers; empty if nothing was."""
        return "; ".join(filter(None, (self._fault, self.sizer.fault, self.placer.fault)))


class Deciders:
    """The policy of one cycle and its canaries, as one orderer, one sizer and one placer."""

    def __init__(self, policy: Policy, snapshot: ClusterSnapshot) -> None:
        self._policy = _Decider("", policy, snapshot)
        self._queues, self._canaries = snapshot.queues, policy.canaries
        self._by_name = {c.name: _Decider(c.name, c.policy, snapshot) for c in policy.canaries}
        self._by_queue: dict[str, _Decider] = {}

    @property
    def fallback(self) -> str:
        """Why the policy's own answers were not used; empty when they were."""
        return self._policy.fault

    @property
    def canary_fallbacks(self) -> tuple[tuple[str, str], ...]:
        """The same of the canaries whose answers were not used, by name."""
        return tuple((each.name, each.fault) for each in self._by_name.values() if each.fault)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return all ``gangs``, each once. Raises OverruledError where an answer is not valid."""
        ranked = self._policy.order(gangs, snapshot)
        if not self._by_name:
            return ranked
        claims = {entry.gang.uid: entry for entry in ranked}
        deciders = [self._of(entry.gang) for entry in ranked]
        for canary in self._by_name.values():
            places = [at for at, decider in enumerate(deciders) if decider is canary]
            if not places:
                continue
            own = (e for e in canary.order(gangs, snapshot) if self._of(e.gang) is canary)
            for at, entry in zip(places, own, strict=True):
                ranked[at] = replace(
                    entry,
                    preemption_priority=claims[entry.gang.uid].preemption_priority,
                    stop_priority=claims[entry.gang.uid].stop_priority,
                    stop_priority_until=claims[entry.gang.uid].stop_priority_until,
                    canary_claim=CanaryClaim(
                        canary.name, entry.preemption_priority, entry.stop_priority
                    ),
                )
        return ranked

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Return a lower bound on the preemption priority of ``gangs``; -infinity if unknown."""
        try:
            return self._policy.orderer.lowest_preemption_priority(gangs, snapshot)
        except OrderError as error:
            raise OverruledError(self._policy, str(error)) from error

    def sizes(self, order: TotalOrder, snapshot: ClusterSnapshot) -> Sizes:
        """Return the sizes that the sizers want; gangs they leave out have none."""
        sizes = self._policy.sizer.sizes(order, snapshot)
        if not self._by_name:
            return sizes
        # A sizer may share out among all gangs, so each is asked about all of them.
        answers = {each: each.sizer.sizes(order, snapshot) for each in self._by_name.values()}
        answers[self._policy] = sizes
        gangs = [*snapshot.waiting, *(held.gang for held in snapshot.running_table.gangs)]
        found = {gang.uid: answers[self._of(gang)].get(gang.uid) for gang in gangs}
        return {uid: each for uid, each in found.items() if each is not None}

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return a valid placement of the whole gang, or None."""
        return self._of(gang).placer.place(gang, capacity)

    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        """Return where it pays to stop ``running`` and start it again, or None."""
        return self._of(running.gang).placer.faster(running, capacity, now)

    def _of(self, gang: Gang) -> _Decider:
        """Return who decides for ``gang``."""
        if not self._by_name:
            return self._policy
        found = self._by_queue.get(gang.queue)
        if found is None:
            canary = canary_of(gang.queue, self._queues, self._canaries)
            found = self._policy if canary is None else self._by_name[canary.name]
            self._by_queue[gang.queue] = found
        return found
