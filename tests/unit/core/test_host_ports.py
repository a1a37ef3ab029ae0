"""Host ports in a cycle: who may be on a node together, and who makes room for whom."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.pod_constraints import HostPort, PodKind
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_task
from testbed.decisions import hold_of
from tests.unit.core.preemption_cases import a_world, decide, runs, stopped, urgent

TCP = PodKind((HostPort(7000),))


def with_pods(snapshot: ClusterSnapshot, *groups: tuple[PodKind, str, str]) -> ClusterSnapshot:
    """Add pods: of a kind, on a node, of a gang or, without a name, of nobody."""
    there = [
        PodsOf(kind, np.array([snapshot.nodes.row[node]]), owner) for kind, node, owner in groups
    ]
    return replace(snapshot, occupants=Occupants((*snapshot.occupants.groups, *there)))


def places(decision: Decision, name: str, nodes: NodeTable) -> list[str]:
    (found,) = (each for each in decision.admitted if each.gang.name == name)
    return sorted(node for some in found.placement.by_task(nodes).values() for node in some)


def decided(snapshot: ClusterSnapshot) -> dict[str, list[str]]:
    decision = decide(snapshot)
    return {
        each.gang.name: places(decision, each.gang.name, snapshot.nodes)
        for each in decision.admitted
    }


@pytest.mark.parametrize(
    ("other", "is_free"),
    [
        (HostPort(7000), False),
        (HostPort(7001), True),
        (HostPort(7000, "UDP"), True),
        (HostPort(7000, "TCP", "10.0.0.1"), False),
    ],
)
def test_a_port_that_is_taken_closes_the_node(other: HostPort, is_free: bool) -> None:
    world = a_world(a_gang("g", a_task(1, pod=TCP)), nodes=[a_node("n0", 1), a_node("n1", 8)])
    found = decided(with_pods(world, (PodKind((other,)), "n0", "")))
    assert found == {"g": ["n0" if is_free else "n1"]}


def test_two_addresses_of_a_node_can_have_the_same_port() -> None:
    mine = PodKind((HostPort(7000, "TCP", "10.0.0.1"),))
    there = PodKind((HostPort(7000, "TCP", "127.0.0.1"),))
    world = a_world(a_gang("g", a_task(1, pod=mine)), nodes=[a_node("n0", 8)])
    assert decided(with_pods(world, (there, "n0", ""))) == {"g": ["n0"]}


def test_replicas_with_a_port_and_gangs_of_one_cycle_are_on_different_nodes() -> None:
    nodes = [a_node(f"n{number}") for number in range(3)]
    two, one = a_gang("two", a_task(2, pod=TCP)), a_gang("one", a_task(1, pod=TCP), arrived=1.0)
    found = decided(a_world(two, one, nodes=nodes))
    assert sorted(found["two"] + found["one"]) == ["n0", "n1", "n2"]


def test_tasks_of_a_gang_that_want_one_port_are_on_different_nodes() -> None:
    gang = a_gang("g", a_task(1, pod=TCP), a_task(1, name="other", pod=TCP))
    assert decided(a_world(gang)) == {"g": ["n0", "n1"]}


def test_more_replicas_than_nodes_with_the_port_never_fit() -> None:
    hold = hold_of(decide(a_world(a_gang("g", a_task(3, pod=TCP)))), "g")
    assert hold.reason is Reason.NEVER_FITS
    assert "holds at most 2" in hold.message


def test_a_gang_that_waits_for_a_port_says_so() -> None:
    world = with_pods(a_world(a_gang("g", a_task(2, pod=TCP))), (TCP, "n0", ""))
    hold = hold_of(decide(world), "g")
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert "no room left for 1 of 2 worker" in hold.message
    assert "host port 7000" in hold.message


def ruled(gang: Gang) -> Gang:
    return replace(gang, tasks=tuple(replace(task, pod=TCP) for task in gang.tasks))


def running(names: Iterable[tuple[str, str]], *waiting: Gang) -> ClusterSnapshot:
    """Return two nodes with gangs of one GPU, of which those named with a port have it."""
    world = a_world(*waiting)
    for name, node in names:
        gang = a_gang(name, a_task(1, pod=TCP if name.startswith("port") else None))
        world = runs(world, gang, {node: 1})
        if name.startswith("port"):
            world = with_pods(world, (TCP, node, name))
    return world


def test_the_victim_is_the_gang_that_holds_the_port() -> None:
    """By sums of resources nobody would have to leave."""
    world = running([("plain0", "n0"), ("port0", "n0"), ("port1", "n1"), ("plain1", "n1")])
    world = replace(world, waiting=(ruled(urgent(1)),))
    (victim,) = stopped(decide(world))
    assert victim in ("port0", "port1")


def test_no_gang_is_stopped_for_a_port_that_a_pod_of_nobody_holds() -> None:
    world = running([("plain0", "n0"), ("plain1", "n1")], ruled(urgent(1)))
    decision = decide(with_pods(world, (TCP, "n0", ""), (TCP, "n1", "")))
    assert stopped(decision) == []
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_CAPACITY


def test_a_reservation_waits_for_the_port_and_keeps_it() -> None:
    """The first in line counts on the holder of the port; a later gang leaves that node alone."""
    first = a_gang("first", a_task(2, pod=TCP))
    later = a_gang("later", a_task(1, pod=TCP), arrived=1.0, is_preemptible=False)
    world = a_world(first, later)
    holder = a_gang("holder", a_task(1, pod=TCP), estimated_seconds=5000.0)
    world = with_pods(runs(world, holder, {"n0": 1}), (TCP, "n0", "holder"))
    decision = decide(world)
    hold = hold_of(decision, "first")
    assert hold.reservation is not None
    assert hold.reservation.start == pytest.approx(4000.0)
    assert hold_of(decision, "later").reason is Reason.WAITING_BEHIND


def test_gangs_of_one_shape_but_other_ports_are_decided_apart() -> None:
    taken, free = TCP, PodKind((HostPort(7001),))
    world = a_world(
        a_gang("a", a_task(1, pod=taken)), a_gang("b", a_task(1, pod=free)), nodes=[a_node("n0")]
    )
    assert decided(with_pods(world, (TCP, "n0", ""))) == {"b": ["n0"]}
