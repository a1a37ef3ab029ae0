"""The estimated start in the status of a waiting job, and how seldom it is written anew."""

import pytest

from bireme.core.decision import Admit, Hold
from bireme.core.eta import StartRange
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.kube import quantities
from bireme.kube.api.training_job import TrainingJobStatus
from bireme.testing import a_snapshot, racks
from bireme_operator import status
from bireme_operator.lifecycle import Transition
from testbed.objects.facts import CREATED, a_job, a_plan

NOW = CREATED
SOON = NOW + 600
FORESEEN = StartRange(SOON, SOON + 60)
LEARNED = StartRange(SOON, SOON + 60, 0.9)


def stamp(seconds: float) -> str:
    return quantities.format_timestamp(seconds)


def written(start: StartRange | None, before: StartRange | None = None) -> status.Status:
    """The status of a waiting job that says ``before`` and should say ``start``."""
    body = {} if before is None else {"estimatedStart": status.start_estimate(before)}
    job = a_job(status=body)
    hold = Hold(job.gang(0), Reason.WAITING_FOR_CAPACITY, "waits", 1)
    return status.waiting_status(job, hold, NOW, start)


def test_a_waiting_job_says_when_it_should_start() -> None:
    body = written(FORESEEN)
    TrainingJobStatus.model_validate(body)
    assert body["estimatedStart"] == {"earliest": stamp(SOON), "latest": stamp(SOON + 60)}
    assert "estimatedStart" not in written(None, FORESEEN)


def test_it_says_how_many_starts_a_learned_range_holds() -> None:
    body = written(LEARNED)
    TrainingJobStatus.model_validate(body)
    ends = {"earliest": stamp(SOON), "latest": stamp(SOON + 60)}
    assert body["estimatedStart"] == {**ends, "coveragePercent": 90}


def test_a_latest_start_that_nobody_knows_is_not_shown() -> None:
    assert written(StartRange(SOON, None))["estimatedStart"] == {"earliest": stamp(SOON)}


@pytest.mark.parametrize(("moved", "is_written"), [(-31, False), (34, False), (35, True)])
def test_an_estimate_is_written_anew_only_if_it_moves_by_a_twentieth_of_what_is_left(
    moved: int, is_written: bool
) -> None:
    after = StartRange(SOON, SOON + 60 + moved, 0.9)
    body = written(after, LEARNED)["estimatedStart"]
    assert body == status.start_estimate(after if is_written else LEARNED)


@pytest.mark.parametrize(("moved", "is_written"), [(-30, False), (30, False), (31, True)])
def test_an_estimate_of_minutes_is_written_anew_if_it_moves_by_more_than_half_a_minute(
    moved: int, is_written: bool
) -> None:
    before, after = StartRange(NOW + 60, None), StartRange(NOW + 60 + moved, None)
    body = written(after, before)["estimatedStart"]
    assert body == status.start_estimate(after if is_written else before)


@pytest.mark.parametrize(("moved", "is_written"), [(-2000, False), (2000, False), (3000, True)])
def test_a_wide_range_is_written_anew_only_if_it_moves_by_a_fifth_of_its_width(
    moved: int, is_written: bool
) -> None:
    before = StartRange(NOW + 60, NOW + 10_060, 0.9)
    after = StartRange(NOW + 60 + moved, NOW + 10_060 + moved, 0.9)
    body = written(after, before)["estimatedStart"]
    assert body == status.start_estimate(after if is_written else before)


@pytest.mark.parametrize("after", [StartRange(SOON, None), LEARNED])
def test_an_estimate_that_says_less_or_more_than_before_is_written_anew(after: StartRange) -> None:
    assert written(after, FORESEEN)["estimatedStart"] == status.start_estimate(after)


def test_an_estimate_that_cannot_be_read_is_written_anew() -> None:
    job = a_job(status={"estimatedStart": {"earliest": "soon", "latest": stamp(SOON)}})
    hold = Hold(job.gang(0), Reason.WAITING_FOR_CAPACITY, "waits", 1)
    body = status.waiting_status(job, hold, NOW, FORESEEN)
    assert body["estimatedStart"] == status.start_estimate(FORESEEN)


def test_a_job_that_has_its_places_or_pauses_is_expected_no_more() -> None:
    job = a_job(status={"phase": "Pending", "estimatedStart": {"earliest": stamp(SOON)}})
    gang = job.gang(0)
    admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.5), "")
    body = status.admission_status(job, a_plan(job), admit, a_snapshot(racks(1, 1)))
    assert "estimatedStart" not in body
    pause = Transition("Suspended", Reason.SUSPENDED, "paused")
    assert "estimatedStart" not in status.after_transition(job.status, job, pause, NOW)


@pytest.mark.parametrize("seconds", [3.6e12, 1e300, float("inf")])
def test_a_start_after_the_year_9999_is_shown_as_its_last_second(seconds: float) -> None:
    body = written(StartRange(seconds, seconds))
    TrainingJobStatus.model_validate(body)
    assert body["estimatedStart"] == dict.fromkeys(("earliest", "latest"), "9999-12-31T23:59:59Z")
