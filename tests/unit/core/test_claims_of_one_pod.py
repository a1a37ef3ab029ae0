"""Claims that one pod of the cluster can use at a time (ReadWriteOncePod), in a cycle."""

from dataclasses import replace

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.pod_constraints import PodKind
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_task
from testbed.decisions import hold_of
from tests.unit.core.preemption_cases import a_world, decide, runs, stopped, urgent

DATA = PodKind(alone=(("default", "data"),))
MORE = PodKind(alone=(("default", "more"), ("default", "data")))
NODES = [a_node("n0"), a_node("n1")]


def naming(gang: Gang, kind: PodKind = DATA) -> Gang:
    return replace(gang, tasks=tuple(replace(task, pod=kind) for task in gang.tasks))


def held_by(world: ClusterSnapshot, *owners: str) -> ClusterSnapshot:
    """Add a pod that uses the claim, of each gang or, without a name, of nobody."""
    there = (PodsOf(DATA, np.zeros(1, dtype=np.int64), owner) for owner in owners)
    return replace(world, occupants=Occupants((*world.occupants.groups, *there)))


def test_the_second_gang_of_a_cycle_that_names_the_claim_waits_in_words() -> None:
    first, second = (naming(a_gang(name, a_task(1), arrived=at)) for at, name in enumerate("ab"))
    third = naming(a_gang("c", a_task(1), arrived=2.0), MORE)
    other = naming(a_gang("d", a_task(1), arrived=3.0), PodKind(alone=(("team", "data"),)))
    decision = decide(a_world(first, second, third, other, nodes=NODES))
    assert [each.gang.name for each in decision.admitted] == ["a", "d"]
    for name in "bc":
        hold = hold_of(decision, name)
        assert (hold.reason, hold.reservation) == (Reason.CLAIM_NOT_READY, None)
        words = 'persistentvolumeclaim "data" has access mode ReadWriteOncePod and default/a'
        assert hold.message == f"{words} uses it"


def test_a_gang_that_waits_for_a_claim_keeps_no_place_from_others() -> None:
    """The one behind it takes the last GPUs, although it runs for an unknown time."""
    first, behind = naming(a_gang("first", a_task(1, 8))), a_gang("behind", a_task(1, 8))
    world = runs(a_world(first, replace(behind, arrived=1.0), nodes=NODES), "holder", {"n0": 1})
    decision = decide(held_by(world, "holder"))
    assert [each.gang.name for each in decision.admitted] == ["behind"]
    assert hold_of(decision, "first").message.endswith("default/holder uses it")


def test_who_uses_the_claim_makes_room_for_a_gang_of_higher_priority() -> None:
    """By sums of resources nobody would have to leave; the gang that started last does not help."""
    world = runs(a_world(naming(urgent(1)), nodes=NODES), "holder", {"n0": 1}, started=-2000.0)
    world = held_by(runs(world, "later", {"n1": 1}), "holder")
    decision = decide(world)
    assert stopped(decision) == ["holder"]
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_PREEMPTION


def test_nobody_makes_room_where_a_pod_of_no_gang_uses_the_claim() -> None:
    world = runs(a_world(naming(urgent(1)), nodes=NODES), "holder", {"n0": 1})
    decision = decide(held_by(world, "holder", ""))
    assert stopped(decision) == []
    assert hold_of(decision, "urgent").reason is Reason.CLAIM_NOT_READY


def test_a_gang_does_not_grow_by_a_second_pod_that_names_the_claim() -> None:
    elastic = a_gang("g", a_task(1, max_replicas=3), is_elastic=True)
    assert decide(runs(a_world(nodes=NODES), elastic, {"n0": 1})).resized
    world = runs(a_world(nodes=NODES), naming(elastic), {"n0": 1})
    assert not decide(held_by(world, "g")).resized
