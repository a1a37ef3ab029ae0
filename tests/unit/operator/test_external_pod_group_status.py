"""The status of a PodGroup of others."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.decision import Admit, Hold
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.kube import allocations, plans, pod_groups, pods, quantities, wire
from bireme.kube.allocations import GangView
from bireme.kube.api.pod_group import PodGroupStatus
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.testing import a_gang
from bireme_operator.group_status import admission_status, progress_status, waiting_status
from testbed.objects.facts import CREATED, gated_pod, served, through_the_wire
from testbed.scenario.manifests import pod_group

REQUEST = (("cpu", 1000), ("pods", 1))
MEMBERS = (Member("pod", "n0", uid="a-uid"), Member("pod", "n1", uid="b-uid"))
PLAN = PlanFacts(
    1, 0, "", "Pinned", CREATED, {"pod": REQUEST}, {"pod": "worker"}, MEMBERS, queue="default"
)


def a_group(min_member: int = 2, **status: Any) -> GroupFacts:
    manifest = served(pod_group("group", min_member), "group-uid")
    return pod_groups.from_manifest(
        through_the_wire({**manifest, "status": status}, wire.CustomObject)
    )


def a_view(**where: tuple[str, str]) -> GangView:
    """The plan's members that exist: name to (node, phase)."""
    found = []
    for name, (node, phase) in where.items():
        made = gated_pod(name, schedulingGates=[], nodeName=node)
        made["status"] = {"phase": phase}
        found.append(pods.from_manifest(through_the_wire(made, wire.V1Pod)))
    return allocations.view_of(("default", "group"), "", PLAN, found)


def status_of(group: GroupFacts, view: GangView) -> Mapping[str, Any]:
    status = progress_status(group, view, CREATED)
    PodGroupStatus.model_validate(status)
    return status


def test_a_group_runs_once_enough_of_it_runs() -> None:
    inqueue = a_group(phase="Inqueue", plan=plans.to_manifest(PLAN), startFailures=2)
    one = a_view(a=("n0", "Running"), b=("n1", "Pending"))
    assert status_of(inqueue, one) == inqueue.status
    both = a_view(a=("n0", "Succeeded"), b=("n1", "Running"))
    status = status_of(inqueue, both)
    assert (status["phase"], status["reason"]) == ("Running", "GangRunning")
    assert status["message"] == "2 members have started"
    assert "startFailures" not in status
    ended = status_of(a_group(**status), a_view(a=("n0", "Succeeded"), b=("n1", "Succeeded")))
    assert (ended["phase"], ended["reason"]) == ("Completed", "Succeeded")
    (condition,) = ended["conditions"]
    assert (condition["type"], condition["status"]) == ("Running", "False")
    assert condition["message"] == "all members have ended"


def test_fewer_members_than_min_member_run_when_the_others_are_gone() -> None:
    group = a_group(min_member=5, phase="Inqueue")
    assert status_of(group, a_view(a=("n0", "Running")))["phase"] == "Running"


def test_how_long_a_group_has_waited_is_kept_until_it_runs() -> None:
    gang = a_gang("group", arrived=CREATED - 500)
    admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.0), "planned")
    status = admission_status(a_group(), admit, PLAN, CREATED)
    PodGroupStatus.model_validate(status)
    assert status["waitSeconds"] == 500
    # Pods that join it wait for themselves.
    assert admission_status(a_group(**status), admit, PLAN, CREATED + 900)["waitSeconds"] == 500
    both = a_view(a=("n0", "Running"), b=("n1", "Running"))
    assert "waitSeconds" not in status_of(a_group(**status), both)


def test_a_group_waits_from_the_end_of_its_pause_on() -> None:
    retry = quantities.format_timestamp(CREATED + 60)
    failed: dict[str, Any] = {"startFailures": 1, "observedGeneration": 1, "waitSeconds": 500}
    failed["retryTime"] = retry
    hold = Hold(a_gang("group"), Reason.WAITING_FOR_CAPACITY, "no room")
    for now, generation, expected in ((0, 1, 60), (900, 1, 60), (-900, 1, -900), (0, 2, None)):
        group = replace(a_group(**failed), generation=generation)
        status = waiting_status(group, hold, CREATED + now, {})
        ends = None if expected is None else quantities.format_timestamp(CREATED + expected)
        assert status.get("retryTime") == ends
        assert status.get("waitSeconds") == (None if expected is None else 500)


def test_a_running_group_says_nothing_new_as_members_end() -> None:
    group = a_group(phase="Running", reason="GangRunning", message="2 members have started")
    assert status_of(group, a_view(a=("n0", "Succeeded"), b=("n1", "Running"))) == group.status


