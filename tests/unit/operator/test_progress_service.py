"""Progress reports of jobs: when they are due in the status, and whose count."""

from typing import Any

import msgspec
import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_builder import AUDIENCE
from bireme.kube.progress_reports import ProgressReport
from bireme.kube.training_jobs import JobFacts
from bireme.testing import ManualClock
from bireme_operator.http_server import RequestRefused
from bireme_operator.progress_auth import (
    ProgressService,
    Tokens,
    read_claim,
)
from testbed.fakeapi.answers import token_of
from testbed.objects.facts import CREATED, a_job, a_plan, a_view, running
from testbed.scenario.manifests import task


class Desk:
    """A desk, its clock, and the status of the one job that reports there."""

    def __init__(self, **status: Any) -> None:
        self.clock = ManualClock(CREATED + 100)
        state = ClusterState(SchedulingSettings())
        tokens = Tokens(None, self.clock)  # type: ignore[arg-type]  # nobody is asked here
        self.desk = ProgressService(state, tokens, 30.0, self.clock, self.clock)
        self.status: dict[str, Any] = {"phase": "Running", **status}

    @property
    def job(self) -> JobFacts:
        return a_job(task("worker", 2), status=self.status)

    def due_update(self, *, at_once: bool = False, attempt: int = 0) -> dict[str, Any]:
        """The update that is due; written, if there is any."""
        plan = a_plan(self.job, attempt=attempt)
        view = a_view(self.job, plan, running(self.job, plan))
        update = self.desk.status_update(self.job, view, at_once=at_once)
        self.status |= update
        return update


def test_first_report_is_due_at_once_and_then_not_before_the_pause() -> None:
    desk = Desk()
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    assert desk.due_update()["progress"]["percentage"] == 10
    desk.clock.advance(29.0)
    desk.desk.accept("job-uid", ProgressReport(percentage=20))
    assert desk.due_update() == {}
    desk.clock.advance(1.0)
    assert desk.due_update()["progress"]["percentage"] == 20


def test_what_is_written_is_not_due_again() -> None:
    desk = Desk()
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    desk.due_update()
    desk.clock.advance(100.0)
    assert desk.due_update() == {}
    assert desk.due_update(at_once=True) == {}


def test_reports_between_two_writes_are_written_together() -> None:
    desk = Desk()
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    desk.due_update()
    desk.desk.accept("job-uid", ProgressReport(loss=0.5, remaining_seconds=90))
    desk.desk.accept("job-uid", ProgressReport(accuracy=0.7))
    desk.clock.advance(30.0)
    update = desk.due_update()["progress"]
    assert (update["percentage"], update["loss"], update["accuracy"]) == (10, 0.5, 0.7)
    assert "remainingSeconds" not in update, "the later report did not say"


def test_end_of_the_job_takes_all_that_is_known_along() -> None:
    desk = Desk()
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    desk.due_update()
    desk.clock.advance(0.5)
    desk.desk.accept("job-uid", ProgressReport(percentage=100))
    assert desk.due_update(at_once=True)["progress"]["percentage"] == 100


def test_report_of_an_earlier_start_is_not_written_for_the_next() -> None:
    desk = Desk(attempt=1)
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    assert desk.due_update(attempt=0) == {}


def test_jobs_that_are_gone_are_forgotten() -> None:
    desk = Desk()
    desk.desk.accept("job-uid", ProgressReport(percentage=10))
    desk.desk.forget(set())
    assert desk.due_update() == {}


POD = {"metadata": {"namespace": "default", "name": "job-worker-0", "uid": "pod-uid"}}


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "no ServiceAccount token"),
        ("a.b.c", "no ServiceAccount token"),
        ("a.e30.c", "audience"),
        ("x" * 9000, "longer than"),
        (token_of(POD, "https://kubernetes.default.svc"), "audience"),
        ("a.eyJhdWQiOiJwcm9ncmVzcy5iaXJlbWUuZGV2In0.c", "not bound to a pod"),
    ],
)
def test_what_is_no_token_for_this_endpoint_is_refused_on_its_face(token: str, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as refused:
        read_claim(token)
    assert refused.value.status == 401


class Reviewer:
    """An API server that authenticates every token, for ``audiences``."""

    def __init__(self, audiences: list[str]) -> None:
        self.audiences = audiences

    async def create(self, path: str, body: dict[str, Any]) -> bytes:
        extra = {
            "authentication.kubernetes.io/pod-name": ["job-worker-0"],
            "authentication.kubernetes.io/pod-uid": ["pod-uid"],
        }
        user = {"username": "system:serviceaccount:default:default", "extra": extra}
        status = {"authenticated": True, "audiences": self.audiences, "user": user}
        return msgspec.json.encode({**body, "status": status})


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]])
async def test_a_token_that_is_authenticated_for_another_audience_is_refused(
    audiences: list[str],
) -> None:
    """An authenticator that knows no audiences answers without any."""
    token = token_of(POD, AUDIENCE)
    clock = ManualClock(CREATED)

    def desk(answers: list[str]) -> Tokens:
        return Tokens(Reviewer(answers), clock)  # type: ignore[arg-type]  # it only creates

    with pytest.raises(RequestRefused, match="does not accept the token") as refused:
        await desk(audiences).sender(token, read_claim(token), "10.0.0.1")
    assert refused.value.status == 401
    sender = await desk([AUDIENCE]).sender(token, read_claim(token), "10.0.0.1")
    assert (sender.namespace, sender.pod, sender.uid) == ("default", "job-worker-0", "pod-uid")
