"""When a waiting job with reserved places should start, and how seldom that is written anew."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.decision import Hold, Reservation
from bireme.core.placement import Placement, TaskPlacement
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import timestamps
from bireme.kube.api import TrainingJobStatus
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_gang, a_running_gang, a_snapshot, a_task, racks, with_running
from bireme_operator import status
from bireme_operator.lifecycle import Transition
from kubeobjects.facts import CREATED, a_job, a_plan, a_view

NOW = CREATED
SOON = NOW + 600


def stamp(seconds: float) -> str:
    return timestamps.format(seconds)


def cluster(*estimates: float | None) -> ClusterSnapshot:
    """A node of 8 GPUs per estimate, each filled since ``NOW`` by a gang that will run so long."""
    empty = a_snapshot(racks(1, len(estimates) + 1), now=NOW)
    gangs = [
        a_running_gang(
            replace(a_gang(f"g{row}", a_task(8)), estimated_seconds=seconds), empty.nodes, row=row
        )
        for row, seconds in enumerate(estimates)
    ]
    return with_running(empty, *(replace(gang, started=NOW) for gang in gangs))


def blocked(start: float | None, *rows: int) -> tuple[JobFacts, Hold]:
    """A job that waits; with ``start``, one replica on each of ``rows`` is kept for it."""
    job, reservation = a_job(), None
    if start is not None:
        kept = TaskPlacement("worker", np.array(rows), np.ones(len(rows), dtype=np.int64))
        placement = Placement((kept,), "", "")
        reservation = Reservation(start, placement)
    hold = Hold(job.gang(0), Reason.WAITING_FOR_CAPACITY, "waits", 1, reservation=reservation)
    return job, hold


def estimate(snapshot: ClusterSnapshot, start: float | None, *rows: int) -> status.Status | None:
    return status.estimated_start(blocked(start, *rows)[1], snapshot)


def test_the_latest_start_is_the_last_end_on_the_reserved_nodes() -> None:
    snapshot = cluster(600, 900, 5000)
    said = estimate(snapshot, SOON, 0, 1)
    assert said == {"earliest": stamp(SOON), "latest": stamp(NOW + 900)}


def test_the_latest_start_is_unknown_while_one_there_has_no_estimate() -> None:
    assert estimate(cluster(600, None), SOON, 0, 1) == {"earliest": stamp(SOON)}
    assert estimate(cluster(600, None), SOON, 0) == {
        "earliest": stamp(SOON),
        "latest": stamp(SOON),
    }


def test_a_gang_that_has_outrun_its_estimate_is_as_good_as_unknown() -> None:
    assert estimate(cluster(600, -5), SOON, 0, 1) == {"earliest": stamp(SOON)}


def test_nobody_can_say_without_a_reservation_or_while_it_may_start_any_moment() -> None:
    assert estimate(cluster(600), None) is None
    assert estimate(cluster(None), NOW, 0) is None


def test_a_waiting_job_says_when_it_should_start() -> None:
    snapshot = cluster(600)
    job, hold = blocked(SOON, 0)
    said = status.waiting(job, hold, NOW, status.estimated_start(hold, snapshot))
    TrainingJobStatus.model_validate(said)
    assert said["estimatedStart"] == {"earliest": stamp(SOON), "latest": stamp(SOON)}
    assert "estimatedStart" not in status.waiting(a_job(status=said), hold, NOW, None)


@pytest.mark.parametrize(("moved", "is_written"), [(-30, False), (30, False), (31, True)])
def test_an_estimate_is_written_anew_only_if_it_moves_by_more_than_half_a_minute(
    moved: int, is_written: bool
) -> None:
    before = {"earliest": stamp(SOON), "latest": stamp(SOON + 60)}
    after = {"earliest": stamp(SOON), "latest": stamp(SOON + 60 + moved)}
    _, hold = blocked(SOON, 0)
    said = status.waiting(a_job(status={"estimatedStart": before}), hold, NOW, after)
    assert said["estimatedStart"] == (after if is_written else before)


def test_an_estimate_that_loses_its_latest_start_is_written_anew() -> None:
    before = {"earliest": stamp(SOON), "latest": stamp(SOON)}
    _, hold = blocked(SOON, 0)
    after = {"earliest": stamp(SOON)}
    said = status.waiting(a_job(status={"estimatedStart": before}), hold, NOW, after)
    assert said["estimatedStart"] == after


def test_a_job_that_has_its_places_or_pauses_is_expected_no_more() -> None:
    job = a_job(status={"phase": "Pending", "estimatedStart": {"earliest": stamp(SOON)}})
    view = a_view(job, a_plan(job), [])
    said = status.admitted(job, view, cluster().nodes, None)
    assert "estimatedStart" not in said
    pause = Transition("Suspended", Reason.SUSPENDED, "paused")
    assert "estimatedStart" not in status.moved(job.status, job, pause, NOW)
