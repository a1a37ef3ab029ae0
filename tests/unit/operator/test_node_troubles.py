"""Nodes in trouble: who avoids them, for how long, and who is told."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from bireme.core.decision import Hold
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node, feasible
from bireme.core.pod_constraints import NodeConstraints, Requirement, SelectorOperator, SelectorTerm
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import allocations, pod_groups, pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.testing import GPU, ManualClock, a_gang, a_node, a_snapshot, a_task
from bireme_operator.lifecycle import Transition
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.status_writer import StatusWriter
from testbed.objects.facts import (
    CREATED,
    a_job,
    a_plan,
    a_view,
    gated_pod,
    node_manifest,
    running,
    served,
    through_the_wire,
)
from testbed.scenario.manifests import pod_group

JOB = a_job()
TEN = [f"n{number}" for number in range(10)]


def nodes_of(names: Iterable[str], **labels: str) -> list[Node]:
    return [a_node(name, 8, labels={"zone": name[0], **labels}) for name in names]


class World:
    """A cluster, and what an operator has seen of its nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.clock = ManualClock()
        self.state = ClusterState(SchedulingSettings())
        for node in nodes:
            self.state.nodes.put(
                ("", node.name), through_the_wire(node_manifest(node), wire.V1Node)
            )
        self.events: list[tuple[Any, ...]] = []
        self.metrics = OperatorMetrics()
        self.troubles = NodeHealthHistory(
            self.state, cast(StatusWriter, self), self.metrics.suspected, self.clock
        )

    def post_event(self, *event: Any) -> None:
        self.events.append(event)

    def move(self, namespace: str, node: str, reason: Reason, phase: str = "Restarting") -> None:
        job = replace(JOB, key=(namespace, "job"))
        self.troubles.observe(job, Transition(phase, reason, "", node=node), None)

    def refuse(self, node: str, *namespaces: str) -> None:
        """Its kubelet has refused a pod of each of the namespaces."""
        for namespace in namespaces:
            self.move(namespace, node, Reason.POD_REJECTED)

    def fail(self, node: str, *namespaces: str) -> None:
        """The first replica of a gang of each namespace failed there."""
        for namespace in namespaces:
            self.move(namespace, node, Reason.POD_FAILED)

    def succeed(self, *nodes: str) -> None:
        view = a_view(JOB, plan := a_plan(JOB, nodes), running(JOB, plan))
        self.troubles.observe(JOB, Transition("Succeeded", Reason.SUCCEEDED, ""), view)

    def avoided(self, gang: Gang | None = None) -> list[str]:
        """The nodes that a gang is kept from; without one, that of a namespace without trouble."""
        self.troubles.review()
        around = self.troubles.avoid_nodes(gang or a_gang("other", namespace="other"))
        table = self.state.nodes.table
        mask = feasible(around.tasks[0].constraints, table)
        return [name for name, usable in zip(table.names, mask, strict=True) if not usable]

    def suspected(self) -> dict[str, float]:
        """The metric, by node."""
        self.troubles.review()
        (family,) = self.metrics.suspected.collect()
        return {sample.labels["node"]: sample.value for sample in family.samples}


def a_gang_with(terms: tuple[SelectorTerm, ...] | None) -> Gang:
    return a_gang("g", a_task(1, 1, constraints=NodeConstraints(affinity_terms=terms)))


# --- trouble of one namespace -----------------------------------------------------------------


def test_gangs_of_the_namespace_avoid_the_node_for_ten_minutes_and_others_do_not() -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "default", "default")
    own, other = JOB.gang(0), a_gang("other", namespace="other")
    assert world.avoided(own) == ["n1"]
    assert world.troubles.avoid_nodes(other) is other
    assert (world.suspected(), world.events) == ({}, [])
    world.clock.advance(600)
    assert world.avoided(own) == []
    assert world.troubles.avoid_nodes(own) is own


def test_the_demands_of_a_gang_on_its_nodes_still_hold() -> None:
    world = World(nodes_of(("a1", "a2", "b1")))
    world.refuse("a1", "default")
    in_a = SelectorTerm((Requirement("zone", SelectorOperator.IN, ("a",)),))
    everything = ["a1", "a2", "b1"]
    for terms, kept in ((None, ["a1"]), ((in_a,), ["a1", "b1"]), ((SelectorTerm(),), everything)):
        assert world.avoided(a_gang_with(terms)) == kept


