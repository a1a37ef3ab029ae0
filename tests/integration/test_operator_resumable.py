"""Nobody is stopped for an equal without consent: equal jobs on a full cluster, an hour later."""

from pathlib import Path
from typing import Any

import pytest

from bireme.cli.gangs import line_of
from bireme.cli.why import Explanation
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    JOBS,
    events_about,
    furnish,
    leading,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import Manifest, queue, task, training_job

HOUR = 3600.0
CREATED = 1893456000.0
"""When all objects of the fake API server were made, POSIX seconds."""


def job(name: str, **run_policy: Any) -> Manifest:
    """A job that fills a node."""
    return training_job(name, task("worker", 4, gpus=2), runPolicy=run_policy)


def is_running(api: FakeApi, *jobs: str) -> bool:
    return all(status(api, name).get("phase") == "Running" for name in jobs)


def stopped(api: FakeApi) -> list[str]:
    return [e["message"] for e in events_about(api, "TrainingJob") if e["reason"] == "Preempted"]


UNSAID = "spec.runPolicy.resumable is not set, and it has reported no checkpoint"


@pytest.mark.parametrize(
    ("stated", "of_queue", "of_operator", "stops", "source"),
    [
        (None, None, False, False, UNSAID),
        (True, None, False, True, "spec.runPolicy.resumable is true"),
        (None, True, False, True, "assumeResumable of queue default is true"),
        (None, None, True, True, "the operator's setting assumeResumable is true"),
        (None, False, True, False, "assumeResumable of queue default is false"),
        (False, True, True, False, "spec.runPolicy.resumable is false"),
    ],
    ids=["nobody-says", "the-job", "its-queue", "the-operator", "queue-denies", "job-denies"],
)
async def test_equals_that_came_first_run_on_unless_they_can_resume(
    api: FakeApi,
    tmp_path: Path,
    stated: bool | None,
    of_queue: bool | None,
    of_operator: bool,
    stops: bool,
    source: str,
) -> None:
    furnish(api, 2)
    if of_queue is not None:
        api.put(f"{names.path('queues')}/default", queue("default", assumeResumable=of_queue))
    said = {} if stated is None else {"resumable": stated}
    ahead = 0.0
    settings = SchedulingSettings(assume_resumable=of_operator)
    leader = leading(api, tmp_path, scheduling=settings, now=lambda: CREATED + ahead)
    async with FakeKubelets(api, runs), leader:
        submit(api, job("first", **said), job("second", **said))
        await until(lambda: is_running(api, "first", "second"))
        ahead = HOUR  # for the operator the next two were made an hour ago
        submit(api, job("third"), job("fourth"))
        if stops:
            await until(lambda: is_running(api, "third", "fourth"))
            assert len(stopped(api)) == 2
        else:
            await until(lambda: status(api, "fourth").get("queuePosition"))
            assert "preempt" not in status(api, "third")["message"]
            submit(api, job("fifth"))  # its status tells that all were decided on once more
            await until(lambda: status(api, "fifth").get("queuePosition"))
            assert is_running(api, "first", "second")
            assert stopped(api) == []
        told = status(api, "first")
        assert (told["resumable"], told["resumableBecause"]) == (source.endswith("true"), source)
        words = Explanation(
            line_of(api.store.get(JOBS, ("default", "first"))), None, None, CREATED
        ).text()
        may = (
            "may be stopped for a gang of equal priority, because it can resume: "
            if source.endswith("true")
            else "is not stopped for a gang of equal priority: "
        )
        assert f"resumes   {may}{source}" in words


async def test_an_edited_estimate_keeps_no_running_job_from_being_stopped(
    api: FakeApi, tmp_path: Path
) -> None:
    """It would always be about to end; the estimate of its admission is what counts."""
    furnish(api, 1)
    ahead = 0.0
    async with FakeKubelets(api, runs), leading(api, tmp_path, now=lambda: CREATED + ahead):
        submit(api, job("long", resumable=True))
        await until(lambda: is_running(api, "long"))
        ahead = HOUR
        long = api.store.get(JOBS, ("default", "long"))
        edited = {**long["spec"], "estimatedDuration": "3900s"}  # five minutes from now
        api.store.update(JOBS, ("default", "long"), {**long, "spec": edited})
        submit(api, job("new"))
        await until(lambda: is_running(api, "new"))
        assert len(stopped(api)) == 1
