"""Running gangs that hold devices and get nothing done."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import quantities
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlannedGang
from bireme_operator.stalls import Stall, stall_counts, stall_of, with_stall
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, with_plan
from testbed.scenario.manifests import task

AFTER = 1800.0
WORKERS = task("worker", 2, gpus=4)
PROGRESS = {"step": 400, "totalSteps": 1000}


def stamp(after_seconds: float) -> str:
    return quantities.format_timestamp(CREATED + after_seconds)


def job_status(
    phase: str = "Running", progress: Mapping[str, Any] | None = None, ran_after: float = 0
) -> dict[str, Any]:
    """A status of a job that began to run so many seconds after its creation."""
    condition = {"type": "Running", "status": "True", "lastTransitionTime": stamp(ran_after)}
    told = {} if progress is None else {"progress": dict(progress)}
    return {"phase": phase, "reason": "GangRunning", "conditions": [condition], **told}


def stall(
    status: Mapping[str, Any],
    now: float,
    worker: Mapping[str, Any] = WORKERS,
    after_seconds: float = AFTER,
    second: Mapping[str, Any] | None = None,
) -> Stall | None:
    """Judge a job ``now`` seconds after its creation; ``second`` is about its second pod."""
    job = a_job(dict(worker), status=status)
    plan = a_plan(job, ("n0", "n1"))
    first, other = plan.members
    pods = [a_pod(job, plan, first), a_pod(job, plan, other, **(second or {}))]
    return stall_of(job, a_view(job, plan, pods), CREATED + now, after_seconds)


def reported(last: float, news: float | None = None) -> dict[str, Any]:
    """Progress by when the last report came, and the last that had news."""
    when = {} if news is None else {"progressedTime": stamp(news)}
    return {**PROGRESS, "reportedTime": stamp(last), **when}


@pytest.mark.parametrize(
    ("progress", "ran_after", "since"),
    [
        (reported(100), 0, 100),
        # It reports the same step again and again.
        (reported(5000, 100), 0, 100),
        # It reported before it was started again, and not since.
        (reported(100), 600, 600),
    ],
    ids=["silent", "the same again", "silent since a restart"],
)
def test_a_job_that_told_of_progress_and_does_so_no_more_is_stalled(
    progress: dict[str, Any], ran_after: float, since: float
) -> None:
    status = job_status(progress=progress, ran_after=ran_after)
    assert stall(status, since + AFTER - 1) is None
    found = stall(status, since + AFTER)
    assert found is not None
    assert (found.reason, found.message) == (
        "NoProgress",
        f"its reports show no progress since {stamp(since)}, at step 400 of 1000",
    )
    assert stall(status, 1e6, after_seconds=0.0) is None, "turned off"


def test_a_job_that_never_reported_or_does_not_run_or_has_no_devices_is_not_stalled() -> None:
    assert stall(job_status(), 1e6) is None
    assert stall(job_status("Starting", reported(100)), 1e6) is None
    assert stall(job_status(progress=reported(100)), 1e6, task("worker", 2, gpus=0)) is None


def unready(after: float, **state: Any) -> dict[str, Any]:
    """A running pod that has not been ready since then, with the state of its container."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": stamp(after)}
    return {"status": {"conditions": [ready], **state}}


def test_a_replica_that_holds_devices_and_is_not_ready_for_long_stalls_its_gang() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    containers = [{"name": "main", "restartCount": 9, "state": waiting}]
    pod = unready(100, containerStatuses=containers)
    assert stall(job_status(), 100 + AFTER - 1, second=pod) is None
    found = stall(job_status(progress=reported(100)), 100 + AFTER, second=pod)
    assert found is not None
    assert found.reason == "ReplicasNotReady"
    assert found.message == (
        f"replica 1 of worker on node n1 holds devices and has not been ready since {stamp(100)}: "
        "container main is in CrashLoopBackOff: back-off 5m0s"
    )


@pytest.mark.parametrize(
    "second",
    [{"phase": "Succeeded", **unready(100)}, {"node": "", **unready(100)}],
    ids=["has ended", "is on no node"],
)
def test_a_replica_that_holds_nothing_stalls_nobody(second: dict[str, Any]) -> None:
    assert stall(job_status(), 1e6, second=second) is None


def test_a_stalled_job_says_so_until_it_goes_on() -> None:
    job = a_job(WORKERS, status=job_status(progress=reported(100)))
    plan = a_plan(job, ("n0", "n1"))
    view = a_view(job, plan, [a_pod(job, plan, member) for member in plan.members])
    found = stall_of(job, view, CREATED + 1e6, AFTER)
    stalled = with_stall(dict(job.status), view, found)
    assert (stalled["phase"], stalled["reason"]) == ("Running", "NoProgress")
    on_again = with_stall(stalled, view, None)
    assert on_again["reason"] == "GangRunning"
    assert on_again["message"] == "all 2 replicas run on 2 node(s)"
    other = {**job.status, "reason": "Shrunk"}
    assert with_stall(other, view, None) is other


def test_stalled_gangs_are_counted_by_queue_and_reason() -> None:
    state = ClusterState(SchedulingSettings())
    for name, progress in (("hung", reported(100)), ("fine", reported(9000)), ("mute", None)):
        job = a_job(WORKERS, name=name, queue="q", status=job_status(progress=progress))
        plan = replace(a_plan(job), queue="q")
        state.objects.jobs[job.key] = with_plan(job, plan)
        state.objects.put_job_plan(job.key, PlannedGang(job.uid, True, plan))
    assert stall_counts(state, CREATED + 9000, AFTER) == {("q", "NoProgress"): 1}
