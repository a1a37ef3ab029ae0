"""Run times that a leading operator learns of finished jobs, once each, and their use."""

from pathlib import Path
from typing import Any

from bireme.core.estimates import MIN_RUNS
from bireme.kube import names
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import JOBS, furnish, leading, status, submit, until
from testbed.scenario.manifests import Manifest, task, training_job

LIKE = task("worker", 4)
RAN_SECONDS = 100
TIMES = {
    "admittedTime": "2030-01-01T00:00:00Z",
    "startTime": "2030-01-01T00:00:02Z",
    "completionTime": "2030-01-01T00:01:40Z",
}


def done(name: str, **status: Any) -> Manifest:
    """A job that has succeeded after ``RAN_SECONDS``."""
    return {**training_job(name, LIKE), "status": {"phase": "Succeeded", **TIMES, **status}}


def expected_seconds(term: LeaderTerm) -> float | None:
    """The expected run time of the job ``next``."""
    return term.state.run_times.of_job(term.state.objects.jobs["default", "next"])


async def a_turn(api: FakeApi, term: LeaderTerm) -> None:
    """The operator has seen all jobs as they are stored, and looked at them."""
    stored, known = api.store.collection(JOBS).objects, term.state.objects.jobs

    def has_seen_all() -> bool:
        newest = {key: job["metadata"]["resourceVersion"] for key, job in stored.items()}
        return {key: job.resource_version for key, job in known.items()} == newest

    await until(lambda: has_seen_all() and not term.loop.gangs.changed_gangs)
    seen = term.loop.pacing.finished_at
    await until(lambda: term.loop.pacing.finished_at > seen)


async def test_a_job_teaches_once_however_often_it_changes_or_is_listed(
    api: FakeApi, tmp_path: Path
) -> None:
    """One run is missing; a reader that counts one of the others twice has enough."""
    furnish(api)
    suspended = training_job("next", LIKE, runPolicy={"suspend": True})
    submit(api, suspended, *(done(f"old{n}") for n in range(MIN_RUNS - 1)))
    for epoch in (1, 2):
        async with leading(api, tmp_path, epoch=epoch) as term:
            await a_turn(api, term)
            for change in ("seen", "again"):
                path = names.path("trainingjobs", "default", "old0")
                api.put(path, done("old0", message=f"{change} in term {epoch}"))
                await a_turn(api, term)
            api.compact()
            api.watch_cut(JOBS)
            await until(lambda: api.open_watches(JOBS) == 1)
            await a_turn(api, term)
            assert expected_seconds(term) is None
    submit(api, done("last"))
    async with leading(api, tmp_path, epoch=3) as term:
        await a_turn(api, term)
        assert expected_seconds(term) == RAN_SECONDS


async def test_a_job_teaches_whatever_becomes_of_it_while_the_leader_stays(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("next", LIKE, runPolicy={"suspend": True}))
    async with leading(api, tmp_path) as term:
        submit(api, *(done(f"old{n}") for n in range(MIN_RUNS)))
        await until(lambda: len(term.state.objects.jobs) == MIN_RUNS + 1)
        await a_turn(api, term)
        for number in range(MIN_RUNS):
            api.store.delete(JOBS, ("default", f"old{number}"), {})
        await until(lambda: len(term.state.objects.jobs) == 1)
        await a_turn(api, term)
        assert expected_seconds(term) == RAN_SECONDS


async def test_a_job_like_those_that_were_short_passes_the_blocked_one_and_says_why(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("holder", task("worker", 8), estimatedDuration="2h"))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "holder").get("phase") == "Running")
        submit(api, training_job("whole", task("worker", 16)))
        await until(lambda: "estimatedStart" in status(api, "whole"))
        # it may not be stopped at once, so it may not start in the reserved places as it is
        submit(api, training_job("short", LIKE, runPolicy={"minRuntimeSeconds": 60}))
        await until(lambda: status(api, "short").get("reason") == "WaitingBehind")
        submit(api, *(done(f"old{n}") for n in range(MIN_RUNS)))
        await until(lambda: status(api, "short").get("phase") == "Running")
    (admitted,) = (c for c in status(api, "short")["conditions"] if c["type"] == "Admitted")
    assert admitted["message"].endswith(
        "ahead of default/whole without delaying it; expected to run at most 100 s, like 90 % of "
        "similar runs"
    )
    assert status(api, "whole")["phase"] == "Pending"
