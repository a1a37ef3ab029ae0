"""Costs of recording a large cluster once, and then a cycle in which little changed.

``python -m benchmarks.timings.recording NODES GANGS`` prints processor milliseconds and bytes.
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


def _running(gang: Gang, nodes: NodeTable, chance: np.random.Generator) -> RunningGang:
    """Run a copy of ``gang`` on random nodes; what it uses is part of the fill."""
    runs = replace(gang, uid=f"{gang.uid}-runs", name=f"{gang.name}-runs")
    counts = {
        task.name: np.bincount(chance.integers(0, len(nodes), task.replicas), minlength=len(nodes))
        for task in gang.tasks
    }
    return RunningGang(runs, make_placement(runs, nodes, counts), started=0.0)


def _next_cycle(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Return the next cycle: one more pod on one node."""
    used = snapshot.used.copy()
    used[len(used) // 2, 0] += 1
    return replace(
        snapshot,
        now=snapshot.now + 1,
        used=used,
        # Equal objects made anew, so that the encoder cannot find that nothing changed by identity.
        waiting=tuple(replace(gang) for gang in snapshot.waiting),
        running=tuple(replace(each, gang=replace(each.gang)) for each in snapshot.running),
    )


def main(arguments: list[str]) -> None:
    nodes, gangs = map(int, arguments)
    snapshot = problem(nodes, gangs, _FILL_PERCENT)
    decision = run_cycle(snapshot, make_policy(SchedulingSettings()))
    chance = np.random.default_rng(7)
    running = (_running(gang, snapshot.nodes, chance) for gang in snapshot.waiting)
    snapshot = replace(snapshot, running=tuple(running))
    encoder, seconds, sizes = Encoder(), [], []
    for _ in range(1 + _CYCLES):
        began = time.thread_time()
        line = encoder.encode(snapshot, decision)
        seconds.append(time.thread_time() - began)
        sizes.append(len(line or b""))
        snapshot = _next_cycle(snapshot)
    where = f"{nodes} nodes, {gangs} gangs waiting and as many running"
    print(f"{where}: all of it {1e3 * seconds[0]:.0f} ms and {sizes[0]:,} bytes,")
    print(f"a cycle after it {1e3 * median(seconds[1:]):.0f} ms and {median(sizes[1:]):,.0f} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
