"""Verification of pods, and the named reason of every refusal."""

from typing import Any

import msgspec
import pytest

from bireme.core.gpus import GPU
from bireme.kube import pods, wire
from bireme_extender.membership import Membership, Refusal, RefusalReason, membership
from testbed.extender_calls import a_group, a_pod, a_state


def verdict(pod: dict[str, Any], *groups: dict[str, Any]) -> Membership | Refusal:
    return membership(msgspec.convert(pod, wire.V1Pod), a_state(groups=groups))


def refusal(pod: dict[str, Any], *groups: dict[str, Any]) -> Refusal:
    found = verdict(pod, *groups)
    assert isinstance(found, Refusal)
    return found


def test_replica_is_known_by_owner_plan_task_and_index() -> None:
    places = (("ps", "n9", "0"), ("worker", "n0", "0-1"), ("worker", "n1", "2"))
    found = verdict(a_pod(2), a_group(places=places))
    assert isinstance(found, Membership)
    assert found.member.node == "n1"
    assert found.group == ("team", "job")


def test_pod_of_another_controller_is_known_by_uid_alone() -> None:
    group = a_group(job_uid="", places=(("pod", "n3", "uid-a uid-b"),))
    pod = a_pod(task="anything", plan=None, job_uid="", uid="uid-b")
    found = verdict(pod, group)
    assert isinstance(found, Membership)
    assert (found.member.node, found.member.task) == ("n3", "pod")


@pytest.mark.parametrize(
    ("pod", "group", "reason", "may_heal"),
    [
        (a_pod(group=None), a_group(), RefusalReason.NO_POD_GROUP, False),
        (a_pod(group="other", job_uid=""), a_group(), RefusalReason.UNKNOWN_POD_GROUP, True),
        (a_pod(job_uid=""), a_group(job_uid="", is_planned=False), RefusalReason.NO_PLAN, True),
        (a_pod(group="other"), a_group(), RefusalReason.NO_PLAN, True),
        (a_pod(), a_group(is_planned=False), RefusalReason.NO_PLAN, True),
        (a_pod(job_uid="another-job"), a_group(), RefusalReason.FOREIGN_POD, True),
        (a_pod(job_uid=""), a_group(), RefusalReason.FOREIGN_POD, True),
        (a_pod(plan="1.0"), a_group(attempt=1), RefusalReason.STALE_PLAN, False),
        (a_pod(plan="1.9"), a_group(epoch=2), RefusalReason.STALE_PLAN, False),
        (a_pod(plan=None), a_group(), RefusalReason.STALE_PLAN, False),
        (a_pod(plan="2.0"), a_group(attempt=7), RefusalReason.STALE_PLAN, True),
        (a_pod(plan="1.10"), a_group(attempt=9), RefusalReason.STALE_PLAN, True),
        (a_pod(plan="²."), a_group(), RefusalReason.STALE_PLAN, False),
        (a_pod(plan="9" * 5000), a_group(), RefusalReason.STALE_PLAN, False),
        (a_pod(1), a_group(), RefusalReason.NOT_IN_PLAN, True),
        (a_pod(index=""), a_group(), RefusalReason.NOT_IN_PLAN, True),
        (a_pod(index="²"), a_group(), RefusalReason.NOT_IN_PLAN, True),
        (a_pod(index="-1"), a_group(), RefusalReason.NOT_IN_PLAN, True),
        (a_pod(index="9" * 5000), a_group(), RefusalReason.NOT_IN_PLAN, True),
        (a_pod(task="ps"), a_group(), RefusalReason.NOT_IN_PLAN, True),
    ],
)
def test_refusal_has_a_named_reason(
    pod: dict[str, Any], group: dict[str, Any], reason: RefusalReason, may_heal: bool
) -> None:
    found = refusal(pod, group)
    assert (found.reason, found.may_heal) == (reason, may_heal)
    is_silence = found.message.startswith(pods.HEALING_REFUSALS)
    assert is_silence or not may_heal, "the operator would take it for a verdict"
    assert found.message.startswith(f"{reason.value}: ")
    assert len(found.message) <= 256


