"""Verdicts of the API server: how long they count, and what is not done for a job meanwhile."""

from dataclasses import replace

import pytest

from bireme.core.reasons import Reason
from bireme.kube.client import ApiError
from bireme.testing import ManualClock
from bireme_operator.rejections import AdmissionRejected, AdmissionRejections, rejection_of
from testbed.objects.facts import a_job
from testbed.scenario.manifests import task

INVALID = AdmissionRejected(Reason.TEMPLATE_INVALID, "bad image")
REFUSED = AdmissionRejected(Reason.PODS_REFUSED, "over quota")
JOB = a_job()
JOBS = (JOB,)


@pytest.mark.parametrize(
    ("refused", "pauses"),
    [(REFUSED, (30, 60, 60, 60)), (INVALID, (60, 120, 240, 480, 600, 600))],
)
def test_a_refusal_ends_by_itself_and_every_further_one_takes_longer(
    refused: AdmissionRejected, pauses: tuple[float, ...]
) -> None:
    clock = ManualClock()
    refusals = AdmissionRejections(clock)
    for pause in pauses:
        refusals.add(JOB, refused)
        clock.advance(pause - 0.1)
        assert refusals.current(JOBS) == {JOB.uid: (refused.reason, str(refused))}
        clock.advance(0.1)
        assert not refusals.current(JOBS)


def test_an_edit_ends_it_for_good() -> None:
    refusals = AdmissionRejections(ManualClock())
    refusals.add(JOB, INVALID)
    edited = a_job(task("worker", 7))
    assert refusals.current([edited]) == {}
    assert refusals.current(JOBS) == {}
    assert refusals.may_preempt(JOB.uid)


def test_another_job_of_the_name_is_not_refused_for_it() -> None:
    refusals = AdmissionRejections(ManualClock())
    refusals.add(JOB, INVALID)
    assert refusals.current([replace(JOB, uid="another")]) == {}
    assert refusals.current(JOBS) == {}, "a job that is gone is forgotten"


def test_nobody_is_stopped_for_what_was_refused_within_an_hour() -> None:
    clock = ManualClock()
    refusals = AdmissionRejections(clock)
    refusals.add(JOB, REFUSED)
    for seconds in (0, 30, 3569.9):
        clock.advance(seconds)
        refusals.current(JOBS)
        assert not refusals.may_preempt(JOB.uid)
    clock.advance(0.1)
    refusals.current(JOBS)
    assert refusals.may_preempt(JOB.uid)


def test_a_job_whose_pods_were_taken_after_all_is_as_any_other() -> None:
    clock, started = ManualClock(), [a_job(status={"phase": "Starting"})]
    refusals = AdmissionRejections(clock)
    refusals.add(JOB, REFUSED)
    clock.advance(29)
    assert refusals.current(started), "what is refused while it starts is refused"
    clock.advance(1)
    assert not refusals.current(started)
    assert refusals.may_preempt(JOB.uid)


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_dry_run_that_is_taken_ends_it_and_proves_what_a_dry_run_can(is_dry_run: bool) -> None:
    clock = ManualClock()
    refusals = AdmissionRejections(clock)
    refusals.add(JOB, REFUSED, is_dry_run=is_dry_run)
    clock.advance(19.9)
    assert not refusals.is_due(JOB.uid)
    clock.advance(0.1)
    assert refusals.is_due(JOB.uid)
    refusals.lift(JOB.uid)
    assert not refusals.current(JOBS)
    assert refusals.may_preempt(JOB.uid) is is_dry_run


DENIALS = (
    'admission webhook "pods.example.com" denied the request: no',
    "admission webhook denied the request without explanation",
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no",
)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
@pytest.mark.parametrize("words", DENIALS)
def test_a_denial_is_a_refusal_whatever_its_status(words: str, status: int) -> None:
    rejected = rejection_of(ApiError(status, "Any", words))
    assert rejected is not None
    assert (rejected.reason, str(rejected)) == (Reason.PODS_REFUSED, words)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_the_schema_says_is_the_templates_own_fault(status: int) -> None:
    rejected = rejection_of(ApiError(status, "Invalid", "spec.containers[0].image: Required value"))
    assert rejected is not None
    assert rejected.reason is Reason.TEMPLATE_INVALID
