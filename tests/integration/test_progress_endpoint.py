"""Reports of training pods to a leading operator: permissions, answers and effects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from bireme.connections import MAX_OF_ONE
from bireme.kube.pod_builder import AUDIENCE, path
from bireme_operator import progress, progress_auth
from bireme_operator.leader import LeaderTerm
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.progress import ProgressEndpoint
from testbed.fakeapi import FakeApi
from testbed.fakeapi.answers import REVIEWS, token_of
from testbed.fakeapi.faults import Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    PODS,
    furnish,
    leading,
    phases,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import task, training_job
from tests.integration.hostile import bomb, crowd, fuzzed

OURS, OTHER = training_job("job", task("worker", 2)), training_job("other", task("worker"))
HALFWAY = {"trainerStatus": {"progressPercentage": 50, "estimatedRemainingSeconds": 90}}


@dataclass
class Place:
    """A served endpoint and the running jobs that may report to it."""

    api: FakeApi
    term: LeaderTerm
    url: str
    http: aiohttp.ClientSession
    metrics: OperatorMetrics

    def token(self, pod: str = "job-worker-0", *audiences: str, **made: Any) -> str:
        stored = self.api.store.get(PODS, ("default", pod))
        return token_of(stored, *(audiences or (AUDIENCE,)), **made)

    async def post(
        self, token: str | None, body: Any = HALFWAY, job: str = "job", data: Any = None
    ) -> tuple[int, Any]:
        """Status and answer to a report."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        sent = {"data": data} if data is not None else {"json": body}
        at = self.url + path(("default", job))
        async with self.http.post(at, headers=headers, **sent) as answer:
            return answer.status, await answer.json()

    def answers(self, status: str) -> float:
        """The number of reports that have been answered so."""
        return (
            self.metrics.registry.get_sample_value(
                "bireme_progress_reports_total", {"status": status}
            )
            or 0.0
        )

    @property
    def reviews(self) -> int:
        return self.api.requests["POST", REVIEWS]


@asynccontextmanager
async def served(api: FakeApi, folder: Path, **settings: Any) -> AsyncIterator[Place]:
    """An operator that leads, with two jobs that run."""
    async with FakeKubelets(api, runs), leading(api, folder, **settings) as term:
        submit(api, OURS, OTHER)
        await until(lambda: phases(api) == ["Running", "Running"])
        metrics = OperatorMetrics()
        endpoint = ProgressEndpoint(lambda: term.progress, metrics)
        port = await endpoint.start("127.0.0.1", 0, None)
        try:
            async with aiohttp.ClientSession() as http:
                yield Place(api, term, f"http://127.0.0.1:{port}", http, metrics)
        finally:
            await endpoint.stop()


@pytest.fixture
async def place(api: FakeApi, tmp_path: Path) -> AsyncIterator[Place]:
    furnish(api)
    async with served(api, tmp_path, status_refresh_seconds=0.1, progress_write_seconds=0) as made:
        yield made


async def test_report_of_a_member_stands_in_the_status_of_its_job(place: Place) -> None:
    metrics = [{"name": "loss", "value": "0.25"}, {"name": "step", "value": "40"}]
    body = {"trainerStatus": {**HALFWAY["trainerStatus"], "metrics": metrics}}
    assert await place.post(place.token(), body) == (200, {})
    await until(lambda: "progress" in status(place.api))
    progress = status(place.api)["progress"]
    assert (progress["percentage"], progress["remainingSeconds"]) == (50, 90)
    assert (progress["loss"], progress["step"]) == (0.25, 40)
    assert "progress" not in status(place.api, "other")


async def test_report_reaches_decisions_within_the_bound(place: Place) -> None:
    await place.post(place.token())
    await until(lambda: place.term.state.objects.jobs["default", "job"].latest_progress)
    (running,) = (r for r in place.term.state.snapshot(0.0).running if r.gang.name == "job")
    assert running.gang.progress is not None
    assert running.gang.progress.fraction == 0.5
    assert running.gang.estimated_seconds is not None
    assert 90 <= running.gang.estimated_seconds <= 120


async def test_only_the_token_of_a_live_member_of_the_job_is_taken(place: Place) -> None:
    token = place.token()
    assert (await place.post(None))[0] == 401
    assert (await place.post("nonsense"))[0] == 401
    wrong = place.token("job-worker-0", "https://kubernetes.default.svc")
    code, answer = await place.post(wrong)
    assert (code, "audience" in answer["message"]) == (401, True)
    assert place.reviews == 0, "what is wrong on the face of it costs no TokenReview"
    assert (await place.post(place.token("other-worker-0")))[0] == 403
    assert (await place.post(token, job="nobody"))[0] == 404
    assert (await place.post(token))[0] == 200


async def test_forged_token_is_refused_and_no_pod_costs_a_second_review(place: Place) -> None:
    codes = [(await place.post(place.token(signature=f"forged{n}")))[0] for n in range(3)]
    assert codes == [401, 429, 429]
    assert (await place.post(place.token(signature="forged0")))[0] == 401, "as remembered"
    assert place.reviews == 1


