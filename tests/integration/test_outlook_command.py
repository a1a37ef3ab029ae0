"""``bireme outlook`` without a record: the leader's, through the API server's proxy."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.server import kubeconfig_of
from tests.integration.test_console import output

PATH = "/api/v1/namespaces/bireme-system/services/bireme-outlook:outlook/proxy/outlook"
RANGE = {
    "earliest": "2030-01-01T01:00:00Z",
    "latest": "2030-01-01T02:00:00Z",
    "coveragePercent": 90,
}


def gang(name: str, position: int | None, estimate: dict[str, Any] | None) -> dict[str, Any]:
    start = estimate["earliest"] if estimate else None
    waits = {"position": position, "reason": "WaitingForCapacity", "start": start}
    about = {"kind": "TrainingJob", "namespace": "red", "name": name, "queue": "q", "gpus": 8}
    return {**about, **waits, "estimatedStart": estimate}


ANSWER = {
    "apiVersion": "outlook.bireme.dev/v1",
    "kind": "Outlook",
    "time": "2030-01-01T00:00:00Z",
    "ageSeconds": 40,
    "until": "2030-01-02T00:00:00Z",
    "cut": "AllStarted",
    "policy": "",
    "namespaces": ["red"],
    "gangs": [gang("first", 1, RANGE), gang("last", None, None)],
}


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    """Credentials of ann, of whatever kind."""
    api.token = "ann"  # noqa: S105  # of the test
    path = tmp_path / "ann.json"
    path.write_text(json.dumps(kubeconfig_of(api.url, api.token)))
    return str(path)


async def test_positions_reasons_and_ranges_are_told(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    code, out, err = await output(capsys, "outlook", "--kubeconfig", kubeconfig)
    assert (code, err) == (0, "")
    title, assumed, _, header, first, last = out.splitlines()
    assert title == (
        "2 gangs wait at 2030-01-01T00:00:00Z, 40 s ago; 1 have a start by the policy of the "
        "settings: the forecast covers all gangs that can start."
    )
    assert assumed.startswith("The forecast assumes that no gangs arrive")
    assert header.split()[:3] == ["POS", "GANG", "QUEUE"]
    assert first.split()[:5] == ["1", "red/first", "q", "8", "WaitingForCapacity"]
    assert first.endswith(f"{RANGE['earliest']} to {RANGE['latest']} (90 %)")
    assert last.split() == ["-", "red/last", "q", "8", "WaitingForCapacity", "not", "foreseen"]
    code, out, _ = await output(capsys, "outlook", "--kubeconfig", kubeconfig, "--json", "-")
    assert json.loads(out)["gangs"] == ANSWER["gangs"]
    assert (await output(capsys, "outlook", "--kubeconfig", kubeconfig, "--limit", "1"))[
        1
    ].endswith("and 1 more; see --limit\n")


async def test_who_asks_too_often_waits_as_long_as_the_leader_says(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    for seconds, answered in ((1, True), (600, False)):
        busy = Fault(status=429, retry_after_seconds=seconds)
        api.faults.add(busy, lambda _, path, __: path == PATH)
        begun = time.monotonic()
        code, _, err = await output(capsys, "outlook", "--kubeconfig", kubeconfig)
        waited = time.monotonic() - begun
        assert (code == 0, "injected fault" in err) == (answered, not answered)
        assert answered == (waited >= seconds), "a long wait is told, and not spent"


async def test_what_cannot_be_asked_says_what_to_do(
    api: FakeApi, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("outlook", "--kubeconfig", kubeconfig)
    code, _, err = await output(capsys, *asked)
    assert (code, "set operator.settings.outlook to true" in err) == (1, True)
    code, _, err = await output(capsys, *asked, "--policy", "fifo")
    assert (code, "name a RECORD to use another" in err) == (2, True)
    code, _, err = await output(capsys, *asked, "--outlook-service", "here")
    assert (code, "write NAMESPACE/NAME" in err) == (2, True)
    api.documents[PATH] = {**ANSWER, "apiVersion": "outlook.bireme.dev/v2"}
    code, _, err = await output(capsys, *asked)
    assert (code, "use the bireme of the operator's version" in err) == (1, True)
