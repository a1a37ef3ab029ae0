"""Errors of the API server that last: a reason on the gang with its words, and no places held."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_operator import actuator
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.faults import WRITES
from testbed.fakeapi.store import Change, Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    events_about,
    furnish,
    leading,
    make,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import pod_group, task, training_job

DOWN = 'failed calling webhook "pods.example.com": failed to call webhook: connection refused'


def hurry(term: LeaderTerm, factor: float) -> None:
    """Let the time of rejections pass ``factor`` times as fast."""
    clock = term.work.rejections.clock
    began = clock()
    term.work.rejections.clock = lambda: began + factor * (clock() - began)


def reasons(api: FakeApi, resource: str, name: str) -> list[str]:
    """From now on: note every reason that the status of an object gives."""
    seen: list[str] = []

    def note(change: Change) -> None:
        if change.after is not None and change.after["metadata"]["name"] == name:
            reason = (change.after.get("status") or {}).get("reason")
            if reason and seen[-1:] != [reason]:
                seen.append(reason)

    api.store.collection(resource).subscribers.append(note)
    return seen


def fails(status: int, words: str, *, dry_runs: bool = True) -> Callable[[Object, bool], None]:
    def admit(_: Object, dry_run: bool) -> None:
        if dry_runs or not dry_run:
            raise ApiRefusal(status, "Injected", words)

    return admit


@asynccontextmanager
async def failing_fast(api: FakeApi, folder: Path) -> AsyncIterator[LeaderTerm]:
    async with FakeKubelets(api, runs), leading(api, folder) as term:
        yield term


@pytest.mark.parametrize("status_code", [404, 410, 418, 500, 503, 504])
async def test_a_webhook_that_is_down_is_the_reason_and_no_places_are_held(
    api: FakeApi, tmp_path: Path, status_code: int
) -> None:
    api.store.admission["Pod"] = [fails(status_code, DOWN)]
    furnish(api)
    submit(api, training_job("job", task(replicas=2)))
    async with failing_fast(api, tmp_path) as term:
        await until(lambda: DOWN in status(api).get("message", ""), 15.0)
        assert status(api)["reason"] == "PodsRefused"
        assert "plan" not in status(api)
        api.store.admission["Pod"] = []
        hurry(term, 20)
        await until(lambda: status(api).get("phase") == "Running", 20.0)


async def test_a_job_that_waits_for_capacity_says_that_a_webhook_is_down_too(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, training_job("first", task(replicas=4, gpus=2)))
    async with failing_fast(api, tmp_path):
        await until(lambda: status(api, "first").get("phase") == "Running")
        api.store.admission["Pod"] = [fails(500, DOWN)]
        submit(api, training_job("second", task(replicas=8, gpus=1)))
        await until(lambda: DOWN in status(api, "second").get("message", ""))


@pytest.mark.parametrize("share", [1, 2])
async def test_a_plan_whose_pods_cannot_all_be_created_is_taken_back_within_seconds(
    api: FakeApi, tmp_path: Path, share: int
) -> None:
    numbers = count()

    def admit(pod: Object, dry_run: bool) -> None:
        if not dry_run and int(pod["metadata"]["name"].rpartition("-")[2]) % share == 0:
            next(numbers)
            raise ApiRefusal(500, "InternalError", DOWN)

    api.store.admission["Pod"] = [admit]
    furnish(api, 1)
    submit(api, training_job("odd", task(replicas=4, gpus=2)))
    async with failing_fast(api, tmp_path):
        await until(lambda: status(api, "odd").get("reason") == "PodsRefused", 15.0)
        await until(lambda: "plan" not in status(api, "odd") and not pods(api), 5.0)
        assert DOWN in status(api, "odd")["message"]
        tried = next(numbers)
        await asyncio.sleep(3.0)
        assert next(numbers) == tried + 1, "it is not tried again at once"


@pytest.mark.parametrize(
    ("status_code", "words"), [(500, DOWN), (422, "a policy denied request: no Services here")]
)
async def test_a_service_that_cannot_be_created_is_the_reason(
    api: FakeApi, tmp_path: Path, status_code: int, words: str
) -> None:
    api.store.admission["Service"] = [fails(status_code, words)]
    furnish(api)
    submit(api, training_job("job", task(replicas=2), rendezvous="torch"))
    async with failing_fast(api, tmp_path) as term:
        await until(lambda: words in status(api).get("message", ""), 15.0)
        assert status(api)["reason"] == "PodsRefused"
        await until(lambda: "plan" not in status(api), 5.0)
        api.store.admission["Service"] = []
        hurry(term, 20)
        await until(lambda: status(api).get("phase") == "Running", 20.0)


@pytest.mark.parametrize("status_code", [403, 500])
async def test_a_group_whose_pods_may_not_be_released_says_so_and_gives_its_places_back(
    api: FakeApi, tmp_path: Path, status_code: int
) -> None:
    def releases(method: str, path: str, _: bool) -> bool:
        return method == "PATCH" and "/pods/" in path

    furnish(api, 1)
    submit(api, pod_group("odd", 2), pod_group("equal", 2))
    async with failing_fast(api, tmp_path) as term:
        api.faults.add(Fault(status=status_code, reason="InternalError"), releases, times=None)
        make(api, "a", "b", group="odd", gpus=4)
        await until(lambda: status(api, "odd", GROUPS).get("reason") == "PodsRefused", 15.0)
        assert "injected" in status(api, "odd", GROUPS)["message"]
        await until(lambda: "plan" not in status(api, "odd", GROUPS), 5.0)
        api.faults.clear()
        make(api, "c", "d", group="equal", gpus=4)
        await until(lambda: status(api, "equal", GROUPS).get("phase") == "Running")
        for name in "cd":
            api.store.delete("/api/v1/pods", ("default", name), {})
        hurry(term, 60)
        await until(lambda: status(api, "odd", GROUPS).get("phase") == "Running", 20.0)


async def test_an_api_server_that_fails_for_everybody_is_no_gangs_fault(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actuator, "_MAX_ANSWERS", 2)
    furnish(api)
    said = reasons(api, JOBS, "job")
    async with failing_fast(api, tmp_path):
        api.faults.add(Fault(status=503), lambda *request: not request[2], times=None)
        submit(api, training_job("job", task(replicas=2)))
        await asyncio.sleep(8.0)
        api.faults.clear()
        await until(lambda: status(api).get("phase") == "Running", 40.0)
    assert "PodsRefused" not in said


def creates_pods(method: str, path: str, _: bool) -> bool:
    return method in WRITES and path.endswith("/pods")


async def test_a_few_errors_and_conflicts_change_no_status(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    said = reasons(api, JOBS, "job")
    api.faults.add(Fault(status=500), creates_pods, times=2)
    api.faults.add(Fault(status=429), creates_pods, times=4)
    submit(api, training_job("job", task(replicas=4)))
    async with failing_fast(api, tmp_path):
        await until(lambda: status(api).get("phase") == "Running")
    assert "PodsRefused" not in said


async def test_a_status_that_may_not_be_written_is_told_by_an_event(
    api: FakeApi, tmp_path: Path
) -> None:
    def writes_status(method: str, path: str, _: bool) -> bool:
        return method == "PUT" and path.endswith("/trainingjobs/job/status")

    api.faults.add(Fault(status=403, reason="Forbidden"), writes_status, times=None)
    furnish(api, 1)
    submit(api, training_job("job", task(replicas=99)))
    async with failing_fast(api, tmp_path):
        await until(lambda: events_about(api, "TrainingJob"), 20.0)
    (event,) = events_about(api, "TrainingJob")
    assert event["reason"] == "PodsRefused"
    assert "its status, which says why it waits, cannot be written: 403" in event["message"]


async def test_the_service_of_a_running_job_that_cannot_be_brought_back_is_told(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", task(replicas=2), rendezvous="torch"))
    async with failing_fast(api, tmp_path):
        await until(lambda: status(api).get("phase") == "Running")
        api.store.admission["Service"] = [fails(500, DOWN)]
        api.store.delete("/api/v1/services", ("default", "job"), {})
        await until(lambda: DOWN in status(api).get("message", ""), 60.0)
        assert status(api)["phase"] == "Running"


@pytest.mark.parametrize("status_code", [403, 500])
async def test_a_plan_that_can_never_be_written_holds_no_places_for_long(
    api: FakeApi, tmp_path: Path, status_code: int
) -> None:
    writes: list[str] = []

    def writes_status(method: str, path: str, _: bool) -> bool:
        is_status = method == "PUT" and path.endswith("/trainingjobs/first/status")
        writes.extend([path] if is_status else [])
        return is_status

    api.faults.add(Fault(status=status_code, reason="Injected"), writes_status, times=None)
    furnish(api, 1)
    submit(api, training_job("first", task(replicas=4, gpus=2)))
    async with failing_fast(api, tmp_path):
        await until(lambda: writes)  # it asks for the places first
        submit(api, training_job("second", task(replicas=4, gpus=2)))
        await until(lambda: status(api, "second").get("phase") == "Running", 20.0)
