"""Small clusters in which somebody must make room, and checks of the decision."""

from collections.abc import Mapping, Sequence
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy, Ranked
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running

NODES = [a_node("n0"), a_node("n1")]
AT_ONCE = SchedulingSettings(min_runtime_seconds=0, service_threshold=0)
"""Stated priorities alone stop others."""
COMBINED = Policy(CombinedPriority(), Packing())
LONG_AGO = -1000.0


class InOrder:
    """The order of the given names, each with its claim; gangs of other names come last."""

    def __init__(self, **claims: float | None) -> None:
        self.claims = claims
        self.places = list(claims)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        def place(gang: Gang) -> tuple[int, str]:
            return (self.places.index(gang.uid) if gang.uid in self.claims else 99, gang.uid)

        return [
            Ranked(gang, 0.0, preemption_priority=self.claims.get(gang.uid, 0.0))
            for gang in sorted(gangs, key=place)
        ]


def a_world(
    *waiting: Gang,
    nodes: Sequence[Node] = NODES,
    queues: Sequence[Queue] = (Queue("default"),),
    settings: SchedulingSettings = AT_ONCE,
    now: float = 0.0,
) -> ClusterSnapshot:
    return a_snapshot(nodes, *waiting, queues=queues, settings=settings, now=now)


def runs(
    snapshot: ClusterSnapshot,
    gang: Gang | str,
    places: Mapping[str, int],
    started: float = LONG_AGO,
    **more: Any,
) -> ClusterSnapshot:
    """``snapshot`` in which a gang (of one-GPU workers, if only named) runs too."""
    if isinstance(gang, str):
        gang = a_gang(gang, a_task(sum(places.values())))
    return with_running(snapshot, a_running(gang, snapshot.nodes, places, started=started, **more))


def urgent(gpus: int, name: str = "urgent", **more: Any) -> Gang:
    """One replica that must have its GPUs on one node, of the highest class."""
    return a_gang(name, a_task(1, gpus), priority=1000, **more)


def decide(snapshot: ClusterSnapshot, policy: Policy = COMBINED) -> Decision:
    return run_cycle(snapshot, policy)


def stopped(decision: Decision) -> list[str]:
    return sorted(action.running.gang.uid for action in decision.preempted)
