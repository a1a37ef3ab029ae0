"""The extender among callers that mean no good: it answers by its document, and goes on."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from bireme.kube import names
from testbed.controlplane.process import Process
from testbed.extender_calls import JOB_UID, a_body, a_group, a_node, a_pod
from testbed.fakeapi import FakeApi
from tests.integration.hostile import bomb, crowd, fuzzed

MEBIBYTE = 2**20
MANY = 200
SLOW = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + b" " * 1000


class Extender:
    """A real extender that knows one planned gang."""

    def __init__(self, process: Process, http: aiohttp.ClientSession) -> None:
        self.url = process.ready_url.removesuffix("/readyz")
        self.port = int(self.url.rpartition(":")[2])
        self.http = http
        self.system = psutil.Process(process.pid)

    async def post(self, body: bytes, **headers: str) -> tuple[int, str]:
        async with self.http.post(f"{self.url}/filter", data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def slowest_seconds(self, calls: int = 100) -> float:
        """Of ``calls`` good calls, all but the slowest."""
        took = []
        for _ in range(calls):
            began = time.perf_counter()
            code, answer = await self.post(a_body(a_pod(), ["n1"]))
            assert (code, json.loads(answer)["NodeNames"]) == (200, ["n1"])
            took.append(time.perf_counter() - began)
        return sorted(took)[-2]


@pytest.fixture
async def extender(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> AsyncIterator[Extender]:
    api.put("/api/v1/nodes/n1", a_node("n1"))
    group = a_group(places=(("worker", "n1", "0"),))
    api.put(names.path("trainingjobs", "team", "job"), group, JOB_UID)
    process = extender_program(api.kubeconfig(tmp_path))
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.wait_ready)
    bookmarks = asyncio.create_task(_send_bookmarks(api))
    async with aiohttp.ClientSession() as http:
        yield Extender(process, http)
    bookmarks.cancel()
    assert process.running


async def _send_bookmarks(api: FakeApi) -> None:
    """As an API server does; without them an extender is unready after a minute and a half."""
    while True:
        await asyncio.sleep(20.0)
        api.watch_bookmark()


async def test_whatever_is_called_is_answered_as_the_document_says(
    extender: Extender, tmp_path: Path
) -> None:
    # Names of nodes are not even read where no choice among them depends on it.
    code, report = await fuzzed(
        extender.url, tmp_path, "--exclude-checks", "negative_data_rejection"
    )
    assert code == 0, report


async def test_it_listens_on_loopback_alone(extender: Extender) -> None:
    found = {c.laddr.ip for c in extender.system.net_connections() if c.status == "LISTEN"}
    assert found == {"127.0.0.1"}


async def test_many_slow_callers_hold_up_nobody_and_cost_little(extender: Extender) -> None:
    alone, before = await extender.slowest_seconds(), extender.system.memory_info().rss
    async with crowd(extender.port, MANY, SLOW):
        beside = await extender.slowest_seconds()
        grown = extender.system.memory_info().rss - before
    assert beside < max(2 * alone, 0.05)
    assert grown < 50 * MEBIBYTE


async def test_a_gzip_bomb_is_a_body_like_any_other(extender: Extender) -> None:
    before = extender.system.memory_info().rss
    packed = bomb(200 * MEBIBYTE)
    code, answer = await extender.post(packed, **{"Content-Encoding": "gzip"})
    assert (code, "not an ExtenderArgs object" in answer) == (400, True)
    assert extender.system.memory_info().rss - before < 50 * MEBIBYTE
