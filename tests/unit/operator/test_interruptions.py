"""Interruptions of a gang from outside, its deadline, and the change that wins of several."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import status
from bireme_operator.lifecycle import Transition, transition
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running
from testbed.scenario.manifests import task
from tests.unit.operator.lifecycle_cases import (
    Pods,
    ended,
    failed,
    gang,
    moved,
    none,
    situation,
    unbound,
    without,
)

# --- interruptions ----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Running"])
def test_a_lost_node_takes_the_whole_gang_back(phase: str) -> None:
    job, view = gang(phase)
    move = transition(job, view, situation(lost="n1"))
    assert move == Transition(
        "Restarting",
        Reason.NODE_LOST,
        "replica 1 of worker on node n1: it is lost",
        interruptions=1,
    )


def test_a_node_is_judged_where_the_replica_is_not_where_it_was_planned() -> None:
    def elsewhere(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        return [a_pod(job, plan, member, node="n7") for member in plan.members]

    job, view = gang(pods=elsewhere)
    assert transition(job, view, situation(lost="n0")) is None
    assert moved(job, view, situation(lost="n7")) == ("Restarting", Reason.NODE_LOST)


def test_a_lost_node_is_nothing_to_a_replica_that_has_ended() -> None:
    job, view = gang(pods=lambda j, p: running(j, p, worker_0="Succeeded"))
    assert transition(job, view, situation(lost="n0")) is None
    assert moved(job, view, situation(lost="n1")) == ("Restarting", Reason.NODE_LOST)


def test_an_unusable_node_matters_only_before_the_replica_is_bound() -> None:
    job, view = gang("Starting", pods=unbound)
    assert moved(job, view, situation(unusable="n1")) == ("Restarting", Reason.NODE_LOST)
    job, view = gang("Running")
    assert transition(job, view, situation(unusable="n1")) is None


def test_an_unusable_node_matters_before_the_pod_even_exists() -> None:
    job, view = gang("Pending", pods=none)
    assert moved(job, view, situation(unusable="n0")) == ("Restarting", Reason.NODE_LOST)


def test_room_taken_by_others_is_no_lost_node_and_so_no_claim_to_go_first() -> None:
    job, view = gang("Starting", pods=unbound)
    moves = transition(job, view, situation(taken="n1"))
    assert moves is not None
    assert (moves.reason, moves.start_failures) == (Reason.GANG_NOT_BOUND_IN_TIME, 0)
    assert not a_job(status=status.after_transition({}, job, moves, CREATED)).gang(0).displaced


def test_a_pod_deleted_while_running_is_lost() -> None:
    job, view = gang("Running", pods=without(0))
    assert moved(job, view) == ("Restarting", Reason.POD_LOST)
    job, view = gang("Starting", pods=without(0))
    assert transition(job, view, situation()) is None


def test_a_pod_that_is_being_deleted_while_running_is_lost_already() -> None:
    stamp = quantities.format_timestamp(CREATED)

    def leaving(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        return [a_pod(job, plan, m, deletionTimestamp=stamp) for m in plan.members]

    job, view = gang("Running", pods=leaving)
    assert moved(job, view) == ("Restarting", Reason.POD_LOST)


def test_a_replica_deleted_from_its_node_before_all_were_ready_is_not_replaced_alone() -> None:
    """The others may have met it already. One that never got a node is simply made again."""

    def leaving(node: str) -> Pods:
        def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
            made = running(job, plan)
            made[0] = replace(made[0], is_leaving=True, node=node)
            return made

        return pods

    assert moved(*gang("Starting", pods=leaving("n0"))) == ("Restarting", Reason.POD_LOST)
    assert moved(*gang("Starting", pods=leaving(""))) != ("Restarting", Reason.POD_LOST)


def test_a_gang_not_bound_in_time_is_planned_again() -> None:
    job, view = gang("Starting", pods=unbound)
    assert transition(job, view, situation(after=60.0)) is None
    move = transition(job, view, situation(after=61.0))
    assert move is not None
    assert (move.reason, move.interruptions) == (Reason.GANG_NOT_BOUND_IN_TIME, 1)
    assert move.message.startswith("2 of 2 replicas are not on their nodes after 61 s")


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Restarting"])
def test_a_gang_whose_tasks_are_edited_before_it_runs_starts_again(phase: str) -> None:
    """Or replicas that are made again would come from another template than the others."""
    planned, _ = gang(phase)
    edited = a_job(task("worker", 2, gpus=2), status={"phase": phase})
    plan = a_plan(planned, ("n0", "n1"))
    for pods in ([], running(planned, plan)[:1], unbound(planned, plan)):
        move = transition(edited, a_view(edited, plan, pods), situation())
        assert move is not None
        assert (move.reason, move.interruptions) == (Reason.TASKS_EDITED, 1)
    whole = a_view(edited, plan, running(planned, plan))
    assert moved(edited, whole) == ("Running", Reason.GANG_RUNNING), "they are of one template"


def test_an_edit_of_a_running_gang_waits_for_its_next_start() -> None:
    running_job, view = gang()
    edited = a_job(task("worker", 2, gpus=2), status={"phase": "Running"})
    assert running_job.spec_hash != edited.spec_hash
    assert transition(edited, view, situation()) is None


# --- deadlines and precedence -----------------------------------------------------------------


def deadline(**more: Any) -> dict[str, Any]:
    return {
        "status": {"admittedTime": quantities.format_timestamp(CREATED), **more},
        "runPolicy": {"activeDeadlineSeconds": 100},
    }


def test_a_job_fails_at_its_deadline_and_not_before() -> None:
    job, view = gang(**deadline())
    assert transition(job, view, situation(after=99.0)) is None
    assert moved(job, view, situation(after=100.0)) == ("Failed", Reason.DEADLINE_EXCEEDED)


def test_earlier_starts_count_towards_a_deadline_and_queued_time_does_not() -> None:
    long_ago = quantities.format_timestamp(CREATED - 1e6)
    job, view = gang(**deadline(runSeconds=60, startTime=long_ago, queuedTime=long_ago))
    assert transition(job, view, situation(after=39.0)) is None
    assert moved(job, view, situation(after=40.0)) == ("Failed", Reason.DEADLINE_EXCEEDED)


def test_a_deadline_without_a_start_has_not_begun() -> None:
    job, view = gang("Starting", pods=without(1), runPolicy={"activeDeadlineSeconds": 1})
    assert transition(job, view, situation(after=50.0)) is None


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (ended, ("Succeeded", Reason.SUCCEEDED)),
        (failed(), ("Failed", Reason.DEADLINE_EXCEEDED)),
        (without(0), ("Failed", Reason.DEADLINE_EXCEEDED)),
    ],
)
def test_success_wins_over_the_deadline_which_wins_over_all_else(
    pods: Pods, expected: tuple[str, Reason]
) -> None:
    job, view = gang(pods=pods, **deadline())
    assert moved(job, view, situation(after=101.0, lost="n1")) == expected


def test_a_failure_wins_over_a_lost_node() -> None:
    job, view = gang(pods=failed(0))
    assert moved(job, view, situation(lost="n1")) == ("Restarting", Reason.POD_FAILED)


def test_an_interruption_wins_over_progress() -> None:
    job, view = gang("Starting")
    assert moved(job, view, situation(lost="n0")) == ("Restarting", Reason.NODE_LOST)


def test_a_pod_of_a_stranger_is_not_looked_at() -> None:
    def strangers(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        return [replace(pod, owner_uids=frozenset({"x"})) for pod in ended(job, plan)]

    job, view = gang("Starting", pods=strangers)
    assert transition(job, view, situation()) is None


def test_a_stopped_gang_keeps_the_service_it_has_had() -> None:
    """Or an order by service would let it stop, in turn, the gang that it made room for."""
    stopped = Transition("Restarting", Reason.PREEMPTED, "for another", preemptions=1)
    body: dict[str, Any] = {"phase": "Running", "runSeconds": 40}
    body["admittedTime"] = quantities.format_timestamp(CREATED + 100)
    body = status.after_transition(body, a_job(status=body), stopped, CREATED + 160)
    assert body["runSeconds"] == 100
    again = a_job(status=body)
    assert again.gang(0).attained_seconds == 100.0
    assert status.after_transition(body, again, stopped, CREATED + 999)["runSeconds"] == 100, (
        "it did not run"
    )
