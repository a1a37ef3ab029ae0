"""How long a gang has waited, through statuses as the operator writes and reads them."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.decision import Admit, Hold
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube.api.training_job import TrainingJobStatus
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_snapshot, racks
from bireme_operator import status
from bireme_operator.lifecycle import Transition
from testbed.objects.facts import CREATED, a_job, a_plan
from testbed.scenario.manifests import Manifest, pod_spec, task

HOUR = 3600.0
FITS, TOO_LARGE = Reason.WAITING_FOR_CAPACITY, Reason.NEVER_FITS


class Story:
    """A job whose status is all that is kept from one look to the next; times since its making."""

    def __init__(self, *tasks: Manifest) -> None:
        self.tasks = tasks or (task("worker", 4),)
        self.status: dict[str, Any] = {}

    def edit(self, *tasks: Manifest) -> None:
        self.tasks = tasks

    @property
    def job(self) -> JobFacts:
        return a_job(*self.tasks, status=self.status)

    def age(self, after: float) -> float:
        return self.job.gang(0).wait_seconds(CREATED + after)

    def held(self, after: float, reason: Reason) -> float:
        """Its age after the operator has held it, and said so."""
        job, now = self.job, CREATED + after
        position = None if reason is TOO_LARGE else 1
        hold = Hold(job.gang(0).in_line(now), reason, "words", position)
        self.status = status.waiting_status(job, hold, now)
        TrainingJobStatus.model_validate(self.status)
        return self.age(after)

    def admitted(self, after: float) -> int:
        job, now = self.job, CREATED + after
        gang = job.gang(0).in_line(now)
        admit = Admit(gang, Placement((), "", ""), Ranked(gang, 0.5), "")
        snapshot = a_snapshot(racks(1, 1))
        self.status = status.admission_status(
            job, a_plan(job, ("r0-n0",), planned=now), admit, snapshot
        )
        TrainingJobStatus.model_validate(self.status)
        return int(self.status["waitSeconds"])

    def moved(self, after: float, move: Transition) -> None:
        self.status = status.after_transition(self.status, self.job, move, CREATED + after)


def test_a_job_ages_while_it_stands_in_line_alone() -> None:
    story = Story()
    assert story.age(HOUR) == HOUR
    assert story.held(HOUR, FITS) == HOUR
    assert story.held(2 * HOUR, TOO_LARGE) == 2 * HOUR
    assert story.age(27 * HOUR) == 2 * HOUR
    assert story.held(27 * HOUR, TOO_LARGE) == 2 * HOUR
    assert story.held(28 * HOUR, FITS) == 2 * HOUR
    assert story.age(29 * HOUR) == 3 * HOUR
    assert story.held(29 * HOUR, FITS) == 3 * HOUR
    assert story.held(30 * HOUR, TOO_LARGE) == 4 * HOUR
    assert story.admitted(31 * HOUR) == 4 * HOUR


def test_a_job_that_is_parked_and_then_edited_to_ask_for_much_has_not_waited() -> None:
    """A new leader reads the same, as nothing but the status is kept."""
    story = Story(task("worker", 4))
    assert story.held(0, TOO_LARGE) == 0
    story.edit(task("worker", 16))
    assert story.age(25 * HOUR) == 0
    assert story.held(25 * HOUR, FITS) == 0
    assert story.age(26 * HOUR) == HOUR


@pytest.mark.parametrize(
    ("edited", "is_anew"),
    [
        pytest.param(task("worker", 4), False, id="the-same"),
        pytest.param(task("worker", 3), False, id="fewer"),
        pytest.param(task("worker", 5), True, id="more-replicas"),
        pytest.param(task("worker", 4, gpus=2), True, id="more-each"),
        pytest.param(task("worker", 2, gpus=4), True, id="fewer-that-ask-more-together"),
        pytest.param(task("worker", 2, gpus=2), True, id="fewer-of-another-shape"),
        pytest.param(task("worker", 1, gpus=4), True, id="one-of-another-shape"),
    ],
)
def test_an_edit_that_asks_for_more_or_otherwise_has_the_job_wait_anew(
    edited: Manifest, is_anew: bool
) -> None:
    story = Story(task("worker", 4))
    story.held(HOUR, FITS)
    story.edit(edited)
    # At once, and not only once that is written.
    assert story.age(10 * HOUR) == (0 if is_anew else 10 * HOUR)
    story.held(10 * HOUR, FITS)
    assert story.age(11 * HOUR) == (HOUR if is_anew else 11 * HOUR)


def test_a_job_that_waited_for_little_and_then_asks_for_what_it_asked_first_waits_anew() -> None:
    story = Story(task("worker", 16))
    story.held(0, FITS)
    story.edit(task("worker", 1))
    assert story.held(1, FITS) == 1
    story.edit(task("worker", 16))
    assert story.held(30 * HOUR, FITS) == 0


def test_one_that_asks_for_more_while_it_is_parked_begins_anew_and_stays_parked() -> None:
    story = Story(task("worker", 4))
    story.held(HOUR, TOO_LARGE)
    story.edit(task("worker", 8))
    assert story.held(2 * HOUR, TOO_LARGE) == 0
    assert story.age(9 * HOUR) == 0
    assert story.held(9 * HOUR, FITS) == 0


def test_what_admission_adds_to_pods_is_no_edit() -> None:
    """A LimitRange of the namespace, or an injected sidecar."""
    story = Story(task("worker", 4))
    story.held(HOUR, FITS)
    job = story.job
    (pods,) = job.pods
    larger = tuple((name, 2 * amount) for name, amount in pods.task.request)
    admitted_task = type(pods.task)("worker", 4, larger)
    seen = replace(job, tasks=(admitted_task,), pods=(type(pods)(task=admitted_task),))
    assert seen.gang(0).wait_seconds(CREATED + 2 * HOUR) == 2 * HOUR


def test_a_job_that_was_suspended_waits_from_its_resumption_on() -> None:
    story = Story()
    story.held(HOUR, TOO_LARGE)
    story.moved(2 * HOUR, Transition("Suspended", Reason.SUSPENDED, "words"))
    story.moved(30 * HOUR, Transition("Pending", Reason.STOPPING, "words"))
    assert story.age(30 * HOUR) == 0
    assert story.held(31 * HOUR, FITS) == HOUR


def test_an_interrupted_job_has_waited_as_long_as_before_its_start() -> None:
    story = Story()
    story.held(0, TOO_LARGE)
    story.held(10 * HOUR, FITS)
    assert story.admitted(12 * HOUR) == 2 * HOUR
    story.moved(13 * HOUR, Transition("Running", Reason.GANG_RUNNING, "words"))
    lost = Transition("Restarting", Reason.NODE_LOST, "words", interruptions=1)
    story.moved(20 * HOUR, lost)
    assert story.age(20 * HOUR) == 2 * HOUR
    assert story.age(21 * HOUR) == 3 * HOUR


def test_a_status_that_the_operator_did_not_write_does_no_harm() -> None:
    forged = {"request": {"cpu": "many"}, "parkedTime": "yesterday", "waitSeconds": 5}
    job = a_job(task("worker", 4), status=forged)
    assert job.gang(0).wait_seconds(CREATED + 60) == 65


def stopped(reason: Reason) -> Story:
    """A job that ran, and that was stopped for ``reason``."""
    story = Story()
    story.held(HOUR, FITS)
    story.admitted(2 * HOUR)
    story.moved(3 * HOUR, Transition("Running", Reason.GANG_RUNNING, "words"))
    story.moved(4 * HOUR, Transition("Restarting", reason, "words", interruptions=1))
    return story


@pytest.mark.parametrize(
    ("reason", "is_displaced"),
    [
        (Reason.NODE_LOST, True),
        (Reason.NODE_MAINTENANCE, True),
        (Reason.FASTER_GPUS, True),
        (Reason.PREEMPTED, False),
        (Reason.POD_FAILED, False),
    ],
)
def test_a_job_that_is_stopped_for_nobody_else_owns_where_it_goes(
    reason: Reason, is_displaced: bool
) -> None:
    story = stopped(reason)
    assert story.job.gang(0).displaced is is_displaced
    story.held(5 * HOUR, FITS)
    assert story.job.gang(0).displaced is is_displaced, "until it starts"
    story.admitted(6 * HOUR)
    story.moved(7 * HOUR, Transition("Running", Reason.GANG_RUNNING, "words"))
    assert not story.job.gang(0).displaced


def test_it_still_does_where_budgets_had_to_be_overridden() -> None:
    story = stopped(Reason.NODE_MAINTENANCE)
    story.moved(4.1 * HOUR, Transition("Restarting", Reason.BUDGET_OVERRIDDEN, "words"))
    assert story.job.gang(0).displaced
    assert story.job.status["reason"] == "BudgetOverridden"


@pytest.mark.parametrize(
    ("edited", "is_displaced"),
    [
        pytest.param(task("worker", 3), True, id="fewer"),
        pytest.param(task("worker", 8), False, id="more"),
        pytest.param(
            task("worker", 4, spec=pod_spec(1, nodeSelector={"a": "b"})), False, id="other-nodes"
        ),
    ],
)
def test_an_edit_to_other_pods_gives_that_up(edited: Manifest, is_displaced: bool) -> None:
    story = stopped(Reason.FASTER_GPUS)
    story.edit(edited)
    assert story.job.gang(0).displaced is is_displaced


@pytest.mark.parametrize(
    "reason", [Reason.OVER_QUOTA, Reason.CLAIM_NOT_READY, Reason.OVER_NAMESPACE_LIMIT]
)
def test_the_bound_counts_no_time_in_which_its_namespace_keeps_a_job(reason: Reason) -> None:
    story = Story()
    bound = SchedulingSettings().wait_bound_seconds
    story.held(HOUR, FITS)
    story.held(2 * HOUR, reason)
    story.held(40 * HOUR, FITS)

    def overdue(after: float) -> float:
        gang = story.job.gang(0)
        return a_snapshot(racks(1, 1), gang, now=CREATED + after).overdue_seconds(gang)

    assert story.age(41 * HOUR) == 41 * HOUR, "among its equals it is as old as it is"
    assert overdue(bound + 38 * HOUR) == 0
    assert overdue(bound + 38 * HOUR + 60) == 60
