"""Deciding without guardrails, to see what they change: the same order, the same placement.

strict   No gang passes a blocked one.
greedy   A gang that fits starts; nothing is kept for those that wait.
anew     The running gangs are chosen anew each time, in order, by the number of devices alone; the
         others stop. So Pollux' authors simulate Tiresias, in the order of :class:`LasByArrival`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from bireme.core.decision import Action, Admit, Decision, Hold, Preempt
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Policy, Ranked
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import SortKey, device_seconds, devices, rank_by
from bireme_lab.simulator.simulation import Decide


def decide_in_order(snapshot: ClusterSnapshot, policy: Policy, *, may_pass: bool) -> Decision:
    """Start gangs in order; behind one that does not fit only where they ``may_pass``."""
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)
    actions: list[Action] = []
    is_blocked = False
    for entry in policy.orderer.order(snapshot.waiting, snapshot):
        placement = None
        if may_pass or not is_blocked:
            placement = policy.placer.place(entry.gang, capacity)
        if placement is None:
            is_blocked = True
            actions.append(Hold(entry.gang, Reason.WAITING_FOR_CAPACITY, "", ranked=entry))
        else:
            capacity.take(entry.gang, placement)
            actions.append(Admit(entry.gang, placement, entry, ""))
    return Decision(tuple(actions))


def decide_anew(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    """Stop running gangs that are not chosen; once there are none, start the chosen."""
    gangs = [*snapshot.waiting, *(running.gang for running in snapshot.running)]
    left: float = snapshot.total.get(GPU, 0)
    chosen = []
    for entry in policy.orderer.order(gangs, snapshot):
        if devices(entry.gang, snapshot) <= left:
            left -= devices(entry.gang, snapshot)
            chosen.append(entry.gang)
    uids = {gang.uid for gang in chosen}
    stopping = [running for running in snapshot.running if running.gang.uid not in uids]
    if stopping:
        beneficiary = next(gang for gang in chosen if gang.uid not in snapshot.running_by_uid)
        return Decision(tuple(Preempt(running, beneficiary, "") for running in stopping))
    return decide_in_order(snapshot, policy, may_pass=True)


class LasByArrival:
    """Least attained service as Pollux' authors simulate it: a running gang has no advantage.

    Two queues with a threshold; in the first by arrival, in the second by when a gang came there.
    """

    def __init__(self, threshold_device_seconds: float = 57_600.0) -> None:
        self._threshold = threshold_device_seconds
        self._demoted: dict[str, float] = {}

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Rank the first queue before the second, with a claim, so that every round is checked."""
        return rank_by(gangs, lambda gang: self._standing(gang, snapshot))

    def _standing(self, gang: Gang, snapshot: ClusterSnapshot) -> SortKey:
        served = device_seconds(gang, snapshot)
        if served >= self._threshold:
            self._demoted.setdefault(gang.uid, snapshot.now)
        since = self._demoted.get(gang.uid)
        key = (0.0, gang.arrived) if since is None else (1.0, since)
        return SortKey(key, -served, -key[0])


STRICT: Final[Decide] = partial(decide_in_order, may_pass=False)
GREEDY: Final[Decide] = partial(decide_in_order, may_pass=True)
