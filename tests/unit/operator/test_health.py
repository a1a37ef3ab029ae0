"""Health of nodes: those that can be trusted with what was planned on them."""

from dataclasses import replace
from typing import Any

import numpy as np

from bireme.core.nodes import NodeTable
from bireme.core.pod_constraints import Taint, Toleration
from bireme.core.resources import NODE_ONLY
from bireme.core.settings import SchedulingSettings
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from bireme.testing import ManualClock, a_node
from bireme_operator.reconcile import NodeHealth
from testbed.objects.facts import node_manifest, through_the_wire
from testbed.scenario.manifests import pod


class World:
    """A cluster of which each test changes one thing."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ClusterState(SchedulingSettings())
        self.health = NodeHealth(self.state, self.clock, lost_seconds=40)
        self.put()

    def put(self, *, gpus: int = 8, **facts: Any) -> None:
        node = a_node("n", gpus, **facts)
        made = through_the_wire(node_manifest(node), wire.V1Node)
        self.state.nodes.put(("", "n"), made)

    def put_pod(self, gpus: int) -> None:
        made = through_the_wire(pod("p", gpus, nodeName="n"), wire.V1Pod)
        self.state.objects.put_other_pod(("default", "p"), made)

    def observe(self, after: float = 0.0) -> None:
        self.clock.advance(after)
        self.health.observe(self.state.snapshot(0.0))


def test_a_healthy_node_is_neither_lost_nor_unusable() -> None:
    world = World()
    world.observe()
    assert (world.health.lost("n"), world.health.unusable("n", ())) == ("", "")


def test_a_deleted_node_is_lost_at_once() -> None:
    assert World().health.lost("other") == "the node was deleted"


def test_a_node_is_lost_when_it_was_not_ready_for_long_enough() -> None:
    world = World()
    world.put(is_ready=False)
    world.observe()
    world.observe(after=39)
    assert world.health.lost("n") == ""
    world.observe(after=1)
    assert world.health.lost("n") == "the node has not been ready for 40 s"


def test_a_node_that_came_back_in_between_starts_from_zero() -> None:
    world = World()
    for ready in (False, True, False):
        world.put(is_ready=ready)
        world.observe(after=30)
    assert world.health.lost("n") == ""


def test_a_node_that_is_being_deleted_is_lost_once_its_kubelet_is_silent() -> None:
    world = World()
    world.put(is_leaving=True)
    for _ in range(3):
        world.observe(after=100)
    assert world.health.lost("n") == "", "its kubelet works, and its pods may save and end"
    for tolerations in ((), None, (Toleration(operator="Exists"),)):
        assert "deletion of the node began" in world.health.unusable("n", tolerations)
    world.put(is_leaving=True, is_ready=False)
    world.observe()
    world.observe(after=40)
    assert world.health.lost("n") == "the node has not been ready for 40 s"


def test_a_cordoned_node_is_unusable_but_not_lost() -> None:
    world = World()
    world.put(is_cordoned=True)
    assert "cordoned" in world.health.unusable("n", ())
    assert world.health.lost("n") == ""


def test_a_taint_put_on_a_node_makes_it_unusable_for_those_that_do_not_tolerate_it() -> None:
    world = World()
    node = a_node("n", 8, taints=(Taint("maintenance", "", "NoSchedule"),))
    world.state.nodes.put(("", "n"), through_the_wire(node_manifest(node), wire.V1Node))
    assert "taint maintenance:NoSchedule" in world.health.unusable("n", ())
    assert world.health.unusable("n", (Toleration("maintenance", "Exists"),)) == ""
    assert world.health.unusable("n", None) == "", "kube-scheduler says so of such pods"


def test_a_node_is_usable_while_a_volume_counts_for_itself_and_for_its_pod() -> None:
    """kube-scheduler binds a volume before the pod, which counts as planned until it is bound."""
    world = World()
    world.observe()
    snapshot = world.state.snapshot(0.0)
    node = replace(snapshot.nodes.nodes[0], allocatable={"pods": 9, f"{NODE_ONLY}disk": 1})
    table = NodeTable([node], ())
    used = np.zeros_like(table.allocatable)
    used[0, table.axis.column(f"{NODE_ONLY}disk")] = 2
    for _ in range(2):
        world.clock.advance(3)
        world.health.observe(replace(snapshot, nodes=table, used=used))
    assert world.health.overfull("n") == ""


def test_the_room_of_a_node_is_taken_when_it_stays_overfull() -> None:
    world = World()
    world.put_pod(9)
    world.observe()
    assert world.health.overfull("n") == ""
    world.observe(after=2)
    assert world.health.overfull("n") == "another pod took the planned room"
    world.put_pod(8)
    world.observe()
    assert world.health.overfull("n") == ""


def test_a_node_that_shrinks_below_what_runs_on_it_is_overfull() -> None:
    world = World()
    world.put_pod(8)
    world.put(gpus=7)
    world.observe()
    world.observe(after=2)
    assert world.health.overfull("n")
