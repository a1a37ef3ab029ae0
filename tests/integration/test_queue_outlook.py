"""``bireme queue --outlook``: the leader's word, through the API server's proxy."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.server import kubeconfig_of
from tests.integration.test_console import output

PATH = "/api/v1/namespaces/bireme-system/services/bireme-outlook:outlook/proxy/v1/outlook"
RANGE = {
    "earliest": "2030-01-01T01:00:00Z",
    "latest": "2030-01-01T02:00:00Z",
    "coveragePercent": 90,
}


def gang(name: str, position: int | None, estimate: dict[str, Any] | None) -> dict[str, Any]:
    start = estimate["earliest"] if estimate else None
    waits = {"position": position, "reason": "WaitingForCapacity", "start": start}
    about = {"kind": "TrainingJob", "namespace": "red", "name": name, "queue": "q", "gpus": 8}
    since = {"arrived": "2025-01-01T00:00:00Z", "priority": 2.5, "message": "needs 8"}
    return {**about, **waits, **since, "estimatedStart": estimate, "reserved": {}}


FORESIGHT = {
    "time": "2030-01-01T00:00:00Z",
    "ageSeconds": 40,
    "until": "2030-01-02T00:00:00Z",
    "cut": "AllStarted",
    "policy": "",
}
ANSWER = {
    "apiVersion": "outlook.bireme.dev/v2",
    "kind": "Outlook",
    "time": "2030-01-01T00:00:00Z",
    "policy": "",
    "namespaces": ["red"],
    "foresight": FORESIGHT,
    "gangs": [gang("first", 1, RANGE), gang("last", None, None)],
    "answers": [],
}
ASKED = ("queue", "--outlook", "--kubeconfig")


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    """Credentials of ann, of whatever kind."""
    api.token = "ann"  # noqa: S105  # of the test
    path = tmp_path / "ann.json"
    path.write_text(json.dumps(kubeconfig_of(api.url, api.token)))
    return str(path)


async def test_positions_reasons_and_ranges_are_listed(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    code, out, err = await output(capsys, *ASKED, kubeconfig, "-o", "wide")
    assert code == 0
    assert err == (
        "bireme: 1 of 2 gangs have a start by the policy of the settings at 2030-01-01T00:00:00Z, "
        "40 s ago: the forecast covers all gangs that can start. The forecast assumes that no "
        "gangs arrive and nothing fails\n"
    )
    header, first, last = out.splitlines()
    assert header.split()[:3] == ["#", "NAMESPACE", "NAME"]
    assert first.split()[:6] == ["1", "red", "first", "q", "8", "2.5"]
    assert first.endswith("WaitingForCapacity  needs 8")
    assert last.split()[-4:] == ["-", "WaitingForCapacity", "needs", "8"]
    _, out, _ = await output(capsys, *ASKED, kubeconfig, "-o", "json")
    found = json.loads(out)
    assert (found["kind"], found["outlook"]) == ("GangExplanationList", FORESIGHT)
    assert [item["estimatedStart"] for item in found["items"]] == [RANGE, dict.fromkeys(RANGE)]
    code, out, _ = await output(capsys, *ASKED, kubeconfig, "other")
    assert (code, out) == (0, "No job waits.\n")


async def test_before_the_first_forecast_the_gangs_are_listed_without_starts(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = {**ANSWER, "foresight": None, "gangs": [gang("last", 1, None)]}
    code, out, err = await output(capsys, *ASKED, kubeconfig)
    assert (code, "last" in out) == (0, True)
    assert err == "bireme: no start is foreseen yet; try again in a minute\n"


async def test_who_asks_too_often_waits_as_long_as_the_leader_says(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    for seconds, answered in ((1, True), (600, False)):
        busy = Fault(status=429, retry_after_seconds=seconds)
        api.faults.add(busy, lambda _, path, __: path == PATH)
        begun = time.monotonic()
        code, _, err = await output(capsys, *ASKED, kubeconfig)
        waited = time.monotonic() - begun
        assert (code == 0, "injected fault" in err) == (answered, not answered)
        assert answered == (waited >= seconds), "a long wait is told, and not spent"


async def test_what_cannot_be_asked_says_what_to_do(
    api: FakeApi, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*ASKED, kubeconfig)
    code, _, err = await output(capsys, *asked)
    assert (code, "set operator.settings.outlook to true" in err) == (1, True)
    assert "or name a record by --record" in err
    code, _, err = await output(capsys, *asked, "--policy", "fifo")
    assert (code, "name a record by --record to use another" in err) == (2, True)
    code, _, err = await output(capsys, *asked, "--watch")
    assert (code, "--watch: not allowed with argument --outlook" in err) == (2, True)
    code, _, err = await output(capsys, *asked, "--outlook-service", "here")
    assert (code, "write NAMESPACE/NAME" in err) == (2, True)
    api.documents[PATH] = {**ANSWER, "apiVersion": "outlook.bireme.dev/v3"}
    code, _, err = await output(capsys, *asked)
    assert (code, "use the bireme of the operator's version" in err) == (1, True)
