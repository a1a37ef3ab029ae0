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
from bireme.core.canary import OverruledError, PolicySet
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
from bireme.core.scale_up import ReclaimableUsage, ScaleUp
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import MIN_VISITS, CycleBudget, OverLimitGang, within_limit

_P = ParamSpec("_P")
_ONE_TURN: Final = CycleBudget()


def run_cycle(
    snapshot: ClusterSnapshot, policy: Policy, explain: bool = True, turns: CycleBudget = _ONE_TURN
) -> Decision:
    """Decide on the waiting gangs of ``snapshot``, and on running ones that must change.

    Without ``explain`` the decision is the same, but its actions have no messages, and its
    reservations do not say what would make them come true sooner. ``turns`` decides which gangs
    the cycle considers when time runs out.
    """
    windows = Maintenance.of(snapshot, explain)
    if windows is not None:
        snapshot = windows.snapshot
    deciders = PolicySet(policy, snapshot)
    # A learned placer knows only the nodes of the snapshot, so the rules place gangs on new nodes.
    new_nodes = CheckedPlacer(policy.rules or policy, snapshot) if snapshot.growable else None
    # No moves while maintenance is planned: the target node could be excluded next.
    may_move = can_move(policy) and windows is None
    decision: Decision | None = None
    # If an orderer fails, or loses or invents a gang, the rules overrule it in the same cycle.
    while decision is None:
        try:
            decision = _decide(snapshot, deciders, new_nodes, explain, turns, may_move)
        except OverruledError as error:
            error.decider.overrule(str(error))
    decision = decision if windows is None else windows.apply(decision, deciders, explain)
    return replace(decision, fallback=deciders.fallback, canary_fallbacks=deciders.canary_fallbacks)


def _decide(
    snapshot: ClusterSnapshot,
    deciders: PolicySet,
    new_nodes: CheckedPlacer | None,
    explain: bool,
    turns: CycleBudget,
    may_move: bool,
) -> Decision:
    """Return the decision of ``deciders``; raises OverruledError as they do.

    ``new_nodes`` places gangs on nodes that pools may get; None without such pools.
    """
    queues = QueueTree(
        snapshot.queues, snapshot.queue_usage, snapshot.total, snapshot.nodes.accelerators
    )

    # 1. Set aside gangs with a configuration fault: waiting longer cannot help them. The order
    #    is by uid, so the order of the listing changes nothing.
    waiting = sorted(snapshot.waiting, key=lambda gang: gang.uid)
    faulty = [hold for gang in waiting if (hold := configuration_fault(gang, snapshot, queues))]
    faulty_uids = {hold.gang.uid for hold in faulty}
    #    Time during which a gang could not start does not count as waiting.
    now = snapshot.now
    sound = [gang.in_line(now) for gang in waiting if gang.uid not in faulty_uids]
    turns.end_step("faults", len(waiting))

    # 2. Order the rest by the policy. Gangs that lost a node go first, then gangs past their
    #    wait bound, as long as these use no more than their share.
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
    ordinary = [e for e in ranked if e.gang.uid not in urgent_uids] if urgent else ranked
    turns.end_step("order", len(ranked))

    # 3. Set aside the gangs over their namespace's limit. No rule considers these gangs.
    looked_at, beyond = within_limit([*urgent, *ordinary], snapshot.settings, turns)
    if beyond:
        sound = [entry.gang for entry in looked_at]
        snapshot = replace(snapshot, waiting=tuple(sound))
        urgent = [entry for entry in looked_at if entry.gang.uid in urgent_uids]
        ordinary = list(looked_at[len(urgent) :])
    turns.end_step("namespace limits", len(beyond))

    # 4. Ask the sizer, if any, for the target sizes of elastic gangs. Running gangs are ordered
    #    only if the sizer or preemption needs it; most cycles do not.
    order = TotalOrder(deciders, snapshot, sound)
    target_sizes = deciders.sizes(order, snapshot)
    turns.end_step("sizes", len(target_sizes))

    # 5. Visit the gangs in order. Among those that are not urgent, queues within their guarantee
    #    go before queues that borrow, which depends on earlier admissions. A gang that returns
    #    before its pods have ended gets its places after the returning gangs that already wait.
    admission = AdmissionPass(
        snapshot, deciders, order, queues, explain, target_sizes, urgent_uids, overdue, scale_up
    )
    actions: list[Action] = []
    unreached = {gang.uid: gang for gang in sound}
    for number, entry in enumerate(_in_turn(urgent, ordinary, queues, turns)):
        if not turns.is_time_left() and number >= MIN_VISITS:
            break
        if not entry.gang.displaced:
            admission.keep_returns()
        del unreached[entry.gang.uid]
        taken = admission.visit(entry)
        actions.extend(taken)
        turns.end_visit(entry.gang, taken)
    admission.keep_returns()
    admission.position += len(unreached)
    actions.extend(admission.hold_beyond(beyond))
    turns.end_step("visits", len(sound) - len(unreached))

    # 6. Shrink elastic gangs to the sizer's target, or grow them into free capacity. This follows
    #    the admissions: growth never keeps a gang from starting.
    resizes = list(admission.resizes())
    actions.extend(resizes)
    turns.end_step("resizes", len(resizes))

    # 7. Move starting gangs to the places they prefer, among places that are still free.
    actions = admission.move_to_preferred(actions, turns.is_time_left)
    turns.end_step("preferences", len(actions))

    # 8. If no gang waits, move running gangs to faster free GPUs.
    if may_move and not admission.position and admission.blocked is None:
        changing = {action.gang.uid for action in actions}
        actions.extend(moves(snapshot, deciders, order, admission.ledger, changing, explain))
    turns.end_step("moves", len(snapshot.running))

    # 9. Ask node pools for the nodes of gangs that only lack room.
    decision = Decision(
        (*actions, *faulty), unreached=tuple(unreached.values()), overdue=overdue.waiting
    )
    if scale_up is None:
        return decision
    blocked = admission.blocked.gang if admission.blocked is not None else None
    decision = scale_up.apply(
        decision, admission.short, admission.ledger, queues, blocked, admission.reclaimable
    )
    turns.end_step("node pools", len(admission.short))
    return decision