async def test_token_of_a_pod_that_is_gone_is_refused_though_it_was_good(place: Place) -> None:
    token = place.token("job-worker-1")
    assert (await place.post(token))[0] == 200
    place.api.store.delete(PODS, ("default", "job-worker-1"), {})
    await until(lambda: ("default", "job-worker-1") not in place.term.state.objects.members)
    assert (await place.post(token))[0] == 403


async def test_many_reports_of_one_pod_cost_one_review_and_are_rationed(place: Place) -> None:
    token = place.token()
    codes = [(await place.post(token))[0] for _ in range(30)]
    assert codes[:5] == [200] * 5
    assert codes.count(429) >= 20
    assert place.reviews == 1


async def test_bad_bodies_are_refused_by_name(place: Place) -> None:
    async def answered(token: str, **sent: Any) -> tuple[int, str]:
        code, answer = await place.post(token, **sent)
        return code, answer["message"]

    first, second = place.token(), place.token("job-worker-1")
    nan = {"trainerStatus": {"metrics": [{"name": "loss", "value": "nan"}]}}
    code, why = await answered(first, body=nan)
    assert (code, "metric 'loss' is 'nan'" in why) == (400, True)
    code, why = await answered(first, body={"trainerStatus": {"progressPercentage": "half"}})
    assert (code, "progressPercentage" in why) == (400, True)
    code, why = await answered(first, data=b"{")
    assert (code, "not a report" in why) == (400, True)
    code, why = await answered(second, data=b" " * 20_000)
    assert (code, "16384 bytes" in why) == (413, True)


async def test_body_that_takes_too_long_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_BODY_SECONDS", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    assert (await place.post(place.token(), data=never()))[0] == 408


async def test_api_server_that_does_not_answer_is_asked_again(place: Place) -> None:
    down = Fault(status=503, reason="ServiceUnavailable")
    place.api.faults.add(down, lambda _, at, __: at == REVIEWS)
    token = place.token()
    assert (await place.post(token))[0] == 503
    assert (await place.post(token))[0] == 200


async def test_standby_sends_reports_away() -> None:
    endpoint = ProgressEndpoint(lambda: None, OperatorMetrics())
    port = await endpoint.start("127.0.0.1", 0, None)
    at = f"http://127.0.0.1:{port}{path(('default', 'job'))}"
    async with aiohttp.ClientSession() as http, http.post(at, json=HALFWAY) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    await endpoint.stop()


async def test_progress_of_a_job_is_written_no_more_often_than_the_settings_say(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    async with served(api, tmp_path, status_refresh_seconds=0, progress_write_seconds=3600) as at:
        await at.post(at.token())
        await until(lambda: "progress" in status(api))
        await at.post(at.token(), {"trainerStatus": {"progressPercentage": 60}})
        seen = at.term.loop.pacing.finished_at
        await until(lambda: at.term.loop.pacing.finished_at > seen + 0.5)
        assert status(api)["progress"]["percentage"] == 50
        for pod in pods(api):
            done = {**pod, "status": {**pod["status"], "phase": "Succeeded"}}
            api.put(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", done)
        await until(lambda: status(api).get("phase") == "Succeeded")
        assert status(api)["progress"]["percentage"] == 60, "with the end, whatever is known"


async def test_progress_survives_a_change_of_leader(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    async with served(api, tmp_path, status_refresh_seconds=0, progress_write_seconds=0) as first:
        await first.post(first.token())
        await until(lambda: "progress" in status(api))
    async with leading(api, tmp_path, epoch=2) as second:
        await until(lambda: ("default", "job") in second.state.objects.jobs)
        reported = second.state.objects.jobs["default", "job"].latest_progress
        assert reported is not None
        assert reported.progress.fraction == 0.5


@pytest.fixture
def unrationed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise hardly any report of a test would be looked at."""
    monkeypatch.setattr(progress_auth, "_BURST", 10**6)


async def test_whatever_is_reported_is_answered_as_the_document_says(
    unrationed: None, place: Place, tmp_path: Path
) -> None:
    header = ("--header", f"Authorization: Bearer {place.token()}")
    job = {"namespace": "default", "name": "job"}
    code, output = await fuzzed(place.url, tmp_path, *header, parameters=job)
    assert code == 0, output
    assert place.answers("200") > 0, "some were taken"
    assert place.answers("400") > 0, "some were none"


async def test_a_gzip_bomb_is_refused_by_what_it_unpacks_to(place: Place) -> None:
    at = place.url + path(("default", "job"))
    headers = {"Authorization": f"Bearer {place.token()}", "Content-Encoding": "gzip"}
    before = psutil.Process().memory_info().rss
    async with place.http.post(at, headers=headers, data=bomb(200 * 2**20)) as answer:
        assert answer.status == 413
    assert psutil.Process().memory_info().rss - before < 50 * 2**20


async def test_a_neighbour_with_too_many_connections_loses_the_oldest(place: Place) -> None:
    port = int(place.url.rpartition(":")[2])
    async with crowd(port, 3 * MAX_OF_ONE) as ended:
        await until(lambda: sum(ended) >= 2 * MAX_OF_ONE)
        assert ended == [True] * (2 * MAX_OF_ONE) + [False] * MAX_OF_ONE
        assert (await place.post(place.token()))[0] == 200
