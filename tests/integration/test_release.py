"""``bireme release`` where the API server stops half way: nothing is lost."""

import asyncio
import json
from pathlib import Path

import pytest

from bireme.cli import main
from testbed.fakeapi import FakeApi, Fault
from testbed.operator_term.term import PODS, make


async def test_a_pod_whose_successor_is_refused_is_printed_for_its_user_to_create(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put("/api/v1/namespaces/default", {})
    make(api, "a")

    def creates(method: str, path: str, _: bool) -> bool:
        return method == "POST" and path.endswith("/pods")  # the dry run before goes well

    api.faults.add(Fault(status=403, reason="Forbidden"), creates, times=None)
    kubeconfig = f"--kubeconfig={api.kubeconfig(tmp_path)}"
    command = ["release", kubeconfig, "--namespace=default"]
    assert await asyncio.to_thread(main, command) == 1
    printed = capsys.readouterr()
    assert not api.store.collection(PODS).objects
    assert "Pod a, 1 waiting: deleted, but not created again: 403 Forbidden" in printed.out
    made = json.loads(printed.err)
    assert (made["metadata"]["name"], made["spec"]["schedulerName"]) == ("a", "default-scheduler")
