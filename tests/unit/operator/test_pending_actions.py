"""Pending actions of a job in its recorded phase; a crash anywhere asks for them again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bireme.kube import quantities
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import status
from bireme_operator.actuator import grace_override
from bireme_operator.lifecycle import (
    EVICTING_SECONDS,
    LEFTOVER_SECONDS,
    PendingAction,
    pending_action,
    transition,
)
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running, with_plan
from testbed.scenario.manifests import task
from tests.unit.operator.lifecycle_cases import situation

LEAVING = {"deletionTimestamp": quantities.format_timestamp(CREATED)}


def asked(
    job: JobFacts,
    plan: PlanFacts | None,
    pods: Sequence[PodFacts] = (),
    *,
    now: float = CREATED,
    lost: Callable[[str], str] = lambda _: "",
) -> PendingAction:
    """The action that ``job`` asks for with this plan in its status and these pods there."""
    if plan is None:
        return pending_action(job, None, pods, now, lost)
    return pending_action(with_plan(job, plan), a_view(job, plan, pods), pods, now, lost)


def a_pair(phase: str, **status: Any) -> tuple[JobFacts, PlanFacts]:
    job = a_job(task("worker", 2), status={"phase": phase, **status})
    return job, a_plan(job, ("n0", "n1"))


@pytest.mark.parametrize("phase", ["Pending", "Starting"])
def test_pods_that_are_missing_are_created(phase: str) -> None:
    job, plan = a_pair(phase)
    there = [a_pod(job, plan, plan.members[0])]
    assert asked(job, plan, there) == PendingAction(create=(plan.members[1],))


def test_pods_missing_from_a_running_gang_are_not_replaced_one_by_one() -> None:
    job, plan = a_pair("Running")
    assert not asked(job, plan, [a_pod(job, plan, plan.members[0])])


def test_nothing_is_asked_of_a_gang_that_is_whole() -> None:
    job, plan = a_pair("Running")
    assert not asked(job, plan, running(job, plan))


def test_leftovers_go_before_anything_is_created() -> None:
    job, plan = a_pair("Starting")
    old = a_pod(job, a_plan(job, epoch=0), plan.members[0])
    assert asked(job, plan, [old]) == PendingAction(delete_pods=(old,))


def test_leftovers_that_are_ending_are_waited_for() -> None:
    job, plan = a_pair("Starting")
    old = a_pod(job, a_plan(job, epoch=0), plan.members[0], **LEAVING)
    assert not asked(job, plan, [old])


def test_an_ending_pod_on_a_lost_node_is_deleted_again() -> None:
    job, plan = a_pair("Starting")
    old = a_pod(job, a_plan(job, epoch=0), plan.members[0], **LEAVING)
    nowhere = a_pod(job, a_plan(job, epoch=0), plan.members[1], "Pending", node="", **LEAVING)
    assert asked(job, plan, [old, nowhere], lost=lambda _: "gone").delete_pods == (old,)


@pytest.mark.parametrize(
    ("phase", "attempt"), [("Restarting", 1), ("Pending", 1), ("Suspended", 0)]
)
def test_a_gang_that_stops_keeps_its_room_until_its_last_pod_is_gone(
    phase: str, attempt: int
) -> None:
    job = a_job(task("worker", 2), status={"phase": phase, "attempt": attempt})
    plan = a_plan(job, attempt=0)
    pods = running(job, plan)
    assert asked(job, plan, pods) == PendingAction(delete_pods=tuple(pods))
    assert asked(job, plan, []) == PendingAction(clear_plan=True)


def test_a_gang_that_makes_room_for_another_is_evicted_until_its_last_pod_is_gone() -> None:
    job = a_job(
        task("worker", 2), status={"phase": "Restarting", "reason": "Preempted", "attempt": 1}
    )
    plan = a_plan(job, attempt=0)
    pods = running(job, plan)
    assert asked(job, plan, pods) == PendingAction(delete_pods=tuple(pods), evicts=True)
    leaving = a_pod(job, plan, plan.members[1], **LEAVING)
    assert asked(job, plan, [pods[0], leaving]) == PendingAction(
        delete_pods=(pods[0],), evicts=True
    )
    assert not asked(job, plan, [leaving])
    assert asked(job, plan, []) == PendingAction(clear_plan=True)


def test_a_preempted_gang_that_is_paused_meanwhile_is_deleted_like_any_other() -> None:
    job = a_job(task("worker", 2), status={"phase": "Suspended", "reason": "Suspended"})
    plan = a_plan(job)
    assert not asked(job, plan, running(job, plan)).evicts


def test_pods_without_any_plan_are_deleted() -> None:
    job, plan = a_pair("Pending")
    pods = running(job, plan)
    assert asked(job, None, pods) == PendingAction(delete_pods=tuple(pods))


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Running", "Failed"])
def test_a_leaving_job_gives_its_room_back_after_its_last_pod(phase: str) -> None:
    """A finalizer of somebody's keeps the job, so nothing else would delete its pods."""
    job = a_job(task("worker", 2), metadata=LEAVING, status={"phase": phase})
    plan = a_plan(job)
    pods = running(job, plan)
    assert asked(job, plan, pods) == PendingAction(delete_pods=tuple(pods))
    assert asked(job, plan, []) == PendingAction(clear_plan=True)


