"""Volumes that are attached to a node once, however many pods use them there, in a cycle."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from bireme.core.gangs import Gang, Task
from bireme.core.nodes import Node
from bireme.core.pod_constraints import PodKind
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.reasons import Reason
from bireme.core.resources import ATTACHABLE
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_task
from testbed.decisions import hold_of
from tests.unit.core.preemption_cases import a_world, decide, runs, stopped, urgent

SLOTS = f"{ATTACHABLE}disks.example.com"


def with_slots(**slots: int) -> list[Node]:
    """Nodes of eight GPUs that can have so many volumes attached."""
    made = (a_node(name) for name in slots)
    return [
        replace(node, allocatable={**node.allocatable, SLOTS: slots[node.name]}) for node in made
    ]


def using(*volumes: str) -> PodKind:
    return PodKind(volumes=tuple((SLOTS, volume) for volume in volumes))


def sharing(replicas: int, *volumes: str, gpus: int = 1, name: str | None = None) -> Task:
    return a_task(replicas, gpus, name=name, pod=using(*volumes))


def attached(world: ClusterSnapshot, **volumes: str) -> ClusterSnapshot:
    """Have a pod of no gang use a volume on each node that is named."""
    used, there = world.used.copy(), []
    for name, volume in volumes.items():
        row = world.nodes.row[name]
        used[row, world.nodes.axis.column(SLOTS)] += 1
        there.append(PodsOf(using(volume), np.array([row])))
    return replace(world, used=used, occupants=Occupants((*world.occupants.groups, *there)))


def decided(world: ClusterSnapshot) -> Mapping[str, list[str]]:
    """The nodes of every admitted gang, sorted."""
    return {
        each.gang.name: sorted(
            node for nodes in each.placement.by_task(world.nodes).values() for node in nodes
        )
        for each in decide(world).admitted
    }


def test_replicas_that_share_a_volume_attach_it_once_to_a_node() -> None:
    nodes = with_slots(n0=1, n1=1, n2=0)
    found = decided(a_world(a_gang("g", sharing(4, "v", gpus=4)), nodes=nodes))
    assert found == {"g": ["n0", "n0", "n1", "n1"]}


def test_a_gang_without_places_for_its_volumes_says_so() -> None:
    nodes = with_slots(n0=1, n1=1)
    hold = hold_of(decide(a_world(a_gang("g", sharing(2, "v", "w")), nodes=nodes)), "g")
    assert hold.reason is Reason.NEVER_FITS
    assert "one worker replica asks 2 attachable-volumes-csi-disks.example.com" in hold.message
    world = attached(a_world(a_gang("g", sharing(2, "v")), nodes=nodes), n0="x", n1="y")
    hold = hold_of(decide(world), "g")
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert "attached volumes of driver disks.example.com" in hold.message


def test_a_volume_that_is_there_takes_no_more_where_none_can_be_attached() -> None:
    nodes = with_slots(n0=1, n1=1)
    gangs = (a_gang("g", sharing(2, "v")), a_gang("h", sharing(1, "w"), arrived=1.0))
    world = attached(a_world(*gangs, nodes=nodes), n0="x", n1="v")
    assert decided(world) == {"g": ["n1", "n1"]}


def test_gangs_of_one_cycle_share_a_volume_and_leave_no_place_for_another() -> None:
    names = (("a", "v"), ("b", "v"), ("c", "w"), ("d", "v"))
    gangs = (
        a_gang(name, sharing(1, volume, gpus=2), arrived=at)
        for at, (name, volume) in enumerate(names)
    )
    found = decided(a_world(*gangs, nodes=with_slots(n0=1)))
    assert found == {"a": ["n0"], "b": ["n0"], "d": ["n0"]}


@pytest.mark.parametrize(("second", "together"), [("v", True), ("w", False)])
def test_tasks_of_a_gang_share_a_volume_or_are_apart(second: str, together: bool) -> None:
    tasks = sharing(1, "v", name="one"), sharing(1, second, name="two")
    found = decided(a_world(a_gang("g", *tasks), nodes=with_slots(n0=1, n1=1)))
    assert len(set(found["g"])) == (1 if together else 2)


def asking(name: str, volumes: int) -> Gang:
    task = a_task(1)
    return a_gang(name, replace(task, request=tuple(sorted((*task.request, (SLOTS, volumes))))))


def test_the_victim_is_the_gang_whose_end_leaves_a_place_for_the_volume() -> None:
    """By sums of other resources nobody would have to leave; the last to start does not help."""
    shared = urgent(1)
    shared = replace(shared, tasks=(replace(shared.tasks[0], pod=using("v")),))
    world = runs(a_world(shared, nodes=with_slots(n0=1, n1=0)), asking("holder", 1), {"n0": 1})
    world = runs(world, "later", {"n0": 1}, started=-500.0)
    assert stopped(decide(world)) == ["holder"]


def test_a_reservation_keeps_the_place_for_the_volume() -> None:
    first = a_gang("first", sharing(1, "v"))
    later = a_gang("later", sharing(1, "w"), arrived=1.0)
    holder = replace(asking("holder", 1), estimated_seconds=5000.0)
    world = runs(a_world(first, later, nodes=with_slots(n0=2, n1=0)), holder, {"n0": 1})
    world = attached(world, n0="x")
    decision = decide(world)
    hold = hold_of(decision, "first")
    assert hold.reservation is not None
    assert hold.reservation.start == pytest.approx(4000.0)
    assert hold_of(decision, "later").reason is Reason.WAITING_FOR_CAPACITY
    free = replace(world, used=np.where(world.used > 0, world.used - 1, 0))
    assert sorted(decided(free)) == ["first"]


def test_a_volume_of_a_gang_for_which_others_are_stopped_is_not_there_yet() -> None:
    """The one place for volumes comes free with the victim, and not for who shares the volume."""
    first = urgent(1)
    first = replace(first, tasks=(replace(first.tasks[0], pod=using("v")),))
    shares = a_gang("shares", sharing(1, "v"), arrived=1.0)
    world = runs(a_world(first, shares, nodes=with_slots(n0=1)), asking("holder", 1), {"n0": 1})
    decision = decide(world)
    assert stopped(decision) == ["holder"]
    assert hold_of(decision, "shares").reason is Reason.WAITING_FOR_CAPACITY


def test_a_volume_of_the_gang_with_the_reservation_is_not_there_yet() -> None:
    first = a_gang("first", sharing(1, "v", gpus=2))
    shares = a_gang("shares", sharing(1, "v"), arrived=1.0)
    holder = replace(asking("holder", 1), estimated_seconds=5000.0)
    world = runs(a_world(first, shares, nodes=with_slots(n0=1)), holder, {"n0": 1})
    assert hold_of(decide(world), "shares").reason is Reason.WAITING_FOR_CAPACITY
