"""One walk down the order: each gang is admitted, or told why not, or has room made for it.

    1. What its queue (and every queue above) allows and what is free for it now: admit.
    2. It fits once gangs have left that are being stopped already: keep those places for it.
    3. Lower gangs can shrink or stop for it: let them, and keep their places for it.
    4. It is the first that capacity blocks: reserve the earliest places (EASY). Later gangs take
       nothing of them unless they end before the reservation starts.

Elastic gangs grow last, into what nobody in the whole order has use for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bireme.core import verdicts
from bireme.core.decision import Action, Admit, Hold, Preempt, Reservation, Resize
from bireme.core.gangs import Gang
from bireme.core.ledger import Ledger
from bireme.core.placement import Placement
from bireme.core.policy import Policy, Ranked
from bireme.core.preemption import Preemption, Victim
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.reservations import reserve
from bireme.core.resizing import larger
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot


@dataclass(slots=True)
class Walk:
    """What is left to give away while the order is walked down, and for whom places are kept."""

    snapshot: ClusterSnapshot
    policy: Policy
    queues: QueueTree
    explain: bool
    sizes: dict[str, tuple[Gang, ...]]
    """Sizes at which a waiting gang may start, most wanted first, by uid; others by the rule."""
    overdue: frozenset[str]
    ledger: Ledger = field(init=False)
    preemption: Preemption = field(init=False)
    position: int = 0
    blocked: Gang | None = None
    """The gang that holds the reservation."""
    blocked_queues: dict[str, Gang] = field(default_factory=dict)
    _too_large: tuple[set[object], set[object]] = field(default_factory=lambda: (set(), set()))
    """Shapes that fitted neither now nor beside the reservation: capacity only shrinks."""

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.ledger = Ledger(snapshot.nodes, snapshot.used, snapshot.now)
        self.preemption = Preemption(snapshot, self.policy, self.queues)

    def visit(self, entry: Ranked) -> list[Action]:
        """What happens to one waiting gang, and what must happen to others for it."""
        gang = entry.gang
        barrier = self._barrier(gang)
        if barrier is not None:
            return [self._behind(entry, barrier)]
        sizes = self.sizes.get(gang.uid) or _rule_sizes(gang)
        for size in sizes:
            if self.queues.excess(gang.queue, size.demand) is None:
                placement = self._place(size)
                if placement is not None:
                    return [self._admit(entry, size, placement)]
        return self._blocked(entry, sizes[-1])

    def _barrier(self, gang: Gang) -> Gang | None:
        if not self.blocked_queues:
            return None
        path = self.queues.path(gang.queue)
        return next(
            (self.blocked_queues[name] for name in path if name in self.blocked_queues), None
        )

    def _place(self, gang: Gang) -> Placement | None:
        room = self.ledger.room_for(gang)
        too_large = self._too_large[room is not self.ledger.now]
        if gang.shape in too_large or gang.shape in self._too_large[0]:
            return None
        placement = self.policy.placer.place(gang, room)
        if placement is None:
            too_large.add(gang.shape)
        return placement

    def _admit(self, entry: Ranked, gang: Gang, placement: Placement) -> Admit:
        self.ledger.take(gang, placement)
        self.queues.take(gang.queue, gang.demand)
        message = ""
        if self.explain:
            message = verdicts.admitted(gang, entry.gang, placement, self.blocked)
        return Admit(gang, placement, entry, message, passed=self.blocked)

    def _blocked(self, entry: Ranked, gang: Gang) -> list[Action]:
        if reason := self._never(gang):
            return [Hold(entry.gang, Reason.NEVER_FITS, reason, ranked=entry)]
        self.position += 1
        kept = self.preemption.waits_for_leaving(gang, self.ledger)
        if kept is not None:
            return [self._keep(entry, gang, kept, ())]
        room = None
        if self.snapshot.settings.preemption:
            room = self.preemption.make_room(entry, gang, self.ledger)
        if room is not None:
            victims, kept = room
            return [*self._told(victims, entry.gang), self._keep(entry, gang, kept, victims)]
        return [self._hold(entry, gang)]

    def _keep(
        self, entry: Ranked, gang: Gang, placement: Placement, victims: Sequence[Victim]
    ) -> Hold:
        """Hold ``gang`` back until its places are free, which nobody else gets."""
        self.ledger.keep(gang, placement)
        self.queues.take(gang.queue, gang.demand)
        message = ""
        if self.explain:
            message = verdicts.waiting_for_preemption(gang, [v.running for v in victims])
        reservation = Reservation(self.snapshot.now, placement, is_closed=True)
        return Hold(
            entry.gang, Reason.WAITING_FOR_PREEMPTION, message, self.position, entry, reservation
        )

    def _told(self, victims: Sequence[Victim], beneficiary: Gang) -> Iterator[Action]:
        for victim in victims:
            name = f"{beneficiary.namespace}/{beneficiary.name}"
            if victim.shrunk is None:
                message = f"stopped to make room for {name}" if self.explain else ""
                yield Preempt(victim.running, beneficiary, message)
            else:
                message = f"shrunk to make room for {name}" if self.explain else ""
                yield Resize(victim.running, victim.shrunk, message, Reason.SHRUNK)

    def _hold(self, entry: Ranked, gang: Gang) -> Hold:
        """Say why ``gang`` waits; the first that capacity blocks gets the reservation."""
        whole, ahead = entry.gang, self.position - 1
        is_overdue = whole.uid in self.overdue
        over_limit = self.queues.excess(gang.queue, gang.demand)
        if over_limit is not None:
            queue, excess = over_limit
            if is_overdue:
                self.blocked_queues.setdefault(queue, whole)
            message = verdicts.over_limit(queue, excess) if self.explain else ""
            return Hold(whole, Reason.OVER_QUEUE_LIMIT, message, self.position, entry)
        reservation = None
        if self.blocked is None:
            reservation = reserve(gang, self.ledger, self.snapshot, self.policy.placer, is_overdue)
            if reservation is not None:
                self.blocked = whole
        elif self.policy.placer.place(gang, self.ledger.now) if self.explain else None:
            message = verdicts.would_delay(self.blocked, self.ledger.reservation, ahead)
            return Hold(whole, Reason.WAITING_BEHIND, message, self.position, entry)
        message = ""
        if self.explain:
            message = verdicts.waiting_for_capacity(gang, self.ledger.now, ahead)
            if reservation is not None:
                message += "; " + verdicts.reserved(reservation, self.snapshot)
        return Hold(whole, Reason.WAITING_FOR_CAPACITY, message, self.position, entry, reservation)

    def _never(self, gang: Gang) -> str | None:
        """Why neither an empty cluster nor an unused queue would let ``gang`` start."""
        if (beyond := self.queues.excess_when_empty(gang.queue, gang.demand)) is not None:
            return verdicts.beyond_limit(*beyond)
        return verdicts.never_fits(gang, self.snapshot.nodes, self.policy.placer)

    def _behind(self, entry: Ranked, barrier: Gang) -> Hold:
        if reason := self._never(entry.gang.at_minimum):
            return Hold(entry.gang, Reason.NEVER_FITS, reason, ranked=entry)
        self.position += 1
        message = (
            f"held back for {barrier.namespace}/{barrier.name}, which has waited past its bound; "
            f"{self.position - 1} ahead"
        )
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def may_resize(self, running: RunningGang) -> bool:
        """Whether ``running`` may change its size now for no one in particular."""
        settled = (
            self.snapshot.now - running.resized >= self.snapshot.settings.resize_settle_seconds
        )
        return (
            running.gang.is_elastic
            and not running.is_leaving
            and settled
            and running.gang.uid not in self.preemption.chosen
        )

    def grow(self, ranked: Sequence[Ranked], wanted: dict[str, dict[str, int]]) -> Iterator[Resize]:
        """Growths of running gangs, in order, into what is left."""
        snapshot = self.snapshot
        for entry in ranked:
            running = snapshot.running_by_uid.get(entry.gang.uid)
            if running is None or not self.may_resize(running):
                continue
            sizes = wanted.get(running.gang.uid) or {
                task.name: task.maximum for task in running.gang.tasks
            }
            yield from self._grown(running.gang, sizes)

    def _grown(self, gang: Gang, sizes: dict[str, int]) -> Iterator[Resize]:
        running = self.snapshot.running_by_uid[gang.uid]
        found = larger(running, sizes, self.ledger.room_for(gang), self.policy.placer)
        if found is None:
            return
        added, placement, whole = found
        if self.queues.excess(gang.queue, added.demand) is not None:
            return
        self.ledger.take(added, placement)
        self.queues.take(gang.queue, added.demand)
        message = (
            f"grown by {verdicts.composition(added)} into idle capacity" if self.explain else ""
        )
        yield Resize(running, whole, message, Reason.GROWN)


def _rule_sizes(gang: Gang) -> tuple[Gang, ...]:
    return (gang,) if gang.at_minimum is gang else (gang, gang.at_minimum)
