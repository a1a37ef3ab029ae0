"""A light check that a cycle's cost does not outgrow the cluster: ratios in one run, no times."""

import statistics
import time

from benchmarks.timings.decision import problem
from bireme.core.cycle import run_cycle
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy

CYCLES = 5


def cycle_seconds(nodes: int, gangs: int) -> float:
    snapshot, policy = problem(nodes, gangs, 50), make_policy(SchedulingSettings())
    seconds = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        run_cycle(snapshot, policy)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def test_eight_times_the_nodes_and_gangs_cost_no_more_than_their_product() -> None:
    small, large = cycle_seconds(100, 25), cycle_seconds(800, 200)
    assert large <= 64 * small, f"{large / small:.0f} times as long"
