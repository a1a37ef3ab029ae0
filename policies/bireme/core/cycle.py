"""The scheduling cycle: order, size, place and admit whole gangs against one snapshot.

Read :func:`run_cycle`, then ``_decide`` (the steps of a cycle), then ``AdmissionPass.visit`` (the
steps for one gang). Equal snapshots give equal decisions, in the cluster and in the simulator.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, ParamSpec

import numpy as np

from bireme.core import messages, preferences
from bireme.core.canary import Deciders, OverruledError
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Reservation, Resize
from bireme.core.elastic import larger, smaller
from bireme.core.gangs import Gang, Key
from bireme.core.guardrails import CheckedPlacer
from bireme.core.maintenance import Maintenance
from bireme.core.moves import moves
from bireme.core.obstacles import configuration_fault, start_obstacle
from bireme.core.overdue import OverdueLine
from bireme.core.placement import Placement
from bireme.core.pod_rules import NOBODY
from bireme.core.policy import Placer, Policy, Ranked, TotalOrder, can_move
from bireme.core.preemption import Candidate, CandidateKind, Preemptor, may_stop_by_rank
from bireme.core.queue_tree import QueueTree
from bireme.core.quotas import QuotaLedger
from bireme.core.reasons import Reason
from bireme.core.reservations import CapacityLedger, reserve
from bireme.core.resources import BoolArray
from bireme.core.returns import returning_gangs, returning_place, sizes_of_start
from bireme.core.running import RunningGang
from bireme.core.scale_up import Lent, ScaleUp
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import MIN_VISITS, Beyond, Turns, in_line

_P = ParamSpec("_P")
_ONE_TURN: Final = Turns()


def run_cycle(
    snapshot: ClusterSnapshot, policy: Policy, explain: bool = True, turns: Turns = _ONE_TURN
) -> Decision:
    """Decide on the waiting gangs of ``snapshot``, and on running ones that must change.

    Without ``explain`` the decision is the same, but its actions have no messages, and its
    reservations do not say when they should come true sooner. Whom it reaches where there is no
    time for all, ``turns`` say.
    """
    windows = Maintenance.of(snapshot, explain)
    if windows is not None:
        snapshot = windows.snapshot
    deciders = Deciders(policy, snapshot)
    # A learned placer knows only the nodes of the snapshot, so new nodes are for the rules.
    new_nodes = CheckedPlacer(policy.rules or policy, snapshot) if snapshot.growable else None
    # Who moved to a node that it is then kept off for maintenance would move for nothing.
    may_move = can_move(policy) and windows is None
    decision: Decision | None = None
    # An orderer that fails, loses or invents a gang is overruled by the rules in the same cycle.
    while decision is None:
        try:
            decision = _decide(snapshot, deciders, new_nodes, explain, turns, may_move)
        except OverruledError as error:
            error.decider.overrule(str(error))
    decision = decision if windows is None else windows.decided(decision, deciders, explain)
    return replace(decision, fallback=deciders.fallback, canary_fallbacks=deciders.canary_fallbacks)


def _decide(
    snapshot: ClusterSnapshot,
    deciders: Deciders,
    new_nodes: CheckedPlacer | None,
    explain: bool,
    turns: Turns,
    may_move: bool,
) -> Decision:
    """Return the decision of ``deciders``; raises OverruledError as they do.

    ``new_nodes`` places gangs on nodes that pools may get; None without such pools.
    """
    queues = QueueTree(
        snapshot.queues, snapshot.queue_usage, snapshot.total, snapshot.nodes.accelerators
    )

    # 1. Set aside gangs with a configuration fault: waiting longer cannot help them.
    #    By uid, so that the order in which gangs are listed changes nothing.
    waiting = sorted(snapshot.waiting, key=lambda gang: gang.uid)
    faulty = [hold for gang in waiting if (hold := configuration_fault(gang, snapshot, queues))]
    faulty_uids = {hold.gang.uid for hold in faulty}
    #    Of the others none has waited while waiting could not have helped it.
    now = snapshot.now
    sound = [gang.in_line(now) for gang in waiting if gang.uid not in faulty_uids]

    # 2. Order the rest by the policy. First go the gangs that lost a node, then those past their
    #    wait bound, as far as these hold no more than their share.
    ranked = deciders.order(sound, snapshot)
    scale_up = ScaleUp(snapshot, new_nodes, explain) if new_nodes is not None else None
    obstacle = partial(
        start_obstacle, snapshot=snapshot, queues=queues, placer=deciders, scale_up=scale_up
    )
    excluded = faulty_uids | _late_beyond_line(ranked, snapshot, turns)
    candidates = [gang for gang in waiting if gang.uid not in excluded]
    overdue = OverdueLine(snapshot, candidates, queues, obstacle)
    urgent = _urgent(ranked, overdue)
    urgent_uids = frozenset(entry.gang.uid for entry in urgent)
    others = [e for e in ranked if e.gang.uid not in urgent_uids] if urgent else ranked

    # 3. Set aside what is beyond the line of its namespace. No rule looks at these gangs.
    looked_at, beyond = in_line([*urgent, *others], snapshot.settings, turns)
    if beyond:
        sound = [entry.gang for entry in looked_at]
        snapshot = replace(snapshot, waiting=tuple(sound))
        urgent = [entry for entry in looked_at if entry.gang.uid in urgent_uids]
        others = list(looked_at[len(urgent) :])

    # 4. Ask the sizer, if there is one, how large elastic gangs should be. Running gangs are
    #    ordered too once it or preemption asks, which most cycles never do.
    order = TotalOrder(deciders, snapshot, sound)
    wanted = deciders.sizes(order, snapshot)

    # 5. Visit the gangs in order. Among those that are not urgent, queues within their guarantee
    #    go before queues that borrow, which depends on what was admitted before. Gangs whose pods
    #    are still ending, and that return before all others, get theirs after those that wait
    #    already to return.
    admission = AdmissionPass(
        snapshot, deciders, order, queues, explain, wanted, urgent_uids, overdue, scale_up
    )
    actions: list[Action] = []
    unreached = {gang.uid: gang for gang in sound}
    for number, entry in enumerate(_in_turn(urgent, others, queues, turns)):
        if not turns.is_time_left() and number >= MIN_VISITS:
            break
        if not entry.gang.displaced:
            admission.keep_returns()
        del unreached[entry.gang.uid]
        actions.extend(admission.visit(entry))
    admission.keep_returns()
    admission.position += len(unreached)
    actions.extend(admission.hold_beyond(beyond))

    # 6. Shrink elastic gangs to what the sizer wants, or let them grow into what is left. After
    #    the admissions: growth never keeps a gang from starting.
    actions.extend(admission.resizes())

    # 7. Move gangs that start to the places they prefer, among those that nobody else got.
    actions = admission.preferred(actions, turns.is_time_left)

    # 8. Where nobody waits, move running gangs to faster GPUs that are left.
    if may_move and not admission.position and admission.blocked is None:
        changing = {action.gang.uid for action in actions}
        actions.extend(moves(snapshot, deciders, order, admission.ledger, changing, explain))

    # 9. Ask node pools for the nodes of gangs that only lack room.
    decision = Decision(
        (*actions, *faulty), unreached=tuple(unreached.values()), overdue=overdue.waiting
    )
    if scale_up is None:
        return decision
    blocked = admission.blocked.gang if admission.blocked is not None else None
    return scale_up.apply(
        decision, admission.short, admission.ledger, queues, blocked, admission.lent
    )


def _in_turn(
    urgent: Sequence[Ranked], others: Sequence[Ranked], queues: QueueTree, turns: Turns
) -> Iterator[Ranked]:
    """Yield ``urgent``, then ``others``, in the order in which the cycle visits them."""
    for group in turns.groups(urgent, others):
        yield from group.urgent
        yield from queues.merge(group.others)


@dataclass(slots=True)
class AdmissionPass:
    """One pass over the waiting gangs, in order: admit, make room, reserve, or hold.

    Capacity and queues only shrink during a pass, so a shape that did not fit once is not tried
    again. Most of a long line is held that way, without asking the placer.

    Attributes:
        wanted: The sizer's sizes by uid and task name. A gang left out starts as asked or at its
            minimum, and grows towards its maximum when no gang waits.
        urgent: Uids of gangs that lost a node, and of those in the line past their wait bound.
        overdue: That line.
        scale_up: The node pools that may grow; None without any.
        short: Gangs that only lack room, at the size they asked for last.
        position: Gangs held so far; configuration faults do not count.
        blocked: The first gang that capacity blocks; it has the reservation.
        returns: Gangs that places are kept for until their pods have ended; None before that.
        lent: What the first gang that only lacks room gets back of others, where there are pools.
        blocked_queues: By name, the urgent gang for which a queue admits nothing else.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    order: TotalOrder
    queues: QueueTree
    explain: bool
    wanted: Mapping[str, Mapping[str, int]]
    urgent: frozenset[str]
    overdue: OverdueLine
    scale_up: ScaleUp | None = None
    short: list[Gang] = field(default_factory=list)
    ledger: CapacityLedger = field(init=False)
    quotas: QuotaLedger = field(init=False)
    preemptor: Preemptor = field(init=False)
    position: int = 0
    blocked: Ranked | None = None
    returns: list[Gang] | None = None
    lent: Lent | None = None
    blocked_queues: dict[str, Gang] = field(default_factory=dict)
    _too_large: tuple[set[object], set[object]] = field(default_factory=lambda: (set(), set()))
    """Shapes that did not fit now, and beside the reservation."""
    _held: set[tuple[object, str]] = field(default_factory=set)
    """Shape and queue of gangs that wait for capacity behind the blocked gang, without a limit."""
    _fitting: dict[object, int] = field(default_factory=dict)
    """Shapes that fitted now, with the number of ledger changes at that moment."""
    _unforeseen: set[object] = field(default_factory=set)
    """Shapes that would not fit if all that runs had ended: what is in the way is no gang's."""
    _missing: dict[object, tuple[int, str]] = field(default_factory=dict)
    """What a shape lacks in words, with the number of ledger changes at that moment."""

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.ledger = CapacityLedger(
            snapshot.nodes, snapshot.used, snapshot.now, snapshot.occupants
        )
        self.quotas = QuotaLedger(snapshot.quotas)
        self.preemptor = Preemptor(
            snapshot,
            self.placer,
            self.queues,
            self.order,
            self.ledger,
            self.wanted,
            self.overdue,
        )

    def visit(self, entry: Ranked) -> list[Action]:
        """Return the actions for one waiting gang, and for others that make room for it."""
        gang = entry.gang
        if self._equals_held(entry):
            self.position += 1
            return [self._wait_for_capacity(entry, gang)]
        if (barrier := self._barrier(gang)) is not None:
            return [self._wait_behind_barrier(entry, barrier)]

        # 1. Its queues allow it and it fits what is free for it now: admit.
        sizes = self._sizes(gang)
        for size in sizes:
            if self._is_within_limits(size) and (placement := self._place(size)) is not None:
                return [self._admit(entry, size, placement)]
        #    Or it fits what is reserved, and can be stopped once that is needed: admit it as well.
        for size in sizes:
            if (placement := self._yielding_place(entry, size)) is not None:
                return [self._admit(entry, size, placement, is_opportunistic=True)]
        smallest = sizes[-1]  # a gang that waits, waits for the size that fits first
        if verdict := self._start_obstacle(smallest):
            return [Hold(gang, *verdict, ranked=entry)]
        self.position += 1
        if (over := self.quotas.excess(smallest)) is not None:
            # Nobody is stopped and nothing is reserved for it: that would not help.
            message = self._text(messages.over_quota, *over)
            return [Hold(gang, Reason.OVER_QUOTA, message, self.position, entry)]

        # 2. It fits once gangs have left that are being stopped already: keep those places.
        kept = self.preemptor.waits_for_leaving(smallest)
        if kept is not None:
            return [self._keep(entry, smallest, kept, ())]

        # 3. Lower gangs can shrink or stop for it: let them, and keep their places for it.
        room = self.preemptor.make_room(entry, smallest)
        if room is not None:
            victims, kept = room
            self._held.clear()  # what is left over may be enough for others
            return [
                *self._stop_or_shrink(entry, victims),
                self._keep(entry, smallest, kept, victims),
            ]

        # 4. Another gang has a claim that is for one pod alone: capacity would not help.
        if (used := self._claim_in_use(smallest)) is not None:
            message = self._text(messages.claim_in_use, *used)
            return [Hold(gang, Reason.CLAIM_NOT_READY, message, self.position, entry)]

        # 5. Hold it. The first that capacity blocks gets the earliest places reserved (EASY):
        #    later gangs take none of them unless they end before the reservation starts, or yield.
        return [self._hold(entry, smallest)]

    def keep_returns(self) -> None:
        """Keep places for the gangs that return once their pods have ended; once in a pass."""
        if self.returns is not None:
            return
        self.returns = []
        for running in returning_gangs(self.snapshot, self.order):
            gang = running.gang
            if configuration_fault(gang, self.snapshot, self.queues) is not None:
                continue  # it will not start, however much is kept for it
            self.returns.append(gang)
            for size in sizes_of_start(gang):
                kept = returning_place(running, size, self.ledger, self.placer)
                if kept is not None:
                    # Its queues and quotas count what it uses still.
                    self.ledger.keep(size, kept)
                    break
            else:
                self._reserve_return(self.order.places[gang.uid][1])

    def _reserve_return(self, entry: Ranked) -> None:
        """Reserve places for a gang that returns and fits nowhere yet, if it is the first."""
        if self.blocked is not None:
            return
        nobody = np.zeros(len(self.snapshot.running_table.gangs), dtype=np.bool_)
        smallest = entry.gang.at_minimum
        found = reserve(
            smallest, self.ledger, self.snapshot, self.placer, True, nobody, self.explain
        )
        if found is not None:
            self.blocked = entry

    def hold_beyond(self, beyond: Iterable[Beyond]) -> Iterator[Hold]:
        """Yield holds for gangs beyond the line of their namespace: all others go before them."""
        for each in beyond:
            if each.told is not None:
                yield replace(each.told, gang=each.entry.gang, ranked=each.entry)
                continue
            self.position += 1
            message = self._text(messages.beyond_line, each, self.snapshot.settings)
            gang, reason = each.entry.gang, Reason.OVER_NAMESPACE_LIMIT
            yield Hold(gang, reason, message, self.position, each.entry)

    def resizes(self) -> Iterator[Resize]:
        """Yield changes of running elastic gangs that make room for no gang in particular."""
        table = self.snapshot.running_table
        elastic = (table.gangs[at] for at in np.flatnonzero(table.is_elastic).tolist())
        able = {r.gang.uid: r for r in elastic if self._may_resize(r)}
        growing: dict[RunningGang, Mapping[str, int]] = {}
        for entry in self.order.ranked if able else ():
            running = able.get(entry.gang.uid)
            if running is None:
                continue
            sizes = self.wanted.get(running.gang.uid)
            kept = sizes and smaller(running, sizes, self.snapshot.nodes)
            if kept:
                message = "the sizer wants it smaller" if self.explain else ""
                yield Resize(running, kept, message, Reason.SHRUNK)
            elif sizes is not None or not self.position:
                most = {task.name: task.maximum for task in running.gang.tasks}
                growing[running] = most if sizes is None else sizes
        # All shrink before the first grows, or growth would depend on the order of the two.
        for running, sizes in growing.items():
            yield from self._grow(running, sizes)

    def preferred(
        self, actions: Sequence[Action], is_time_left: Callable[[], bool]
    ) -> list[Action]:
        """Return ``actions`` with gangs that start on places they prefer, while there is time."""
        # If those that start before somebody for whom others are stopped went elsewhere, these
        # might be stopped in vain.
        waits = [at for at, a in enumerate(actions) if a.reason is Reason.WAITING_FOR_PREEMPTION]
        first = waits[-1] + 1 if waits else 0
        placed = [a.gang for a in actions if not isinstance(a, Hold)]
        return [
            self._preferred(a)
            if at >= first
            and isinstance(a, Admit)
            and preferences.has_any(a.gang, self.snapshot.nodes)
            and not preferences.is_leant_on(a.gang, placed)
            and is_time_left()
            else a
            for at, a in enumerate(actions)
        ]

    def _preferred(self, action: Admit) -> Admit:
        gang, placement = action.gang, action.placement
        self.ledger.give_back(gang, placement)
        room = self.ledger.room_for(gang)
        placement = preferences.preferred(gang, placement, room, self.placer)
        self.ledger.take(gang, placement)
        whole, passed, yields = action.ranked.gang, action.passed, action.is_opportunistic
        message = self._text(messages.admitted, gang, whole, placement, passed, yields)
        return replace(action, placement=placement, message=message)

    # --- limits and places ---

    def _sizes(self, gang: Gang) -> tuple[Gang, ...]:
        """Sizes at which a waiting gang may start, the most wanted first."""
        wanted = self.wanted.get(gang.uid)
        if wanted is not None:
            return tuple(dict.fromkeys((gang.resized(wanted), gang.at_minimum)))
        return (gang,) if gang.at_minimum is gang else (gang, gang.at_minimum)

    def _equals_held(self, entry: Ranked) -> bool:
        """Return whether a gang of this shape and queue waits for capacity, and this one must too.

        It saves most of the time of a long line.
        """
        gang = entry.gang
        # Capacity only shrinks, so the two could differ only in who may be stopped for them.
        return (
            (self.snapshot.shape(gang), gang.queue) in self._held
            and not self.blocked_queues
            and gang.at_minimum is gang
            and not gang.charges
            and gang.uid not in self.wanted
            and self.preemptor.is_hopeless(entry, gang)
        )

    def _barrier(self, gang: Gang) -> Gang | None:
        """Return the urgent gang for which a queue of ``gang`` admits nothing else, if any."""
        blocked = (self.blocked_queues.get(name) for name in self.queues.path(gang.queue))
        return next(filter(None, blocked), None)

    def _is_within_limits(self, gang: Gang) -> bool:
        """Return whether its queues, beside the blocked gang, and its quotas allow ``gang``."""
        # A gang that ends in time may not pass either: the limit would still be in the way of the
        # blocked gang, and any other gang could take the places.
        if self.queues.excess(gang.queue, gang.demand, beside_reserved=True) is not None:
            return False
        return not gang.charges or self.quotas.excess(gang) is None

    def _yielding_place(self, entry: Ranked, gang: Gang) -> Placement | None:
        """Return places for ``gang`` that it would yield to the blocked gang, or None."""
        # It is held where its limits are in the way, whoever else waits.
        if self.blocked is None or not self._is_within_limits(gang) or not self._fits_now(gang):
            return None
        # Its grace would come on top of that of the gang which returns.
        if any(each.uid == self.blocked.gang.uid for each in self.returns or ()):
            return None
        # A node comes in minutes: too soon to start in its place.
        if self.scale_up is not None and self.scale_up.may_help(self.blocked.gang):
            return None
        if not self.ledger.may_end_in_time(gang):
            return None
        if not self.preemptor.would_yield(entry, self.blocked):
            return None
        return self.placer.place(gang, self.ledger.now)

    def _place(self, gang: Gang) -> Placement | None:
        room, shape = self.ledger.room_for(gang), self.snapshot.shape(gang)
        # What does not fit now fits still less beside the reservation.
        too_large = self._too_large[room is not self.ledger.now]
        if shape in too_large or shape in self._too_large[0]:
            return None
        placement = None if room.lacks(gang) else self.placer.place(gang, room)
        if placement is None:
            too_large.add(shape)
        return placement

    def _fits_now(self, gang: Gang) -> bool:
        """Return whether only what is reserved for the blocked gang is in the way of ``gang``."""
        shape = self.snapshot.shape(gang)
        if shape in self._too_large[0]:
            return False
        # "It fits" ends with the next admission, unlike "it does not".
        if self._fitting.get(shape) != self.ledger.changes:
            now = self.ledger.now
            if now.lacks(gang) or self.placer.place(gang, now) is None:
                self._too_large[0].add(shape)
                return False
            self._fitting[shape] = self.ledger.changes
        return True

    def _start_obstacle(self, gang: Gang) -> tuple[Reason, str] | None:
        return start_obstacle(gang, self.snapshot, self.queues, self.placer, self.scale_up)

    def _claim_in_use(self, gang: Gang) -> tuple[Key, Gang | None] | None:
        """Return a claim that ``gang`` needs for one pod alone, and the gang that uses it; or None.

        The gang is None where a pod of none uses it.
        """
        there = self.ledger.now.occupants if gang.has_rules else NOBODY
        kinds = [task.pod for task in gang.tasks if task.pod is not None]
        used = min((each for kind in kinds for each in there.users_of_claims(kind)), default=None)
        if used is None:
            return None
        claim, uid = used
        held = self.snapshot.running_by_uid.get(uid)
        waiting = (each for each in self.snapshot.waiting if each.uid == uid)
        return claim, held.gang if held is not None else next(waiting, None)

    # --- actions ---

    def _text(self, form: Callable[_P, str], *given: _P.args, **named: _P.kwargs) -> str:
        # Messages of a long line cost more than the decision; a simulation reads none.
        return form(*given, **named) if self.explain else ""

    def _admit(
        self, entry: Ranked, gang: Gang, placement: Placement, is_opportunistic: bool = False
    ) -> Admit:
        self.ledger.take(gang, placement, is_opportunistic)
        self.queues.take(gang.queue, gang.demand)
        self.quotas.take(gang)
        passed = self.blocked.gang if self.blocked is not None else None
        text = self._text(messages.admitted, gang, entry.gang, placement, passed, is_opportunistic)
        return Admit(gang, placement, entry, text, passed=passed, is_opportunistic=is_opportunistic)

    def _keep(
        self, entry: Ranked, gang: Gang, placement: Placement, victims: Sequence[Candidate]
    ) -> Hold:
        """Hold ``gang`` until its places are free, and keep them from all other gangs."""
        # As if it had started: later gangs find neither its places nor its share of the limits.
        self.ledger.keep(gang, placement)
        self.queues.take(gang.queue, gang.demand)
        self.quotas.take(gang)
        message = self._text(messages.waiting_for_preemption, gang, [v.running for v in victims])
        reservation = Reservation(self.snapshot.now, placement, is_closed=True)
        return Hold(
            entry.gang, Reason.WAITING_FOR_PREEMPTION, message, self.position, entry, reservation
        )

    def _stop_or_shrink(
        self, entry: Ranked, victims: Sequence[Candidate]
    ) -> Iterator[Preempt | Resize]:
        beneficiary = entry.gang
        for victim in victims:
            gang = victim.running.gang
            if victim.kept is None:
                ranked, lent = self.order.places[gang.uid][1], victim.running.is_opportunistic
                may_by_rank = may_stop_by_rank(beneficiary, gang, self.snapshot)
                why = self._text(messages.claim, entry, ranked, lent, may_by_rank)
                message = self._text(messages.making_room, gang, "stopped", beneficiary, why)
                is_override = victim.kind is CandidateKind.OVERRIDE
                yield Preempt(victim.running, beneficiary, message, overrides_budget=is_override)
            else:
                message = self._text(messages.making_room, gang, "shrunk", beneficiary)
                yield Resize(victim.running, victim.kept, message, Reason.SHRUNK)

    def _hold(self, entry: Ranked, gang: Gang) -> Hold:
        """Hold ``gang`` with its reason; the first that capacity blocks gets the reservation."""
        over_limit = self.queues.excess(gang.queue, gang.demand)
        if over_limit is not None:
            queue, excess = over_limit
            if entry.gang.uid in self.urgent:
                # Gangs behind it would fill the queue again each time something ends.
                self.blocked_queues.setdefault(queue, entry.gang)
            message = self._text(messages.over_limit, queue, excess)
            return Hold(entry.gang, Reason.OVER_QUEUE_LIMIT, message, self.position, entry)
        reservation = None
        if self.blocked is None:
            yielding = self.preemptor.yielding(entry)
            reservation = self._reserve(entry, gang, yielding)
            if self.scale_up is not None and self.lent is None and yielding.any():
                usage = self.snapshot.running_table.usage_by_node(
                    yielding, len(self.snapshot.nodes)
                )
                self.lent = Lent(gang.uid, usage)
        elif self._fits_now(gang):
            return self._wait_behind(entry, gang, self.blocked.gang)
        shape = self.snapshot.shape(gang)
        is_blocked = self.blocked is not None or shape in self._unforeseen
        # Under a limit an equal gang could be held for another reason once something changes.
        if is_blocked and shape in self._too_large[0] and not self.queues.is_limited(gang.queue):
            self._held.add((shape, gang.queue))
        return self._wait_for_capacity(entry, gang, reservation)

    def _reserve(self, entry: Ranked, gang: Gang, yielding: BoolArray) -> Reservation | None:
        """Reserve places for ``gang``, the first that capacity blocks; None if unforeseen."""
        is_urgent, shape = entry.gang.uid in self.urgent, self.snapshot.shape(gang)
        if shape in self._unforeseen and not is_urgent:
            return None
        reservation = reserve(
            gang,
            self.ledger,
            self.snapshot,
            self.placer,
            is_urgent,
            yielding,
            self.explain,
        )
        if reservation is not None:
            self.blocked = entry
            self.queues.reserve(gang.queue, gang.demand)
        # One of which a part runs already does not count on that, unlike others of its shape.
        elif not is_urgent and gang.uid not in self.snapshot.running_by_uid:
            self._unforeseen.add(shape)
        return reservation

    def _wait_behind(self, entry: Ranked, gang: Gang, blocked: Gang) -> Hold:
        """Hold ``gang``, which would delay the blocked gang."""
        ahead = self.position - 1
        if self._is_within_limits(gang):
            self.short.append(gang)
            reservation = self.ledger.reservation
            now = self.snapshot.now
            message = self._text(messages.would_delay, gang, blocked, reservation, now, ahead)
        else:
            message = self._text(messages.would_pass_limit, gang, blocked, ahead)
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def _wait_for_capacity(
        self, entry: Ranked, gang: Gang, reservation: Reservation | None = None
    ) -> Hold:
        self.short.append(gang)
        message = self._text(messages.behind, self._lacking(gang), self.position - 1)
        if reservation is not None:
            message += self._text(messages.reserved, reservation, self.snapshot)
        if self.returns and gang.uid not in {each.uid for each in self.returns}:
            message += self._text(messages.kept_for_returns, gang, self.returns)
        begins = entry.stop_priority_until
        if (
            begins is not None
            and begins < math.inf
            and gang.may_preempt
            and self.snapshot.settings.preemption
            and self.snapshot.running_table.is_resumable.any()
        ):
            message += self._text(messages.may_preempt_from, begins)
        reason = Reason.WAITING_FOR_CAPACITY
        return Hold(entry.gang, reason, message, self.position, entry, reservation)

    def _lacking(self, gang: Gang) -> str:
        """Return asked, free and missing of a gang that does not fit now; empty unexplained."""
        shape = self.snapshot.shape(gang)
        at, text = self._missing.get(shape, (-1, ""))
        if at != self.ledger.changes:
            text = self._text(messages.lacking, gang, self.ledger.now)
            self._missing[shape] = self.ledger.changes, text
        return text

    def _wait_behind_barrier(self, entry: Ranked, barrier: Gang) -> Hold:
        """Hold a gang of a queue that admits nothing else until ``barrier`` has started."""
        if verdict := self._start_obstacle(entry.gang.at_minimum):
            return Hold(entry.gang, *verdict, ranked=entry)
        self.position += 1
        message = self._text(messages.held_back, entry.gang, barrier, self.position - 1)
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def _may_resize(self, running: RunningGang) -> bool:
        settle_seconds = self.snapshot.settings.resize_settle_seconds
        return (
            not running.is_leaving
            # A resize costs training time; one a minute at most.
            and self.snapshot.now - running.resized >= settle_seconds
            and running.gang.uid not in self.preemptor.chosen
        )

    def _grow(self, running: RunningGang, sizes: Mapping[str, int]) -> Iterator[Resize]:
        gang = running.gang
        if self._barrier(gang) is not None:
            return  # its queue keeps what comes free for an urgent gang
        if not self.queues.admits(gang.queue):
            return  # closed or deleted since it started: it runs on as it is
        room = self.ledger.room_for(gang)
        found = larger(running, sizes, room, self.placer, self._is_within_limits)
        if found is None:
            return
        added, placement, whole = found
        self.ledger.take(added, placement)
        self.queues.take(gang.queue, added.demand)
        self.quotas.take(added)
        yield Resize(running, whole, self._text(messages.grown, added), Reason.GROWN)


