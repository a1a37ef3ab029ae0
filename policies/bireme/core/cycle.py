"""The scheduling cycle: order, size, place and admit whole gangs against one snapshot.

    1. Set aside gangs with a configuration fault: waiting longer cannot help them.
    2. Order the rest by the policy; a policy that fails, loses or invents a gang is overruled by
       its rules, in the same cycle.
    3. Put gangs that lost a node first, then those that have waited past their bound, the longest
       overdue first; among the others, queues within their guarantee go before queues that borrow.
    4. Ask the sizer, if there is one, how large elastic gangs should be.
    5. Walk down the order (:mod:`bireme.core.walk`): admit, keep places, make room, or say why not.
    6. Let elastic gangs shrink to what the sizer wants, or grow into what is left.
    7. Say which nodes pools should get for gangs that only lack room (:mod:`bireme.core.growth`).

Pure: equal snapshots give equal decisions, in the cluster and in the simulator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bireme.core import verdicts
from bireme.core.checks import CheckedPlacer, CheckedSizer, OrderError, orderers
from bireme.core.decision import Action, Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.growth import Growing
from bireme.core.order import TotalOrder
from bireme.core.policy import Orderer, Policy, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.walk import Walk


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
    why = verdicts.beyond_limit(*beyond) if beyond else verdicts.beyond_all_nodes(asked, snapshot)
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
