"""Phase changes of a TrainingJob: every branch, and the one that wins when several apply."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle
from bireme_operator.lifecycle import Transition, transition
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running
from testbed.scenario.manifests import task
from tests.unit.operator.lifecycle_cases import (
    TRAINING,
    WORKERS,
    Pods,
    ended,
    failed,
    gang,
    moved,
    none,
    situation,
    without,
)

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}

# --- before a plan ----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Running", "Restarting"])
def test_a_job_is_suspended_from_any_phase_with_or_without_a_plan(phase: str) -> None:
    job, view = gang(phase, pods=ended, runPolicy={"suspend": True})
    assert moved(job, view) == ("Suspended", Reason.SUSPENDED)
    assert moved(job, None) == ("Suspended", Reason.SUSPENDED)


def test_a_suspended_job_stays_until_it_is_resumed() -> None:
    still, view = gang("Suspended", runPolicy={"suspend": True})
    assert transition(still, view, situation()) is None
    resumed, _ = gang("Suspended")
    assert moved(resumed, None) == ("Pending", Reason.STOPPING)
    assert moved(resumed, view) is None, "its last plan is cleared first"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_job_never_moves_again(phase: str) -> None:
    job, view = gang(phase, pods=failed(), runPolicy={"suspend": True})
    assert transition(job, view, situation(lost="n0")) is None


def test_a_leaving_or_unreadable_job_never_moves() -> None:
    leaving = a_job(metadata={"deletionTimestamp": quantities.format_timestamp(CREATED)})
    assert transition(leaving, a_view(leaving, a_plan(leaving), []), situation()) is None
    unreadable = a_job(task(replicas=0))
    assert unreadable.spec is None
    assert transition(unreadable, None, situation()) is None


def test_a_waiting_job_stays_as_it_is() -> None:
    assert transition(a_job(), None, situation()) is None
    assert transition(a_job(status={"phase": "Restarting"}), None, situation()) is None


def test_a_plan_of_an_earlier_attempt_moves_nothing() -> None:
    job = a_job(*WORKERS, status={"phase": "Restarting", "attempt": 1})
    plan = a_plan(job, attempt=0)
    view = a_view(job, plan, running(job, plan))
    assert transition(job, view, situation(after=1e6, lost="n0")) is None


# --- the good way -----------------------------------------------------------------------------


@pytest.mark.parametrize("pods", [none, without(1)])
def test_a_starting_gang_waits_for_its_last_replica(pods: Pods) -> None:
    job, view = gang("Starting", pods=pods)
    assert transition(job, view, situation()) is None


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Restarting"])
def test_a_gang_runs_once_every_replica_is_ready_or_done(phase: str) -> None:
    job, view = gang(phase, pods=lambda j, p: running(j, p, worker_0="Succeeded"))
    move = transition(job, view, situation())
    assert move is not None
    assert (move.phase, move.reason) == ("Running", Reason.GANG_RUNNING)
    assert move.message == "1 of 2 replicas run, 1 ended well"


def test_a_running_gang_that_is_well_stays() -> None:
    job, view = gang()
    assert transition(job, view, situation(after=1e6)) is None


def test_a_job_succeeds_when_all_that_train_have_although_its_servers_run_on() -> None:
    job, view = gang(tasks=TRAINING, pods=ended)
    move = transition(job, view, situation())
    assert move is not None
    assert (move.phase, move.reason) == ("Succeeded", Reason.SUCCEEDED)
    assert move.message == "all 2 replicas succeeded"


def test_a_job_does_not_succeed_while_one_that_trains_runs_or_is_missing() -> None:
    job, view = gang(tasks=TRAINING, pods=lambda j, p: running(j, p, worker_0="Succeeded"))
    assert transition(job, view, situation()) is None
    job, view = gang("Starting", pods=lambda j, p: [a_pod(j, p, p.members[0], "Succeeded")])
    assert transition(job, view, situation()) is None


LED = (task("chief", 1, role="chief"), task("ps", 1), task("worker", 2))


@pytest.mark.parametrize(
    ("tasks", "policy", "succeeded", "message"),
    [
        pytest.param(LED, None, ("chief_0",), "replica 0 of chief", id="leader-by-default"),
        pytest.param(LED, "Leader", ("chief_0",), "replica 0 of chief", id="leader"),
        pytest.param(LED, None, ("worker_0", "worker_1"), None, id="leader-runs-on"),
        pytest.param(LED, "AllReplicas", ("chief_0",), None, id="all-of-a-led-gang"),
        pytest.param(
            LED, "AllReplicas", ("chief_0", "worker_0", "worker_1"), "all 3 replicas", id="all"
        ),
        pytest.param(WORKERS, None, ("worker_0",), None, id="no-leader"),
        pytest.param(WORKERS, "Leader", ("worker_0",), "replica 0 of worker", id="first-worker"),
        pytest.param(WORKERS, "Leader", ("worker_1",), None, id="another-worker"),
    ],
)
def test_the_success_policy_says_which_replicas_end_the_job_well(
    tasks: tuple[dict[str, Any], ...],
    policy: str | None,
    succeeded: tuple[str, ...],
    message: str | None,
) -> None:
    run_policy = {"successPolicy": policy} if policy else {}
    phases = dict.fromkeys(succeeded, "Succeeded")
    job, view = gang(tasks=tasks, pods=lambda j, p: running(j, p, **phases), runPolicy=run_policy)
    move = transition(job, view, situation())
    assert (move is None) == (message is None)
    if move is not None and message is not None:
        assert (move.phase, move.reason) == ("Succeeded", Reason.SUCCEEDED)
        assert move.message.startswith(message)


def test_a_leader_that_ended_well_has_the_last_word_and_before_it_any_failure_counts() -> None:
    phases = {"chief_0": "Succeeded", "worker_1": "Failed"}
    job, view = gang(tasks=LED, pods=lambda j, p: running(j, p, **phases))
    assert moved(job, view) == ("Succeeded", Reason.SUCCEEDED)
    job, view = gang(tasks=LED, pods=lambda j, p: running(j, p, worker_1="Failed"))
    assert moved(job, view) == ("Restarting", Reason.POD_FAILED)


# --- failures ---------------------------------------------------------------------------------


def test_a_failed_replica_restarts_the_gang_while_the_backoff_limit_allows() -> None:
    job, view = gang(pods=failed(1), status={"restarts": 1}, runPolicy={"backoffLimit": 2})
    move = transition(job, view, situation())
    assert move == Transition(
        "Restarting",
        Reason.POD_FAILED,
        "replica 1 of worker: container train exited with 3: no disk; restart 2 of at most 2",
        restarts=1,
        node="n1",
    )


@pytest.mark.parametrize(("restarts", "limit"), [(0, 0), (2, 2), (5, 2)])
def test_a_failed_replica_fails_the_job_when_the_backoff_limit_is_used_up(
    restarts: int, limit: int
) -> None:
    job, view = gang(
        pods=failed(), status={"restarts": restarts}, runPolicy={"backoffLimit": limit}
    )
    move = transition(job, view, situation())
    assert move is not None
    assert (move.phase, move.reason) == ("Failed", Reason.BACKOFF_LIMIT_EXCEEDED)
    assert "exited with 3" in move.message
    assert f"{restarts} of at most {limit} times" in move.message


@pytest.mark.parametrize(
    "why",
    [
        {"reason": "Evicted", "conditions": [DISRUPTED]},
        {"reason": "NodeShutdown"},
        {"conditions": [DISRUPTED]},
    ],
)
def test_a_disrupted_replica_is_not_the_jobs_failure(why: dict[str, Any]) -> None:
    job, view = gang(pods=failed(0, **why), runPolicy={"backoffLimit": 0})
    move = transition(job, view, situation())
    assert move is not None
    assert (move.phase, move.reason) == ("Restarting", Reason.POD_LOST)
    assert (move.restarts, move.interruptions) == (0, 1)


def test_an_eviction_for_its_own_storage_limit_is_the_jobs_failure() -> None:
    """The kubelet gives it the same reason as one for pressure on the node, and no condition."""
    why: dict[str, Any] = {
        "reason": "Evicted",
        "message": "usage exceeds the total limit of containers 1Gi",
    }
    job, view = gang(pods=failed(0, **why), runPolicy={"backoffLimit": 0})
    assert moved(job, view) == ("Failed", Reason.BACKOFF_LIMIT_EXCEEDED)


def test_a_disruption_that_did_not_happen_is_no_excuse() -> None:
    stale = [{"type": "DisruptionTarget", "status": "False"}]
    job, view = gang(pods=failed(0, conditions=stale), runPolicy={"backoffLimit": 0})
    assert moved(job, view) == ("Failed", Reason.BACKOFF_LIMIT_EXCEEDED)


def test_a_failure_of_its_own_beside_a_disruption_counts_as_its_own() -> None:
    def pods(job: JobFacts, plan: PlanFacts) -> list[PodFacts]:
        disrupted = failed(0, conditions=[DISRUPTED])(job, plan)
        return [disrupted[0], failed(1)(job, plan)[1]]

    job, view = gang(pods=pods)
    move = transition(job, view, situation())
    assert move is not None
    assert (move.reason, move.restarts) == (Reason.POD_FAILED, 1)
    assert "replica 1" in move.message


def test_a_replica_that_somebody_deletes_is_lost_not_failed() -> None:
    job, view = gang(pods=failed(0, also_leaving=True), runPolicy={"backoffLimit": 0})
    assert moved(job, view) == ("Restarting", Reason.POD_LOST)


def test_a_failure_message_of_any_length_is_cut() -> None:
    terminated = {"exitCode": 1, "message": "x" * 5000}
    statuses = [{"name": "train", "state": {"terminated": terminated}}]
    job, view = gang(pods=failed(0, containerStatuses=statuses))
    move = transition(job, view, situation())
    assert move is not None
    assert len(move.message) < 800


@pytest.mark.parametrize("why", [{"lost": "n0"}, {"unusable": "n0"}])
def test_a_pod_without_a_pin_may_get_to_another_node_than_the_planned_one(
    why: dict[str, str],
) -> None:
    job = a_job(task("worker", 2), status={"phase": "Starting"})
    at = situation(lost=why.get("lost"), unusable=why.get("unusable"))
    for mode, moves in (("Pinned", True), ("Score", False)):
        plan = a_plan(job, mode=mode)
        view = a_view(job, plan, [a_pod(job, plan, m, "Pending", node="") for m in plan.members])
        assert (transition(job, view, at) is not None) is moves


@pytest.mark.parametrize("phase", ["Starting", "Running"])
@pytest.mark.parametrize("trouble", ["lost", "unusable", "taken", "emptying"])
@pytest.mark.parametrize("is_elastic", [False, True])
def test_the_node_of_a_replica_that_has_ended_and_is_gone_matters_no_more(
    phase: str, trouble: str, is_elastic: bool
) -> None:
    bounds: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 3} if is_elastic else {}
    obstacle: dict[str, Any] = {trouble: "n1"}
    job = a_job(task("worker", 2, **bounds), status={"phase": phase})
    plan = replace(a_plan(job, ("n0", "n1")), ended=frozenset({("worker", 1)}))
    there = running(job, plan)[:1]
    view, at = a_view(job, plan, there), situation(after=1e4, **obstacle)
    expected = ("Running", Reason.GANG_RUNNING) if phase == "Starting" else None
    assert moved(job, lifecycle.surviving_view(job, view, at), at) == expected
    assert not lifecycle.pending_action(job, view, there, at.now, at.lost_node)
    assert lifecycle.lost_members(job, view, at) == {}
    over = a_view(job, plan, running(job, plan, worker_0="Succeeded")[:1])
    assert moved(job, over, at) == ("Succeeded", Reason.SUCCEEDED)
