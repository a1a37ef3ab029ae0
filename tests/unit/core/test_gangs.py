"""Gangs: demand, minimum, order of tasks, flaws, shapes."""

import pytest
from hypothesis import given

from bireme.core.gangs import Gang, Role, RoleAffinity, Task
from bireme.testing import GIB, GPU, a_gang, a_task
from testbed import random_snapshots


def sizes(gang: Gang) -> dict[str, int]:
    return {task.name: task.replicas for task in gang.tasks}


def test_demand_sums_every_task_exactly() -> None:
    gang = a_gang("g", a_task(10**12, 3), a_task(2, 0, role=Role.PS, cpu_millis=4000))
    assert gang.replicas == 10**12 + 2
    assert gang.demand == {
        "cpu": 10**15 + 8000,
        "memory": (10**12 + 2) * GIB,
        "pods": 10**12 + 2,
        GPU: 3 * 10**12,
    }


def test_a_rigid_gang_is_its_own_minimum() -> None:
    gang = a_gang("g", a_task(4), a_task(2, name="ps", role=Role.PS))
    assert gang.at_minimum is gang


def test_a_gang_whose_minimum_equals_its_size_is_its_own_minimum() -> None:
    gang = a_gang("g", a_task(4, min_replicas=4))
    assert gang.at_minimum is gang


@pytest.mark.parametrize(
    ("min_available", "expected"),
    [
        pytest.param(0, {"master": 1, "worker": 2, "evaluator": 1}, id="minima-alone"),
        pytest.param(3, {"master": 1, "worker": 2, "evaluator": 1}, id="already-above"),
        pytest.param(6, {"master": 1, "worker": 4, "evaluator": 1}, id="workers-before-evaluator"),
        pytest.param(11, {"master": 1, "worker": 8, "evaluator": 2}, id="then-evaluators"),
        pytest.param(99, {"master": 1, "worker": 8, "evaluator": 3}, id="at-most-all"),
    ],
)
def test_the_minimum_honours_min_available_in_task_priority_order(
    min_available: int, expected: dict[str, int]
) -> None:
    gang = a_gang(
        "g",
        a_task(3, min_replicas=1, role=Role.EVALUATOR),
        a_task(8, min_replicas=2),
        a_task(1, role=Role.MASTER),
        min_available=min_available,
    )
    assert sizes(gang.at_minimum) == expected


@given(random_snapshots.gangs("g"))
def test_the_minimum_is_between_the_tasks_minima_and_their_sizes(gang: Gang) -> None:
    smallest = sizes(gang.at_minimum)
    for task in gang.tasks:
        assert (task.min_replicas or task.replicas) <= smallest[task.name] <= task.replicas
    assert sum(smallest.values()) >= min(gang.min_available, gang.replicas)
    assert gang.at_minimum.at_minimum is gang.at_minimum


def test_resizing_keeps_the_first_members_and_drops_empty_tasks() -> None:
    worker = Task("worker", 3, (("pods", 1),), members=("a", "b", "c"))
    gang = a_gang("g", worker, a_task(2, name="ps", role=Role.PS))
    smaller = gang.with_sizes({"worker": 2, "ps": 0})
    assert [(task.name, task.members) for task in smaller.tasks] == [("worker", ("a", "b"))]
    assert smaller.demand == {"pods": 2}
    assert gang.replicas == 5


def test_tasks_are_ordered_by_priority_and_then_as_written() -> None:
    tasks = [
        a_task(1, name="late", priority=1),
        a_task(1, name="b", priority=9),
        a_task(1, name="a", priority=9),
    ]
    assert [task.name for task in a_gang("g", *tasks).tasks_in_order()] == ["b", "a", "late"]


def test_roles_have_the_intra_job_order_of_training() -> None:
    order = sorted(Role, key=lambda role: -role.default_priority)
    assert [role.value for role in order] == ["master", "chief", "ps", "worker", "evaluator"]


def test_equal_shapes_ignore_who_and_when_but_not_what_is_asked() -> None:
    gang = a_gang("g", a_task(2))
    assert gang.shape == a_gang("h", a_task(2), arrived=5.0, priority=7, queue="q").shape
    others = [
        a_gang("g", a_task(3)),
        a_gang("g", a_task(2, 2)),
        a_gang("g", a_task(2, role=Role.CHIEF, name="worker")),
        a_gang("g", a_task(2, constraints=random_snapshots.CONSTRAINTS[1])),
        a_gang("g", a_task(2), role_affinity=RoleAffinity(topology_key=random_snapshots.RACK)),
        a_gang("g", a_task(2, name="trainer")),
    ]
    assert len({gang.shape, *(other.shape for other in others)}) == 7


@pytest.mark.parametrize(
    ("tasks", "flaw"),
    [
        pytest.param((), "no tasks", id="no-tasks"),
        pytest.param((Task("a", 1, ()), Task("a", 2, ())), "same name", id="twice"),
        pytest.param((Task("a", 0, ()),), "0 replicas; set at least 1", id="zero"),
        pytest.param((Task("a", -3, ()),), "-3 replicas", id="negative"),
        pytest.param((Task("a", 2, (), min_replicas=3),), "minReplicas 3", id="minimum-above"),
        pytest.param((Task("a", 2, (), min_replicas=-1),), "minReplicas -1", id="minimum-below"),
        pytest.param((Task("a", 2, (), min_replicas=2), Task("b", 1, ())), "", id="sound"),
    ],
)
def test_a_flaw_is_named_with_its_remedy(tasks: tuple[Task, ...], flaw: str) -> None:
    found = Gang("u", "n", "ns", "q", tasks, 0.0).flaw
    assert flaw in found
    assert bool(found) == bool(flaw)
