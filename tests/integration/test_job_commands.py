"""Commands that change a job or read what it writes, against an API server in miniature."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from bireme.kube import names
from testbed.fakeapi import FakeApi, Fault

JOBS = names.path("trainingjobs")
ELASTIC = {"name": "worker", "role": "worker", "replicas": 2, "minReplicas": 1, "maxReplicas": 4}


async def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the command; it has a loop of its own."""
    status = await asyncio.to_thread(main, arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    return str(api.kubeconfig(tmp_path))


def put(api: FakeApi, name: str, phase: str, *, team: str = "", **spec: Any) -> None:
    metadata = {"name": name, "namespace": "default", "labels": {"team": team}}
    status = {"phase": phase, "gpus": 8, "admittedTime": "2026-01-01T00:00:00Z"}
    body: dict[str, Any] = {"metadata": metadata, "spec": spec, "status": status}
    api.store.create(JOBS, ("default", name), body)


def left(api: FakeApi) -> list[str]:
    return sorted(name for _, name in api.store.collection(JOBS).objects)


async def test_jobs_are_cancelled_with_a_word_on_what_that_ends(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "a", "Running")
    put(api, "b", "Pending")
    put(api, "kept", "Running")
    end = ("--kubeconfig", kubeconfig)
    _, out, _ = await output(capsys, "cancel", "a", "b", "--dry-run", *end)
    assert "default/a would be cancelled" in out
    assert left(api) == ["a", "b", "kept"]
    status, out, _ = await output(capsys, "cancel", "a", "trainingjob/b", *end)
    assert status == 0
    first, second = out.splitlines()
    assert first.startswith("TrainingJob default/a cancelled: Running of 8 GPUs for ")
    assert first.endswith(" days")
    assert "default/b cancelled: Pending of 8 GPUs, " in second
    assert second.endswith(" waited")
    assert left(api) == ["kept"]


async def test_by_labels_all_are_cancelled_that_have_not_ended(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "runs", "Running", team="nlp")
    put(api, "done", "Succeeded", team="nlp")
    put(api, "other", "Running", team="cv")
    end = ("--kubeconfig", kubeconfig)
    assert (await output(capsys, "cancel", "-l", "team=nlp", *end))[0] == 0
    assert left(api) == ["done", "other"]
    status, out, _ = await output(capsys, "cancel", "-l", "team=nlp", *end)
    assert (status, out) == (0, "No job that has not ended has these labels.\n")
    for wrong in (("a", "-l", "team=nlp"), ()):
        status, _, err = await output(capsys, "cancel", *wrong, *end)
        assert (status, "but not both" in err) == (2, True)


async def test_none_is_cancelled_where_one_name_is_wrong(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "a", "Running")
    put(api, "ended", "Failed")
    for wrong, words in (("ended", "has ended (Failed)"), ("podgroup/x", "is no TrainingJob")):
        status, _, err = await output(capsys, "cancel", "a", wrong, "--kubeconfig", kubeconfig)
        assert status == 1
        assert words in err
    assert left(api) == ["a", "ended"]


def elastic(api: FakeApi, name: str, phase: str) -> None:
    template = {"spec": {"containers": [{"name": "train", "image": "trainer"}]}}
    put(api, name, phase, rendezvous="torch", tasks=[{**ELASTIC, "template": template}])


async def test_an_elastic_job_that_waits_is_scaled(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    elastic(api, "e", "Suspended")
    asked = ("scale", "e", "--kubeconfig", kubeconfig, "--replicas")
    status, out, err = await output(capsys, *asked, "4")
    assert (status, err) == (0, "")
    assert out == "TrainingJob default/e asks for 4 replicas of task worker, instead of 2\n"
    (task,) = api.store.get(JOBS, ("default", "e"))["spec"]["tasks"]
    assert (task["replicas"], task["minReplicas"]) == (4, 1)
    status, _, err = await output(capsys, *asked, "5")
    assert status == 1
    assert "argument --replicas: 5 is not from 1 to 4" in err
    assert (await output(capsys, *asked, "0"))[0] == 2


async def test_what_cannot_be_scaled_says_why_and_what_to_do(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    elastic(api, "runs", "Running")
    template = {"spec": {"containers": [{"name": "train", "image": "trainer"}]}}
    fixed = {"name": "worker", "role": "worker", "replicas": 2, "template": template}
    put(api, "fixed", "Pending", tasks=[fixed])
    for job, words in (("runs", "bireme suspend, scale, resume"), ("fixed", "is not elastic")):
        asked = ("scale", job, "--replicas", "3", "--kubeconfig", kubeconfig)
        status, _, err = await output(capsys, *asked)
        assert status == 1
        assert words in err
        (task,) = api.store.get(JOBS, ("default", job))["spec"]["tasks"]
        assert task["replicas"] == 2


def pod(api: FakeApi, job: str, task: str, index: int, log: str | None) -> None:
    name = names.pod_name(job, task, index)
    labels = {names.JOB_LABEL: job, names.TASK_LABEL: task, names.INDEX_LABEL: str(index)}
    state: dict[str, Any] = {"waiting": {}} if log is None else {"terminated": {}}
    body = {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "train"}, {"name": "sidecar"}]},
        "status": {"containerStatuses": [{"name": "train", "state": state}]},
    }
    api.store.create("/api/v1/pods", ("default", name), body)
    if log is not None:
        api.logs[f"/api/v1/namespaces/default/pods/{name}/log"] = log


