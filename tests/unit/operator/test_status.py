"""The status of a TrainingJob, and how soon it must be written."""

import math
from typing import Any

import pytest

from bireme.core.decision import Admit, Hold
from bireme.core.placement import Placement
from bireme.core.policy import Ranked, ScoreFactor
from bireme.core.reasons import Reason
from bireme.kube import plans, quantities
from bireme.kube.api.training_job import Priority, TrainingJobStatus
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_gang, a_snapshot, racks
from bireme_operator import status
from bireme_operator.lifecycle import Transition
from bireme_operator.status import Urgency
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running, with_plan
from testbed.scenario.manifests import task

SNAPSHOT = a_snapshot(racks(2, 4))
NODES = SNAPSHOT.nodes
LATER = CREATED + 100


def conditions(body: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Type to (status, reason, transition time); the whole must be what the CRD allows."""
    TrainingJobStatus.model_validate(body)
    return {
        c["type"]: (c["status"], c["reason"], c["lastTransitionTime"]) for c in body["conditions"]
    }


def hold(
    job: JobFacts, message: str = "waits", reason: Reason = Reason.WAITING_FOR_CAPACITY
) -> Hold:
    gang = job.gang(0)
    factor = ScoreFactor("user", "50", 0.123456, 0.35)
    return Hold(gang, reason, message, 3, Ranked(gang, 0.987654, lambda: (factor,)))


# --- urgency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Urgency.NONE),
        ({"message": "other"}, Urgency.NUMBERS),
        ({"queuePosition": 2}, Urgency.NUMBERS),
        ({"priority": {"score": 1}}, Urgency.NUMBERS),
        ({"ready": "1/2"}, Urgency.COUNTS),
        ({"tasks": []}, Urgency.COUNTS),
        ({"placement": {}, "message": "other"}, Urgency.COUNTS),
        ({"phase": "Running"}, Urgency.EVENT),
        ({"reason": "NodeLost", "ready": "1/2"}, Urgency.EVENT),
        ({"attempt": 1}, Urgency.EVENT),
        ({"observedGeneration": 2}, Urgency.EVENT),
    ],
)
def test_urgency_follows_the_most_important_difference(
    change: dict[str, Any], expected: Urgency
) -> None:
    current = {"phase": "Pending", "reason": "X", "message": "m", "observedGeneration": 1}
    assert status.urgency(current, {**current, **change}) is expected


def test_new_words_about_claims_are_written_soon() -> None:
    before = {"phase": "Pending", "reason": "ClaimNotReady", "message": "not read yet"}
    after = {**before, "message": 'persistentvolumeclaim "data" not found'}
    assert status.urgency(before, after) is Urgency.COUNTS


def test_a_field_that_vanishes_is_a_difference() -> None:
    assert status.urgency({"queuePosition": 1}, {}) is Urgency.NUMBERS
    assert status.urgency({"placement": {"nodes": 1}}, {}) is Urgency.COUNTS


# --- waiting ----------------------------------------------------------------------------------


def test_a_waiting_job_says_why_where_and_how_urgent_it_is() -> None:
    job = a_job(task("worker", 3, gpus=2))
    body = status.waiting_status(job, hold(job, "8 asked\n4 free"), LATER)
    assert (body["phase"], body["reason"]) == ("Pending", "WaitingForCapacity")
    assert body["message"] == "8 asked 4 free"
    assert (body["queuePosition"], body["gpus"], body["ready"]) == (3, 6, "0/3")
    assert body["queuedTime"] == quantities.format_timestamp(CREATED)
    factor = {"name": "user", "value": 0.1235, "weight": 0.35, "contribution": 0.0432}
    assert body["priority"] == {"score": 0.9877, "factors": [factor]}
    assert body["tasks"] == [
        {"name": "worker", "replicas": 3}
        | dict.fromkeys(("planned", "bound", "ready", "succeeded", "failed"), 0)
    ]
    assert conditions(body)["Admitted"][:2] == ("False", "WaitingForCapacity")


@pytest.mark.parametrize(
    "why", [lambda: 1 / 0, lambda: (ScoreFactor("wait", "1 s", math.nan, 1.0),), lambda: 7]
)
def test_a_score_that_its_policy_cannot_explain_is_shown_without_factors(why: Any) -> None:
    body = status.priority(Ranked(a_gang("job"), 1.5, why))
    Priority.model_validate(body)
    assert body == {"score": 1.5, "factors": []}


def test_a_restarting_job_keeps_its_phase_and_its_counters_while_it_waits() -> None:
    job = a_job(status={"phase": "Restarting", "restarts": 2, "attempt": 2})
    body = status.waiting_status(job, hold(job), LATER)
    assert (body["phase"], body["restarts"], body["attempt"]) == ("Restarting", 2, 2)


def test_a_position_that_no_longer_holds_is_taken_away() -> None:
    job = a_job(status={"queuePosition": 1, "priority": {"score": 1}, "placement": {"nodes": 1}})
    fault = Hold(job.gang(0), Reason.QUEUE_NOT_FOUND, "no such queue")
    body = status.waiting_status(job, fault, LATER)
    assert not body.keys() & {"queuePosition", "priority", "placement"}


def test_an_admission_that_was_taken_back_does_not_count_its_wait_twice() -> None:
    taken_back = a_job(
        status={
            "phase": "Starting",
            "queuedTime": quantities.format_timestamp(CREATED),
            "admittedTime": quantities.format_timestamp(CREATED + 50),
            "waitSeconds": 50,
        }
    )
    body = status.waiting_status(taken_back, hold(taken_back), LATER)
    assert "admittedTime" not in body
    again = a_job(status=body)
    assert LATER - again.gang(0).arrived == 50


def test_waiting_twice_says_the_same() -> None:
    job = a_job()
    once = status.waiting_status(job, hold(job), LATER)
    job = a_job(status=once)
    assert status.waiting_status(job, hold(job), LATER + 10) == once


# --- admitted, counted ------------------------------------------------------------------------


def admitted(job: JobFacts, nodes: tuple[str, ...], since: float = LATER) -> dict[str, Any]:
    admit = Admit(job.gang(0), Placement((), "", ""), Ranked(job.gang(0), 0.5), "")
    return status.admission_status(job, a_plan(job, nodes, planned=since), admit, SNAPSHOT)


def test_an_admitted_job_says_since_when_and_where_it_sits() -> None:
    body = admitted(a_job(task("worker", 3)), ("r0-n0", "r0-n1"))
    assert body["admittedTime"] == quantities.format_timestamp(LATER)
    assert body["waitSeconds"] == 100
    assert body["placement"] == {
        "level": "rack",
        "domain": "r0",
        "nodes": 2,
        "summary": "2 on r0-n0, 1 on r0-n1 (rack r0)",
    }
    assert conditions(body)["Admitted"] == ("True", "Admitted", quantities.format_timestamp(LATER))


def test_an_admitted_job_starts_by_the_plan_in_its_status() -> None:
    job = a_job(task("worker", 3), status={"queuePosition": 1, "message": "waits", "attempt": 2})
    body = admitted(job, ("r0-n0", "r0-n1"))
    assert (body["phase"], body["reason"], body["attempt"]) == ("Starting", "Admitted", 2)
    assert body["message"] == "3 replicas planned; their pods are being created and bound"
    assert (body["ready"], body["tasks"][0]["planned"], body["tasks"][0]["bound"]) == ("0/3", 3, 0)
    plan = plans.read(body)
    assert plan is not None
    assert [(m.node, m.index) for m in plan.members] == [("r0-n0", 0), ("r0-n0", 2), ("r0-n1", 1)]
    assert (plan.label, plan.queue, plan.planned) == ("1.2", "default", LATER)
    assert "queuePosition" not in body


@pytest.mark.parametrize(
    ("phase", "attempt", "after"),
    [
        ("Starting", 0, "Pending"),
        ("Starting", 1, "Restarting"),
        ("Restarting", 1, "Restarting"),
        ("Suspended", 0, "Suspended"),
        ("Succeeded", 0, "Succeeded"),
    ],
)
def test_a_job_that_gives_its_places_back_waits_again_unless_it_is_over_or_paused(
    phase: str, attempt: int, after: str
) -> None:
    job = a_job(status={"phase": phase, "attempt": attempt, "ready": "0/1"})
    body = status.without_plan(with_plan(job, a_plan(job)))
    assert body == {"phase": after, "attempt": attempt, "ready": "0/1"}


def test_a_wide_placement_is_summed_up() -> None:
    body = admitted(a_job(task("worker", 8)), tuple(NODES.names))
    assert body["placement"]["nodes"] == 8
    assert body["placement"]["summary"].endswith("1 on r0-n3 and 4 more nodes (cluster)")


def test_a_placement_on_nodes_that_are_gone_is_still_described() -> None:
    body = admitted(a_job(), ("vanished",))
    assert body["placement"]["summary"].startswith("1 on vanished")


def test_waits_add_up_over_restarts() -> None:
    queued = quantities.format_timestamp(CREATED + 60)
    job = a_job(status={"phase": "Restarting", "queuedTime": queued, "waitSeconds": 7})
    assert admitted(job, ("r0-n0",), CREATED + 90)["waitSeconds"] == 37


def test_replicas_are_counted_by_how_far_they_have_come() -> None:
    job = a_job(task("ps"), task("worker", 4))
    plan = a_plan(job)
    pods = running(job, plan, worker_0="Succeeded", worker_1="Failed")[:4]
    pods[3] = a_pod(job, plan, plan.members[3], "Pending", node="")
    body = status.with_counts({}, job, a_view(job, plan, pods))
    assert body["ready"] == "2/5"
    assert body["tasks"][1] == {
        "name": "worker",
        "replicas": 4,
        "planned": 4,
        "bound": 2,
        "ready": 0,
        "succeeded": 1,
        "failed": 1,
    }


def counted_in(phase: str, reason: Reason, *pods: str, message: str = "") -> tuple[str, str]:
    """READY and message of a job of three replicas whose pods are in these phases."""
    job = a_job(task("worker", 3), status={"phase": phase})
    plan = a_plan(job)
    made = [
        a_pod(job, plan, member, state or "Pending", node="n0" if state else "")
        for member, state in zip(plan.members, pods, strict=False)
    ]
    given = {"phase": phase, "reason": reason.value, "message": message}
    body = status.with_counts(given, job, a_view(job, plan, made))
    return body["ready"], body["message"]


def test_the_message_has_the_numbers_of_the_ready_column() -> None:
    start = "Starting", Reason.ADMITTED
    created = "3 replicas planned; their pods are being created and bound"
    assert counted_in(*start, "", "", "") == ("0/3", created)
    halfway = "2 of 3 replicas are on their nodes, 1 ready"
    assert counted_in(*start, "Running", "Pending") == ("1/3", halfway)
    left = "; kube-scheduler chooses the nodes because of a volume"
    assert counted_in(*start, "Running", "Pending", message=created + left)[1] == halfway + left
    run = "Running", Reason.GANG_RUNNING
    whole = counted_in(*run, "Running", "Running", "Running", message="runs")
    assert whole == ("3/3", "all 3 replicas run on 1 node(s)")
    assert counted_in(*run, "Running", "Running", "Pending", message=whole[1]) == (
        *("2/3", "2 of 3 replicas run"),
    )
    assert counted_in(*run, "Running", "Succeeded", "Running", message=whole[1]) == (
        *("3/3", "2 of 3 replicas run, 1 ended well"),
    )


def test_a_gang_that_stops_has_no_ready_replicas_beside_the_reason_of_its_stop() -> None:
    job = a_job(task("worker", 3), status={**HAS_RUN, "ready": "3/3"})
    move = Transition("Restarting", Reason.POD_FAILED, "it failed", restarts=1)
    assert status.after_transition(dict(job.status), job, move, LATER)["ready"] == "0/3"


# --- moved ------------------------------------------------------------------------------------

HAS_RUN = {
    "phase": "Running",
    "startTime": quantities.format_timestamp(CREATED),
    "admittedTime": quantities.format_timestamp(CREATED),
    "placement": {"nodes": 1},
    "restarts": 1,
    "attempt": 2,
}


def test_a_restart_counts_itself_and_joins_the_queue_anew() -> None:
    move = Transition("Restarting", Reason.POD_FAILED, "it failed", restarts=1)
    body = status.after_transition(HAS_RUN, a_job(status=HAS_RUN), move, LATER)
    assert (body["attempt"], body["restarts"], body["interruptions"]) == (3, 2, 0)
    assert body["queuedTime"] == quantities.format_timestamp(LATER)
    assert body["startTime"] == quantities.format_timestamp(CREATED)
    assert not body.keys() & {"admittedTime", "placement"}
    truths = {name: c[0] for name, c in conditions(body).items()}
    assert truths == {"Admitted": "False", "Running": "False"}


def test_an_interruption_is_not_counted_as_a_restart() -> None:
    move = Transition("Restarting", Reason.NODE_LOST, "gone", interruptions=1)
    body = status.after_transition(HAS_RUN, a_job(status=HAS_RUN), move, LATER)
    assert (body["attempt"], body["restarts"], body["interruptions"]) == (3, 1, 1)


def test_a_preemption_counts_as_neither_restart_nor_interruption() -> None:
    move = Transition("Restarting", Reason.PREEMPTED, "makes room", preemptions=1)
    body = status.after_transition(HAS_RUN, a_job(status=HAS_RUN), move, LATER)
    assert (body["attempt"], body["restarts"], body["interruptions"]) == (3, 1, 0)
    assert (body["phase"], body["reason"], body["preemptions"]) == ("Restarting", "Preempted", 1)
    assert a_job(status=body).gang(0).evictions == 1
    assert status.after_transition(body, a_job(status=body), move, LATER)["preemptions"] == 2
    assert conditions(body)["Admitted"][:2] == ("False", "Preempted")


def test_a_job_that_runs_again_keeps_the_time_it_first_ran() -> None:
    move = Transition("Running", Reason.GANG_RUNNING, "runs")
    body = status.after_transition({}, a_job(), move, LATER)
    assert body["startTime"] == quantities.format_timestamp(LATER)
    body = status.after_transition(HAS_RUN, a_job(status=HAS_RUN), move, LATER)
    assert body["startTime"] == quantities.format_timestamp(CREATED)
    assert {name: c[0] for name, c in conditions(body).items()} == {
        "Admitted": "True",
        "Running": "True",
    }


@pytest.mark.parametrize(("phase", "well"), [("Succeeded", "True"), ("Failed", "False")])
def test_a_finished_job_says_when_and_how_it_ended(phase: str, well: str) -> None:
    reason = Reason.SUCCEEDED if phase == "Succeeded" else Reason.BACKOFF_LIMIT_EXCEEDED
    body = status.after_transition(
        HAS_RUN, a_job(status=HAS_RUN), Transition(phase, reason, "the end"), LATER
    )
    assert body["completionTime"] == quantities.format_timestamp(LATER)
    truths = {name: c[0] for name, c in conditions(body).items()}
    assert truths == {"Running": "False", "Finished": "True", "Succeeded": well}
    assert body["attempt"] == 2


@pytest.mark.parametrize("phase", ["Suspended", "Pending"])
def test_a_pause_gives_the_place_back_without_a_new_attempt(phase: str) -> None:
    move = Transition(phase, Reason.SUSPENDED, "paused")
    body = status.after_transition(HAS_RUN, a_job(status=HAS_RUN), move, LATER)
    assert body["attempt"] == 2
    assert not body.keys() & {"admittedTime", "placement"}
    assert ("queuedTime" in body) == (phase == "Pending")
    assert conditions(body)["Admitted"][0] == "False"
