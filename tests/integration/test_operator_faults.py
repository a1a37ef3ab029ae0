"""The operator under an API server that fails, forgets and is written to by others."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names
from testbed.fakeapi import FakeApi, Fault, writes
from testbed.fakeapi.faults import every
from testbed.fakeapi.store import Change
from testbed.kubelets import FakeKubelets
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    furnish,
    leading,
    phases,
    status,
    submit,
    until,
    written,
)
from testbed.scenario.manifests import priority_class, task, torch_job, training_job

QUEUES = names.path("queues")
JOBS_OF_ALL_KINDS = (
    torch_job("torch", 3),
    training_job("wide", task("worker", 6)),
    training_job("small"),
)


async def converges(api: FakeApi, folder: Path, timeout_seconds: float = 40) -> FakeKubelets:
    furnish(api)
    submit(api, *JOBS_OF_ALL_KINDS)
    async with FakeKubelets(api) as kubelets, leading(api, folder):
        await until(lambda: set(phases(api)) == {"Succeeded"}, timeout_seconds)
    assert set(kubelets.created.values()) == {1}
    assert kubelets.violations == []
    assert all(status(api, job["metadata"]["name"])["attempt"] == 0 for job in JOBS_OF_ALL_KINDS)
    return kubelets


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        (Fault(status=409, reason="Conflict"), 2),
        (Fault(status=500, reason="InternalError"), 3),
        (Fault(status=503, reason="ServiceUnavailable", retry_after_seconds=0), 3),
        (Fault(drop=True), 3),
        (Fault(drop_answer=True), 3),
        (Fault(delay_seconds=0.05), 1),
    ],
    ids=["conflict", "error", "unavailable", "dropped", "answer lost", "slow"],
)
async def test_jobs_succeed_although_many_writes_fail(
    api: FakeApi, tmp_path: Path, fault: Fault, number: int
) -> None:
    api.faults.add(fault, every(number), times=None)
    await converges(api, tmp_path)


async def test_an_overloaded_server_is_left_in_peace_for_as_long_as_it_asks(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, *JOBS_OF_ALL_KINDS, training_job("never", task(gpus=9)))
    busy = Fault(status=429, reason="TooManyRequests", retry_after_seconds=1)
    api.faults.add(busy, writes, times=None)
    async with FakeKubelets(api), leading(api, tmp_path):
        began = time.monotonic()
        await asyncio.sleep(1.7)
        rounds = 1 + int(time.monotonic() - began)
        tried = written(api) - api.requests["PUT", QUEUES]
        assert tried <= 5 * rounds, "a second: one try for each gang, one report, and no more"
        api.faults.clear()
        await until(lambda: phases(api).count("Succeeded") == len(JOBS_OF_ALL_KINDS))


async def test_places_of_a_plan_without_an_answer_are_given_to_nobody_else(
    api: FakeApi, tmp_path: Path
) -> None:
    """The first's plan is stored, its answer is lost, and the watch brings it after the second."""

    def plans_first(method: str, path: str, _: bool) -> bool:
        return (
            method == "PUT" and path == f"{names.path('trainingjobs', 'default', 'first')}/status"
        )

    furnish(api, nodes=1)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    api.faults.add(Fault(drop_answer=True), plans_first)
    whole = task(gpus=8)
    planned: set[str] = set()

    def observe(change: Change) -> None:
        assert change.after is not None
        name = change.after["metadata"]["name"]
        planned.discard(name)
        planned.update([name] if "plan" in change.after.get("status", {}) else [])
        both.append(len(planned) == 2)

    both: list[bool] = []
    async with leading(api, tmp_path):
        await until(lambda: api.open_watches(JOBS) == 1)
        api.lags_seconds[JOBS] = 0.3
        api.store.collection(JOBS).subscribers.append(observe)
        submit(api, training_job("first", whole))
        await asyncio.sleep(0.2)
        submit(api, training_job("second", whole, priorityClassName="high"))
        await until(lambda: "reason" in status(api, "second"))
        await until(lambda: "plan" in status(api, "first"))
    assert not any(both)


async def test_watches_that_break_again_and_again_lose_nothing(
    api: FakeApi, tmp_path: Path
) -> None:
    async def cut() -> None:
        while True:
            api.watch_cut()
            await asyncio.sleep(0.03)

    task_ = asyncio.create_task(cut())
    await converges(api, tmp_path)
    task_.cancel()


async def test_a_history_that_is_forgotten_loses_nothing(api: FakeApi, tmp_path: Path) -> None:
    async def forget() -> None:
        while True:
            api.compact()
            api.watch_cut()
            await asyncio.sleep(0.05)

    task_ = asyncio.create_task(forget())
    await converges(api, tmp_path)
    task_.cancel()


@asynccontextmanager
async def meddling(api: FakeApi, pause_seconds: float) -> Any:
    """Somebody who writes to every job and PodGroup all the time."""

    async def meddle() -> None:
        for turn in itertools.count():
            for resource in (JOBS, GROUPS):
                for key, stored in list(api.store.collection(resource).objects.items()):
                    note = {"annotations": {"turn": str(turn)}}
                    api.store.update(
                        resource, key, {**stored, "metadata": {**stored["metadata"], **note}}
                    )
            await asyncio.sleep(pause_seconds)

    task_ = asyncio.create_task(meddle())
    try:
        yield
    finally:
        task_.cancel()
        with suppress(asyncio.CancelledError):
            await task_


async def test_jobs_succeed_in_a_storm_of_conflicts(api: FakeApi, tmp_path: Path) -> None:
    """Often enough for many conflicts, and seldom enough for kopf to be in time now and then."""
    async with meddling(api, 0.05):
        await converges(api, tmp_path)


async def test_a_hopeless_conflict_is_retried_ever_more_slowly(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job"))
    api.faults.add(Fault(status=409, reason="Conflict"), writes, times=None)
    async with leading(api, tmp_path):
        await asyncio.sleep(2)
        assert written(api) <= 20
