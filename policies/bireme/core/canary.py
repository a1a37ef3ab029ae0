"""The policies of a cycle: one policy for all gangs, and canaries for the gangs of some queues.

There is one total order. Every orderer orders all gangs. The canary's order then permutes the
places that the policy's order gave to the canary's gangs, so no other gang changes its place. The
canary's sizer sizes these gangs and its placer places them.

The policy's claim decides which gang stops another, as without canaries. Between two gangs of one
canary, the canary's claim must allow it as well. The canary's claim alone does not suffice: mixing
two priority scales could create a preemption cycle. With this rule every stop goes down in the
policy's claims, and a canary stops no gang that the policy would not stop.

Each policy is behind its own guardrails: if an answer of a canary is invalid, its rules answer, and
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
    """Return the first of ``canaries`` that names ``queue`` or an ancestor; None without one."""
    path = with_those_above(queue, queues)
    return next((canary for canary in canaries if not canary.queues.isdisjoint(path)), None)


class OverruledError(OrderError):
    """The orderer of ``decider`` gave no valid answer: its next orderer must order."""

    def __init__(self, decider: "_Decider", reason: str) -> None:
        super().__init__(reason)
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

    def overrule(self, reason: str) -> None:
        """Switch to the next orderer: the rules' own, then arrival, which cannot fail."""
        self._fault = self._fault or reason  # the first fault is the policy's own
        self.orderer = next(self._orderers)

    @property
    def fault(self) -> str:
        """The fault of its answers; empty if they were valid."""
        return "; ".join(filter(None, (self._fault, self.sizer.fault, self.placer.fault)))


class PolicySet:
    """The policy of one cycle and its canaries, as one orderer, one sizer and one placer."""

    def __init__(self, policy: Policy, snapshot: ClusterSnapshot) -> None:
        self._policy = _Decider("", policy, snapshot)
        self._queues, self._canaries = snapshot.queues, policy.canaries
        self._by_name = {c.name: _Decider(c.name, c.policy, snapshot) for c in policy.canaries}
        self._by_queue: dict[str, _Decider] = {}

    @property
    def fallback(self) -> str:
        """Why the policy's own answers were not used; empty if they were."""
        return self._policy.fault

    @property
    def canary_fallbacks(self) -> tuple[tuple[str, str], ...]:
        """The faults of the canaries whose answers were not used, by name."""
        return tuple(
            (decider.name, decider.fault) for decider in self._by_name.values() if decider.fault
        )

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return all ``gangs``, each once. Raises OverruledError if an answer is invalid."""
        ranked = self._policy.order(gangs, snapshot)
        if not self._by_name:
            return ranked
        claims = {entry.gang.uid: entry for entry in ranked}
        deciders = [self._of(entry.gang) for entry in ranked]
        for canary in self._by_name.values():
            places = [index for index, decider in enumerate(deciders) if decider is canary]
            if not places:
                continue
            canary_ranked = (e for e in canary.order(gangs, snapshot) if self._of(e.gang) is canary)
            for index, entry in zip(places, canary_ranked, strict=True):
                ranked[index] = replace(
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
        """Return the target sizes of the sizers; gangs that they leave out have none."""
        sizes = self._policy.sizer.sizes(order, snapshot)
        if not self._by_name:
            return sizes
        # A sizer may divide resources among all gangs, so each sizer sees all of them.
        answers = {
            decider: decider.sizer.sizes(order, snapshot) for decider in self._by_name.values()
        }
        answers[self._policy] = sizes
        gangs = [*snapshot.waiting, *(running.gang for running in snapshot.running_table.gangs)]
        sizes_by_uid = {gang.uid: answers[self._of(gang)].get(gang.uid) for gang in gangs}
        return {
            uid: size_by_task
            for uid, size_by_task in sizes_by_uid.items()
            if size_by_task is not None
        }

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return a valid placement of the whole gang, or None."""
        return self._of(gang).placer.place(gang, capacity)

    def faster(self, running: RunningGang, capacity: FreeCapacity, now: float) -> Placement | None:
        """Return the places to which moving ``running`` pays off, or None."""
        return self._of(running.gang).placer.faster(running, capacity, now)

    def _of(self, gang: Gang) -> _Decider:
        """Return the decider for ``gang``."""
        if not self._by_name:
            return self._policy
        decider = self._by_queue.get(gang.queue)
        if decider is None:
            canary = canary_of(gang.queue, self._queues, self._canaries)
            decider = self._policy if canary is None else self._by_name[canary.name]
            self._by_queue[gang.queue] = decider
        return decider