def test_only_the_gang_that_fits_nowhere_else_is_kept_from_no_node() -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "default")
    large, small = JOB.gang(0), a_gang("small")
    assert world.avoided(large) == ["n1"]
    assert world.troubles.exempt(large)
    assert world.avoided(large) == []
    assert not world.troubles.exempt(large), "now it is known that it fits nowhere at all"
    assert world.avoided(small) == ["n1"]
    world.clock.advance(599)
    world.refuse("n1", "default")
    assert world.avoided(large) == []
    world.clock.advance(1)
    assert world.avoided(large) == ["n1"]


def test_a_first_failure_may_be_the_jobs_own_and_keeps_it_from_no_node() -> None:
    world = World(nodes_of(TEN))
    world.fail("n1", "default", "default")
    assert world.avoided(JOB.gang(0)) == []


# --- trouble of two ---------------------------------------------------------------------------


@pytest.mark.parametrize("later", [0.0, 3599.0])
def test_all_gangs_avoid_a_node_with_which_two_namespaces_had_trouble_within_an_hour(
    later: float,
) -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "one")
    world.clock.advance(later)
    world.move("two", "n1", Reason.BACKOFF_LIMIT_EXCEEDED, "Failed")
    assert world.avoided() == ["n1"]
    assert world.suspected() == {"n1": 1.0}
    told = (
        "gangs of 2 namespaces had trouble with this node: its kubelet refused pods and replicas "
        "failed here first; gangs avoid it for 10 minutes"
    )
    assert world.events == [("Node", ("", "n1"), "n1", Reason.NODE_SUSPECTED, told)]
    world.clock.advance(599)
    assert world.avoided() == ["n1"]
    world.clock.advance(1)
    assert (world.avoided(), world.suspected()) == ([], {})
    assert len(world.events) == 1


def test_what_happened_more_than_an_hour_apart_does_not_count_together() -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "one")
    world.clock.advance(3600)
    world.refuse("n1", "two")
    assert world.suspected() == {}


def test_trouble_that_comes_again_within_the_hour_needs_no_second_namespace() -> None:
    world = World(nodes_of(TEN))
    world.fail("n1", "one", "two")
    assert world.avoided() == ["n1"]
    world.clock.advance(700)
    assert world.avoided() == []
    world.fail("n1", "one")
    assert world.avoided() == ["n1"]
    assert len(world.events) == 2


def test_a_gang_that_ends_well_on_a_node_clears_it_of_failures_but_not_of_refusals() -> None:
    world = World(nodes_of(f"n{number}" for number in range(20)))
    world.fail("n1", "one", "two")
    world.refuse("n2", "one", "two")
    assert world.avoided() == ["n1", "n2"]
    world.succeed("n1", "n2")
    assert world.avoided() == ["n2"]


def test_a_node_that_comes_back_under_the_name_of_a_deleted_one_has_no_past() -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "one", "two")
    assert world.avoided() == ["n1"]
    world.state.nodes.delete(("", "n1"))
    assert world.suspected() == {}
    made = node_manifest(a_node("n1", 8))
    world.state.nodes.put(("", "n1"), through_the_wire(made, wire.V1Node))
    assert world.avoided() == []


# --- a tenth of a pool ------------------------------------------------------------------------


def test_of_fewer_than_ten_nodes_none_is_avoided_but_all_are_named() -> None:
    world = World(nodes_of(TEN[:9]))
    world.refuse("n1", "one", "two")
    assert (world.avoided(), world.suspected()) == ([], {"n1": 0.0})
    assert world.events[0][-1].endswith(
        "gangs still use it, because they avoid at most a tenth of its pool"
    )
    assert world.avoided(a_gang("own", namespace="one")) == ["n1"], "its own trouble stays its own"


def test_where_many_nodes_of_a_pool_are_in_trouble_the_first_tenth_is_avoided() -> None:
    world = World(nodes_of(f"n{number:02}" for number in range(25)))
    for number in (7, 3, 5):
        world.clock.advance(1)
        world.refuse(f"n{number:02}", "one", "two")
    assert world.suspected() == {"n03": 1.0, "n05": 0.0, "n07": 1.0}
    assert world.avoided() == ["n03", "n07"]
    world.clock.advance(598)
    assert world.avoided() == ["n03", "n05"], "the trouble of n07 is over"