def _in_turn(
    urgent: Sequence[Ranked], ordinary: Sequence[Ranked], queues: QueueTree, turns: CycleBudget
) -> Iterator[Ranked]:
    """Yield ``urgent``, then ``ordinary``, in the order in which the cycle visits them."""
    for group in turns.groups(urgent, ordinary):
        yield from group.urgent
        yield from queues.merge(group.ordinary)


@dataclass(slots=True)
class AdmissionPass:
    """One pass over the waiting gangs, in order: admit, make room, reserve, or hold.

    Capacity and queues only shrink during a pass, so a shape that did not fit once is not tried
    again. Most gangs of a long queue are held that way, without a placer call.

    Attributes:
        target_sizes: The sizer's sizes by uid and task name. A gang without one starts at its
            requested size or its minimum, and grows towards its maximum when no gang waits.
        urgent: Uids of gangs that lost a node, and of those in the line past their wait bound.
        overdue: The line of gangs past their wait bound.
        scale_up: The node pools that may grow; None without any.
        short: Gangs that lack only capacity, at the size they last asked for.
        position: Gangs held so far; configuration faults do not count.
        blocked: The first gang that capacity blocks; it has the reservation.
        returns: Returning gangs whose places are kept until their pods have ended; None before
            they are determined.
        reclaimable: Usage that victims would free for the first blocked gang; only with growable
            pools.
        blocked_queues: By queue name, the urgent gang for which the queue admits nothing else.
    """

    snapshot: ClusterSnapshot
    placer: Placer
    order: TotalOrder
    queues: QueueTree
    explain: bool
    target_sizes: Mapping[str, Mapping[str, int]]
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
    reclaimable: ReclaimableUsage | None = None
    blocked_queues: dict[str, Gang] = field(default_factory=dict)
    _too_large: tuple[set[object], set[object]] = field(default_factory=lambda: (set(), set()))
    """Shapes that do not fit now, and shapes that do not fit beside the reservation."""
    _blocked_shapes: set[tuple[object, str]] = field(default_factory=set)
    """Shape and queue of gangs without a limit that wait for capacity behind the blocked gang."""
    _fitting: dict[object, int] = field(default_factory=dict)
    """Shapes that fit now, with the number of ledger changes at that moment."""
    _unforeseen: set[object] = field(default_factory=set)
    """Shapes that would not fit if all running gangs had ended: pods outside gangs block them."""
    _missing: dict[object, tuple[int, str]] = field(default_factory=dict)
    """Text on the missing resources of a shape, with the number of ledger changes then."""

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
            self.target_sizes,
            self.overdue,
        )

    def visit(self, entry: Ranked) -> list[Action]:
        """Return the actions for one waiting gang, and for others that make room for it."""
        gang = entry.gang
        if self._equals_blocked_shape(entry):
            self.position += 1
            return [self._wait_for_capacity(entry, gang)]
        if (barrier := self._barrier(gang)) is not None:
            return [self._wait_behind_barrier(entry, barrier)]

        # 1. Its queues allow it and it fits the free capacity: admit.
        sizes = self._sizes(gang)
        for size in sizes:
            if self._is_within_limits(size) and (placement := self._place(size)) is not None:
                return [self._admit(entry, size, placement)]
        #    Or it fits the reserved places and may be stopped for them: admit it as well.
        for size in sizes:
            if (placement := self._yielding_place(entry, size)) is not None:
                return [self._admit(entry, size, placement, is_opportunistic=True)]
        smallest = sizes[-1]  # a gang that waits, waits for the size that fits first
        if verdict := self._start_obstacle(smallest):
            return [Hold(gang, *verdict, ranked=entry)]
        self.position += 1
        if (over := self.quotas.excess(smallest)) is not None:
            # No gang stops and nothing is reserved for it: that would not help.
            message = self._text(messages.over_quota, *over)
            return [Hold(gang, Reason.OVER_QUOTA, message, self.position, entry)]

        # 2. It fits once stopping gangs have ended: keep those places.
        reserved_places = self.preemptor.waits_for_leaving(smallest)
        if reserved_places is not None:
            return [self._keep(entry, smallest, reserved_places, ())]

        # 3. Lower gangs can shrink or stop for it: let them, and keep their places for it.
        room = self.preemptor.make_room(entry, smallest)
        if room is not None:
            victims, reserved_places = room
            self._blocked_shapes.clear()  # spare capacity may be enough for others
            return [
                *self._stop_or_shrink(entry, victims),
                self._keep(entry, smallest, reserved_places, victims),
            ]

        # 4. Another gang uses a claim that only one pod may use: capacity would not help.
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
                places = returning_place(running, size, self.ledger, self.placer)
                if places is not None:
                    # Its queues and quotas still count its usage.
                    self.ledger.keep(size, places)
                    break
            else:
                self._reserve_return(self.order.places[gang.uid][1])

    def _reserve_return(self, entry: Ranked) -> None:
        """Reserve places for a gang that returns and fits nowhere yet, if it is the first."""
        if self.blocked is not None:
            return
        nobody = np.zeros(len(self.snapshot.running_table.gangs), dtype=np.bool_)
        smallest = entry.gang.at_minimum
        reservation = reserve(
            smallest, self.ledger, self.snapshot, self.placer, True, nobody, self.explain
        )
        if reservation is not None:
            self.blocked = entry

    def hold_beyond(self, beyond: Iterable[OverLimitGang]) -> Iterator[Hold]:
        """Yield holds for gangs beyond the line of their namespace: all others go before them."""
        for over in beyond:
            if over.never_fits_hold is not None:
                yield replace(over.never_fits_hold, gang=over.entry.gang, ranked=over.entry)
                continue
            self.position += 1
            message = self._text(messages.beyond_line, over, self.snapshot.settings)
            gang, reason = over.entry.gang, Reason.OVER_NAMESPACE_LIMIT
            yield Hold(gang, reason, message, self.position, over.entry)

    def resizes(self) -> Iterator[Resize]:
        """Yield size changes of running elastic gangs that make room for no gang in particular."""
        table = self.snapshot.running_table
        elastic = (table.gangs[index] for index in np.flatnonzero(table.is_elastic).tolist())
        able = {r.gang.uid: r for r in elastic if self._may_resize(r)}
        growing: dict[RunningGang, Mapping[str, int]] = {}
        for entry in self.order.ranked if able else ():
            running = able.get(entry.gang.uid)
            if running is None:
                continue
            sizes = self.target_sizes.get(running.gang.uid)
            placement = sizes and smaller(running, sizes, self.snapshot.nodes)
            if placement:
                message = "the sizer wants it smaller" if self.explain else ""
                yield Resize(running, placement, message, Reason.SHRUNK)
            elif sizes is not None or not self.position:
                max_sizes = {task.name: task.maximum for task in running.gang.tasks}
                growing[running] = max_sizes if sizes is None else sizes
        # All shrink before the first grows, so that growth does not depend on the order of the
        # gangs.
        for running, sizes in growing.items():
            yield from self._grow(running, sizes)

    def move_to_preferred(
        self, actions: Sequence[Action], is_time_left: Callable[[], bool]
    ) -> list[Action]:
        """Return ``actions`` with starting gangs on places they prefer, while there is time."""
        # Do not move gangs placed before a preemptor: its victims might then be stopped for
        # nothing.
        waits = [
            index for index, a in enumerate(actions) if a.reason is Reason.WAITING_FOR_PREEMPTION
        ]
        first = waits[-1] + 1 if waits else 0
        placed_gangs = [a.gang for a in actions if not isinstance(a, Hold)]
        return [
            self._move_to_preferred(a)
            if index >= first
            and isinstance(a, Admit)
            and preferences.has_any(a.gang, self.snapshot.nodes)
            and not preferences.is_leant_on(a.gang, placed_gangs)
            and is_time_left()
            else a
            for index, a in enumerate(actions)
        ]

    def _move_to_preferred(self, action: Admit) -> Admit:
        gang, placement = action.gang, action.placement
        self.ledger.give_back(gang, placement)
        room = self.ledger.room_for(gang)
        placement = preferences.find_preferred_placement(gang, placement, room, self.placer)
        self.ledger.take(gang, placement)
        whole, passed_gang, yields = action.ranked.gang, action.passed, action.is_opportunistic
        message = self._text(messages.admission, gang, whole, placement, passed_gang, yields)
        return replace(action, placement=placement, message=message)

    # --- limits and places ---

    def _sizes(self, gang: Gang) -> tuple[Gang, ...]:
        """Sizes at which a waiting gang may start, the preferred first."""
        targets = self.target_sizes.get(gang.uid)
        if targets is not None:
            return tuple(dict.fromkeys((gang.with_sizes(targets), gang.at_minimum)))
        return (gang,) if gang.at_minimum is gang else (gang, gang.at_minimum)

    def _equals_blocked_shape(self, entry: Ranked) -> bool:
        """Return whether a gang of this shape and queue already waits for capacity, so this must
        too.

        This check saves most of the time of a long queue.
        """
        gang = entry.gang
        # Capacity only shrinks, so the two could differ only in the gangs that may stop for them.
        return (
            (self.snapshot.shape(gang), gang.queue) in self._blocked_shapes
            and not self.blocked_queues
            and gang.at_minimum is gang
            and not gang.charges
            and gang.uid not in self.target_sizes
            and self.preemptor.is_known_infeasible(entry, gang)
        )

    def _barrier(self, gang: Gang) -> Gang | None:
        """Return the urgent gang for which a queue of ``gang`` admits nothing else, if any."""
        blocked = (self.blocked_queues.get(name) for name in self.queues.path(gang.queue))
        return next(filter(None, blocked), None)

    def _is_within_limits(self, gang: Gang) -> bool:
        """Return whether its queues, beside the blocked gang, and its quotas allow ``gang``."""
        # Even a gang that ends in time may not pass: the limit would still stop the blocked gang,
        # and any other gang could take the places.
        if self.queues.excess(gang.queue, gang.demand, beside_reserved=True) is not None:
            return False
        return not gang.charges or self.quotas.excess(gang) is None

    def _yielding_place(self, entry: Ranked, gang: Gang) -> Placement | None:
        """Return places for ``gang`` that it would yield to the blocked gang, or None."""
        # Its limits hold it, whichever other gang waits.
        if self.blocked is None or not self._is_within_limits(gang) or not self._fits_now(gang):
            return None
        # Its grace period would add to that of the returning gang.
        if any(returning.uid == self.blocked.gang.uid for returning in self.returns or ()):
            return None
        # A new node comes within minutes: it is too early to start in its place.
        if self.scale_up is not None and self.scale_up.may_help(self.blocked.gang):
            return None
        if not self.ledger.may_end_in_time(gang):
            return None
        if not self.preemptor.would_yield(entry, self.blocked):
            return None
        return self.placer.place(gang, self.ledger.now)

    def _place(self, gang: Gang) -> Placement | None:
        room, shape = self.ledger.room_for(gang), self.snapshot.shape(gang)
        # A gang that does not fit now does not fit beside the reservation either.
        too_large = self._too_large[room is not self.ledger.now]
        if shape in too_large or shape in self._too_large[0]:
            return None
        placement = None if room.lacks(gang) else self.placer.place(gang, room)
        if placement is None:
            too_large.add(shape)
        return placement

    def _fits_now(self, gang: Gang) -> bool:
        """Return whether only the blocked gang's reservation keeps ``gang`` from starting."""
        shape = self.snapshot.shape(gang)
        if shape in self._too_large[0]:
            return False
        # "It fits" holds until the next admission only; "it does not" holds for the whole pass.
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
        """Return a single-pod claim that ``gang`` needs and the gang that uses it, or None.

        The gang is None where a pod outside all gangs uses the claim.
        """
        occupants = self.ledger.now.occupants if gang.has_rules else NOBODY
        kinds = [task.pod for task in gang.tasks if task.pod is not None]
        used = min((use for kind in kinds for use in occupants.users_of_claims(kind)), default=None)
        if used is None:
            return None
        claim, uid = used
        running = self.snapshot.running_by_uid.get(uid)
        waiting = (candidate for candidate in self.snapshot.waiting if candidate.uid == uid)
        return claim, running.gang if running is not None else next(waiting, None)

    # --- actions ---

    def _text(self, form: Callable[_P, str], *args: _P.args, **kwargs: _P.kwargs) -> str:
        # Messages of a long queue cost more than the decision; a simulation reads none.
        return form(*args, **kwargs) if self.explain else ""

    def _admit(
        self, entry: Ranked, gang: Gang, placement: Placement, is_opportunistic: bool = False
    ) -> Admit:
        self.ledger.take(gang, placement, is_opportunistic)
        self.queues.take(gang.queue, gang.demand)
        self.quotas.take(gang)
        passed_gang = self.blocked.gang if self.blocked is not None else None
        text = self._text(
            messages.admission, gang, entry.gang, placement, passed_gang, is_opportunistic
        )
        return Admit(
            gang, placement, entry, text, passed=passed_gang, is_opportunistic=is_opportunistic
        )

    def _keep(
        self, entry: Ranked, gang: Gang, placement: Placement, victims: Sequence[Candidate]
    ) -> Hold:
        """Hold ``gang`` until its places are free, and keep other gangs off them."""
        # Count the gang as started: later gangs find neither its places nor its share of the
        # limits.
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
            if victim.remaining is None:
                ranked, is_opportunistic = (
                    self.order.places[gang.uid][1],
                    victim.running.is_opportunistic,
                )
                may_by_rank = may_stop_by_rank(beneficiary, gang, self.snapshot)
                reason = self._text(messages.claim, entry, ranked, is_opportunistic, may_by_rank)
                message = self._text(messages.making_room, gang, "stopped", beneficiary, reason)
                is_override = victim.kind is CandidateKind.OVERRIDE
                yield Preempt(victim.running, beneficiary, message, overrides_budget=is_override)
            else:
                message = self._text(messages.making_room, gang, "shrunk", beneficiary)
                yield Resize(victim.running, victim.remaining, message, Reason.SHRUNK)

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
            if self.scale_up is not None and self.reclaimable is None and yielding.any():
                usage = self.snapshot.running_table.usage_by_node(
                    yielding, len(self.snapshot.nodes)
                )
                self.reclaimable = ReclaimableUsage(gang.uid, usage)
        elif self._fits_now(gang):
            return self._wait_behind(entry, gang, self.blocked.gang)
        shape = self.snapshot.shape(gang)
        is_blocked = self.blocked is not None or shape in self._unforeseen
        # Under a limit, an equal gang could be held for another reason after a change.
        if is_blocked and shape in self._too_large[0] and not self.queues.is_limited(gang.queue):
            self._blocked_shapes.add((shape, gang.queue))
        return self._wait_for_capacity(entry, gang, reservation)

    def _reserve(self, entry: Ranked, gang: Gang, yielding: BoolArray) -> Reservation | None:
        """Reserve places for ``gang``, the first blocked gang; None if no end is foreseen."""
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
        # A partly running gang uses places itself, so its failure says nothing about its shape.
        elif not is_urgent and gang.uid not in self.snapshot.running_by_uid:
            self._unforeseen.add(shape)
        return reservation

    def _wait_behind(self, entry: Ranked, gang: Gang, blocked: Gang) -> Hold:
        """Hold ``gang``, which would delay the blocked gang."""
        count_ahead = self.position - 1
        if self._is_within_limits(gang):
            self.short.append(gang)
            reservation = self.ledger.reservation
            now = self.snapshot.now
            message = self._text(messages.would_delay, gang, blocked, reservation, now, count_ahead)
        else:
            message = self._text(messages.would_pass_limit, gang, blocked, count_ahead)
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def _wait_for_capacity(
        self, entry: Ranked, gang: Gang, reservation: Reservation | None = None
    ) -> Hold:
        self.short.append(gang)
        message = self._text(messages.behind, self._lacking(gang), self.position - 1)
        if reservation is not None:
            message += self._text(messages.reservation_note, reservation, self.snapshot)
        if self.returns and gang.uid not in {returning.uid for returning in self.returns}:
            message += self._text(messages.places_for_returns, gang, self.returns)
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
        """Return requested, free and missing amounts of a gang that does not fit; or no text."""
        shape = self.snapshot.shape(gang)
        change_number, text = self._missing.get(shape, (-1, ""))
        if change_number != self.ledger.changes:
            text = self._text(messages.lacking, gang, self.ledger.now)
            self._missing[shape] = self.ledger.changes, text
        return text

    def _wait_behind_barrier(self, entry: Ranked, barrier: Gang) -> Hold:
        """Hold a gang of a queue that admits nothing else until ``barrier`` has started."""
        if verdict := self._start_obstacle(entry.gang.at_minimum):
            return Hold(entry.gang, *verdict, ranked=entry)
        self.position += 1
        message = self._text(messages.behind_barrier, entry.gang, barrier, self.position - 1)
        return Hold(entry.gang, Reason.WAITING_BEHIND, message, self.position, entry)

    def _may_resize(self, running: RunningGang) -> bool:
        settle_seconds = self.snapshot.settings.resize_settle_seconds
        return (
            not running.is_leaving
            # A resize costs training time, so it happens at most once in this time.
            and self.snapshot.now - running.resized >= settle_seconds
            and running.gang.uid not in self.preemptor.victim_uids
        )

    def _grow(self, running: RunningGang, sizes: Mapping[str, int]) -> Iterator[Resize]:
        gang = running.gang
        if self._barrier(gang) is not None:
            return  # its queue keeps all free capacity for an urgent gang
        if not self.queues.admits(gang.queue):
            return  # closed or deleted since it started: it runs on as it is
        room = self.ledger.room_for(gang)
        growth = larger(running, sizes, room, self.placer, self._is_within_limits)
        if growth is None:
            return
        added, placement, whole = growth
        self.ledger.take(added, placement)
        self.queues.take(gang.queue, added.demand)
        self.quotas.take(added)
        yield Resize(running, whole, self._text(messages.growth, added), Reason.GROWN)


