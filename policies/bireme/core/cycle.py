"""The scheduling cycle: order, size, place and admit whole gangs against one snapshot.

    1. Set aside gangs with a configuration fault: waiting longer cannot help them.
    2. Order the rest by the policy; a policy that fails, loses or invents a gang is overruled by
       its rules, in the same cycle.
    3. Put gangs that lost a node first, then those that have waited past their bound, the longest
       overdue first; among the others, queues within their guarantee go before queues that borrow.
    4. Ask the sizer, if there is one, how large elastic gangs should be.
    5. Walk down the order: admit, keep places, make room, or say why not.
    6. Let elastic gangs shrink to what the sizer wants, or grow into what is left.
    7. Say which nodes pools should get for gangs that only lack room (:mod:`bireme.core.scale_up`).

Pure: equal snapshots give equal decisions, in the cluster and in the simulator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bireme.core import messages
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Reservation, Resize
from bireme.core.elastic import larger, smaller
from bireme.core.gangs import Gang
from bireme.core.guardrails import CheckedPlacer, CheckedSizer, OrderError, orderers
from bireme.core.placement import Placement
from bireme.core.policy import Orderer, Placer, Policy, Ranked, TotalOrder
from bireme.core.preemption import Preemption, Step
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.reservations import Ledger, reserve
from bireme.core.running import RunningGang
from bireme.core.scale_up import Growing
from bireme.core.snapshot import ClusterSnapshot

# One walk down the order: each gang is admitted, or told why not, or has room made for it.
#
#     1. What its queue (and every queue above) allows and what is free for it now: admit.
#     2. It fits once gangs have left that are being stopped already: keep those places for it.
#     3. Lower gangs can shrink or stop for it: let them, and keep their places for it.
#     4. It is the first that capacity blocks: reserve the earliest places (EASY). Later gangs take
#        nothing of them unless they end before the reservation starts.
#
# Elastic gangs grow last, into what nobody in the whole order has use for.


@dataclass(slots=True)
class Walk:
    """What is left to give away while the order is walked down, and for whom places are kept."""

    snapshot: ClusterSnapshot
    placer: Placer
    order: TotalOrder
    queues: QueueTree
    explain: bool
    sizes: dict[str, tuple[Gang, ...]]
    """Sizes at which a waiting gang may start, most wanted first, by uid; others by the rule."""
    overdue: frozenset[str]
    growing: Growing | None = None
    """What node pools may still give; None where no pool may grow."""
    short: list[Gang] = field(default_factory=list)
    """Gangs that only lack room, at the size they asked for last."""
    ledger: Ledger = field(init=False)
    preemption: Preemption = field(init=False)
    position: int = 0
    blocked: Gang | None = None
    """The gang that holds the reservation."""
    blocked_queues: dict[str, Gang] = field(default_factory=dict)
    _too_large: tuple[set[object], set[object]] = field(default_factory=lambda: (set(), set()))
    """Shapes that did not fit now, and beside the reservation: capacity only shrinks."""
    _held: set[tuple[object, str]] = field(default_factory=set)
    """Shapes and queues without a limit, of which one waits for capacity behind the blocked."""
    _fitting: dict[object, int] = field(default_factory=dict)
    """Shapes that fitted now, with the changes of the ledger until then."""

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.ledger = Ledger(snapshot.nodes, snapshot.used, snapshot.now)
        self.preemption = Preemption(snapshot, self.placer, self.queues, self.order, self.ledger)

    def visit(self, entry: Ranked) -> list[Action]:
        """What happens to one waiting gang, and what must happen to others for it."""
        gang = entry.gang
        if self._is_like_one_held(entry):
            self.position += 1
            return [self._wait_for_capacity(entry, gang)]
        barrier = self._barrier(gang)
        if barrier is not None:
            return [self._behind(entry, barrier)]
        sizes = self.sizes.get(gang.uid) or _rule_sizes(gang)
        for size in sizes:
            if self._is_within_limits(size):
                placement = self._place(size)
                if placement is not None:
                    return [self._admit(entry, size, placement)]
        return self._blocked(entry, sizes[-1])

    def _is_like_one_held(self, entry: Ranked) -> bool:
        """Whether a gang of the same shape and queue waits for capacity, and this one must too.

        Capacity only shrinks, so all that could differ is whom it may stop. Most of a long line
        ends here.
        """
        gang = entry.gang
        return (
            (gang.shape, gang.queue) in self._held
            and not self.blocked_queues
            and gang.at_minimum is gang
            and gang.uid not in self.sizes
            and self.preemption.is_hopeless(entry, gang)
        )

    def _barrier(self, gang: Gang) -> Gang | None:
        if not self.blocked_queues:
            return None
        path = self.queues.path(gang.queue)
        return next(
            (self.blocked_queues[name] for name in path if name in self.blocked_queues), None
        )

    def _is_within_limits(self, gang: Gang) -> bool:
        """Whether the limits of its queues allow ``gang``, and the blocked gang beside it.

        Not even a gang that ends in time may pass: while the limit is in the way of the blocked
        gang, its places would be anybody's.
        """
        return self.queues.excess(gang.queue, gang.demand, beside_reserved=True) is None

    def _place(self, gang: Gang) -> Placement | None:
        room = self.ledger.room_for(gang)
        too_large = self._too_large[room is not self.ledger.now]
        if gang.shape in too_large or gang.shape in self._too_large[0]:
            return None
        placement = self.placer.place(gang, room)
        if placement is None:
            too_large.add(gang.shape)
        return placement

    def _admit(self, entry: Ranked, gang: Gang, placement: Placement) -> Admit:
        self.ledger.take(gang, placement)
        self.queues.take(gang.queue, gang.demand)
        message = ""
        if self.explain:
            message = messages.admitted(gang, entry.gang, placement, self.blocked)
        return Admit(gang, placement, entry, message, passed=self.blocked)

    def _blocked(self, entry: Ranked, gang: Gang) -> list[Action]:
        if reason := self._never(gang):
            return [Hold(entry.gang, Reason.NEVER_FITS, reason, ranked=entry)]
        self.position += 1
        kept = self.preemption.waits_for_leaving(gang)
        if kept is not None:
            return [self._keep(entry, gang, kept, ())]
        room = self.preemption.make_room(entry, gang)
        if room is not None:
            victims, kept = room
            self._held.clear()  # what is left over may be enough for others
            return [*self._told(victims, entry.gang), self._keep(entry, gang, kept, victims)]
        return [self._hold(entry, gang)]

    def _keep(
        self, entry: Ranked, gang: Gang, placement: Placement, victims: Sequence[Step]
    ) -> Hold:
        """Hold ``gang`` back until its places are free, which nobody else gets."""
        self.ledger.keep(gang, placement)
        self.queues.take(gang.queue, gang.demand)
        message = ""
        if self.explain:
            message = messages.waiting_for_preemption(gang, [v.running for v in victims])
        reservation = Reservation(self.snapshot.now, placement, is_closed=True)
        return Hold(
            entry.gang, Reason.WAITING_FOR_PREEMPTION, message, self.position, entry, reservation
        )

    def _told(self, victims: Sequence[Step], beneficiary: Gang) -> Iterator[Action]:
        for victim in victims:
            name = f"{beneficiary.namespace}/{beneficiary.name}"
            if victim.kept is None:
                message = f"stopped to make room for {name}" if self.explain else ""
                yield Preempt(victim.running, beneficiary, message)
            else:
                message = f"shrunk to make room for {name}" if self.explain else ""
                yield Resize(victim.running, victim.kept, message, Reason.SHRUNK)

    def _hold(self, entry: Ranked, gang: Gang) -> Hold:
        """Say why ``gang`` waits; the first that capacity blocks gets the reservation."""
        whole, ahead, is_overdue = entry.gang, self.position - 1, entry.gang.uid in self.overdue
        over_limit = self.queues.excess(gang.queue, gang.demand)
        if over_limit is not None:
            queue, excess = over_limit
            if is_overdue:
                self.blocked_queues.setdefault(queue, whole)
            message = messages.over_limit(queue, excess) if self.explain else ""
            return Hold(whole, Reason.OVER_QUEUE_LIMIT, message, self.position, entry)
        reservation = None
        if self.blocked is None:
            reservation = reserve(
                gang, self.ledger, self.snapshot, self.placer, is_overdue, self.explain
            )
            if reservation is not None:
                self.blocked = whole
                self.queues.reserve(gang.queue, gang.demand)
        elif self._fits_now(gang):
            message = ""
            is_within = self._is_within_limits(gang)
            if is_within:
                self.short.append(gang)
            if self.explain and is_within:
                message = messages.would_delay(gang, self.blocked, self.ledger.reservation, ahead)
            elif self.explain:
                message = messages.would_pass_limit(self.blocked, ahead)
            return Hold(whole, Reason.WAITING_BEHIND, message, self.position, entry)
        is_blocked = self.blocked is not None and gang.shape in self._too_large[0]
        if is_blocked and not self.queues.is_limited(gang.queue):
            self._held.add((gang.shape, gang.queue))
        return self._wait_for_capacity(entry, gang, reservation)

    def _wait_for_capacity(
        self, entry: Ranked, gang: Gang, reservation: Reservation | None = None
    ) -> Hold:
        self.short.append(gang)
        message = ""
        if self.explain:
            message = messages.waiting_for_capacity(gang, self.ledger.now, self.position - 1)
            if reservation is not None:
                message += "; " + messages.reserved(reservation, self.snapshot)
        reason = Reason.WAITING_FOR_CAPACITY
        return Hold(entry.gang, reason, message, self.position, entry, reservation)

    def _fits_now(self, gang: Gang) -> bool:
        """Whether only what is kept for the blocked gang is in the way of ``gang``."""
        if gang.shape in self._too_large[0]:
            return False
        if self._fitting.get(gang.shape) != self.ledger.changes:
            if self.placer.place(gang, self.ledger.now) is None:
                self._too_large[0].add(gang.shape)
                return False
            self._fitting[gang.shape] = self.ledger.changes
        return True

    def _never(self, gang: Gang) -> str | None:
        """Why neither an empty cluster nor an unused queue would ever let ``gang`` start."""
        if (beyond := self.queues.excess_when_empty(gang.queue, gang.demand)) is not None:
            return messages.beyond_limit(*beyond)
        never = messages.never_fits(gang, self.snapshot.nodes, self.placer)
        return self.growing.never_fits(gang) if never and self.growing else never

    def _behind(self, entry: Ranked, barrier: Gang) -> Hold:
        if reason := self._never(entry.gang.at_minimum):
            return Hold(entry.gang, Reason.NEVER_FITS, reason, ranked=entry)
        self.position += 1
        message = ""
        if self.explain:
            message = (
                f"held back for {barrier.namespace}/{barrier.name}, which has waited past its "
                f"bound; {self.position - 1} ahead"
            )
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def resizes(self, wanted: Mapping[str, dict[str, int]]) -> Iterator[Resize]:
        """Changes of running elastic gangs that are made for nobody in particular.

        ``wanted`` is what the sizer wants, by uid and task name. Gangs it does not speak of grow
        towards their maximum, when nobody waits.
        """
        table = self.snapshot.running_table
        elastic = (table.gangs[at] for at in np.flatnonzero(table.is_elastic).tolist())
        able = {r.gang.uid: r for r in elastic if self._may_resize(r)}
        growing = {}
        for entry in self.order.ranked if able else ():
            running = able.get(entry.gang.uid)
            if running is None:
                continue
            sizes = wanted.get(running.gang.uid)
            least = sizes and smaller(running, sizes, self.snapshot.nodes)
            if least:
                message = "the sizer wants it smaller" if self.explain else ""
                yield Resize(running, least, message, Reason.SHRUNK)
            elif sizes is not None or not self.position:
                most = {task.name: task.maximum for task in running.gang.tasks}
                growing[running] = most if sizes is None else sizes
        for running, sizes in growing.items():
            yield from self._grown(running, sizes)

    def _may_resize(self, running: RunningGang) -> bool:
        """Whether an elastic gang may change its size now for no one in particular."""
        settle_seconds = self.snapshot.settings.resize_settle_seconds
        return (
            not running.is_leaving
            and self.snapshot.now - running.resized >= settle_seconds
            and running.gang.uid not in self.preemption.chosen
        )

    def _grown(self, running: RunningGang, sizes: Mapping[str, int]) -> Iterator[Resize]:
        gang = running.gang
        if self._barrier(gang) is not None:
            return
        room = self.ledger.room_for(gang)
        found = larger(running, sizes, room, self.placer, self._is_within_limits)
        if found is None:
            return
        added, placement, whole = found
        self.ledger.take(added, placement)
        self.queues.take(gang.queue, added.demand)
        message = (
            f"grown by {messages.composition(added)} into idle capacity" if self.explain else ""
        )
        yield Resize(running, whole, message, Reason.GROWN)


def _rule_sizes(gang: Gang) -> tuple[Gang, ...]:
    return (gang,) if gang.at_minimum is gang else (gang, gang.at_minimum)


def run_cycle(snapshot: ClusterSnapshot, policy: Policy, explain: bool = True) -> Decision:
    """Decide on every waiting gang of ``snapshot``, and on running ones that must change.

    Without ``explain`` the decision is the same, but its actions carry no words, and reservations
    not when they should come true sooner.
    """
    placer, sizer = CheckedPlacer(policy, snapshot), CheckedSizer(policy.sizer)
    growing = None
    if snapshot.growable:
        growing = Growing(snapshot, CheckedPlacer(policy.rules or policy, snapshot), explain)
    faults: list[str] = []
    for orderer in orderers(policy):
        try:
            decision = _decided(snapshot, orderer, placer, sizer, growing, explain)
        except OrderError as error:
            faults.append(str(error))
        else:
            break
    faults = [fault for fault in (*faults[:1], sizer.fault, placer.fault) if fault]
    return replace(decision, fallback="; ".join(faults))


def _decided(
    snapshot: ClusterSnapshot,
    orderer: Orderer,
    placer: CheckedPlacer,
    sizer: CheckedSizer,
    growing: Growing | None,
    explain: bool,
) -> Decision:
    """The decision with ``orderer``; raises OrderError as it does."""
    queues = QueueTree(snapshot.queues, snapshot.queue_usage, snapshot.total)
    waiting = sorted(snapshot.waiting, key=lambda gang: gang.uid)
    faults = [h for gang in waiting if (h := configuration_fault(gang, snapshot, queues))]
    faulty = {hold.gang.uid for hold in faults}
    sound = [gang for gang in waiting if gang.uid not in faulty]
    ranked = orderer.order(sound, snapshot)
    order = TotalOrder(orderer, snapshot, sound)
    wanted = sizer.sizes(order, snapshot)
    first = _first(ranked, snapshot)
    overdue = frozenset(e.gang.uid for e in first)
    sizes = {
        e.gang.uid: _start_sizes(e.gang, wanted[e.gang.uid]) for e in ranked if e.gang.uid in wanted
    }
    walk = Walk(snapshot, placer, order, queues, explain, sizes, overdue, growing)
    actions: list[Action] = []
    for entry in _in_turn(first, ranked, queues):
        actions.extend(walk.visit(entry))
    actions.extend(walk.resizes(wanted))
    decision = Decision((*actions, *faults))
    if growing is None:
        return decision
    return growing.grown(decision, walk.short, walk.ledger, queues, walk.blocked)


def configuration_fault(gang: Gang, snapshot: ClusterSnapshot, queues: QueueTree) -> Hold | None:
    """A verdict that no amount of waiting changes, or None."""
    if gang.fault is not None:
        return Hold(gang, *(_never_together(gang, snapshot, queues) or gang.fault))
    if flaw := gang.flaw:
        return Hold(gang, Reason.SPEC_INVALID, flaw)
    queue = snapshot.queues.get(gang.queue)
    if queue is None:
        known = ", ".join(sorted(snapshot.queues)[:5]) or "none exist"
        return Hold(
            gang,
            Reason.QUEUE_NOT_FOUND,
            f"queue {gang.queue!r} does not exist; create it or set spec.queue to one of: {known}",
        )
    if fault := queues.fault(queue.name):
        return Hold(gang, Reason.QUEUE_INVALID, fault)
    if not queue.is_open:
        return Hold(gang, Reason.QUEUE_CLOSED, f"queue {queue.name!r} is closed; use another one")
    if queue.namespaces is not None and gang.namespace not in queue.namespaces:
        return Hold(
            gang,
            Reason.QUEUE_FORBIDDEN,
            f"queue {queue.name!r} does not admit namespace {gang.namespace!r}; "
            "use another queue or ask for the namespace to be selected",
        )
    return None


def _never_together(
    gang: Gang, snapshot: ClusterSnapshot, queues: QueueTree
) -> tuple[Reason, str] | None:
    """Why the pods that ``gang`` waits for would wait in vain, where it is foretold; or None."""
    asked = dict(gang.foretold)
    beyond = queues.excess_when_empty(gang.queue, asked)
    why = messages.beyond_limit(*beyond) if beyond else messages.beyond_all_nodes(asked, snapshot)
    return (Reason.NEVER_FITS, f"minResources {why}") if why else None


def _first(ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> list[Ranked]:
    """Gangs that go before all others: their hole is waiting, or they have waited too long."""
    keyed = [(e.gang.displaced, snapshot.overdue_seconds(e.gang), e) for e in ranked]
    first = [key for key in keyed if key[0] or key[1] > 0]
    first.sort(key=lambda key: (not key[0], -key[1], key[2].gang.uid))
    return [entry for _, _, entry in first]


def _in_turn(
    first: Sequence[Ranked], ranked: Sequence[Ranked], queues: QueueTree
) -> Iterator[Ranked]:
    """Every gang when its turn comes; whose turn it is depends on what was admitted before."""
    yield from first
    taken = {entry.gang.uid for entry in first}
    yield from queues.merge([e for e in ranked if e.gang.uid not in taken] if taken else ranked)


def _start_sizes(gang: Gang, wanted: Mapping[str, int]) -> tuple[Gang, ...]:
    """Sizes to try for a gang that waits: the wanted one, or else the least that may start."""
    return tuple(dict.fromkeys((gang.resized(dict(wanted)), gang.at_minimum)))
