"""Checking what a policy answers: the rails trust no orderer and no placer, learned or not.

Where an answer is not valid, the policy's rules answer in the same cycle. An orderer without rules
is replaced by first come, first served; a gang whose placer fails without rules has no places.
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Orderer, Placer, Policy, Ranked
from bireme.core.running import usage_of
from bireme.core.snapshot import ClusterSnapshot


class CheckedOrderer:
    """The policy's orderer; where it fails, loses or invents a gang, that of its rules.

    Attributes:
        fault: What was wrong with the last invalid answer; empty when none was.
    """

    def __init__(self, policy: Policy) -> None:
        self.fault = ""
        self._orderer = policy.orderer
        self._rules: Orderer | None = policy.rules.orderer if policy.rules else None

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """All ``gangs``, each once."""
        if not gangs:
            return []
        try:
            ranked = self._orderer.order(gangs, snapshot)
        except Exception as error:  # noqa: BLE001  # whatever a policy does wrong, the rules decide
            self.fault = f"the orderer failed: {type(error).__name__}: {error}"
        else:
            # By identity: an orderer that hands back a gang with other tasks has invented it.
            if len(ranked) == len(gangs) and {id(e.gang) for e in ranked} == {id(g) for g in gangs}:
                return ranked
            self.fault = (
                f"the orderer returned {len(ranked)} of {len(gangs)} gangs, or unknown ones"
            )
        if self._rules is not None:
            return self._rules.order(gangs, snapshot)
        return [Ranked(g, 0.0) for g in sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))]


class CheckedPlacer:
    """The policy's placer; where it fails or over-commits, that of its rules, if it has any.

    Attributes:
        fault: What was wrong with the last invalid answer; empty when none was.
    """

    def __init__(self, policy: Policy) -> None:
        self.fault = ""
        self.name = type(policy.placer).__qualname__
        self._placer = policy.placer
        self._rules: Placer | None = policy.rules.placer if policy.rules else None

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """A valid placement of the whole gang, or None."""
        try:
            placement = self._placer.place(gang, capacity)
            fault = flaw(gang, placement, capacity) if placement is not None else ""
        except Exception as error:  # noqa: BLE001  # whatever a policy does wrong, the rules decide
            placement, fault = None, f"{type(error).__name__}: {error}"
        if not fault:
            return placement
        self.fault = f"the placer failed for {gang.namespace}/{gang.name}: {fault}"
        if self._rules is None:
            return None
        return self._rules.place(gang, capacity)


def flaw(gang: Gang, placement: Placement, capacity: FreeCapacity) -> str:
    """What is wrong with ``placement``; empty when it is whole and fits."""
    placed = {task.task: int(task.counts.sum()) for task in placement.tasks}
    asked = {task.name: task.replicas for task in gang.tasks}
    if placed != asked:
        return f"it placed {placed} replicas of {asked}"
    for task in gang.tasks:
        rows = next(t.rows for t in placement.tasks if t.task == task.name)
        if not capacity.replicas(task)[rows].all():
            return f"task {task.name} was placed where not one replica may go"
    rows, usage = usage_of(gang, placement, capacity.nodes.axis)
    unique, at = np.unique(rows, return_inverse=True)
    total = np.zeros((len(unique), usage.shape[1]), dtype=np.int64)
    np.add.at(total, at, usage)
    short = (total > capacity.free[unique]) & (total > 0)
    return "it over-commits a node" if bool(short.any()) else ""
