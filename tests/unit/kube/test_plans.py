"""The published plan: what is written is what is read, whatever was planned."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Role
from bireme.core.nodes import NodeTable
from bireme.core.placement import make_placement
from bireme.core.resources import Request, request_of
from bireme.core.settings import SchedulingSettings
from bireme.kube import plans
from bireme.kube.api.plan import Plan
from bireme.kube.plans import Member, PlanFacts
from bireme.testing import a_gang, a_node, a_task
from testbed.objects.facts import a_job, a_plan, with_plan
from testbed.scenario import manifests
from testbed.scenario.manifests import GPU

AMOUNTS = st.one_of(st.integers(1, 10**6), st.sampled_from((2**40, 2**46, 2**53, 10**15 + 1)))
REQUESTS = st.dictionaries(
    st.sampled_from(("cpu", "memory", "pods", GPU, "hugepages-2Mi", "ephemeral-storage")), AMOUNTS
).map(request_of)
NODES = st.sampled_from(("n0", "n1", "gpu-node.example.com"))


@st.composite
def plan_facts(draw: st.DrawFn) -> PlanFacts:
    """Any plan: own replicas of some tasks, pods of others by UID, or both kinds mixed by task."""
    tasks = draw(
        st.lists(st.sampled_from(("ps", "worker", "Other_1.x", "")), min_size=1, unique=True)
    )
    members: list[Member] = []
    for task in tasks:
        if draw(st.booleans()):
            indices = draw(st.sets(st.integers(0, 40), min_size=1, max_size=12))
            members += [Member(task, draw(NODES), index) for index in sorted(indices)]
        else:
            uids = draw(st.integers(1, 6))
            members += [Member(task, draw(NODES), uid=f"{task}-{i}") for i in range(uids)]
    return PlanFacts(
        epoch=draw(st.integers(0, 10**6)),
        attempt=draw(st.integers(0, 200)),
        spec_hash=draw(st.sampled_from(("", "0123456789abcdef"))),
        mode=draw(st.sampled_from(("Pinned", "Score"))),
        planned=float(draw(st.integers(0, 4 * 10**9))),
        requests={task: draw(REQUESTS) for task in tasks},
        roles={task: draw(st.sampled_from(list(Role))).value for task in tasks},
        members=tuple(members),
        queue=draw(st.sampled_from(("default", "team-a"))),
    )


def read_back(plan: PlanFacts) -> PlanFacts:
    return plans.from_model(Plan.model_validate(plans.to_manifest(plan)))


def grouped(plan: PlanFacts) -> PlanFacts:
    """The plan with its members in the order of the manifest: by task and node."""
    at: dict[tuple[str, str], int] = {}
    for member in plan.members:
        at.setdefault((member.task, member.node), len(at))
    return replace(
        plan, members=tuple(sorted(plan.members, key=lambda m: (at[m.task, m.node], m.index)))
    )


@given(plan_facts())
def test_a_plan_comes_back_as_it_was_written(plan: PlanFacts) -> None:
    assert read_back(plan) == grouped(plan)


@given(plan_facts())
def test_writing_a_plan_that_was_read_changes_nothing(plan: PlanFacts) -> None:
    once = read_back(plan)
    assert plans.to_manifest(read_back(once)) == plans.to_manifest(once)


@given(plan_facts())
def test_what_a_plan_asks_is_the_sum_over_its_members(plan: PlanFacts) -> None:
    total: dict[str, int] = {}
    for member in plan.members:
        for name, amount in plan.requests[member.task]:
            total[name] = total.get(name, 0) + amount
    assert plan.demand == total
    assert sum(plan.replicas.values()) == len(plan.members)
    assert len(plan.member_by_uid) + len(plan.node_by_index) == len(plan.members)


@pytest.mark.parametrize(
    "rubbish",
    [
        {"placements": [{"node": "n0", "task": "worker", "indices": "3-1"}]},
        {"placements": [{"node": "n0", "task": "worker", "indices": "0-99999"}]},
        {"placements": [{"node": f"n{i}", "task": "worker", "indices": "0-9999"} for i in (1, 2)]},
        {"tasks": [{"name": "worker", "replicas": 1, "requests": {"cpu": "many"}}]},
        {"tasks": [{"name": "worker", "replicas": 1, "requests": {"cpu": "-1"}}]},
        {"mode": "Guess"},
        {"plannedTime": "yesterday"},
        {"epoch": None},
        {"queue": ""},
    ],
)
def test_a_plan_nobody_can_read_is_a_value_error(rubbish: dict[str, Any]) -> None:
    plan = PlanFacts(
        1,
        0,
        "",
        "Pinned",
        0.0,
        {"worker": (("cpu", 1),)},
        {"worker": "ps"},
        (Member("worker", "n0", 0),),
        queue="q",
    )
    assert read_back(plan) == plan
    manifest = {**plans.to_manifest(plan), **rubbish}
    with pytest.raises(ValueError, match=r".+"):
        plans.from_model(Plan.model_validate(manifest))


# --- making one -------------------------------------------------------------------------------


def test_a_plan_names_every_replica_of_the_placement_once() -> None:
    nodes = NodeTable([a_node("a"), a_node("b")], SchedulingSettings().topology_levels)
    gang = a_gang("job", a_task(3), a_task(1, 0, role=Role.PS))
    counts = {"worker": np.array([2, 1]), "ps": np.array([0, 1])}
    placement = make_placement(gang, nodes, counts)
    plan = plans.make_plan(
        gang, placement, nodes, epoch=4, attempt=2, spec_hash="h", now=12.9, mode="Score"
    )
    assert plan.members == (
        Member("worker", "a", 0),
        Member("worker", "a", 1),
        Member("worker", "b", 2),
        Member("ps", "b", 0),
    )
    assert (plan.label, plan.planned, plan.mode) == ("4.2", 12.0, "Score")
    assert plan.roles == {"worker": "worker", "ps": "ps"}
    assert plan.requests == {task.name: task.request for task in gang.tasks}


def test_pods_that_exist_are_planned_by_their_uid() -> None:
    nodes = NodeTable([a_node("a"), a_node("b")], SchedulingSettings().topology_levels)
    gang = a_gang("group", replace(a_task(2), members=("uid-x", "uid-y")))
    placement = make_placement(gang, nodes, {"worker": np.array([1, 1])})
    plan = plans.make_plan(gang, placement, nodes, epoch=1, attempt=0, spec_hash="", now=0)
    assert plan.members == (Member("worker", "a", uid="uid-x"), Member("worker", "b", uid="uid-y"))
    assert plan.node_by_index == {}


# --- extending one ----------------------------------------------------------------------------


def uids(*members: tuple[str, str], task: str = "pod") -> tuple[Member, ...]:
    return tuple(Member(task, node, uid=uid) for uid, node in members)


def test_an_extension_keeps_those_who_live_and_adds_the_new() -> None:
    requests: dict[str, Request] = {"pod": (("cpu", 1),)}
    first = PlanFacts(1, 0, "old", "Pinned", 10.0, requests, {}, uids(("a", "n0"), ("dead", "n1")))
    more = PlanFacts(
        2, 9, "new", "Score", 20.0, {"extra": (("cpu", 2),)}, {}, uids(("b", "n2"), task="extra")
    )
    merged = plans.merge(first, more, {"a", "b", "stranger"})
    assert merged.members == uids(("a", "n0")) + uids(("b", "n2"), task="extra")
    assert (merged.epoch, merged.attempt, merged.planned, merged.mode) == (2, 0, 20.0, "Score")
    assert merged.demand == {"cpu": 3}


def test_a_digest_depends_on_the_content_not_on_the_order_of_keys() -> None:
    one = [{"name": "w", "replicas": 1, "template": {"a": 1, "b": 2}}]
    same = [{"template": {"b": 2, "a": 1}, "replicas": 1, "name": "w"}]
    other = [{**one[0], "replicas": 2}]
    assert plans.spec_digest(one) == plans.spec_digest(same)
    assert len({plans.spec_digest(x) for x in (one, other, [], [one[0], one[0]])}) == 4


def test_ended_replicas_are_recorded_in_ranges_and_read_back() -> None:
    plan = replace(
        a_plan(a_job(manifests.task("worker", 10_000))),
        ended=frozenset(("worker", i) for i in range(9999)),
    )
    manifest = plans.to_manifest(plan)
    assert manifest["endedReplicas"] == [{"task": "worker", "indices": "0-9998"}]
    assert plans.read({"plan": manifest}) == plan


def test_a_record_of_every_other_replica_is_split_and_stays_small() -> None:
    ended = frozenset(("worker", i) for i in range(0, 10_000, 2))
    manifest = plans.to_manifest(
        replace(a_plan(a_job(manifests.task("worker", 10_000))), ended=ended)
    )
    record = manifest["endedReplicas"]
    assert max(len(part["indices"]) for part in record) <= 8192
    assert len(json.dumps(record)) < 32_000
    read = plans.read({"plan": manifest})
    assert read is not None
    assert read.ended == ended


def test_a_record_that_grew_is_read_without_reading_its_plan_again() -> None:
    job = a_job(manifests.task("worker", 3))
    before = with_plan(job, a_plan(job))
    raw = {**before.status["plan"], "endedReplicas": [{"task": "worker", "indices": "1"}]}
    read = plans.read({"plan": raw}, before)
    assert read is not None
    assert before.plan is not None
    assert read.ended == {("worker", 1)}
    assert read.members is before.plan.members


def test_a_replica_that_is_given_up_is_no_longer_recorded() -> None:
    plan = replace(a_plan(a_job(manifests.task("worker", 3))), ended=frozenset({("worker", 1)}))
    smaller = plans.without_members(plan, [plan.members[1]], 0.0)
    assert smaller.ended == frozenset()