@pytest.mark.parametrize(
    ("labels", "others", "avoided"),
    [
        ({"bireme.dev/node-pool": "a"}, {"bireme.dev/node-pool": "b"}, ["n1"]),
        ({GPU_MODEL_LABEL: "H100"}, {GPU_MODEL_LABEL: "H200"}, ["n1"]),
        ({"bireme.dev/node-pool": "a", GPU_MODEL_LABEL: "H100"}, {GPU_MODEL_LABEL: "H100"}, ["n1"]),
        ({}, {"bireme.dev/node-pool": "b"}, ["n1"]),
        ({"zone": "a"}, {"zone": "b"}, ["m1", "n1"]),
    ],
)
def test_a_pool_is_the_nodes_of_one_pool_label_or_else_of_one_gpu_model(
    labels: dict[str, str], others: dict[str, str], avoided: list[str]
) -> None:
    """Ten nodes n0 to n9 with ``labels``, and others m0, m1, ... with those of ``others``."""
    names = [f"m{number}" for number in range(10 if "zone" in labels else 9)]
    world = World([*nodes_of(TEN, **labels), *nodes_of(names, **others)])
    world.refuse("m1", "one", "two")
    world.refuse("n1", "one", "two")
    assert world.avoided() == avoided


# --- gangs that wait --------------------------------------------------------------------------


def explained(world: World, gang: Gang, reason: Reason, used_gpus: int = 0) -> str:
    world.troubles.review()
    around = world.troubles.avoid_nodes(gang)
    snapshot = snapshot_of(world, used_gpus)
    return world.troubles.explain(Hold(around, reason, "asks more"), snapshot).message


def snapshot_of(world: World, used_gpus: int) -> ClusterSnapshot:
    snapshot = a_snapshot(world.state.nodes.table.nodes)
    used = snapshot.used.copy()
    used[:, snapshot.nodes.axis.column(GPU)] += used_gpus
    return replace(snapshot, used=used)


def test_a_gang_that_waits_says_which_nodes_with_room_for_it_are_avoided() -> None:
    world = World(nodes_of(TEN))
    world.refuse("n1", "one", "two")
    gang, capacity = a_gang("g", a_task(2, 4)), Reason.WAITING_FOR_CAPACITY
    assert explained(world, gang, capacity, used_gpus=4) == (
        "asks more; it avoids room on n1 for some minutes, because pods were refused or failed "
        "there"
    )
    assert explained(world, gang, capacity, used_gpus=5) == "asks more", "no room there either"
    assert explained(world, gang, Reason.OVER_QUEUE_LIMIT) == "asks more"
    choosy = a_gang_with((SelectorTerm((Requirement("zone", SelectorOperator.IN, ("b",)),)),))
    assert explained(world, choosy, capacity) == "asks more"


# --- pods of other controllers ----------------------------------------------------------------

MEMBERS = tuple(Member("pod", f"n{number}", uid=f"p{number}-uid") for number in range(3))
PLAN = PlanFacts(
    1, 0, "", "Pinned", CREATED, {"pod": (("pods", 1),)}, {"pod": "worker"}, MEMBERS, queue="q"
)


class Guests:
    """A PodGroup of ``namespace`` with pods p0, p1 and p2 on n0, n1 and n2."""

    def __init__(self, world: World, namespace: str) -> None:
        self.world = world
        made = served(pod_group("group", 3), f"{namespace}-uid", namespace=namespace)
        self.group = pod_groups.from_manifest(through_the_wire(made, wire.CustomObject))

    def look(self, **failed: str) -> None:
        """See its pods, some of them failed with a reason, or by themselves with none."""
        found = []
        for number in range(3):
            made = gated_pod(f"p{number}", schedulingGates=[], nodeName=f"n{number}")
            why = failed.get(f"p{number}")
            said = {"phase": "Running"} if why is None else {"phase": "Failed", "reason": why}
            made["status"] = said
            found.append(pods.from_manifest(through_the_wire(made, wire.V1Pod)))
        view = allocations.view_of(self.group.key, "", PLAN, found)
        self.world.troubles.observe_group(self.group, view)


def test_pods_of_others_that_are_refused_or_fail_first_are_trouble_too() -> None:
    world = World(nodes_of(TEN))
    refused, fails = Guests(world, "one"), Guests(world, "two")
    for guests in (refused, fails):
        guests.look()
    refused.look(p1="UnexpectedAdmissionError")
    fails.look(p1="")
    assert world.avoided() == ["n1"]
    assert world.avoided(a_gang("own", namespace="one")) == ["n1"]


def test_later_failures_of_a_group_and_those_of_before_this_leader_do_not_count() -> None:
    world = World(nodes_of(TEN))
    world.fail("n1", "zero")
    world.fail("n2", "zero")
    before, after = Guests(world, "one"), Guests(world, "two")
    before.look(p1="")
    before.look(p1="")
    after.look()
    after.look(p0="")
    after.look(p0="", p2="")
    both = Guests(world, "three")
    both.look()
    both.look(p1="", p2="")
    assert world.suspected() == {}
