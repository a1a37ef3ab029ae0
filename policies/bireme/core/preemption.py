"""Making room: who must shrink or stop so that one blocked gang fits, and as few as possible.

Stopping follows the order of starting. A running gang makes room only for one that comes before
it in the policy's order *and* has a strictly higher claim (the part of the score that waiting
alone does not raise), or whose queue takes back its guarantee. In this order, until the gang fits:

    1. Elastic gangs give up what they were lent beyond the size they asked for.
    2. Elastic gangs with a lower claim shrink to their minimum.
    3. Gangs with a lower claim stop, the lowest claim first, the most recent start among equals.

Then every victim that turns out to be unnecessary is spared, the highest claim first. All of it is
a trial on copies: nothing is decided unless the whole gang then fits.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.ledger import Ledger
from bireme.core.placement import Placement
from bireme.core.policy import Policy, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.resizing import smaller
from bireme.core.resources import IntArray
from bireme.core.running import RunningGang, usage_of
from bireme.core.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Victim:
    """A running gang that makes room: it shrinks to ``shrunk``, or stops when that is None."""

    running: RunningGang
    claim: float
    shrunk: Placement | None = None

    @property
    def given_back(self) -> dict[str, int]:
        """What its queue gets back."""
        if self.shrunk is None:
            return self.running.current.demand
        kept = {task.task: int(task.counts.sum()) for task in self.shrunk.tasks}
        held = self.running.sizes
        return self.running.gang.resized(
            {name: held[name] - kept.get(name, 0) for name in held}
        ).demand

    def freed(self, snapshot: ClusterSnapshot) -> tuple[IntArray, IntArray]:
        """Rows, and what comes free there, shapes (entries,) and (entries, resources)."""
        axis = snapshot.nodes.axis
        rows, usage = self.running.usage(axis)
        if self.shrunk is None:
            return rows, usage
        kept_rows, kept = usage_of(self.running.gang, self.shrunk, axis)
        return np.concatenate([rows, kept_rows]), np.concatenate([usage, -kept])


@dataclass(eq=False)
class Preemption:
    """The preemptions of one cycle, over one snapshot."""

    snapshot: ClusterSnapshot
    policy: Policy
    queues: QueueTree
    chosen: dict[str, Victim] = field(default_factory=dict)
    """Victims so far, by uid: they make room once."""
    _hopeless: set[object] = field(default_factory=set)

    @functools.cached_property
    def leaving(self) -> tuple[RunningGang, ...]:
        """Gangs that are being stopped already."""
        return tuple(running for running in self.snapshot.running if running.is_leaving)

    @functools.cached_property
    def _claims(self) -> list[tuple[RunningGang, float]]:
        """Gangs that could make room, with their claims: lowest, most recently started first."""
        able = [r for r in self.snapshot.running if not r.is_leaving]
        ranked = self.policy.orderer.order([running.gang for running in able], self.snapshot)
        claims = {e.gang.uid: math.inf if e.claim is None else e.claim for e in ranked}
        known = [(r, claims[r.gang.uid]) for r in able]
        return sorted(known, key=lambda pair: (pair[1], -pair[0].started, pair[0].gang.uid))

    def waits_for_leaving(self, gang: Gang, ledger: Ledger) -> Placement | None:
        """Where ``gang`` fits once those that are being stopped have left; None if it does not."""
        if not self.leaving:
            return None
        asked = self.snapshot.nodes.axis.usage(gang.demand)
        return self._fits(gang, ledger, asked, ())

    def make_room(
        self, entry: Ranked, gang: Gang, ledger: Ledger
    ) -> tuple[list[Victim], Placement] | None:
        """Victims for ``gang`` (``entry``'s, at the size to start with) and its places then.

        None when nothing that may be done helps. The victims are remembered, nothing else is.
        """
        key = (gang.shape, gang.queue, entry.claim)
        if key in self._hopeless:
            return None
        found = self._search(entry, gang, ledger)
        if found is None:
            self._hopeless.add(key)
            return None
        self.chosen.update((victim.running.gang.uid, victim) for victim in found[0])
        return found

    def _search(
        self, entry: Ranked, gang: Gang, ledger: Ledger
    ) -> tuple[list[Victim], Placement] | None:
        candidates = list(self._candidates(entry, gang))
        if not candidates:
            return None
        asked = self.snapshot.nodes.axis.usage(gang.demand)
        low, high = 1, len(candidates)
        best = self._fits(gang, ledger, asked, candidates)
        if best is None:
            return None
        while low < high:  # the shortest prefix that is enough
            middle = (low + high) // 2
            placement = self._fits(gang, ledger, asked, candidates[:middle])
            if placement is None:
                low = middle + 1
            else:
                high, best = middle, placement
        return self._spared(gang, ledger, asked, _last_word(candidates[:high]), best)

    def _spared(
        self,
        gang: Gang,
        ledger: Ledger,
        asked: IntArray,
        victims: list[Victim],
        placement: Placement,
    ) -> tuple[list[Victim], Placement]:
        """Victims without those that need not make room after all, highest claim first."""
        order = sorted(victims, key=lambda v: (v.shrunk is None, v.claim), reverse=True)
        for victim in order:
            rest = [other for other in victims if other is not victim]
            without = self._fits(gang, ledger, asked, rest)
            if without is not None:
                victims, placement = rest, without
        return victims, placement

    def _fits(
        self, gang: Gang, ledger: Ledger, asked: IntArray, victims: Iterable[Victim]
    ) -> Placement | None:
        """Where ``gang`` fits once ``victims`` have made room, within every limit of its queue."""
        victims = _last_word(victims)
        axis = self.snapshot.nodes.axis
        left = [(running.gang.uid, *running.usage(axis)) for running in self.leaving]
        left += [(victim.running.gang.uid, *victim.freed(self.snapshot)) for victim in victims]
        free = ledger.room_after(left)
        if (np.maximum(free, 0).sum(axis=0) < asked).any():
            return None
        gone = [(r.current.queue, r.current.demand) for r in self.leaving]
        gone += [(v.running.gang.queue, v.given_back) for v in victims]
        with self.queues.without(gone):
            if self.queues.excess(gang.queue, gang.demand) is not None:
                return None
        return self.policy.placer.place(gang, self._capacity(free))

    def _capacity(self, free: IntArray) -> FreeCapacity:
        nodes = self.snapshot.nodes
        return FreeCapacity(nodes, nodes.allocatable - free)

    def _candidates(self, entry: Ranked, gang: Gang) -> Iterator[Victim]:
        """Whoever may make room for ``gang``, in the order in which they are asked to."""
        now, settle = self.snapshot.now, self.snapshot.settings.resize_settle_seconds
        settled = [
            (running, claim)
            for running, claim in self._claims
            if running.gang.uid not in self.chosen
            and running.gang.is_elastic
            and now - running.resized >= settle
        ]
        for running, claim in settled:
            asked = {task.name: task.replicas for task in running.gang.tasks}
            if (lent := smaller(running, asked)) is not None:
                yield Victim(running, claim, lent)
        lower = self._lower(entry, gang)
        shrinkable = {running.gang.uid for running, _ in settled}
        for running, claim in lower:
            if running.gang.uid in shrinkable:
                minimum = {t.name: t.replicas for t in running.gang.at_minimum.tasks}
                if (least := smaller(running, minimum)) is not None:
                    yield Victim(running, claim, least)
        for running, claim in lower:
            if self._is_protected(running):
                continue
            yield Victim(running, claim)

    def _lower(self, entry: Ranked, gang: Gang) -> list[tuple[RunningGang, float]]:
        """Gangs that ``gang`` may stop, all of them together: guarantees are kept throughout."""
        open_to = [pair for pair in self._claims if pair[0].gang.uid not in self.chosen]
        claim = entry.claim
        if claim is None or not gang.may_preempt or not open_to:
            return []
        if claim <= open_to[0][1] and not self.queues.has_guarantees:
            return []
        ranks_below = [r.gang for r, c in open_to if c < claim or self.queues.has_guarantees]
        behind = _behind(entry, ranks_below, self.policy, self.snapshot)
        found = []
        with self.queues.without(()):
            for running, other in open_to:
                victim = running.current
                above = other < claim and victim.uid in behind
                if self.queues.may_evict(
                    gang.queue, gang.demand, victim.queue, victim.demand, ranks_above=above
                ):
                    found.append((running, other))
                    self.queues.give_back(victim.queue, victim.demand)
        return found

    def _is_protected(self, running: RunningGang) -> bool:
        """Whether the gang has run too briefly, or has made room too often, to be stopped."""
        settings = self.snapshot.settings
        least = running.gang.min_runtime_seconds
        least = settings.min_runtime_seconds if least is None else least
        return (
            running.elapsed_seconds(self.snapshot.now) < least
            or running.gang.evictions >= settings.eviction_budget
        )


def _behind(
    entry: Ranked, gangs: Sequence[Gang], policy: Policy, snapshot: ClusterSnapshot
) -> set[str]:
    """Uids of ``gangs`` that come after ``entry`` in the policy's order."""
    if not gangs:
        return set()
    ranked = policy.orderer.order([entry.gang, *gangs], snapshot)
    uids = [other.gang.uid for other in ranked]
    return set(uids[uids.index(entry.gang.uid) + 1 :])


def _last_word(victims: Iterable[Victim]) -> list[Victim]:
    """One entry per gang, the most it is asked for: the later one."""
    by_uid: Mapping[str, Victim] = {victim.running.gang.uid: victim for victim in victims}
    return list(by_uid.values())
