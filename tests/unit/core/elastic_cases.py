"""Small clusters with elastic gangs, and what becomes of their sizes in a cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Resize
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy, Sizer
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running

NODES = [a_node("n0"), a_node("n1"), a_node("n2")]
Counts = dict[str, dict[str, int]]


def elastic(name: str, replicas: int, least: int, most: int, **more: Any) -> Gang:
    task = replace(a_task(replicas, min_replicas=least), max_replicas=most)
    return a_gang(name, task, is_elastic=True, **more)


def a_world(
    *waiting: Gang,
    nodes: Sequence[Node] = NODES,
    queues: Sequence[Queue] = (Queue("default"),),
    now: float = 0.0,
) -> ClusterSnapshot:
    settings = SchedulingSettings(min_runtime_seconds=0)
    return a_snapshot(nodes, *waiting, queues=queues, now=now, settings=settings)


def runs(
    snapshot: ClusterSnapshot, gang: Gang, places: Mapping[str, Any], **more: Any
) -> ClusterSnapshot:
    return with_running(snapshot, a_running(gang, snapshot.nodes, places, **more))


def resizes(snapshot: ClusterSnapshot, sizer: Sizer | None = None) -> tuple[Resize, ...]:
    return run_cycle(snapshot, Policy(Fifo(), Packing(), sizer)).resized


def places(resize: Resize, snapshot: ClusterSnapshot) -> Counts:
    return {
        task.task: {
            snapshot.nodes.names[row]: count
            for row, count in zip(task.rows.tolist(), task.counts.tolist(), strict=True)
        }
        for task in resize.placement.tasks
    }


def sizes(snapshot: ClusterSnapshot, sizer: Sizer | None = None) -> dict[str, int]:
    """Replicas after this cycle, of gangs that are resized."""
    return {
        resize.running.gang.uid: sum(int(task.counts.sum()) for task in resize.placement.tasks)
        for resize in resizes(snapshot, sizer)
    }