def test_a_running_group_says_that_its_newest_pods_wait_until_they_do_not() -> None:
    plan = plans.to_manifest(PLAN)
    runs = a_group(phase="Running", reason="GangRunning", message="2 members ...", plan=plan)
    hold = Hold(a_gang("group"), Reason.WAITING_FOR_CAPACITY, "asks 4; 2 free", 3)
    status = waiting_status(runs, hold, CREATED, {})
    PodGroupStatus.model_validate(status)
    assert (status["phase"], status["reason"]) == ("Running", "WaitingForCapacity")
    assert status["message"] == "1 more pods wait to join: asks 4; 2 free"
    assert status["plan"] == plan

    both, joined = a_view(a=("n0", "Running"), b=("n1", "Running")), a_group(**status)
    assert progress_status(joined, both, CREATED, joins=True) == status
    after = status_of(joined, both)
    assert (after["phase"], after["reason"]) == ("Running", "GangRunning")
    assert after["message"] == "2 members have started"
    assert "queuePosition" not in after


@pytest.mark.parametrize(
    ("there", "failure"),
    [
        ({}, ""),
        ({"a": ("n0", "Succeeded")}, ""),
        (
            {"a": ("n0", "Failed"), "b": ("n1", "Succeeded")},
            "; 1 of 2 failed, pod a: the pod failed",
        ),
    ],
)
def test_a_group_whose_members_have_all_ended_gives_its_plan_back(
    there: dict[str, tuple[str, str]], failure: str
) -> None:
    group = a_group(phase="Running", plan=plans.to_manifest(PLAN), queuePosition=1)
    status = status_of(group, a_view(**there))
    assert (status["phase"], status["message"]) == ("Completed", f"all members have ended{failure}")
    assert status["reason"] == ("PodFailed" if failure else "Succeeded")
    assert status.keys().isdisjoint({"plan", "queuePosition"})


def test_a_waiting_group_says_why_in_clean_words() -> None:
    hold = Hold(a_gang("group"), Reason.WAITING_FOR_CAPACITY, "4 asked\x00 2 free", 2)
    status = waiting_status(a_group(), hold, CREATED, {})
    PodGroupStatus.model_validate(status)
    assert (status["phase"], status["queuePosition"]) == ("Pending", 2)
    assert status["message"] == "4 asked  2 free"
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"]) == ("Admitted", "False")
    assert condition["lastTransitionTime"] == quantities.format_timestamp(CREATED)


def test_an_interrupted_group_stays_interrupted_while_it_waits_without_a_position() -> None:
    hold = Hold(a_gang("group"), Reason.QUEUE_NOT_FOUND, "no queue")
    status = waiting_status(a_group(phase="Interrupted", queuePosition=4), hold, CREATED, {})
    assert status["phase"] == "Interrupted"
    assert "queuePosition" not in status


def test_a_group_is_parked_joins_the_line_and_keeps_what_it_waited_before() -> None:
    def held(status: Mapping[str, Any], after: float, position: int | None) -> Mapping[str, Any]:
        group = a_group(**status)
        wait = group.wait(CREATED, {"cpu": 2000})
        gang = a_gang("group", arrived=wait.arrival_time, parked=wait.parked).in_line(
            CREATED + after
        )
        hold = Hold(gang, Reason.WAITING_FOR_CAPACITY, "words", position)
        wanted = waiting_status(group, hold, CREATED + after, {"cpu": 2000})
        PodGroupStatus.model_validate(wanted)
        return wanted

    status = held({}, 100, None)
    assert status["parkedTime"] == quantities.format_timestamp(CREATED + 100)
    assert status["request"] == {"cpu": "2"}
    assert held(status, 7000, None)["parkedTime"] == status["parkedTime"]
    status = held(status, 8000, 1)
    assert (status["waitSeconds"], "parkedTime" in status) == (100, False)
    assert a_group(**status).wait(CREATED, {}).seconds(CREATED + 9000) == 1100
    # It may have to wait again with the same pods: no plan makes it as old as they are.
    gang = a_gang("group", arrived=CREATED + 7900)
    admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.0), "planned")
    planned = admission_status(a_group(**status), admit, PLAN, CREATED + 9000)
    PodGroupStatus.model_validate(planned)
    without = {name: value for name, value in planned.items() if name != "plan"}
    assert a_group(**without).wait(CREATED, {}).seconds(CREATED + 9000) == 1100
    runs = status_of(a_group(**planned), a_view(a=("n0", "Running"), b=("n1", "Running")))
    assert not {"waitSeconds", "queuedTime", "parkedTime", "request"} & runs.keys()
