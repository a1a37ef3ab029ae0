"""Demand of pools in nodes: what is held there, and who waits and could be admitted."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.gangs import Gang, Role
from bireme.core.node_floor import nodes_to_keep, pool_demand
from bireme.core.nodes import Node, ScaledPool, in_pool
from bireme.core.pod_constraints import NodeConstraints
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running

POOL = "pool"


def machines(pool: str, count: int, gpus: int = 8) -> list[Node]:
    return [a_node(f"{pool}{at}", gpus, labels={POOL: pool}) for at in range(count)]


def scaled(name: str, template: Node | None = None, most: int = 100) -> ScaledPool:
    return ScaledPool(name, {POOL: name}, template, most)


GPUS = scaled("gpu", a_node("t"))
CPUS = scaled("cpu", a_node("t", 0))


def waiting(*gangs: Gang, queues: tuple[Queue, ...] = (Queue("default"),)) -> ClusterSnapshot:
    in_order = [replace(gang, arrived=float(at)) for at, gang in enumerate(gangs)]
    return a_snapshot([], *in_order, queues=queues)


def test_what_runs_in_a_pool_counts_by_its_scarcest_resource() -> None:
    nodes = [*machines("gpu", 2), *machines("cpu", 1, 0)]
    bare = a_snapshot(nodes)
    gangs = [a_gang("a", a_task(6)), a_gang("b", a_task(4, 0, cpu_millis=12_000))]
    rows = [bare.nodes.row["gpu0"], bare.nodes.row["cpu0"]]
    placed = [a_running_gang(g, bare.nodes, row=r) for g, r in zip(gangs, rows, strict=True)]
    assert pool_demand(with_running(bare, *placed), [GPUS, CPUS]) == {"gpu": 0.75, "cpu": 0.5}


def test_pods_that_never_leave_are_no_demand() -> None:
    node = replace(machines("gpu", 1)[0], fixed={"cpu": 48_000})
    bare = a_snapshot([node])
    assert pool_demand(replace(bare, used=bare.nodes.fixed.copy()), [GPUS]) == {"gpu": 0.0}


def test_memory_of_many_large_nodes_is_summed_without_a_ceiling() -> None:
    bare = a_snapshot(machines("gpu", 300))
    assert pool_demand(replace(bare, used=bare.nodes.allocatable), [GPUS])["gpu"] == 300.0


def test_a_waiting_gang_counts_task_by_task_to_the_pool_that_needs_the_fewest_nodes() -> None:
    servers = a_task(4, 0, role=Role.PS, cpu_millis=48_000)
    small = scaled("a-small", a_node("t", 4, cpu_millis=24_000))
    demand = pool_demand(waiting(a_gang("job", a_task(12), servers)), [GPUS, CPUS, small])
    assert demand == {"gpu": 1.5, "cpu": 2.0, "a-small": 0.0}


def test_an_elastic_gang_counts_at_the_least_size_that_may_start() -> None:
    gang = a_gang("job", a_task(32, min_replicas=12))
    assert pool_demand(waiting(gang), [GPUS]) == {"gpu": 1.5}


def test_constraints_of_a_task_and_what_one_node_offers_decide_who_counts_where() -> None:
    elsewhere = NodeConstraints(node_selector=(("kind", "other"),))
    gangs = [
        a_gang("choosy", a_task(8, constraints=elsewhere)),
        a_gang("wide", a_task(1, 16)),
        a_gang("odd", replace(a_task(1), request=(("example.com/fpga", 1), ("pods", 1)))),
        a_gang("plain", a_task(8)),
    ]
    assert pool_demand(waiting(*gangs), [GPUS]) == {"gpu": 1.0}


def test_who_asks_for_more_nodes_than_a_pool_may_have_waits_in_vain() -> None:
    gangs = [a_gang("huge", a_task(10**9)), a_gang("plain", a_task(8))]
    assert pool_demand(waiting(*gangs), [scaled("gpu", a_node("t"), most=9)]) == {"gpu": 1.0}


@pytest.mark.parametrize(("limit", "nodes"), [(7, 0.0), (8, 1.0), (16, 2.0)])
def test_gangs_count_as_far_as_the_limit_of_their_queue_reaches(limit: int, nodes: float) -> None:
    queues = (Queue("default", limit={GPU: limit}),)
    gangs = [a_gang(f"g{at}", a_task(8)) for at in range(3)]
    assert pool_demand(waiting(*gangs, queues=queues), [GPUS]) == {"gpu": nodes}


def test_gangs_with_a_configuration_fault_are_no_demand() -> None:
    closed = (Queue("default", is_open=False),)
    assert pool_demand(waiting(a_gang(), queues=closed), [GPUS]) == {"gpu": 0.0}


def test_a_pool_without_a_template_has_no_demand() -> None:
    assert pool_demand(waiting(a_gang("job", a_task(8))), [scaled("gpu")]) == {"gpu": 0.0}
    assert pool_demand(waiting(a_gang()), []) == {}


def test_a_node_is_in_a_pool_with_all_its_labels_and_no_node_in_one_without_any() -> None:
    labels: list[dict[str, str]] = [{"a": "1", "b": "2"}, {"a": "1"}, {"a": "2", "b": "2"}, {}]
    nodes = [a_node(f"n{at}", labels=each) for at, each in enumerate(labels)]
    table = a_snapshot(nodes).nodes
    assert in_pool({"a": "1", "b": "2"}, table).tolist() == [True, False, False, False]
    assert in_pool({"a": "1"}, table).tolist() == [True, True, False, False]
    assert in_pool({"c": "1"}, table).tolist() == [False] * 4
    assert in_pool({}, table).tolist() == [False] * 4


def test_nodes_in_use_or_kept_for_somebody_are_needed() -> None:
    daemons = {"cpu": 1000}
    nodes = [replace(node, fixed=daemons) for node in machines("gpu", 4)]
    snapshot = a_snapshot(nodes)
    used = snapshot.nodes.fixed.copy()
    used[1, 0] += 1
    seen = replace(snapshot, used=used)
    assert np.array_equal(nodes_to_keep(seen, {"gpu2", "gone"}), [False, True, True, False])
