"""Free capacity: how many replicas fit, after trials and after real takes alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import COUNT_CEILING, FreeCapacity, Placement, Take, make_placement
from bireme.core.pod_constraints import NodeConstraints
from bireme.core.resources import IntArray
from bireme.testing import GIB, GPU, a_gang, a_node, a_task
from testbed import random_snapshots
from testbed.model import oracles

LEVELS = ("kubernetes.io/hostname",)


def capacity_of(*nodes: Node, used: IntArray | None = None) -> FreeCapacity:
    table = NodeTable(nodes, LEVELS)
    return FreeCapacity(table, np.zeros_like(table.allocatable) if used is None else used)


def placed(gang: Gang, capacity: FreeCapacity, **counts: list[int]) -> Placement:
    arrays = {name: np.array(values, dtype=np.int64) for name, values in counts.items()}
    return make_placement(gang, capacity.nodes, arrays)


@pytest.mark.parametrize(
    ("task", "fits"),
    [
        pytest.param(a_task(gpus=3), 2, id="devices"),
        pytest.param(a_task(gpus=0, cpu_millis=3000), 3, id="cores"),
        pytest.param(a_task(gpus=0, memory_bytes=3 * GIB), 5, id="memory"),
        pytest.param(a_task(gpus=0, cpu_millis=1, memory_bytes=1), 6, id="pod-count"),
        pytest.param(a_task(gpus=9), 0, id="too-large"),
        pytest.param(Task("bare", 1, ()), COUNT_CEILING, id="asks-nothing"),
        pytest.param(Task("odd", 1, (("example.com/fpga", 1), ("pods", 1))), 0, id="not-offered"),
    ],
)
def test_replicas_are_limited_by_the_scarcest_resource(task: Task, fits: int) -> None:
    node = a_node("n0", 8, cpu_millis=10_000, memory_bytes=16 * GIB, pods=6)
    assert capacity_of(node).replicas(task).tolist() == [fits]


def test_a_node_that_may_not_be_used_takes_none_even_of_what_asks_nothing() -> None:
    capacity = capacity_of(a_node("down", is_ready=False), a_node("up"))
    assert capacity.replicas(Task("bare", 1, ())).tolist() == [0, COUNT_CEILING]


def test_an_overfull_node_takes_nothing_and_is_not_negative() -> None:
    node = a_node("n0", 4)
    used = 2 * NodeTable([node], LEVELS).allocatable
    assert capacity_of(node, used=used).replicas(a_task()).tolist() == [0]


def test_a_take_of_one_task_is_seen_by_every_other_kind() -> None:
    capacity = capacity_of(a_node("n0", 8), a_node("n1", 8))
    one, two = a_task(gpus=1), a_task(gpus=2)
    assert capacity.replicas(two).tolist() == [4, 4]
    gang = a_gang("g", one)
    capacity.take(gang, placed(gang, capacity, worker=[0, 3]))
    assert capacity.replicas(two).tolist() == [4, 2]
    assert capacity.replicas(one).tolist() == [8, 5]


def test_taking_a_gang_takes_all_its_tasks_with_their_own_requests() -> None:
    capacity = capacity_of(a_node("n0", 8, cpu_millis=50_000))
    gang = a_gang("g", a_task(2, 3, cpu_millis=5000), a_task(1, 0, name="ps", cpu_millis=20_000))
    capacity.take(gang, placed(gang, capacity, worker=[2], ps=[1]))
    axis = capacity.nodes.axis
    free = {name: int(capacity.free[0, column]) for column, name in enumerate(axis.names)}
    assert free == {
        "cpu": 20_000,
        "memory": 1021 * GIB,
        "pods": 107,
        "ephemeral-storage": 0,
        GPU: 2,
    }


@given(random_snapshots.clusters(), random_snapshots.tasks(), st.data())
def test_a_gang_lacks_room_only_where_it_cannot_be_placed(
    nodes: tuple[Node, ...], task: Task, data: st.DataObject
) -> None:
    capacity = capacity_of(*nodes)
    used = data.draw(st.sampled_from((0, 1, 2))) * capacity.nodes.allocatable // 2
    capacity = capacity_of(*nodes, used=used)
    gang = a_gang("g", task)
    if capacity.lacks(gang):
        assert capacity.replicas(task).sum() < task.replicas


def test_a_gang_lacks_nothing_that_is_free_to_the_last_device() -> None:
    capacity = capacity_of(a_node("n0", 8), a_node("n1", 8))
    exactly = a_gang("exactly", a_task(2, gpus=8))
    assert not capacity.lacks(exactly)
    assert capacity.lacks(a_gang("more", a_task(17, gpus=1)))
    capacity.take(exactly, placed(exactly, capacity, worker=[1, 1]))
    assert capacity.lacks(a_gang("one", a_task(gpus=1)))
    assert not capacity.lacks(a_gang("none", a_task(gpus=0)))


def test_an_answer_once_given_stays_as_it_was() -> None:
    capacity = capacity_of(a_node("n0", 8))
    before = capacity.replicas(a_task())
    gang = a_gang()
    capacity.take(gang, placed(gang, capacity, worker=[1]))
    assert capacity.replicas(a_task()).tolist() == [7]
    assert before.tolist() == [8]
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 99


def test_a_trial_leaves_the_capacity_as_it_was() -> None:
    capacity = capacity_of(a_node("n0", 8))
    request = capacity.nodes.axis.usage(a_task(gpus=3).request)
    assert capacity.replicas(a_task(), [Take(request, np.array([2]))]).tolist() == [2]
    assert capacity.replicas(a_task()).tolist() == [8]


def test_trials_add_up() -> None:
    capacity = capacity_of(a_node("n0", 8), a_node("n1", 8))
    request = capacity.nodes.axis.usage(a_task(gpus=3).request)
    trials = [Take(request, np.array([1, 0])), Take(request, np.array([1, 1]))]
    assert capacity.replicas(a_task(), trials).tolist() == [2, 5]


def test_tightness_falls_with_what_is_free_and_devices_count_most() -> None:
    capacity = capacity_of(a_node("n0", 8), a_node("n1", 8), a_node("n2", 8))
    cores, devices = a_gang("c", a_task(80, 0)), a_gang("d", a_task(6, 1))
    assert len(set(capacity.tightness.tolist())) == 1
    capacity.take(cores, placed(cores, capacity, worker=[80, 0, 0]))
    capacity.take(devices, placed(devices, capacity, worker=[0, 6, 0]))
    assert np.argsort(capacity.tightness).tolist() == [1, 0, 2]


@given(random_snapshots.clusters(), st.data())
def test_trials_equal_takes_equal_a_fresh_count_equal_counting_by_hand(
    nodes: tuple[Node, ...], data: st.DataObject
) -> None:
    capacity = capacity_of(*nodes)
    probes = [data.draw(random_snapshots.tasks()) for _ in range(3)]
    trials: list[Take] = []
    free = {node.name: dict(node.allocatable) for node in nodes}
    for probe in probes:  # every answer is remembered before the first take, and corrected after
        capacity.replicas(probe)
    for step in range(3):
        gang = a_gang(f"g{step}", data.draw(random_snapshots.tasks()))
        task = gang.tasks[0]
        counts = np.array(
            [data.draw(st.integers(0, min(int(n), 3))) for n in capacity.replicas(task)], np.int64
        )
        trials.append(Take(capacity.nodes.axis.usage(task.request), counts))
        _check(probes, nodes, capacity_of(*nodes), trials, free, task, counts)
        if counts.any():
            capacity.take(gang, placed(gang, capacity, worker=counts.tolist()))
        fresh = FreeCapacity(capacity.nodes, capacity.nodes.allocatable - capacity.free)
        for probe in probes:
            by_trial = capacity_of(*nodes).replicas(probe, trials).tolist()
            assert capacity.replicas(probe).tolist() == by_trial == fresh.replicas(probe).tolist()


def _check(
    probes: list[Task],
    nodes: tuple[Node, ...],
    untouched: FreeCapacity,
    trials: list[Take],
    free: dict[str, dict[str, int]],
    task: Task,
    counts: IntArray,
) -> None:
    for node, count in zip(nodes, counts.tolist(), strict=True):
        for name, amount in task.request:
            free[node.name][name] = free[node.name].get(name, 0) - count * amount
    for probe in probes:
        if dict(probe.request).get("memory", 0) < 2**46:  # beyond, offers saturate on purpose
            by_hand = [oracles.room(node, free[node.name], probe) for node in nodes]
            assert untouched.replicas(probe, trials).tolist() == by_hand


@given(st.lists(st.sampled_from((2**45, 2**46, 2**60, 2**63, 2**100)), min_size=2, max_size=2))
def test_absurd_amounts_never_wrap_around(amounts: list[int]) -> None:
    offered, asked = amounts
    node = a_node("n0", 0, memory_bytes=offered)
    room = capacity_of(node).replicas(Task("t", 10**9, (("memory", asked),)))
    assert 0 <= int(room[0]) * asked <= offered


def test_constraints_and_requests_together_tell_kinds_apart() -> None:
    capacity = capacity_of(a_node("n0", labels={"disk": "ssd"}), a_node("n1"))
    picky = a_task(constraints=NodeConstraints((("disk", "ssd"),)))
    assert capacity.replicas(a_task()).tolist() == [8, 8]
    assert capacity.replicas(picky).tolist() == [8, 0]
