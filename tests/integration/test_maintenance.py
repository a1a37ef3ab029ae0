"""``bireme maintenance`` against an API server, and what a whole operator makes of it."""

import asyncio
import json
from pathlib import Path

import pytest

from bireme.cli import main
from bireme.core.times import clock_time
from bireme.kube import names
from bireme_operator import preemptions
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    JOBS,
    endings,
    furnish,
    leading,
    pods,
    protect,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import task, training_job


async def command(api: FakeApi, folder: Path, *arguments: str) -> int:
    """Run ``bireme maintenance`` beside the server and return its exit status."""
    given = ["maintenance", *arguments, "--kubeconfig", str(api.kubeconfig(folder))]
    return await asyncio.to_thread(main, given)


def announced(api: FakeApi, node: str) -> str | None:
    about = api.store.get("/api/v1/nodes", ("", node))["metadata"]
    found: str | None = (about.get("annotations") or {}).get(names.MAINTENANCE)
    return found


def announce(api: FakeApi, node: str, window: str) -> None:
    stored = api.store.get("/api/v1/nodes", ("", node))
    about = {**stored["metadata"], "annotations": {names.MAINTENANCE: window}}
    api.store.update("/api/v1/nodes", ("", node), {**stored, "metadata": about})


async def test_it_is_announced_listed_and_called_off(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(api, 3)
    window = ("--from=2040-01-01T20:00:00Z", "--until=2040-01-01T22:00:00Z")
    assert await command(api, tmp_path, "announce", "n0", "n1", *window) == 0
    assert (
        announced(api, "n0") == announced(api, "n1") == "2040-01-01T20:00:00Z/2040-01-01T22:00:00Z"
    )
    assert announced(api, "n2") is None
    assert await command(api, tmp_path, "announce", "n2", "--until=2h") == 0
    assert capsys.readouterr().out.startswith(
        "node n0: maintenance from 2040-01-01T20:00:00Z until 2040-01-01T22:00:00Z\n"
    )
    assert await command(api, tmp_path, "list", "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["apiVersion"], listed["kind"]) == ("cli.bireme.dev/v1", "MaintenanceList")
    found = [(each["node"], each["state"]) for each in listed["items"]]
    assert found == [("n2", "under way"), ("n0", "ahead"), ("n1", "ahead")]
    assert await command(api, tmp_path, "cancel", "n0", "n1", "n2") == 0
    capsys.readouterr()
    assert await command(api, tmp_path, "list") == 0
    assert capsys.readouterr().out == "No maintenance is announced.\n"


@pytest.mark.parametrize(
    ("arguments", "exit_status", "message"),
    [
        (["n0"], 2, "the following arguments are required: --until"),
        (
            ["--until=2h"],
            2,
            "the following arguments are required: NODE",
        ),
        (["n0", "--until=soon"], 2, "argument --until: 'soon' is no time; write"),
        (["n0", "--until=2000-01-01T00:00:00Z"], 2, "2000-01-01T00:00:00Z is not after now"),
        (["n0", "--from=3h", "--until=2h"], 2, "is not after the beginning"),
        (["n0", "gone", "--until=2h"], 1, "there is no node 'gone'; see: kubectl get nodes"),
    ],
)
async def test_what_makes_no_window_is_refused_and_nothing_is_written(
    api: FakeApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    exit_status: int,
    message: str,
) -> None:
    furnish(api, 1)
    assert await command(api, tmp_path, "announce", *arguments) == exit_status
    assert message in capsys.readouterr().err
    assert announced(api, "n0") is None


async def test_what_runs_there_is_moved_and_what_waits_says_why(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemptions, "_KEPT_SECONDS", 2.0)  # else a minute
    furnish(api, 2)
    ended = endings(api)
    submit(api, training_job("job", task(replicas=8)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "job").get("phase") == "Running")
        (there,) = {pod["spec"]["nodeName"] for pod in pods(api)}
        (free,) = {"n0", "n1"} - {there}
        window = f"{clock_time(wall_clock())}/{clock_time(wall_clock() + 3600)}"
        protect(api, "job", allowed=0)
        announce(api, there, window)
        await asyncio.sleep(1.0)
        assert status(api, "job")["phase"] == "Running", "its budget forbids it"
        protect(api, "job", allowed=8)
        await until(
            lambda: (
                {p["spec"].get("nodeName") for p in pods(api)} == {free} and len(pods(api)) == 8
            ),
            timeout_seconds=90.0,
        )
        await until(lambda: status(api, "job").get("phase") == "Running")
        found = status(api, "job")
        assert (found["interruptions"], found.get("preemptions", 0), found["attempt"]) == (1, 0, 1)
        assert set(ended) == {f"job-worker-{index}" for index in range(8)}
        submit(api, training_job("next", task(replicas=8)))
        submit(api, training_job("wide", task(replicas=16)))
        await until(lambda: status(api, "wide").get("reason") == "MaintenanceAhead")
        assert (
            f"may not use node {there} because of maintenance from"
            in status(api, "wide")["message"]
        )
        await until(lambda: "may not use node" in status(api, "next").get("message", ""))
        assert status(api, "next")["reason"] == "WaitingForCapacity"
        api.store.delete(JOBS, ("default", "wide"), {})
        announce(api, there, "2000-01-01T00:00:00Z/2001-01-01T00:00:00Z")  # it is over
        await until(lambda: status(api, "next").get("phase") == "Running")
