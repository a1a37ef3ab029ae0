"""The scheduling cycle: order, place and admit whole gangs against one snapshot.

    1. Set aside gangs with a configuration fault: waiting longer cannot help them.
    2. Order the rest by the policy; a policy that loses or invents a gang is overruled by FIFO.
    3. Put gangs that have waited past their bound first, the longest overdue first of all.
    4. Walk down the order. Admit what its queue allows and the free capacity holds, whole, in the
       largest size offered (all replicas, else the minimum); say of the others why not.
    5. Once an overdue gang is blocked by capacity, admit nothing behind it; once one is blocked by
       its queue's limit, nothing behind it in that queue.

Pure: equal snapshots give equal decisions, in the cluster and in the simulator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bireme.core import verdicts
from bireme.core.capacity import FreeCapacity
from bireme.core.decision import Action, Admit, Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.placement import CLUSTER_LEVEL, Placement
from bireme.core.policy import Policy, Ranked
from bireme.core.reasons import Reason
from bireme.core.resources import add
from bireme.core.snapshot import ClusterSnapshot


def run_cycle(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    """Decide on every waiting gang of ``snapshot``."""
    waiting = sorted(snapshot.waiting, key=lambda gang: gang.uid)
    faults = [hold for gang in waiting if (hold := configuration_fault(gang, snapshot))]
    faulty = {hold.gang.uid for hold in faults}
    sound = [gang for gang in waiting if gang.uid not in faulty]
    ranked, fallback = _ordered(sound, snapshot, policy)
    walk = _Walk(snapshot, policy)
    actions: list[Action] = [walk.visit(entry) for entry in ranked]
    return Decision((*actions, *faults), fallback)


def configuration_fault(gang: Gang, snapshot: ClusterSnapshot) -> Hold | None:
    """A verdict that no amount of waiting changes, or None."""
    if gang.fault is not None:
        return Hold(gang, *gang.fault)
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


def _ordered(
    gangs: Sequence[Gang], snapshot: ClusterSnapshot, policy: Policy
) -> tuple[list[Ranked], str]:
    ranked = policy.orderer.order(gangs, snapshot)
    fallback = ""
    # By identity: an orderer that hands back a gang with other tasks has invented it.
    if len(ranked) != len(gangs) or {id(e.gang) for e in ranked} != {id(g) for g in gangs}:
        fallback = f"the orderer returned {len(ranked)} of {len(gangs)} gangs, or unknown ones"
        ranked = [Ranked(gang, 0.0) for gang in sorted(gangs, key=lambda g: (g.arrived, g.uid))]
    overdue = [entry for entry in ranked if overdue_seconds(entry.gang, snapshot) > 0]
    if overdue:
        overdue.sort(key=lambda e: (-overdue_seconds(e.gang, snapshot), e.gang.uid))
        first = {entry.gang.uid for entry in overdue}
        ranked = overdue + [entry for entry in ranked if entry.gang.uid not in first]
    return ranked, fallback


def overdue_seconds(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """How far past its wait bound a gang is; 0 when it is not."""
    return max(0.0, snapshot.wait_seconds(gang) - snapshot.wait_bound_seconds(gang))


@dataclass(slots=True)
class _Walk:
    """One walk down the order: what is still free, what queues hold, what is blocked."""

    snapshot: ClusterSnapshot
    policy: Policy
    capacity: FreeCapacity = field(init=False)
    queue_usage: dict[str, dict[str, int]] = field(init=False)
    position: int = 0
    blocked_by: Gang | None = None
    blocked_queues: dict[str, Gang] = field(default_factory=dict)
    too_large: set[object] = field(default_factory=set)
    """Shapes that did not fit earlier in this walk: capacity only shrinks, so nor do they now."""

    def __post_init__(self) -> None:
        self.capacity = FreeCapacity(self.snapshot.nodes, self.snapshot.used)
        self.queue_usage = {name: dict(used) for name, used in self.snapshot.queue_usage.items()}

    def visit(self, entry: Ranked) -> Action:
        gang = entry.gang
        sizes = (gang,) if gang.at_minimum is gang else (gang, gang.at_minimum)
        barrier = self.blocked_by or self.blocked_queues.get(gang.queue)
        if barrier is not None:
            return self._behind(entry, barrier)
        excess = None
        for size in sizes:
            excess = self._excess(size)
            placement = None if excess else self._place(size)
            if placement is not None:
                return self._admit(entry, size, placement)
        return self._hold(entry, sizes[-1], excess)

    def _excess(self, gang: Gang) -> str | None:
        queue = self.snapshot.queues[gang.queue]
        excess = queue.excess(self.queue_usage.get(queue.name, {}), gang.demand)
        if not excess:
            return None
        parts = [
            f"asks {verdicts.shown(name, asked)}, {verdicts.shown(name, used)} of "
            f"{verdicts.shown(name, limit)} in use"
            for name, (asked, used, limit) in excess.items()
        ]
        return f"queue {queue.name!r}: " + "; ".join(parts)

    def _place(self, gang: Gang) -> Placement | None:
        if gang.shape in self.too_large:
            return None
        placement = self.policy.placer.place(gang, self.capacity)
        if placement is None:
            self.too_large.add(gang.shape)
        return placement

    def _admit(self, entry: Ranked, gang: Gang, placement: Placement) -> Admit:
        self.capacity.take(gang, placement)
        used = self.queue_usage.get(gang.queue, {})
        self.queue_usage[gang.queue] = add(used, gang.demand)
        message = f"{verdicts.composition(gang)} planned {_where(placement)}"
        if gang.replicas < entry.gang.replicas:
            message += f", {gang.replicas} of {entry.gang.replicas} replicas"
        return Admit(gang, placement, entry, message)

    def _hold(self, entry: Ranked, smallest: Gang, excess: str | None) -> Hold:
        gang = entry.gang
        if reason := self._never(smallest):
            return Hold(gang, Reason.NEVER_FITS, reason, ranked=entry)
        ahead = self.position
        self.position += 1
        is_overdue = overdue_seconds(gang, self.snapshot) > 0
        if excess:
            if is_overdue:
                self.blocked_queues.setdefault(gang.queue, gang)
            return Hold(gang, Reason.OVER_QUEUE_LIMIT, excess, self.position, entry)
        if is_overdue:
            self.blocked_by = gang
        message = verdicts.waiting_for_capacity(smallest, self.capacity, ahead)
        return Hold(gang, Reason.WAITING_FOR_CAPACITY, message, self.position, entry)

    def _never(self, gang: Gang) -> str | None:
        """Why neither an empty cluster nor an unused queue would let ``gang`` start."""
        if excess := self.snapshot.queues[gang.queue].excess({}, gang.demand):
            parts = [
                f"{verdicts.shown(name, asked)}, its limit is {verdicts.shown(name, limit)}"
                for name, (asked, _, limit) in excess.items()
            ]
            return f"asks more than queue {gang.queue!r} may ever hold: " + "; ".join(parts)
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


def _where(placement: Placement) -> str:
    nodes = len(placement.node_rows())
    if placement.level == CLUSTER_LEVEL:
        return f"on {nodes} nodes across the cluster"
    kind = placement.level.rsplit("/", 1)[-1]
    if kind == "hostname":
        return f"on node {placement.domain}"
    return f"on {nodes} nodes of {kind} {placement.domain}"
