"""Decisions on clusters of any size: one scene of a long queue, in a process of its own.

``python -m benchmarks.timings.scale_decisions SCENE NODES GANGS`` prints one JSON line. Each warm
cycle has a snapshot one second later, with the same objects: nothing of a cycle is kept but what
the node table remembers.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from benchmarks.machine import peak_mib
from benchmarks.timings.cases import in_child
from benchmarks.timings.decision import problem
from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.nodes import HOSTNAME_LABEL
from bireme.core.pod_constraints import (
    PodKind,
    PodSelector,
    PodTerm,
    Requirement,
    SelectorOperator,
    SpreadLimit,
)
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import a_gang, a_running, a_snapshot, a_task, with_running
from testbed.hostile_shapes import (
    a_cluster,
    one_shape,
    own_node_affinity,
    own_pod_affinity,
)

_WARM_CYCLES: Final = 5
_PODS_PER_GANG: Final = 16
_RACK: Final = "topology.bireme.dev/rack"
_HIGHEST: Final = 4
"""Of the priorities of waiting gangs."""


class Decided(msgspec.Struct):
    """Wall seconds per cycle, the first one cold, what the last decided, and peak memory."""

    seconds: list[float]
    admitted: int
    stopped: int
    held: int
    peak_mib: float

    @property
    def cold(self) -> float:
        return self.seconds[0]

    @property
    def warm(self) -> list[float]:
        return self.seconds[1:]


def measured(scene: str, nodes: int, gangs: int) -> Decided:
    """Return what a child process found."""
    return in_child("scale_decisions", scene, nodes, gangs, kind=Decided)


def _held(snapshot: ClusterSnapshot, percent: int, priority: int) -> ClusterSnapshot:
    """Let gangs of 16 one-GPU pods on two nodes each hold so many % of all nodes."""
    names = snapshot.nodes.names
    count = len(names) // 2 * percent // 100
    return with_running(snapshot, *(_running(snapshot, at, priority) for at in range(count)))


def _running(snapshot: ClusterSnapshot, number: int, priority: int) -> RunningGang:
    first, second = snapshot.nodes.names[2 * number : 2 * number + 2]
    gang = a_gang(
        f"running-{number:05d}",
        a_task(_PODS_PER_GANG, 1),
        arrived=float(number % 991),
        priority=priority,
        # Every other one states how long it runs: some have outrun that, some end in days.
        estimated_seconds=3600.0 * (1 + number % 48) if number % 2 else None,
    )
    places = {first: 8, second: 8}
    return a_running(gang, snapshot.nodes, places, started=1000.0 + number % 7919, anchor=first)


def _queue(percent: int) -> Callable[[int, int], ClusterSnapshot]:
    """Return the scene of a queue before nodes of which gangs hold so many %."""
    return lambda nodes, gangs: _held(problem(nodes, gangs, 0), percent, _HIGHEST)


def _strangers(nodes: int, gangs: int) -> ClusterSnapshot:
    """All GPUs are in use by pods of no gang: nobody can say when they end."""
    return problem(nodes, gangs, 100)


def _all_different(nodes: int, gangs: int) -> ClusterSnapshot:
    """A queue in which no two gangs ask the same."""
    snapshot = problem(nodes, 0, 0)
    waiting = (
        a_gang(f"gang-{at:05d}", a_task(1 + at % 64, 1 + at % 8, cpu_millis=1000 + at))
        for at in range(gangs)
    )
    # All of them are looked at, although they exceed what one namespace may ask of a cycle.
    settings = replace(snapshot.settings, namespace_shape_limit=64 * gangs)
    snapshot = replace(snapshot, waiting=tuple(waiting), settings=settings)
    return _held(snapshot, 100, _HIGHEST)


def _with_rules(percent: int) -> Callable[[int, int], ClusterSnapshot]:
    """Return the queue with rules by a label of each gang's own, and pods of two in five there.

    Replicas of a gang are apart by node and spread over racks; so are those that are there.
    """

    def scene(nodes: int, gangs: int) -> ClusterSnapshot:
        snapshot = _queue(percent)(nodes, gangs)
        waiting = tuple(
            replace(gang, tasks=tuple(replace(task, pod=_own(gang.uid)) for task in gang.tasks))
            for gang in snapshot.waiting
        )
        there = (
            PodsOf(_own(f"there-{at // 4}"), np.array([at % nodes]), f"there-{at // 4}")
            for at in range(gangs * 2 // 5)
        )
        return replace(snapshot, waiting=waiting, occupants=Occupants(there))

    return scene


def _own(gang: str) -> PodKind:
    """Return the kind of a pod that has rules about the pods of its own gang."""
    own = (Requirement("job", SelectorOperator.IN, (gang,)),)
    pods = PodSelector(("default",), (), own)
    return PodKind(
        namespace="default",
        labels=(("job", gang),),
        apart=(PodTerm(HOSTNAME_LABEL, pods),),
        spread=(SpreadLimit(_RACK, 1, pods),),
    )


def _preemptors(nodes: int, gangs: int) -> ClusterSnapshot:
    """Every waiting gang stops two running ones."""
    waiting = (
        a_gang(f"gang-{at:05d}", a_task(4, 8), priority=_HIGHEST, arrived=float(at))
        for at in range(gangs)
    )
    return _held(replace(problem(nodes, 0, 0), waiting=tuple(waiting)), 100, 0)


def _one(pods: int, priority: int = 0) -> Gang:
    return a_gang("wide", a_task(pods, 4), priority=priority, arrived=9000.0)


def _wide(percent: int, priority: int) -> Callable[[int, int], ClusterSnapshot]:
    """Return the scene of one gang of ``gangs`` pods of four GPUs."""

    def scene(nodes: int, pods: int) -> ClusterSnapshot:
        empty = a_snapshot(problem(nodes, 0, 0).nodes.nodes, _one(pods, priority), now=10_000.0)
        return _held(empty, percent, 0)

    return scene


SCENES: Final[dict[str, Callable[[int, int], ClusterSnapshot]]] = {
    "empty": _queue(0),
    "busy": _queue(97),
    "full": _queue(100),
    "strangers": _strangers,
    "all-different": _all_different,
    "rules": _with_rules(100),
    "rules-start": _with_rules(97),
    "preemptors": _preemptors,
    "hostile-nodes": lambda nodes, gangs: a_cluster(own_node_affinity, gangs, nodes),
    "hostile-pods": lambda nodes, gangs: a_cluster(own_pod_affinity, gangs, nodes),
    "many-small": lambda nodes, gangs: a_cluster(one_shape, gangs, nodes, tasks=1),
    "wide-starts": _wide(0, 0),
    "wide-waits": _wide(100, 0),
    "wide-stops-others": _wide(100, _HIGHEST),
}


def _moments(snapshot: ClusterSnapshot) -> Iterator[ClusterSnapshot]:
    for second in range(1 + _WARM_CYCLES):
        there = Occupants(snapshot.occupants.groups)
        yield replace(snapshot, now=snapshot.now + second, occupants=there)


def main(arguments: list[str]) -> None:
    scene, (nodes, gangs) = arguments[0], map(int, arguments[1:])
    policy, seconds = make_policy(SchedulingSettings()), []
    for snapshot in _moments(SCENES[scene](nodes, gangs)):
        began = time.perf_counter()
        decision = run_cycle(snapshot, policy)
        seconds.append(time.perf_counter() - began)
    found = Decided(
        seconds, len(decision.admitted), len(decision.preempted), len(decision.held), peak_mib()
    )
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