def test_a_job_that_is_deleted_without_its_pods_asks_for_nothing() -> None:
    job = a_job(task("worker", 2), metadata={**LEAVING, "finalizers": ["orphan"]})
    assert not asked(job, a_plan(job), running(job, a_plan(job)))


def test_an_unreadable_job_stops_like_any_other_and_creates_nothing() -> None:
    readable, plan = a_pair("Starting")
    pods = running(readable, plan)
    starting = a_job(task("worker", 0), status={"phase": "Starting"})
    assert starting.spec is None
    assert not asked(starting, plan, pods[:1])
    stopped = a_job(task("worker", 0), status={"phase": "Restarting", "attempt": 1})
    assert asked(stopped, plan, pods) == PendingAction(delete_pods=tuple(pods))
    finished = a_job(task("worker", 0), status={"phase": "Failed"})
    assert asked(finished, plan, pods) == PendingAction(delete_pods=tuple(pods))
    assert asked(finished, plan, []) == PendingAction(clear_plan=True)


def test_ended_pods_that_only_a_finalizer_keeps_hold_no_room() -> None:
    job = a_job(task("worker", 2), status={"phase": "Restarting", "attempt": 1})
    plan = a_plan(job, attempt=0)
    first, second = plan.members
    kept = a_pod(job, plan, first, "Failed", finalizers=["held"], **LEAVING)
    ending = a_pod(job, plan, second, "Running", finalizers=["held"], **LEAVING)
    ended = a_pod(job, plan, second, "Failed", **LEAVING)
    assert not asked(job, plan, [kept, ending])
    assert not asked(job, plan, [kept, ended]), "it is about to go"
    assert asked(job, plan, [kept]) == PendingAction(clear_plan=True)


def test_what_a_shrunken_budget_keeps_is_deleted_after_a_while_and_the_job_says_so() -> None:
    reported: dict[str, Any] = {"phase": "Restarting", "reason": "Preempted", "attempt": 1}
    reported["message"] = "stopped"
    reported["queuedTime"] = quantities.format_timestamp(CREATED)
    job = a_job(task("worker", 2), status=reported)
    plan = a_plan(job, attempt=0)
    pods = running(job, plan)
    assert asked(job, plan, pods).evicts
    one_left = a_view(job, plan, [pods[0], a_pod(job, plan, plan.members[1], **LEAVING)])
    waits = situation(EVICTING_SECONDS - 1)
    assert transition(with_plan(job, plan), one_left, waits) is None
    move = transition(with_plan(job, plan), one_left, situation(EVICTING_SECONDS))
    assert move is not None
    assert (move.phase, move.reason) == ("Restarting", "BudgetOverridden")
    assert move.message == (
        "stopped; a budget kept 1 of its pods for 300 s, and is overridden, because a part of a "
        "gang cannot run"
    )
    assert not move.starts_again
    body = status.after_transition(reported, job, move, CREATED + EVICTING_SECONDS)
    assert (body["attempt"], body.get("preemptions", 0)) == (1, 0)
    overridden = asked(a_job(task("worker", 2), status=body), plan, pods[:1])
    assert not overridden.evicts
    assert overridden.disruption is not None
    assert overridden.disruption["reason"] == "PreemptionByScheduler"
    assert overridden.disruption["message"] == move.message
    gone = a_view(job, plan, [a_pod(job, plan, m, **LEAVING) for m in plan.members])
    assert transition(with_plan(job, plan), gone, situation(9000)) is None
    deleted = a_job(task("worker", 2), status=reported, metadata=LEAVING)
    assert not asked(deleted, plan, pods).evicts


