"""First fit, best fit and load balance, against placing replica after replica by hand."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Placer
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.simple_placers import BestFit, FirstFit, LoadBalance
from bireme.testing import GPU, a_gang, a_node, a_task

LEVELS = SchedulingSettings().topology_levels


def capacity_of(nodes: Sequence[Node], busy: dict[str, int] | None = None) -> FreeCapacity:
    """Free capacity of ``nodes`` with ``busy`` GPUs taken, by node name."""
    table = NodeTable(nodes, LEVELS)
    used: IntArray = np.zeros_like(table.allocatable)
    for name, gpus in (busy or {}).items():
        used[table.row[name], table.axis.names.index(GPU)] = gpus
    return FreeCapacity(table, used)


def nodes_of(placer: Placer, gang: Gang, capacity: FreeCapacity) -> dict[str, int]:
    """Node name to replicas of all tasks."""
    placement = placer.place(gang, capacity)
    assert placement is not None
    spots = placement.by_task(capacity.nodes)
    return dict(Counter(name for names in spots.values() for name in names))


FOUR = [a_node(name) for name in "abcd"]


def test_first_fit_goes_by_name() -> None:
    capacity = capacity_of(FOUR, {"a": 8, "b": 6})
    assert nodes_of(FirstFit(), a_gang("g", a_task(1)), capacity) == {"b": 1}
    assert nodes_of(FirstFit(), a_gang("g", a_task(3, 2)), capacity) == {"b": 1, "c": 2}
    assert nodes_of(FirstFit(), a_gang("g", a_task(1, 3)), capacity) == {"c": 1}


def test_best_fit_goes_to_the_fullest_node_that_has_room() -> None:
    capacity = capacity_of(FOUR, {"b": 6, "c": 7, "d": 5})
    assert nodes_of(BestFit(), a_gang("g", a_task(1)), capacity) == {"c": 1}
    assert nodes_of(BestFit(), a_gang("g", a_task(1, 3)), capacity) == {"d": 1}
    assert nodes_of(BestFit(), a_gang("g", a_task(5)), capacity) == {"c": 1, "b": 2, "d": 2}


def test_load_balance_goes_to_the_least_loaded_nodes() -> None:
    capacity = capacity_of(FOUR, {"a": 4, "b": 6, "c": 3, "d": 8})
    assert nodes_of(LoadBalance(), a_gang("g", a_task(1)), capacity) == {"c": 1}
    assert nodes_of(LoadBalance(), a_gang("g", a_task(6)), capacity) == {"a": 2, "c": 3, "b": 1}


def test_load_is_a_part_of_what_the_node_offers() -> None:
    capacity = capacity_of([a_node("large", 16), a_node("small", 4)], {"large": 4})
    assert nodes_of(LoadBalance(), a_gang("g", a_task(1, 2)), capacity) == {"large": 1}


def test_load_is_that_of_the_scarcest_resource_the_task_asks_for() -> None:
    nodes = [a_node("cores", 8, cpu_millis=4000), a_node("gpus", 2, cpu_millis=96_000)]
    hungry = a_gang("g", a_task(1, 1, cpu_millis=3000))
    assert nodes_of(LoadBalance(), hungry, capacity_of(nodes)) == {"gpus": 1}
    light = a_gang("g", a_task(1, 1, cpu_millis=100))
    assert nodes_of(LoadBalance(), light, capacity_of(nodes)) == {"cores": 1}


def test_later_tasks_see_what_earlier_ones_took() -> None:
    gang = a_gang("g", a_task(3, 2, name="x"), a_task(2, 1, name="y"))
    capacity = capacity_of([a_node("a", 7), a_node("b", 3)])
    assert nodes_of(FirstFit(), gang, capacity) == {"a": 4, "b": 1}
    assert nodes_of(BestFit(), gang, capacity) == {"a": 3, "b": 2}
    assert nodes_of(LoadBalance(), gang, capacity) == {"a": 4, "b": 1}


def sequentially(
    task: Task, capacity: FreeCapacity, better: Callable[[int], tuple[float, ...]]
) -> dict[str, int]:
    """One replica after another where ``better`` is least now; taken from ``capacity``."""
    counts: Counter[str] = Counter()
    request = capacity.nodes.axis.usage(task.request)
    for _ in range(task.replicas):
        row = min(np.flatnonzero(capacity.replicas(task)).tolist(), key=better)
        capacity.correct(np.array([row]), capacity.free[[row]] - request)
        counts[capacity.nodes.names[row]] += 1
    return dict(counts)


@st.composite
def problems(draw: st.DrawFn) -> tuple[FreeCapacity, FreeCapacity, Task]:
    """The same free capacity twice, and a task that fits into it."""
    gpus = draw(st.lists(st.integers(0, 8), min_size=1, max_size=5))
    nodes = [
        a_node(f"n{index}", count, cpu_millis=draw(st.sampled_from((4000, 16_000, 96_000))))
        for index, count in enumerate(gpus)
    ]
    busy = {f"n{index}": draw(st.integers(0, count)) for index, count in enumerate(gpus) if count}
    task = a_task(1, draw(st.integers(0, 2)), cpu_millis=draw(st.sampled_from((1000, 3000))))
    room = int(capacity_of(nodes, busy).replicas(task).sum())
    assume(room)
    task = replace(task, replicas=draw(st.integers(1, min(room, 12))))
    return capacity_of(nodes, busy), capacity_of(nodes, busy), task


@settings(deadline=None)
@given(problems())
def test_best_fit_is_what_replica_after_replica_gives(
    problem: tuple[FreeCapacity, FreeCapacity, Task],
) -> None:
    capacity, step, task = problem
    assert nodes_of(BestFit(), a_gang("g", task), capacity) == sequentially(
        task, step, lambda row: (round(float(step.tightness[row]), 9), row)
    )


@settings(deadline=None)
@given(problems())
def test_load_balance_is_what_replica_after_replica_gives(
    problem: tuple[FreeCapacity, FreeCapacity, Task],
) -> None:
    capacity, step, task = problem
    nodes, at_first = step.nodes, step.tightness.round(9).tolist()
    asked = [nodes.axis.names.index(name) for name, _ in task.request if name != "pods"]

    def load(row: int) -> tuple[float, ...]:
        left = step.free[row] - nodes.axis.usage(task.request)
        offered = nodes.allocatable[row]
        most = max((offered[c] - left[c]) / offered[c] for c in asked)
        return (most, at_first[row], row)

    assert nodes_of(LoadBalance(), a_gang("g", task), capacity) == sequentially(task, step, load)


@pytest.mark.parametrize(
    "placer", [FirstFit(), BestFit(), LoadBalance()], ids=lambda p: type(p).__name__
)
def test_workers_that_need_their_server_beside_them_get_it(placer: Placer) -> None:
    gang = a_gang(
        "g",
        a_task(2, 4),
        a_task(2, 0, role=Role.PS),
        role_affinity=RoleAffinity(AffinityMode.REQUIRED),
    )
    placement = placer.place(gang, capacity := capacity_of(FOUR, dict.fromkeys("abcd", 4)))
    assert placement is not None
    spots = placement.by_task(capacity.nodes)
    assert set(spots["worker"]) <= set(spots["ps"])


@pytest.mark.parametrize(
    "placer", [FirstFit(), BestFit(), LoadBalance()], ids=lambda p: type(p).__name__
)
def test_several_tasks_that_fit_only_in_another_way_are_placed_all_the_same(
    placer: Placer,
) -> None:
    # Two pods of one core in the large node would leave no room for the evaluators there.
    nodes = [a_node("a", 0, cpu_millis=6000, pods=2), a_node("b", 0, cpu_millis=1000)]
    nodes.append(a_node("c", 0, cpu_millis=1000))
    small = a_task(2, 0, name="a", role=Role.WORKER)
    large = a_task(2, 0, name="b", cpu_millis=3000, role=Role.EVALUATOR)
    assert nodes_of(placer, a_gang("g", small, large), capacity_of(nodes)) == {
        "a": 2,
        "b": 1,
        "c": 1,
    }
