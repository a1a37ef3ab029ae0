"""The scheduling cycle: order, size, place and admit whole gangs against one snapshot.

Read :func:`run_cycle`, then ``_decide`` (the steps of a cycle), then ``AdmissionPass.visit`` in
:mod:`bireme.core.admission` (the steps for one gang). Equal snapshots give equal decisions, in the
cluster and in the simulator.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bireme.core.admission import AdmissionPass
from bireme.core.canary import OverruledError, PolicySet
from bireme.core.decision import Action, Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.guardrails import CheckedPlacer
from bireme.core.maintenance import Maintenance
from bireme.core.moves import moves
from bireme.core.obstacles import configuration_fault, start_obstacle
from bireme.core.overdue import OverdueLine
from bireme.core.policy import Policy, Ranked, TotalOrder, can_move
from bireme.core.queue_tree import QueueTree
from bireme.core.resizing import resizes
from bireme.core.scale_up import ScaleUp
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import MIN_VISITS, CycleBudget, OverLimitGang, within_limit

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
    scale_up = ScaleUp(snapshot, new_nodes, explain) if new_nodes is not None else None

    # 1. Set aside gangs that cannot start whatever happens, and order the others.
    line = _line_up(snapshot, deciders, queues, scale_up, turns)
    snapshot = line.snapshot

    # 2. Ask the sizer, if any, for the target sizes of elastic gangs. Running gangs are ordered
    #    only if the sizer or preemption needs it; most cycles do not.
    order = TotalOrder(deciders, snapshot, line.gangs)
    target_sizes = deciders.sizes(order, snapshot)
    turns.end_step("sizes", len(target_sizes))

    # 3. Visit the gangs in order.
    admission = AdmissionPass(
        snapshot,
        deciders,
        order,
        queues,
        explain,
        target_sizes,
        frozenset(entry.gang.uid for entry in line.urgent),
        line.overdue,
        scale_up,
    )
    actions, unreached = _visit(line, admission, queues, turns)

    # 4. Shrink elastic gangs to the sizer's target, or grow them into free capacity. This follows
    #    the admissions: growth never keeps a gang from starting.
    size_changes = list(resizes(admission))
    actions.extend(size_changes)
    turns.end_step("resizes", len(size_changes))

    # 5. Move starting gangs to the places they prefer, among places that are still free.
    actions = admission.move_to_preferred(actions, turns.is_time_left)
    turns.end_step("preferences", len(actions))

    # 6. If no gang waits, move running gangs to faster free GPUs.
    if may_move and not admission.position and admission.blocked is None:
        changing = {action.gang.uid for action in actions}
        actions.extend(moves(snapshot, deciders, order, admission.ledger, changing, explain))
    turns.end_step("moves", len(snapshot.running))

    # 7. Ask node pools for the nodes of gangs that only lack room.
    decision = Decision((*actions, *line.faults), unreached=unreached, overdue=line.overdue.waiting)
    if scale_up is None:
        return decision
    blocked = admission.blocked.gang if admission.blocked is not None else None
    decision = scale_up.apply(
        decision, admission.short, admission.ledger, queues, blocked, admission.reclaimable
    )
    turns.end_step("node pools", len(admission.short))
    return decision


@dataclass(frozen=True, slots=True)
class _Line:
    """The order in which a cycle visits the waiting gangs.

    Attributes:
        snapshot: The state of the cluster, without the gangs ``beyond`` if there are any.
        gangs: The gangs of the line, in no order.
        faults: Holds of gangs with a configuration fault.
        urgent: Gangs that go first: those that lost a node, and the line past the wait bound.
        ordinary: All others, in the order of the policy.
        beyond: Gangs over the limit of their namespace, which no rule considers.
        overdue: The line past the wait bound.
    """

    snapshot: ClusterSnapshot
    gangs: Sequence[Gang]
    faults: Sequence[Hold]
    urgent: Sequence[Ranked]
    ordinary: Sequence[Ranked]
    beyond: Sequence[OverLimitGang]
    overdue: OverdueLine


def _line_up(
    snapshot: ClusterSnapshot,
    deciders: PolicySet,
    queues: QueueTree,
    scale_up: ScaleUp | None,
    turns: CycleBudget,
) -> _Line:
    # Waiting longer cannot help a gang with a configuration fault. The order is by uid, so the
    # order of the listing changes nothing.
    waiting = sorted(snapshot.waiting, key=lambda gang: gang.uid)
    faults = [hold for gang in waiting if (hold := configuration_fault(gang, snapshot, queues))]
    faulty_uids = {hold.gang.uid for hold in faults}
    # Time during which a gang could not start does not count as waiting.
    now = snapshot.now
    sound = [gang.in_line(now) for gang in waiting if gang.uid not in faulty_uids]
    turns.end_step("faults", len(waiting))

    # Gangs that lost a node go first, then gangs past their wait bound, as long as these use no
    # more than their share; the policy orders the rest.
    ranked = deciders.order(sound, snapshot)
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

    looked_at, beyond = within_limit([*urgent, *ordinary], snapshot.settings, turns)
    if beyond:
        sound = [entry.gang for entry in looked_at]
        snapshot = replace(snapshot, waiting=tuple(sound))
        urgent = [entry for entry in looked_at if entry.gang.uid in urgent_uids]
        ordinary = list(looked_at[len(urgent) :])
    turns.end_step("namespace limits", len(beyond))
    return _Line(snapshot, sound, faults, urgent, ordinary, beyond, overdue)


def _visit(
    line: _Line, admission: AdmissionPass, queues: QueueTree, turns: CycleBudget
) -> tuple[list[Action], tuple[Gang, ...]]:
    """Visit the gangs of a line while there is time; return the actions and the gangs left out.

    Among gangs that are not urgent, queues within their guarantee go before queues that borrow,
    which depends on earlier admissions. A gang that returns before its pods have ended gets its
    places after the returning gangs that already wait.
    """
    actions: list[Action] = []
    unreached = {gang.uid: gang for gang in line.gangs}
    for number, entry in enumerate(_in_turn(line.urgent, line.ordinary, queues, turns)):
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
    actions.extend(admission.hold_beyond(line.beyond))
    turns.end_step("visits", len(line.gangs) - len(unreached))
    return actions, tuple(unreached.values())


def _in_turn(
    urgent: Sequence[Ranked], ordinary: Sequence[Ranked], queues: QueueTree, turns: CycleBudget
) -> Iterator[Ranked]:
    """Yield ``urgent``, then ``ordinary``, in the order in which the cycle visits them."""
    for group in turns.groups(urgent, ordinary):
        yield from group.urgent
        yield from queues.merge(group.ordinary)


def _late_beyond_line(
    ranked: Sequence[Ranked], snapshot: ClusterSnapshot, turns: CycleBudget
) -> set[str]:
    """Return uids of gangs past their wait bound that exceed their namespace's limit.

    Many gangs of one tenant, each of another shape, would make the overdue line too costly.
    """
    overdue = [
        (-seconds, entry.gang.arrived, entry.gang.uid, entry)
        for entry in ranked
        if (seconds := snapshot.overdue_seconds(entry.gang)) > 0
    ]
    overdue.sort(key=lambda item: item[:3])
    _, beyond = within_limit([item[-1] for item in overdue], snapshot.settings, turns)
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
