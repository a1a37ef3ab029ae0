"""Costs of recording a large cluster once, and then a cycle in which little changed.

``python -m benchmarks.timings.recording NODES GANGS`` prints processor milliseconds and bytes.
Every object is made anew between two cycles, so that nothing is equal by being the same.
"""

import sys
import time
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.timings.decision import problem
from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import make_placement
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.replay.writer import Encoder

_CYCLES = 10
_FILL_PERCENT = 97


def _running(waiting: tuple[Gang, ...], nodes: NodeTable) -> tuple[RunningGang, ...]:
    """Run as many gangs on nodes drawn by a fixed seed; what they use is part of the fill."""
    chance = np.random.default_rng(7)
    found = []
    for gang in waiting:
        counts = {
            task.name: np.bincount(
                chance.integers(0, len(nodes), task.replicas), minlength=len(nodes)
            )
            for task in gang.tasks
        }
        runs = replace(gang, uid=f"{gang.uid}-runs", name=f"{gang.name}-runs")
        found.append(RunningGang(runs, make_placement(runs, nodes, counts), started=0.0))
    return tuple(found)


def _anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Return the next cycle: equal gangs made anew, and one pod more on one node."""
    used = snapshot.used.copy()
    used[len(used) // 2, 0] += 1
    return replace(
        snapshot,
        now=snapshot.now + 1,
        used=used,
        waiting=tuple(replace(gang) for gang in snapshot.waiting),
        running=tuple(replace(each, gang=replace(each.gang)) for each in snapshot.running),
    )


def main(arguments: list[str]) -> None:
    nodes, gangs = (int(word) for word in arguments)
    snapshot = problem(nodes, gangs, _FILL_PERCENT)
    decision = run_cycle(snapshot, make_policy(SchedulingSettings()))
    snapshot = replace(snapshot, running=_running(snapshot.waiting, snapshot.nodes))
    encoder, seconds, sizes = Encoder(), [], []
    for _ in range(1 + _CYCLES):
        began = time.thread_time()
        line = encoder.encode(snapshot, decision)
        seconds.append(time.thread_time() - began)
        sizes.append(len(line or b""))
        snapshot = _anew(snapshot)
    where = f"{nodes} nodes, {gangs} gangs waiting and as many running"
    print(f"{where}: all of it {1e3 * seconds[0]:.0f} ms and {sizes[0]:,} bytes,")
    print(f"a cycle after it {1e3 * median(seconds[1:]):.0f} ms and {median(sizes[1:]):,.0f} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