# --- after the end ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "deleted"), [("All", {0, 1, 2}), ("Running", {1}), ("None", set())]
)
def test_the_clean_up_policy_says_which_pods_go(policy: str, deleted: set[int]) -> None:
    job = a_job(
        task("ps"),
        task("worker", 2),
        status={"phase": "Succeeded"},
        runPolicy={"cleanPodPolicy": policy},
    )
    plan = a_plan(job)
    pods = running(job, plan, worker_0="Succeeded", worker_1="Failed")
    pods = [pods[1], pods[0], pods[2]]
    wanted = PendingAction(delete_pods=tuple(pods[i] for i in sorted(deleted)))
    assert asked(job, plan, pods) == wanted, "one of them runs on, and holds its room"
    ended = running(job, plan, ps_0="Failed", worker_0="Succeeded", worker_1="Failed")
    assert asked(job, plan, ended).clear_plan


def test_a_finished_job_without_a_plan_and_running_pods_is_at_rest() -> None:
    job, plan = a_pair("Failed")
    pods = running(job, plan, worker_0="Failed", worker_1="Succeeded")
    assert not asked(job, None, pods)


def test_an_ending_pod_is_not_deleted_twice_after_the_end() -> None:
    job, plan = a_pair("Succeeded")
    pods = [a_pod(job, plan, member, **LEAVING) for member in plan.members]
    assert not asked(job, None, pods)


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over() -> None:
    ended = quantities.format_timestamp(CREATED)
    job = a_job(
        status={"phase": "Succeeded", "completionTime": ended},
        runPolicy={"ttlSecondsAfterFinished": 30},
    )
    assert not asked(job, None, now=CREATED + 29)
    assert asked(job, None, now=CREATED + 30) == PendingAction(delete_job=True)


def test_a_finished_job_without_a_time_to_live_stays() -> None:
    job = a_job(status={"phase": "Failed", "completionTime": quantities.format_timestamp(CREATED)})
    assert not asked(job, None, now=CREATED + 1e9)


def test_a_time_to_live_of_zero_deletes_at_once() -> None:
    ended = quantities.format_timestamp(CREATED)
    job = a_job(
        status={"phase": "Failed", "completionTime": ended},
        runPolicy={"ttlSecondsAfterFinished": 0},
    )
    assert asked(job, None).delete_job


def test_what_runs_on_after_the_end_goes_after_ten_minutes() -> None:
    ended = {"completionTime": quantities.format_timestamp(CREATED)}
    policy = {"cleanPodPolicy": "None"}
    job = a_job(task("worker", 2), status={"phase": "Succeeded", **ended}, runPolicy=policy)
    plan = a_plan(job, ("n0", "n1"))
    pods = running(job, plan)
    assert asked(job, plan, pods, now=CREATED + LEFTOVER_SECONDS - 1).delete_pods == ()
    assert asked(job, plan, pods, now=CREATED + LEFTOVER_SECONDS).delete_pods == tuple(pods)


def test_a_pod_that_ends_with_too_much_grace_is_deleted_again() -> None:
    job, _ = a_pair("Restarting", attempt=1)
    plan = a_plan(job, ("n0", "n1"), attempt=0)
    slow, soon = (
        replace(pod, is_leaving=True, ending_grace_seconds=seconds)
        for pod, seconds in zip(running(job, plan), (31_536_000, 600), strict=True)
    )
    view = a_view(job, plan, [slow, soon])
    action = pending_action(
        with_plan(job, plan), view, [slow, soon], CREATED, lambda _: "", max_grace_seconds=600
    )
    assert action.delete_pods == (slow,)
    assert (grace_override(slow, 600), grace_override(soon, 600)) == (600, None)
