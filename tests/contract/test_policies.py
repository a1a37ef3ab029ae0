"""The contract of every registered policy with the cycle: pure, deterministic, complete, whole."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme import policy_names
from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.obstacles import configuration_fault
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Orderer, Policy, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_orderer, make_placer, make_sizer
from testbed import random_snapshots
from testbed.examples import examples
from testbed.model import oracles
from testbed.random_snapshots import SnapshotCase

contract = examples(10)
orderers = pytest.mark.parametrize("orderer_name", sorted(policy_names.class_paths("orderer")))
placers = pytest.mark.parametrize("placer_name", sorted(policy_names.class_paths("placer")))
sizers = pytest.mark.parametrize("sizer_name", sorted(policy_names.class_paths("sizer")))
POLICIES = [(orderer, "packing", "") for orderer in sorted(policy_names.class_paths("orderer"))]
POLICIES += [
    ("fifo", placer, "")
    for placer in sorted(policy_names.class_paths("placer"))
    if placer != "packing"
]
POLICIES += [("fifo", "packing", sizer) for sizer in sorted(policy_names.class_paths("sizer"))]


def sound(case: SnapshotCase) -> list[Gang]:
    """The gangs a policy gets to see."""
    snapshot = case.snapshot
    queues = QueueTree(snapshot.queues, snapshot.queue_usage, snapshot.total)
    return [g for g in snapshot.waiting if configuration_fault(g, snapshot, queues) is None]


def ranking(orderer: Orderer, gangs: list[Gang], snapshot: ClusterSnapshot) -> list[object]:
    return [
        (entry.gang.uid, entry.score, entry.factors) for entry in orderer.order(gangs, snapshot)
    ]


def facts(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Everything a policy could have changed, as values of their own."""
    return (
        repr((snapshot.waiting, snapshot.queues, snapshot.queue_usage, snapshot.settings)),
        snapshot.used.tobytes(),
        snapshot.nodes.names,
        snapshot.nodes.allocatable.tobytes(),
        snapshot.nodes.is_ready.tobytes(),
        [codes.tobytes() for codes in snapshot.nodes.domains],
    )


@orderers
@contract
@given(random_snapshots.cases(), st.randoms(use_true_random=False))
def test_an_orderer_returns_every_gang_once_in_a_total_order(
    orderer_name: str, case: SnapshotCase, shuffle: random.Random
) -> None:
    gangs = sound(case)
    first = ranking(make_orderer(orderer_name), gangs, case.snapshot)
    assert sorted(str(entry) for entry in first) == sorted({str(entry) for entry in first})
    assert len(first) == len(gangs)
    shuffle.shuffle(gangs)
    assert ranking(make_orderer(orderer_name), gangs, case.snapshot) == first


@orderers
@contract
@given(random_snapshots.cases())
def test_an_orderer_hands_back_the_very_gangs_and_changes_nothing(
    orderer_name: str, case: SnapshotCase
) -> None:
    gangs = sound(case)
    given_list, before = list(gangs), facts(case.snapshot)
    ranked = make_orderer(orderer_name).order(gangs, case.snapshot)
    assert {id(entry.gang) for entry in ranked} == {id(gang) for gang in gangs}
    assert all(left is right for left, right in zip(gangs, given_list, strict=True))
    assert facts(case.snapshot) == before


@placers
@contract
@given(random_snapshots.cases())
def test_a_placer_is_deterministic_and_changes_nothing(
    placer_name: str, case: SnapshotCase
) -> None:
    capacity = FreeCapacity(case.snapshot.nodes, case.snapshot.used)
    placer = make_placer(placer_name)
    free, before = capacity.free.copy(), facts(case.snapshot)
    for gang in sound(case):
        placement = placer.place(gang, capacity)
        assert np.array_equal(capacity.free, free)
        fresh = FreeCapacity(case.snapshot.nodes, case.snapshot.used)
        again = make_placer(placer_name).place(gang, fresh)
        assert (placement is None) == (again is None)
        if placement is not None and again is not None:
            nodes = case.snapshot.nodes
            assert placement.by_task(nodes) == again.by_task(nodes)
            assert (placement.level, placement.domain) == (again.level, again.domain)
    assert facts(case.snapshot) == before


@placers
@contract
@given(random_snapshots.cases())
def test_a_placement_names_every_task_with_all_its_replicas_in_row_order(
    placer_name: str, case: SnapshotCase
) -> None:
    for gang in sound(case):
        capacity = FreeCapacity(case.snapshot.nodes, case.snapshot.used)
        placement = make_placer(placer_name).place(gang, capacity)
        if placement is None:
            continue
        assert [task.task for task in placement.tasks] == [task.name for task in gang.tasks]
        for task, placed in zip(gang.tasks, placement.tasks, strict=True):
            assert placed.counts.sum() == task.replicas
            assert (placed.counts > 0).all()
            assert (np.diff(placed.rows) > 0).all()


def elastic(gang: Gang) -> Gang:
    """``gang`` with room to grow and to shrink."""
    tasks = [
        replace(task, min_replicas=1, max_replicas=min(task.replicas, 16) + 3)
        for task in gang.tasks
        if task.replicas <= 16
    ]
    return replace(gang, tasks=tuple(tasks) or gang.tasks, is_elastic=bool(tasks))


@sizers
@contract
@given(random_snapshots.cases())
def test_a_sizer_names_whole_sizes_of_gangs_it_was_given_and_changes_nothing(
    sizer_name: str, case: SnapshotCase
) -> None:
    gangs = [elastic(gang) for gang in sound(case)]
    ranked = [Ranked(gang, 0.0) for gang in gangs]
    before = facts(case.snapshot)
    found = make_sizer(sizer_name).sizes(ranked, case.snapshot)
    assert facts(case.snapshot) == before
    known = {gang.uid: {task.name for task in gang.tasks} for gang in gangs}
    for uid, sizes in found.items():
        assert sizes.keys() <= known[uid]
        assert all(isinstance(size, (int, np.integer)) for size in sizes.values())
    fresh = replace(case.snapshot)
    assert make_sizer(sizer_name).sizes(ranked, fresh) == found


@pytest.mark.parametrize(("orderer_name", "placer_name", "sizer_name"), POLICIES)
@contract
@given(random_snapshots.cases())
def test_every_policy_keeps_the_promises_of_the_cycle(
    orderer_name: str, placer_name: str, sizer_name: str, case: SnapshotCase
) -> None:
    sizer = make_sizer(sizer_name) if sizer_name else None
    policy = Policy(make_orderer(orderer_name), make_placer(placer_name), sizer)
    decision = run_cycle(case.snapshot, policy)
    assert list(oracles.broken_promises(case.snapshot, decision)) == []