def test_planned_uid_is_not_given_to_another_pod() -> None:
    group = a_group(job_uid="", places=(("pod", "n3", "uid-a"),))
    found = refusal(a_pod(plan="1.0", uid="uid-z"), group)
    assert found.reason is RefusalReason.NOT_IN_PLAN
    assert "uid-z" in found.message


def test_namespace_comes_from_the_pod_never_from_a_label() -> None:
    pod = a_pod()
    pod["metadata"]["namespace"] = "elsewhere"
    assert refusal(pod, a_group()).reason is RefusalReason.NO_PLAN


@pytest.mark.parametrize(
    "requests",
    [
        {"cpu": "4", "memory": "16Gi", GPU: "2"},
        {"cpu": "4001m", "memory": "16Gi", GPU: "1"},
        {"cpu": "4", "memory": "16Gi", GPU: "1", "rdma/hca": "1"},
        {"cpu": "not a quantity", "memory": "16Gi", GPU: "1"},
    ],
)
def test_pod_that_asks_for_more_than_was_planned_is_refused(requests: dict[str, str]) -> None:
    found = refusal(a_pod(requests=requests), a_group())
    assert (found.reason, found.may_heal) == (RefusalReason.REQUEST_ABOVE_PLAN, False)


def test_every_replica_of_a_task_is_measured_by_what_it_asks_itself() -> None:
    group = a_group(places=(("worker", "n0", "0-3"),))
    assert isinstance(verdict(a_pod(0), group), Membership)
    greedy = {"cpu": "4", "memory": "16Gi", GPU: "2"}
    assert refusal(a_pod(1, requests=greedy), group).reason is RefusalReason.REQUEST_ABOVE_PLAN
    overhead = {"cpu": "1"}
    assert refusal(a_pod(2, overhead=overhead), group).reason is RefusalReason.REQUEST_ABOVE_PLAN
    found = verdict(a_pod(3), group)
    assert isinstance(found, Membership)
    assert dict(found.request)[GPU] == 1


def test_pod_that_forges_all_but_the_planned_name_gets_no_node() -> None:
    """A place is one pod's: who may create pods could otherwise fill it beside the replica."""
    twin = a_pod()
    twin["metadata"]["name"] = "thief"
    found = refusal(twin, a_group())
    assert (found.reason, found.may_heal) == (RefusalReason.FOREIGN_POD, False)
    assert "is pod job-worker-0, not thief" in found.message


def test_pod_that_asks_for_less_than_was_planned_is_accepted() -> None:
    assert isinstance(verdict(a_pod(requests={"cpu": "1"}), a_group()), Membership)


def test_pod_without_containers_is_accepted_as_asking_for_nothing() -> None:
    pod = a_pod()
    without: list[list[Any] | None] = [None, []]
    for containers in without:
        pod["spec"]["containers"] = containers
        assert isinstance(verdict(pod, a_group()), Membership)


def test_plan_that_nobody_can_read_counts_as_none() -> None:
    group = a_group()
    group["status"]["plan"]["placements"] = [{"node": "n0", "task": "worker", "indices": "x"}]
    assert refusal(a_pod(), group).reason is RefusalReason.NO_PLAN


def test_replica_that_a_resize_added_is_verified_and_one_that_it_removed_is_not() -> None:
    """The label of the plan stays: who is a member is what the plan says now."""
    before = a_group(places=(("worker", "n0", "0-1"),))
    grown = a_group(places=(("worker", "n0", "0-1"), ("worker", "n1", "2")))
    assert refusal(a_pod(2), before).reason == RefusalReason.NOT_IN_PLAN
    found = verdict(a_pod(2), grown)
    assert isinstance(found, Membership)
    assert (found.member.node, found.plan.label) == ("n1", "1.0")
    shrunk = a_group(places=(("worker", "n0", "0"),))
    assert refusal(a_pod(1), shrunk).reason == RefusalReason.NOT_IN_PLAN
