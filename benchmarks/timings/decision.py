"""The decision core alone: one cycle over a long queue on a large cluster, in a process of its own.

``python -m benchmarks.timings.decision NODES GANGS PERCENT [ROOM]`` prints one JSON line: a process
per fill level, so that the first cycle is cold and the peak memory that of this problem. With ROOM,
three node pools may get so many more nodes each, and what that adds to a cycle is timed.
"""

import asyncio
import sys
import time
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from benchmarks.machine import peak_mib
from benchmarks.report import Result, Row, at_most
from benchmarks.timings.cases import Run, in_child
from bireme.core.cycle import run_cycle
from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity
from bireme.core.nodes import GrowablePool, NodeTable
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_node, a_snapshot, a_task

FILLS: Final = (0, 97, 100)
_WARM_CYCLES: Final = 5
_NODES_PER_RACK: Final = 25


class Measured(msgspec.Struct):
    """Seconds per cycle, the first one cold, and memory in MiB, of a child process."""

    seconds: list[float]
    admitted: int
    before_mib: float
    peak_mib: float


async def measure_decision(run: Run) -> Result:
    """Measure 1000 waiting gangs on 5000 nodes."""
    nodes, gangs = run.pick(5000, 200), run.pick(1000, 40)
    rows = []
    for fill in FILLS:
        found = await asyncio.to_thread(_measured, nodes, gangs, fill)
        where = f"{gangs} gangs, {nodes} nodes, {fill} % of GPUs in use"
        cold, *warm = found.seconds
        run.say(f"{where}: {found.admitted} admitted, cold {cold:.2f} s")
        added = found.peak_mib - found.before_mib
        rows += [
            Row.alone(f"{where}: cold", "s", cold, aim=at_most(1.0)),
            Row.alone(f"{where}: warm", "s", *warm, aim=at_most(1.0)),
            Row.alone(f"{where}: memory added", "MiB", added),
        ]
    rows.append(await _added_by_growth(run))
    return Result(rows=tuple(rows), notes=("Shapes: PS/worker with rack affinity, and workers.",))


async def _added_by_growth(run: Run) -> Row:
    """Measure the search for nodes that gangs wait for, where they hardly suffice."""
    nodes, gangs, room = run.pick(500, 50), run.pick(256, 20), run.pick(200, 10)
    found = await asyncio.to_thread(_measured, nodes, gangs, 100, room)
    what = f"{gangs} gangs, {nodes} nodes, 100 % in use: added by three pools of {room} more each"
    return Row.alone(what, "s", *found.seconds[1:], aim=at_most(0.02))


def _measured(*problem: int) -> Measured:
    return in_child("decision", *problem, kind=Measured)


def problem(nodes: int, gangs: int, percent: int) -> ClusterSnapshot:
    """Return the same cluster and queue every time, ``percent`` % of all GPUs in use."""
    machines = [
        a_node(f"node-{number:05d}", rack=f"rack-{number // _NODES_PER_RACK}")
        for number in range(nodes)
    ]
    waiting = [_gang(number) for number in range(gangs)]
    snapshot = a_snapshot(machines, *waiting, now=10_000.0)
    return replace(snapshot, used=_used(snapshot.nodes, percent))


def _gang(number: int) -> Gang:
    """Return seven sizes in turn, of 1 to 64 replicas, every third a PS job."""
    size, gpus = 2 ** (number % 7), (1, 2, 4, 8)[number % 4]
    tasks = [a_task(size, gpus)]
    affinity = RoleAffinity()
    if number % 3 == 0:
        tasks.append(a_task(max(1, size // 4), 0, role=Role.PS, cpu_millis=4000))
        affinity = RoleAffinity(AffinityMode.PREFERRED, "topology.bireme.dev/rack")
    return a_gang(
        f"gang-{number:04d}",
        *tasks,
        arrived=float(number % 997),
        priority=number % 5,
        role_affinity=affinity,
    )


def _used(nodes: NodeTable, percent: int) -> IntArray:
    """Spread the GPUs in use by a fixed seed; each also takes a CPU."""
    names = nodes.axis.names
    gpu, cpu = names.index(GPU), names.index("cpu")
    per_node = nodes.allocatable[:, gpu]
    slots = np.repeat(np.arange(len(per_node)), per_node)
    taken = np.random.default_rng(7).permutation(slots)[: len(slots) * percent // 100]
    used = np.zeros_like(nodes.allocatable)
    np.add.at(used[:, gpu], taken, 1)
    used[:, cpu] = used[:, gpu] * 1000
    return used


def _pools(room: int) -> tuple[GrowablePool, ...]:
    return tuple(
        GrowablePool(f"gpu-{gpus}", a_node("new", gpus), room, coming=3, patience_seconds=1200)
        for gpus in (8, 4, 0)
    )


def main(arguments: list[str]) -> None:
    nodes, gangs, percent, room = (*map(int, arguments), 0)[:4]
    snapshot, policy = problem(nodes, gangs, percent), make_policy(SchedulingSettings())
    before_mib, seconds = peak_mib(), []
    for _ in range(1 + _WARM_CYCLES):
        began = time.perf_counter()
        decision = run_cycle(snapshot, policy)
        seconds.append(time.perf_counter() - began)
        if room:
            # Right after the cycle without pools, so that both see the machine in one state.
            began = time.perf_counter()
            run_cycle(replace(snapshot, growable=_pools(room)), policy)
            seconds[-1] = time.perf_counter() - began - seconds[-1]
    found = Measured(seconds, len(decision.admitted), before_mib, peak_mib())
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
