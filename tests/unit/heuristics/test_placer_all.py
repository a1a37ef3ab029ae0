"""The contract of every registered placer: whole gangs, within capacity, whenever one kind fits."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bireme import policy_names
from bireme.core.gangs import Gang, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.resources import IntArray
from bireme.registry import make_placer
from bireme.testing import a_gang, a_node, a_task
from testbed import random_snapshots
from testbed.examples import examples
from testbed.model import oracles
from testbed.random_snapshots import SnapshotCase

placers = pytest.mark.parametrize("name", sorted(policy_names.class_paths("placer")))
several = examples(10)


@placers
@several
@given(random_snapshots.cases())
def test_a_gang_is_placed_whole_within_what_is_free_or_not_at_all(
    name: str, case: SnapshotCase
) -> None:
    snapshot = case.snapshot
    by_name = {node.name: node for node in case.nodes}
    for gang in (gang for gang in snapshot.waiting if not gang.flaw):
        placement = make_placer(name).place(gang, FreeCapacity(snapshot.nodes, snapshot.used))
        if placement is None:
            continue
        free = oracles.free_amounts(snapshot)
        spots = placement.by_task(snapshot.nodes)
        assert {task: len(names) for task, names in spots.items()} == {
            task.name: task.replicas for task in gang.tasks
        }
        for task in gang.tasks:
            for node, replicas in Counter(spots[task.name]).items():
                assert oracles.may_use(by_name[node], task.constraints)
                for resource, amount in task.request:
                    free[node][resource] = free[node].get(resource, 0) - replicas * amount
                    assert free[node][resource] >= 0


@placers
@several
@given(random_snapshots.cases(most_gangs=0), random_snapshots.tasks(most=12))
def test_a_gang_of_one_task_is_placed_exactly_when_it_fits(
    name: str, case: SnapshotCase, task: Task
) -> None:
    assume(dict(task.request).get("memory", 0) < 2**46)
    capacity = FreeCapacity(case.snapshot.nodes, case.snapshot.used)
    free = oracles.free_amounts(case.snapshot)
    room = sum(oracles.room(node, free[node.name], task) for node in case.nodes)
    placement = make_placer(name).place(a_gang("g", task), capacity)
    assert (placement is not None) == (room >= task.replicas)


@placers
@pytest.mark.parametrize("nodes", [[], [a_node("n", 0, pods=0)]], ids=["none", "full"])
def test_nothing_fits_where_nothing_is(name: str, nodes: list[Node]) -> None:
    table = NodeTable(nodes, ("kubernetes.io/hostname",))
    used: IntArray = table.allocatable * 0
    for gang in (a_gang("g"), a_gang("g", a_task(2), a_task(1, 0, name="other"))):
        assert make_placer(name).place(gang, FreeCapacity(table, used)) is None


@placers
@given(st.integers(1, 40))
def test_a_gang_as_large_as_the_cluster_fills_it(name: str, replicas: int) -> None:
    nodes = [a_node(f"n{index}", 4) for index in range(10)]
    table = NodeTable(nodes, ("kubernetes.io/hostname",))
    used: IntArray = table.allocatable * 0
    gang: Gang = a_gang("g", a_task(replicas), a_task(40 - replicas or 1, 1, name="other"))
    placement = make_placer(name).place(gang, FreeCapacity(table, used))
    assert (placement is None) == (replicas == 40)
