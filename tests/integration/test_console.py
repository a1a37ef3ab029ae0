"""``bireme why`` and ``bireme queue`` against an API server, with the caller's rights."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.cli.cluster import refusal
from bireme.core.gpus import GPU
from bireme.kube import names
from bireme.kube.client import ApiError
from testbed.fakeapi import FakeApi, Fault

JOBS = names.path("trainingjobs")


async def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the command; it has a loop of its own."""
    status = await asyncio.to_thread(main, arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    return str(api.kubeconfig(tmp_path))


def put(api: FakeApi, name: str, position: int, namespace: str = "default") -> None:
    status = {"phase": "Pending", "reason": "WaitingForCapacity", "queuePosition": position}
    metadata = {"name": name, "namespace": namespace}
    spec = {"queue": "research"}
    body: dict[str, Any] = {"metadata": metadata, "spec": spec, "status": status}
    api.store.create(JOBS, (namespace, name), body)


async def test_why_names_reason_position_and_who_is_ahead(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "first", 1, "other")
    put(api, "mine", 2)
    status, out, _ = await output(capsys, "why", "mine", "--kubeconfig", kubeconfig)
    assert status == 0
    assert "WaitingForCapacity" in out
    assert "position 2 of 2" in out
    assert "1. other/first" in out


async def test_why_as_data_is_what_a_program_can_read(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 1)
    asked = ("why", "trainingjob/mine", "--kubeconfig", kubeconfig, "-o")
    found = json.loads((await output(capsys, *asked, "json"))[1])
    assert (found["apiVersion"], found["kind"]) == ("cli.bireme.dev/v1", "GangExplanation")
    assert found["gang"]["position"] == 1
    assert yaml.safe_load((await output(capsys, *asked, "yaml"))[1]) == found
    # What all listings say of a gang is one form. A real API server writes the kind as it is.
    found["gang"]["kind"] = "TrainingJob"
    _, listed, _ = await output(capsys, "list", "--kubeconfig", kubeconfig, "-o", "json")
    assert json.loads(listed)["items"] == [found["gang"]]
    _, queued, _ = await output(capsys, "queue", "--kubeconfig", kubeconfig, "-o", "json")
    assert json.loads(queued)["kind"] == "GangExplanationList"
    (each,) = json.loads(queued)["items"]
    assert {**each["gang"], "kind": "TrainingJob"} == found["gang"]


async def test_a_job_that_does_not_exist_is_named(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = await output(capsys, "why", "nobody", "-n", "team", "--kubeconfig", kubeconfig)
    assert status == 1
    assert "no trainingjobs/nobody in namespace team" in err
    status, _, err = await output(capsys, "why", "pod/x", "--kubeconfig", kubeconfig)
    assert "write its name, or podgroup/NAME" in err


async def test_queue_lists_everybody_in_order(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "late", 2)
    put(api, "soon", 1, "other")
    _, out, err = await output(capsys, "queue", "--kubeconfig", kubeconfig)
    assert [line.split()[2] for line in out.splitlines()[1:]] == ["soon", "late"]
    assert err == ""
    _, out, _ = await output(capsys, "queue", "nothing", "--kubeconfig", kubeconfig)
    assert out == "No job waits.\n"


async def test_who_may_see_one_namespace_sees_that_one_and_a_note(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 2)
    put(api, "hidden", 1, "other")
    api.faults.add(Fault(status=403), lambda _method, path, _watch: path == JOBS, times=None)
    _, out, err = await output(capsys, "queue", "--kubeconfig", kubeconfig)
    assert "mine" in out
    assert "hidden" not in out
    assert "you may read only namespace default" in err
    _, out, _ = await output(capsys, "why", "mine", "--kubeconfig", kubeconfig)
    assert "position 2\n" in out


async def test_a_cluster_without_bireme_says_so(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.remove(JOBS)
    status, _, err = await output(capsys, "queue", "--kubeconfig", kubeconfig)
    assert status == 1
    assert "install its chart first" in err


def test_a_missing_namespace_is_no_missing_chart() -> None:
    missing = ApiError(404, "NotFound", 'namespaces "x" not found')
    assert str(refusal(missing, "create TrainingJob j")) == (
        'cannot create TrainingJob j: namespaces "x" not found; create it, or name another by -n'
    )


async def test_unusable_credentials_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none")
    status, _, err = await output(capsys, "why", "x", "--kubeconfig", missing)
    assert status == 1
    assert "no such file" in err


def queue(api: FakeApi) -> None:
    body = {
        "metadata": {"name": "research"},
        "spec": {"limit": {GPU: 64}},
        "status": {"admitted": 1, "pending": 1, "usage": {GPU: "16"}},
    }
    api.store.create(names.path("queues"), ("", "research"), body)


def node(api: FakeApi, name: str, ready: str) -> None:
    status = {
        "allocatable": {GPU: "8"},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    api.store.create("/api/v1/nodes", ("", name), {"metadata": {"name": name}, "status": status})


async def test_top_shows_use_queues_who_runs_and_who_is_next(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue(api)
    node(api, "n1", "True")
    node(api, "n2", "False")
    put(api, "next", 1)
    running = {"phase": "Running", "gpus": 8, "ready": "2/2", "progress": {"percentage": 50}}
    body = {"metadata": {"name": "now", "namespace": "default"}, "spec": {}, "status": running}
    api.store.create(JOBS, ("default", "now"), body)
    status, out, _ = await output(capsys, "queue", "-w", "--kubeconfig", kubeconfig)
    assert status == 0
    assert "8 GPUs in use of 8 on 1 of 2 nodes; 1 jobs run, 1 wait" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["research", "1", "1", "16", "64", "Open"] in rows
    assert ["default", "now", "Running", "8", "2/2", "50", "%", "-"] in rows
    assert any(row[:3] == ["1", "default", "next"] for row in rows)


async def test_watched_queue_shows_what_a_tenant_may_see(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 1)
    hidden = {JOBS, names.path("queues"), "/api/v1/nodes"}
    api.faults.add(Fault(status=403), lambda _method, path, _watch: path in hidden, times=None)
    status, out, _ = await output(capsys, "queue", "-w", "--kubeconfig", kubeconfig)
    assert status == 0
    assert "you may read only namespace default" in out
    assert "mine" in out


async def test_policies_tells_what_a_policy_does_and_how_well(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shadow = {"decisions": 40, "agreement": 0.75, "sizeAgreement": 0.5, "regret": 12.4}
    shadow |= {"regretLow": -3.0, "regretHigh": 27.8, "samples": 60}
    conditions = [{"type": "Loaded", "status": "True", "reason": "PolicyLoaded", "message": "ok"}]
    body = {
        "metadata": {"name": "trial"},
        "spec": {
            "orderer": "fifo",
            "stage": "Shadow",
            "checkpoint": {"name": "das"},
            "parameters": {"placer": {"beta": 0.5}},
        },
        "status": {"conditions": conditions, "decisions": 9, "fallbacks": 1, "shadow": shadow},
    }
    api.store.create(names.path("schedulingpolicies"), ("", "trial"), body)
    _, out, _ = await output(capsys, "policies", "trial", "--kubeconfig", kubeconfig)
    assert "Loaded      True, PolicyLoaded: ok" in out
    assert "9 cycles, 1 with a part answered by rules" in out
    assert "75% of the starts as decided; 50% of the sizes; with its decisions jobs would" in out
    assert "take 12 s shorter on average; 95 % interval -3 to 28 s, samples: 60" in out
    assert "orderer     fifo\n  First to arrive first" in out
    assert "placer      checkpoint das, beta 0.5, or else as in the operator's settings" in out
    status, _, err = await output(capsys, "policies", "none", "--kubeconfig", kubeconfig)
    assert status == 1
    assert "no schedulingpolicies/none" in err


@pytest.mark.parametrize(
    ("spec", "status", "first"),
    [
        ({"stage": "Active"}, {"stage": "RolledBack"}, "rolled back, it decides nothing (its spec"),
        ({"stage": "Shadow"}, {"stage": "Active"}, "promoted, it decides (its spec says Shadow)"),
        ({"stage": "Shadow"}, {"stage": "Active", "observedGeneration": 0}, "stage Shadow"),
        ({"stage": "Canary", "canary": {"queues": ["a", "b"]}}, {}, "Canary: it decides for a, b"),
    ],
)
async def test_policies_begins_with_the_stage_that_counts(
    api: FakeApi,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    spec: dict[str, object],
    status: dict[str, object],
    first: str,
) -> None:
    asked = {"rollBack": "Automatic", "minimumSamples": 50, "margin": 0.02}
    body = {
        "metadata": {"name": "trial"},
        "spec": {"orderer": "fifo", "rollout": asked, **spec},
        "status": {"observedGeneration": 1, **status},
    }
    api.store.create(names.path("schedulingpolicies"), ("", "trial"), body)
    _, out, _ = await output(capsys, "policies", "trial", "--kubeconfig", kubeconfig)
    assert first in out.splitlines()[0]
    said = (
        "never promoted automatically; rolled back automatically; from 50 samples on, by more than"
    )
    assert f"rollout     {said} 2.0%" in out


async def test_everybody_is_an_error_for_who_may_not_see_them(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 2)
    put(api, "other", 1, "other")
    asked = ("queue", "-n", "default", "--kubeconfig", kubeconfig)
    _, out, _ = await output(capsys, *asked)
    assert "other" not in out
    _, out, _ = await output(capsys, *asked, "-A")
    assert "other" in out
    api.faults.add(Fault(status=403), lambda _method, path, _watch: path == JOBS, times=None)
    for command in (("queue",), ("queue", "--watch")):
        status, out, err = await output(capsys, *command, "-A", "--kubeconfig", kubeconfig)
        assert (status, out) == (1, "")
        assert "argument -A: you may not list" in err


async def test_every_request_is_made_as_the_user_that_is_named(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 1)
    asked = ("why", "mine", "--kubeconfig", kubeconfig)
    assert (await output(capsys, *asked))[0] == 0
    assert api.impersonated == set()
    groups = ("--as-group", "team", "--as-group", "staff")
    assert (await output(capsys, *asked, "--as", "jane", *groups))[0] == 0
    assert api.impersonated == {("jane", "team", "staff")}
    status, _, err = await output(capsys, *asked, "--as-group", "team")
    assert (status, "needs a user too" in err) == (2, True)
    status, _, err = await output(capsys, *asked, "--as", "jane\r\nX-Other: 1")
    assert (status, "argument --as: " in err) == (2, True)


async def test_a_request_takes_no_longer_than_it_may(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 1)
    api.faults.add(Fault(delay_seconds=3), lambda _method, path, _watch: path.startswith(JOBS[:-4]))
    asked = ("why", "mine", "--kubeconfig", kubeconfig, "--request-timeout")
    status, _, err = await output(capsys, *asked, "1s")
    assert status == 1
    assert "allow more with --request-timeout" in err
    for enough in ("0", "60", "1m"):
        assert (await output(capsys, *asked, enough))[0] == 0
    assert (await output(capsys, *asked, "soon"))[0] == 2


def put_group(api: FakeApi, name: str, gpus: int, **labels: str) -> None:
    status = {"phase": "Running", "reason": "GangRunning", "gpus": gpus, "ready": "2/2"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    body: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": status}
    api.store.create(names.path("podgroups"), ("default", name), body)


async def test_list_shows_all_gangs_of_the_namespace_in_the_order_asked_for(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "b", 2)
    put(api, "c", 1)
    put(api, "hidden", 3, "other")
    put_group(api, "a", 16)
    asked = ("list", "--kubeconfig", kubeconfig)

    async def order(*arguments: str) -> list[str]:
        _, out, _ = await output(capsys, *asked, *arguments)
        return [line.split()[0] for line in out.splitlines()[1:]]

    assert await order() == ["podgroup/a", "b", "c"]
    assert await order("--sort-by", "position") == ["c", "b", "podgroup/a"]
    assert await order("--sort-by", "gpus") == ["podgroup/a", "b", "c"]
    old = api.store.collection(JOBS).objects["default", "b"]
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await order("--sort-by", "age"))[-1] == "b"
    _, out, _ = await output(capsys, *asked, "-A")
    assert ["other", "hidden"] in [line.split()[:2] for line in out.splitlines()]
    row = next(line.split() for line in out.splitlines() if "podgroup/a" in line)
    assert row[1:5] == ["podgroup/a", "Running", "GangRunning", "default"]
    assert row[5:8] == ["-", "2/2", "16"]
    _, out, _ = await output(capsys, *asked, "-n", "empty")
    assert out == "There are no jobs.\n"


async def test_list_as_names_and_as_data_and_by_labels(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "mine", 1)
    put_group(api, "guest", 4, team="nlp")
    asked = ("list", "--kubeconfig", kubeconfig)
    _, out, _ = await output(capsys, *asked, "-o", "name")
    assert out == "podgroup.bireme.dev/guest\ntrainingjob.bireme.dev/mine\n"
    _, out, _ = await output(capsys, *asked, "-o", "json", "-l", "team=nlp")
    found = json.loads(out)
    assert (found["apiVersion"], found["kind"]) == ("cli.bireme.dev/v1", "GangList")
    assert [(each["name"], each["gpus"]) for each in found["items"]] == [("guest", 4)]


async def test_list_names_the_right_that_is_missing(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults.add(Fault(status=403), lambda _method, path, _watch: "trainingjobs" in path)
    status, _, err = await output(capsys, "list", "--kubeconfig", kubeconfig)
    assert status == 1
    assert "you may not list trainingjobs" in err


def is_suspended(api: FakeApi, name: str) -> bool:
    spec = api.store.get(JOBS, ("default", name))["spec"]
    return bool((spec.get("runPolicy") or {}).get("suspend"))


async def test_jobs_are_suspended_and_resumed(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "a", 1)
    put(api, "b", 2)
    end = ("--kubeconfig", kubeconfig)
    status, out, _ = await output(capsys, "suspend", "a", "trainingjob/b", *end)
    assert status == 0
    assert out.splitlines()[0] == "TrainingJob default/a suspended; see: bireme why a"
    assert is_suspended(api, "a")
    assert is_suspended(api, "b")
    _, out, _ = await output(capsys, "suspend", "a", *end)
    assert out == "TrainingJob default/a is suspended already\n"
    _, out, _ = await output(capsys, "resume", "a", *end)
    assert out == "TrainingJob default/a resumed; see: bireme why a\n"
    assert not is_suspended(api, "a")
    assert is_suspended(api, "b")


async def test_nothing_is_suspended_where_one_job_cannot_be(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "a", 1)
    ended = {"metadata": {"name": "e", "namespace": "default"}, "status": {"phase": "Failed"}}
    api.store.create(JOBS, ("default", "e"), {**ended, "spec": {}})
    for job, words in (
        ("e", "default/e has ended (Failed)"),
        ("nobody", "no trainingjobs/nobody in namespace default"),
        ("podgroup/g", "is no TrainingJob"),
    ):
        status, out, err = await output(capsys, "suspend", "a", job, "--kubeconfig", kubeconfig)
        assert (status, out) == (1, "")
        assert words in err
    assert not is_suspended(api, "a")