def _late_beyond_line(
    ranked: Sequence[Ranked], snapshot: ClusterSnapshot, turns: CycleBudget
) -> set[str]:
    """Return uids of gangs past their wait bound that exceed their namespace's limit.

    Many gangs of one tenant, each of another shape, would make the overdue line too costly.
    """
    overdue = [(-s, e.gang.uid, e) for e in ranked if (s := snapshot.overdue_seconds(e.gang)) > 0]
    overdue.sort(key=lambda item: item[:2])
    _, beyond = within_limit([entry for _, _, entry in overdue], snapshot.settings, turns)
    return {over.entry.gang.uid for over in beyond}


def _urgent(ranked: Sequence[Ranked], overdue: OverdueLine) -> list[Ranked]:
    """Return gangs that lost a node, then the line past the wait bound, most overdue first."""
    urgent = [
        (e.gang.displaced, overdue.seconds(e.gang), e)
        for e in ranked
        if e.gang.displaced or e.gang.uid in overdue.waiting
    ]
    # The capacity lost with a node belongs to its gang, so such gangs go first. Equally overdue
    # gangs, or gangs that are not overdue, go in the order of their arrival.
    urgent.sort(key=lambda key: (not key[0], -key[1], key[2].gang.arrived, key[2].gang.uid))
    return [entry for _, _, entry in urgent]
