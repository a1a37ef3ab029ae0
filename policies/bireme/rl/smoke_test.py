"""Synthetic clusters for the test of a checkpoint before its use.

Encoder and network answer once for each of a few sizes, on gangs and nodes of all kinds. This also
warms them up for the first real question.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from bireme.core.gangs import Gang, Role, Task, TrainingProgress
from bireme.core.gpus import GPU
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import make_placement
from bireme.core.queues import Queue
from bireme.core.resources import request_of
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import InverseQuadratic, LinearSpeed

SIZES: Final = ((1, 1), (2, 3), (17, 9), (130, 70))
"""Numbers of gangs and nodes."""
_GIB: Final = 2**30
_NOW: Final = 1_000_000.0
_SETTINGS: Final = SchedulingSettings()


def smoke_cases() -> Iterator[tuple[tuple[Gang, ...], ClusterSnapshot]]:
    """Yield gangs, sorted by uid, and a snapshot in which some of them wait and some run."""
    for gangs, nodes in SIZES:
        table = NodeTable([_node(number) for number in range(nodes)], _SETTINGS.topology_levels)
        every = tuple(_gang(number) for number in range(gangs))
        running = tuple(_run(gang, table, place) for place, gang in enumerate(every[1::3]))
        running_uids = {run.gang.uid for run in running}
        used = np.zeros_like(table.allocatable)
        for run in running:
            np.add.at(used, *run.usage(table.axis))
        yield (
            every,
            ClusterSnapshot(
                now=_NOW,
                nodes=table,
                used=used,
                waiting=tuple(gang for gang in every if gang.uid not in running_uids),
                queues={"smoke": Queue("smoke")},
                settings=_SETTINGS,
                running=running,
            ),
        )


def _node(number: int) -> Node:
    """Return a node of 8, 4 or no GPUs; a few are in no rack, a few in none of the three pools."""
    labels = {"kubernetes.io/hostname": f"node-{number:03d}"}
    if number % 7 != 6:
        labels["topology.bireme.dev/rack"] = f"rack-{number // 4}"
    if number % 4 != 3:
        labels[_SETTINGS.node_pool_label] = f"pool-{number % 4}"
    offers = {"cpu": 64_000, "memory": 256 * _GIB, "pods": 110}
    gpus = (8, 8, 4, 0)[number % 4]
    return Node(f"node-{number:03d}", offers | ({GPU: gpus} if gpus else {}), labels)


def _gang(number: int) -> Gang:
    """Return a gang of one or two tasks; GPUs, estimates and service vary, half are elastic.

    Some of the elastic ones have a measured speed, and every third gang has reported progress.
    """
    is_elastic, is_measured = number % 2 == 0, number % 4 == 0
    gpus = (1, 2, 8, 0)[number % 4]
    request = request_of({"cpu": 4_000, "memory": 8 * _GIB, "pods": 1, GPU: gpus})
    max_replicas = 4 + number % 5 if is_elastic else 0
    tasks = [Task("worker", 1 + number % 5, request, min_replicas=1, max_replicas=max_replicas)]
    if number % 3 == 0:
        servers = request_of({"cpu": 2_000, "memory": 4 * _GIB, "pods": 1})
        tasks.append(Task("ps", 1, servers, Role.PS, priority=90))
    return Gang(
        uid=f"smoke-{number:04d}",
        name=f"smoke-{number:04d}",
        namespace="smoke",
        queue="smoke",
        tasks=tuple(tasks),
        arrived=_NOW - 60.0 * (number % 50),
        user=f"user-{number % 4}",
        estimated_seconds=None if number % 5 == 0 else 600.0 * (1 + number % 9),
        attained_seconds=3_600.0 * (number % 3),
        interrupted=number % 6 == 5,
        is_elastic=is_elastic,
        speed=LinearSpeed(1.0, serial_share=0.05) if is_measured else None,
        remaining_steps=1_000.0 * (1 + number % 7) if is_measured else None,
        done_steps=100.0 * (number % 3),
        loss=InverseQuadratic(0.0, 0.01, 1.0, 0.1) if number % 8 == 0 else None,
        progress=_progress(number) if number % 3 == 0 else None,
    )


def _progress(number: int) -> TrainingProgress:
    """Return a report with every field for even numbers, an empty one for odd numbers."""
    if number % 2:
        return TrainingProgress(_NOW - 1.0)
    return TrainingProgress(
        reported=_NOW - 5.0,
        fraction=0.1 * (number % 10),
        remaining_seconds=60.0 * number,
        steps=100.0 * number,
        loss=1.0 / (1 + number),
        worst_loss=2.0,
        accuracy=0.05 * (number % 20),
        accuracy_gain=0.01 * (number % 3),
    )


def _run(gang: Gang, nodes: NodeTable, place: int) -> RunningGang:
    """Run ``gang`` on one node."""
    row = place % len(nodes)
    # it need not fit: encoders must accept overcommitted nodes
    counts = {task.name: np.zeros(len(nodes), dtype=np.int64) for task in gang.tasks}
    for task in gang.tasks:
        counts[task.name][row] = task.replicas
    return RunningGang(gang, make_placement(gang, nodes, counts), started=_NOW - 30.0 * place)
