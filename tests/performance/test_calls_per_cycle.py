"""The cost of a cycle, counted in calls: no times, so that a busy machine changes nothing.

Calls into numpy stand for the work on whole clusters, calls of any function for the work per gang.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.nodes import HOSTNAME_LABEL
from bireme.core.pod_constraints import (
    PodKind,
    PodSelector,
    PodTerm,
    Requirement,
    SelectorOperator,
    SpreadLimit,
)
from bireme.core.running import RunningTable
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_running_gang,
    a_snapshot,
    a_task,
    with_running,
)
from testbed.hostile_shapes import (
    MakeTask,
    a_cluster,
    own_node_affinity,
    own_pod_affinity,
)

NODES = 40
NOW = 10_000.0
SPARE = 7
"""GPUs that are free on each node: enough for every gang, but on no node for a replica."""
ORDERERS = ("fifo", "combined-priority")


def is_numpy(callee: Any) -> bool:
    owner = type(getattr(callee, "__self__", None)).__module__
    return (getattr(callee, "__module__", None) or owner or "").startswith("numpy")


def calls(work: Callable[[], object]) -> tuple[int, int]:
    """Calls of built-in functions of numpy, and of functions written in Python, during ``work``."""
    counts = {"numpy": 0, "python": 0}

    def count(_frame: FrameType, event: str, callee: Any) -> None:
        if event == "c_call":
            counts["numpy"] += is_numpy(callee)
        elif event == "call":
            counts["python"] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts["numpy"], counts["python"]


def a_full_cluster(waiting: int, running: int = NODES, kinds: int = 2) -> ClusterSnapshot:
    """No node has eight free GPUs; gangs of some kinds wait for them, and none can start.

    Nobody is stopped for them: what runs has had too little service.
    """
    machines = [a_node(f"node-{number:03d}", gpus=8 + SPARE) for number in range(NODES)]
    gangs = [
        a_gang(f"waiting-{number:04d}", a_task(1 + number % kinds, 8), arrived=float(number))
        for number in range(waiting)
    ]
    snapshot = a_snapshot(machines, *gangs, now=NOW)
    held = [
        a_running_gang(
            a_gang(f"running-{number:04d}", a_task(1, 8 * NODES // running)),
            snapshot.nodes,
            row=number * NODES // running,
            started=NOW - 100.0,
        )
        for number in range(running)
    ]
    full = with_running(snapshot, *held)
    table = RunningTable.of(held, full.nodes.axis)
    return replace(full, running=table.gangs, known_table=table)


def cycle_calls(snapshot: ClusterSnapshot, orderer: str) -> tuple[int, int]:
    policy = make_policy(SchedulingSettings(orderer=orderer))
    decided = []
    run_cycle(snapshot, policy, explain=False)  # what depends on nodes alone is remembered
    found = calls(lambda: decided.append(run_cycle(snapshot, policy, explain=False)))
    assert not decided[0].admitted
    assert len(decided[0].held) == len(snapshot.waiting)
    return found


def test_the_builder_leaves_as_much_on_every_node() -> None:
    snapshot = a_full_cluster(2, running=2 * NODES)
    gpu = snapshot.nodes.axis.names.index(GPU)
    assert np.array_equal(snapshot.used[:, gpu] + SPARE, snapshot.nodes.allocatable[:, gpu])


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_hundred_times_as_many_gangs_that_cannot_start_cost_no_more_calls_of_numpy(
    orderer: str,
) -> None:
    few, _ = cycle_calls(a_full_cluster(10), orderer)
    many, _ = cycle_calls(a_full_cluster(1000), orderer)
    assert few <= many <= few * 1.1


@pytest.mark.parametrize("orderer", ORDERERS)
def test_once_a_pool_is_exhausted_those_who_wait_for_more_cost_no_calls_of_numpy(
    orderer: str,
) -> None:
    few, many = (
        cycle_calls(replace(a_full_cluster(gangs), growable=(a_pool(room=4),)), orderer)[0]
        for gangs in (10, 1000)
    )
    plain, _ = cycle_calls(a_full_cluster(10), orderer)
    assert plain < few <= many <= few * 1.1


def test_what_is_counted_is_the_work_of_each_kind_of_gang() -> None:
    """Else the test above could not fail."""
    few, _ = cycle_calls(a_full_cluster(30, kinds=2), "fifo")
    many, _ = cycle_calls(a_full_cluster(30, kinds=30), "fifo")
    assert many > 2 * few


@pytest.mark.parametrize("make", [own_node_affinity, own_pod_affinity])
def test_ten_times_as_many_hostile_shapes_of_one_tenant_cost_no_more_calls_of_numpy(
    make: MakeTask,
) -> None:
    policy = make_policy(SchedulingSettings(orderer="fifo"))

    def numpy_calls(jobs: int) -> int:
        snapshot = a_cluster(make, jobs, NODES)
        return calls(lambda: run_cycle(snapshot, policy, explain=False))[0]

    numpy_calls(1)  # numpy and the caches of modules are warm
    few, many = numpy_calls(100), numpy_calls(1000)
    assert few <= many <= few * 1.1


def test_running_gangs_cost_no_calls_where_nobody_is_ever_stopped() -> None:
    few = cycle_calls(a_full_cluster(10, running=NODES), "fifo")
    many = cycle_calls(a_full_cluster(10, running=8 * NODES), "fifo")
    assert sum(many) <= sum(few) * 1.25


def with_own_rules(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Have the replicas of each waiting gang be apart from each other and spread over nodes."""
    gangs = []
    for gang in snapshot.waiting:
        own = (Requirement("job", SelectorOperator.IN, (gang.uid,)),)
        pods = PodSelector(("default",), (), own)
        kind = PodKind(
            namespace="default",
            labels=(("job", gang.uid),),
            apart=(PodTerm(HOSTNAME_LABEL, pods),),
            spread=(SpreadLimit(HOSTNAME_LABEL, 1, pods),),
        )
        gangs.append(replace(gang, tasks=tuple(replace(t, pod=kind) for t in gang.tasks)))
    return replace(snapshot, waiting=tuple(gangs))


def test_gangs_with_rules_by_labels_of_their_own_cost_no_calls_of_numpy_each() -> None:
    few, calls_of_few = cycle_calls(with_own_rules(a_full_cluster(10)), "fifo")
    many, calls_of_many = cycle_calls(with_own_rules(a_full_cluster(1000)), "fifo")
    _, plain = cycle_calls(a_full_cluster(1000), "fifo")
    assert few <= many <= few * 1.1
    assert calls_of_few < calls_of_many <= plain * 2


def test_each_admission_of_gangs_with_rules_of_their_own_costs_the_same() -> None:
    """Pods that rules see are not looked at again with every one that is added."""

    def cost(gangs: int) -> float:
        machines = [a_node(f"node-{number:03d}") for number in range(NODES)]
        waiting = [a_gang(f"g{number}", a_task(1, gpus=0)) for number in range(gangs)]
        snapshot = with_own_rules(a_snapshot(machines, *waiting, now=10_000.0))
        policy = make_policy(SchedulingSettings(orderer="fifo"))
        assert len(run_cycle(snapshot, policy, explain=False).admitted) == gangs
        fresh = replace(snapshot)
        return sum(calls(lambda: run_cycle(fresh, policy, explain=False))) / gangs

    few, many = cost(20), cost(400)
    assert many <= few * 1.5
