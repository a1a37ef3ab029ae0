"""Losses that a running elastic gang goes on without, and those that start it again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.allocations import GangView
from bireme.kube.plans import PlanFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle
from bireme_operator.lifecycle import transition
from bireme_operator.reconcile_context import ReconcileContext
from testbed.objects.facts import CREATED, a_job, a_plan, a_pod, a_view, running
from testbed.scenario.manifests import task
from tests.unit.operator.lifecycle_cases import situation

LEAVING = {"deletionTimestamp": quantities.format_timestamp(CREATED)}
EVICTED = {
    "reason": "Evicted",
    "message": "disk pressure",
    "conditions": [{"type": "DisruptionTarget", "status": "True"}],
}
Change = Callable[[JobFacts, PlanFacts, list[PodFacts]], None]


def gang(
    change: Change, *, least: int = 2, phase: str = "Running", planned: float = CREATED
) -> tuple[JobFacts, GangView]:
    """A master on n0 and four workers on n1, n0, n1, n0, after ``change``."""
    tasks = (task("master"), task("worker", 4, minReplicas=least, maxReplicas=6))
    job = a_job(*tasks, rendezvous="torch", status={"phase": phase})
    plan = a_plan(job, ("n0", "n1"), planned=planned)
    pods = running(job, plan)
    change(job, plan, pods)
    return job, a_view(job, plan, pods)


def becomes(index: int, phase: str = "Running", **options: Any) -> Change:
    """Replica ``index`` of the plan looks like this."""

    def change(job: JobFacts, plan: PlanFacts, pods: list[PodFacts]) -> None:
        pods[index] = a_pod(job, plan, plan.members[index], phase, **options)

    return change


def gone(*indices: int) -> Change:
    def change(job: JobFacts, plan: PlanFacts, pods: list[PodFacts]) -> None:
        pods[:] = [pod for at, pod in enumerate(pods) if at not in indices]

    return change


def moved(job: JobFacts, view: GangView, at: ReconcileContext) -> Reason | None:
    move = transition(job, lifecycle.surviving_view(job, view, at), at)
    return None if move is None else move.reason


def lost(job: JobFacts, view: GangView, at: ReconcileContext) -> dict[str, str]:
    missed = lifecycle.lost_members(job, view, at)
    return {f"{member.task}-{member.index}": why for member, why in missed.items()}


LATE = situation(after=100.0)
LOSSES = [
    pytest.param(becomes(2, **LEAVING), situation(), "it was deleted", id="deleted"),
    pytest.param(
        becomes(2, "Failed", status=EVICTED), situation(), "Evicted: disk pressure", id="evicted"
    ),
    pytest.param(
        becomes(2, "Pending", node=""), LATE, "not on its node after 100 s", id="never bound"
    ),
    pytest.param(gone(2), LATE, "not on its node after 100 s", id="never created"),
    pytest.param(
        becomes(2, "Pending", node="", **LEAVING), situation(), "it was deleted", id="deleted early"
    ),
]


@pytest.mark.parametrize(("change", "at", "why"), LOSSES)
def test_a_gang_goes_on_without_a_replica_that_it_can_spare(
    change: Change, at: ReconcileContext, why: str
) -> None:
    job, view = gang(change)
    assert moved(job, view, at) is None
    assert lost(job, view, at) == {"worker-1": why}


@pytest.mark.parametrize(("change", "at", "why"), LOSSES)
def test_a_gang_at_its_minimum_starts_again(change: Change, at: ReconcileContext, why: str) -> None:
    job, view = gang(change, least=4)
    assert moved(job, view, at) in (Reason.POD_LOST, Reason.GANG_NOT_BOUND_IN_TIME)
    assert lost(job, view, at) == {}


def test_a_gang_goes_on_without_a_lost_node_unless_the_others_meet_there() -> None:
    job, view = gang(gone())
    assert moved(job, view, situation(lost="n1")) is None
    assert lost(job, view, situation(lost="n1")) == dict.fromkeys(
        ("worker-0", "worker-2"), "it is lost"
    )
    assert moved(job, view, situation(lost="n0")) is Reason.NODE_LOST
    assert lost(job, view, situation(lost="n0")) == {}


@pytest.mark.parametrize("change", [becomes(0, **LEAVING), gone(0)], ids=["deleted", "gone"])
def test_a_gang_does_not_outlive_the_replica_where_the_others_meet(change: Change) -> None:
    job, view = gang(change)
    assert moved(job, view, situation()) is Reason.POD_LOST


def test_a_replica_that_is_still_coming_is_neither_lost_nor_a_reason_to_start_again() -> None:
    job, view = gang(becomes(3, "Pending", node=""))
    assert moved(job, view, situation()) is None
    assert lost(job, view, situation()) == {}
    job, view = gang(gone(3))
    assert moved(job, view, situation()) is None
    assert lost(job, view, situation()) == {}


def test_a_coming_replica_is_given_up_when_its_node_cannot_take_it() -> None:
    job, view = gang(becomes(3, "Pending", node=""))
    assert lost(job, view, situation(taken="n1")) == {"worker-2": "it is full"}


def test_the_time_to_get_onto_a_node_counts_from_the_last_resize() -> None:
    job, view = gang(becomes(3, "Pending", node=""))
    grown = GangView(replace(view.plan, resized=CREATED + 90), view.members, ())
    assert lost(job, grown, LATE) == {}
    assert lost(job, grown, situation(after=151.0)) == {"worker-2": "not on its node after 61 s"}


def test_a_gang_goes_on_without_a_replica_that_fails_alone() -> None:
    job, view = gang(becomes(3, "Failed", status={"message": "found nobody"}))
    assert moved(job, view, situation()) is None
    assert lost(job, view, situation()) == {"worker-2": "found nobody"}


@pytest.mark.parametrize(("index", "least"), [(0, 2), (3, 4)], ids=["the first", "too few left"])
def test_a_replica_that_fails_and_cannot_be_spared_fails_its_gang(index: int, least: int) -> None:
    job, view = gang(becomes(index, "Failed"), least=least)
    assert moved(job, view, situation()) is Reason.POD_FAILED
    assert lost(job, view, situation()) == {}


@pytest.mark.parametrize(
    ("phase", "node"), [("Pending", ""), ("Running", "n0"), ("Failed", "n0"), ("Succeeded", "n0")]
)
def test_a_job_has_succeeded_when_the_replica_where_the_others_met_has(
    phase: str, node: str
) -> None:
    def change(job: JobFacts, plan: PlanFacts, pods: list[PodFacts]) -> None:
        pods[:] = [a_pod(job, plan, member, "Succeeded") for member in plan.members]
        pods[4] = a_pod(job, plan, plan.members[4], phase, node=node)

    job, view = gang(change)
    assert moved(job, view, situation()) is Reason.SUCCEEDED


def test_a_job_has_not_succeeded_while_the_replica_where_the_others_met_goes_on() -> None:
    def change(job: JobFacts, plan: PlanFacts, pods: list[PodFacts]) -> None:
        pods[1:] = [a_pod(job, plan, member, "Succeeded") for member in plan.members[1:]]

    job, view = gang(change)
    assert moved(job, view, situation()) is None


@pytest.mark.parametrize("phase", ["Starting", "Pending"])
def test_a_gang_that_does_not_run_yet_is_judged_by_every_replica(phase: str) -> None:
    job, view = gang(gone(3), phase=phase)
    assert lifecycle.surviving_view(job, view, situation()) is view


def test_a_gang_that_is_not_elastic_is_judged_by_every_replica() -> None:
    job = a_job(task("worker", 4), rendezvous="torch", status={"phase": "Running"})
    plan = a_plan(job)
    view = a_view(job, plan, running(job, plan)[:3])
    assert moved(job, view, situation()) is Reason.POD_LOST
    assert lifecycle.lost_members(job, view, situation()) == {}