def _late_beyond_line(
    ranked: Sequence[Ranked], snapshot: ClusterSnapshot, turns: Turns
) -> set[str]:
    """Return uids of gangs past their wait bound for which the line of their namespace is too long.

    Many gangs of one tenant, each of another shape, would cost the line past the bound too much.
    """
    late = [(-s, e.gang.uid, e) for e in ranked if (s := snapshot.overdue_seconds(e.gang)) > 0]
    late.sort(key=lambda each: each[:2])
    _, beyond = in_line([entry for _, _, entry in late], snapshot.settings, turns)
    return {each.entry.gang.uid for each in beyond}


def _urgent(ranked: Sequence[Ranked], overdue: OverdueLine) -> list[Ranked]:
    """Return gangs that lost a node, then the line past the wait bound, most overdue first."""
    urgent = [
        (e.gang.displaced, overdue.seconds(e.gang), e)
        for e in ranked
        if e.gang.displaced or e.gang.uid in overdue.waiting
    ]
    # The hole that a lost node leaves is its gang's own, so such gangs go first. Of those that are
    # as late, or not late at all, the one that came first does.
    urgent.sort(key=lambda key: (not key[0], -key[1], key[2].gang.arrived, key[2].gang.uid))
    return [entry for _, _, entry in urgent]
