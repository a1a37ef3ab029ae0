"""Plans of running gangs that grow and shrink: who stays is untouched, counts are as decided."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement, make_placement
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.kube import plans
from bireme.kube.api.plan import Plan
from bireme.kube.plans import Member, PlanFacts
from bireme.testing import a_gang, a_node, a_task

NODES = NodeTable([a_node(f"n{i}") for i in range(4)], SchedulingSettings().topology_levels)
COUNTS = st.lists(st.integers(0, 3), min_size=len(NODES), max_size=len(NODES)).map(np.array)
NOW = 2_000_000.0
MASTER = np.array([1, 0, 0, 0])
READER = np.array([0, 0, 1, 0])


def gang(workers: IntArray) -> Gang:
    last = a_task(name="reader", role=Role.EVALUATOR)
    return a_gang("g", a_task(role=Role.MASTER), a_task(int(workers.sum())), last)


def places(workers: IntArray) -> Placement:
    return make_placement(
        gang(workers), NODES, {"master": MASTER, "worker": workers, "reader": READER}
    )


def a_plan_on(workers: IntArray) -> PlanFacts:
    made = places(workers)
    return plans.make_plan(gang(workers), made, NODES, epoch=3, attempt=2, spec_hash="s", now=1.0)


def counts(plan: PlanFacts) -> list[int]:
    on = [member.node for member in plan.members if member.task == "worker"]
    return [on.count(name) for name in NODES.names]


SOME = COUNTS.filter(lambda counts: counts.sum() > 0)


@given(SOME, SOME)
def test_every_node_holds_as_many_replicas_as_were_decided(before: IntArray, now: IntArray) -> None:
    plan = plans.resize(a_plan_on(before), places(now), NODES, NOW)
    assert counts(plan) == now.tolist()
    assert plan.replicas == {"master": 1, "worker": int(now.sum()), "reader": 1}


@given(SOME, SOME)
def test_nobody_moves_and_nobody_is_replaced(before: IntArray, now: IntArray) -> None:
    old = a_plan_on(before)
    new = plans.resize(old, places(now), NODES, NOW)
    kept = np.minimum(before, now).sum() + 2
    assert len(set(old.members) & set(new.members)) == kept
    assert len({(m.task, m.index) for m in new.members}) == len(new.members)
    moved = {m for m in new.members if old.node_by_index.get((m.task, m.index), m.node) != m.node}
    assert moved == set()


@given(SOME, SOME)
def test_what_pods_carry_of_their_plan_stays_valid(before: IntArray, now: IntArray) -> None:
    old = a_plan_on(before)
    new = plans.resize(old, places(now), NODES, NOW)
    same = replace(new, members=old.members, resized=old.resized)
    assert same == old
    assert new.label == old.label
    assert new.resized == NOW


@given(SOME, COUNTS)
def test_the_highest_indices_of_a_node_go_and_the_smallest_unused_ones_come(
    before: IntArray, more: IntArray
) -> None:
    small, large = a_plan_on(before), places(before + more)
    grown = plans.resize(small, large, NODES, NOW)
    assert {m.index for m in grown.members if m.task == "worker"} == set(range(sum(counts(grown))))
    again = plans.resize(grown, places(before), NODES, NOW)
    assert again.members == small.members
    assert again.members[0] == Member("master", "n0", 0)


@given(SOME, SOME)
def test_a_resized_plan_comes_back_as_it_was_written(before: IntArray, now: IntArray) -> None:
    plan = plans.resize(a_plan_on(before), places(now), NODES, NOW)
    read = plans.from_model(Plan.model_validate(plans.to_manifest(plan)))
    assert set(read.members) == set(plan.members)
    assert read.members[0] == plan.members[0]
    assert read.resized == NOW


def test_a_plan_that_was_never_resized_says_nothing_of_it() -> None:
    assert "resizedTime" not in plans.to_manifest(a_plan_on(np.array([1, 1, 0, 0])))


def test_an_index_that_was_freed_is_used_again() -> None:
    plan = a_plan_on(np.array([1, 1, 1, 0]))
    less = plans.without_members(plan, {Member("worker", "n1", 1)}, NOW)
    assert [m.index for m in less.members if m.task == "worker"] == [0, 2]
    grown = plans.resize(less, places(np.array([1, 0, 1, 1])), NODES, NOW + 1)
    assert grown.members[-1] == Member("worker", "n3", 1)