async def test_logs_stand_behind_task_and_index_in_their_order(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "j", "Running")
    pod(api, "j", "worker", 10, "ten\n")
    pod(api, "j", "worker", 2, "a\nb\nhalf a line")
    pod(api, "j", "master", 0, "m\n")
    pod(api, "other", "worker", 0, "hidden\n")
    asked = ("logs", "j", "--kubeconfig", kubeconfig)
    status, out, _ = await output(capsys, *asked)
    assert status == 0
    last = ["[worker-2] half a line", "[worker-10] ten"]
    assert out.splitlines() == ["[master-0] m", "[worker-2] a", "[worker-2] b", *last]
    _, out, _ = await output(capsys, *asked, "--task", "worker", "--tail", "1")
    assert out.splitlines() == last
    _, out, _ = await output(capsys, *asked, "--task", "worker", "--index", "10")
    assert out.splitlines() == last[1:]
    status, _, err = await output(capsys, *asked, "--task", "ps")
    assert status == 1
    assert "j is Running and has no such pod" in err


async def test_logs_of_a_failed_gang_are_of_its_failed_init_container_or_say_why_it_failed(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "j", "Failed")
    why = {"reason": "BackoffLimitExceeded", "message": "init container fetch exited with 3"}
    api.store.update(JOBS, ("default", "j"), {"status": {"phase": "Failed", **why}}, "status")
    said = "j is Failed (BackoffLimitExceeded: init container fetch exited with 3)"
    asked = ("logs", "j", "--kubeconfig", kubeconfig)
    status, _, err = await output(capsys, *asked)
    assert (status, f"{said} and has no such pod" in err) == (1, True)
    waits = {"name": "train", "state": {"waiting": {"reason": "PodInitializing"}}}
    failed = {"name": "fetch", "state": {"terminated": {"exitCode": 3}}}
    pod(api, "j", "worker", 0, "no dataset\n")
    key = "default", "j-worker-0"
    for inits, shown in ([], ""), ([failed], "[worker-0] no dataset\n"):
        ended = {"initContainerStatuses": inits, "containerStatuses": [waits]}
        api.store.update("/api/v1/pods", key, {"status": ended}, "status")
        _, out, err = await output(capsys, *asked, "-f")
        assert (out, err) == (shown, f"bireme: {said}\n")


async def test_followed_logs_end_with_the_job(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "j", "Pending")
    asked = asyncio.create_task(output(capsys, "logs", "-f", "j", "--kubeconfig", kubeconfig))
    while not api.requests["GET", "/api/v1/pods"]:
        await asyncio.sleep(0.05)
    pod(api, "j", "worker", 0, "late\n")
    await asyncio.sleep(0.1)
    assert not asked.done()
    api.store.update(JOBS, ("default", "j"), {"status": {"phase": "Succeeded"}}, "status")
    status, out, _ = await asyncio.wait_for(asked, 20)
    assert (status, out) == (0, "[worker-0] late\n")


async def test_a_log_that_cannot_be_read_is_named(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "j", "Starting")
    pod(api, "j", "worker", 0, None)
    asked = ("logs", "j", "--kubeconfig", kubeconfig)
    api.faults.add(Fault(status=400), lambda _method, path, _watch: path.endswith("/log"))
    status, out, err = await output(capsys, *asked)
    assert (status, out) == (1, "")
    assert "the log of worker-0 is missing" in err
    api.faults.add(Fault(status=403), lambda _method, path, _watch: path.endswith("/log"))
    status, _, err = await output(capsys, *asked)
    assert status == 1
    assert "you may not get pods/log" in err


async def test_a_watched_list_goes_on_with_what_can_be_seen_to_change(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "a", "Pending", team="nlp")
    put(api, "hidden", "Pending", team="cv")
    asked = ("list", "-w", "-l", "team=nlp", "--kubeconfig", kubeconfig)
    watch = asyncio.create_task(output(capsys, *asked))
    while not api.open_watches(JOBS):
        await asyncio.sleep(0.05)
    api.watch_end(JOBS)  # as a server does after some minutes
    while api.open_watches(JOBS):
        await asyncio.sleep(0.05)
    for progress in (1, 2):  # which is no column
        about = {"phase": "Running", "gpus": 8, "progress": {"percentage": progress}}
        api.store.update(JOBS, ("default", "a"), {"status": about}, "status")
    put(api, "b", "Pending", team="nlp")
    while not api.open_watches(JOBS):
        await asyncio.sleep(0.05)
    api.store.delete(JOBS, ("default", "a"), {})
    error = b'{"type":"ERROR","object":{"message":"too old"}}'
    api.watch_send(JOBS, error)
    status, out, err = await asyncio.wait_for(watch, 20)
    assert (status, err) == (1, "bireme: the watch of trainingjobs ended: too old; try again\n")
    rows = [line.split() for line in out.splitlines()]
    assert [row[:2] for row in rows] == [
        ["NAME", "PHASE"],
        ["a", "Pending"],
        ["a", "Running"],
        ["b", "Pending"],
        ["a", "Deleted"],
    ]
    assert len({line.index("default") for line in out.splitlines()[1:]}) == 1, "aligned"
    status, _, err = await output(capsys, *asked, "-o", "json")
    assert (status, "argument -w: works with -o text, wide or name" in err) == (2, True)
