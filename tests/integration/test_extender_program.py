"""``python -m bireme_extender`` as a program: how it starts, what it says, how it ends."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bireme.connections import MAX_OF_ONE
from bireme.kube import names
from testbed.controlplane.process import Process, free_ports
from testbed.extender_calls import JOB_UID, a_body, a_group, a_node, a_pod
from testbed.fakeapi import FakeApi, Fault
from testbed.operator_term.term import until
from tests.integration.hostile import crowd


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as served:
        served.put("/api/v1/nodes/n1", a_node("n1"))
        yield served


def events(process: Process) -> list[dict[str, Any]]:
    """Every line of the log; a line that is no JSON fails."""
    return [json.loads(line) for line in process.log_path.read_text().splitlines()]


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Blocking work beside the fake API server that runs in this loop."""
    return await asyncio.to_thread(work, *arguments)


async def test_program_serves_and_ends_cleanly_on_sigterm(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    process = extender_program(api.kubeconfig(tmp_path))
    await in_thread(process.start)
    await in_thread(process.wait_ready)
    assert await in_thread(process.terminate) == 0
    assert [event["event"] for event in events(process)] == ["starting", "ready", "stopped"]


async def test_program_starts_without_an_api_server_and_recovers(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    group = a_group(places=(("worker", "n1", "0"),))
    api.put(names.path("trainingjobs", "team", "job"), group, JOB_UID)
    api.faults.add(Fault(drop=True), times=None)
    process = extender_program(api.kubeconfig(tmp_path), BIREME_LOG_LEVEL="error")
    await in_thread(process.start)
    url = process.ready_url.removesuffix("/readyz")
    async with aiohttp.ClientSession() as session:
        await status_of(session, f"{url}/readyz", 503)
        async with session.post(f"{url}/filter", data=a_body(a_pod(), ["n0", "n1"])) as answer:
            assert answer.status == 503
        api.faults.clear()
        await status_of(session, f"{url}/readyz", 200)
        assert await passing(session, url) == ["n1"]
        assert json.loads(await status_of(session, f"{url}/version", 200))["version"]


async def passing(session: aiohttp.ClientSession, url: str) -> list[str]:
    async with session.post(f"{url}/filter", data=a_body(a_pod(), ["n0", "n1"])) as answer:
        found: list[str] = (await answer.json())["NodeNames"]
        return found


async def status_of(session: aiohttp.ClientSession, url: str, status: int) -> str:
    """The body of ``url`` once it is answered with ``status``."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            async with session.get(url) as answer:
                if answer.status == status:
                    return await answer.text()
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.05)
    raise AssertionError(f"{url} was not answered with {status}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"BIREME_EXTENDER_ADDRESS": "8888"}, "extender_address is '8888'; it must be HOST:PORT"),
        ({"BIREME_CONFIG": "none.yaml"}, "BIREME_CONFIG is 'none.yaml', which cannot be read"),
        ({"KUBECONFIG": "none.kubeconfig"}, "cannot use none.kubeconfig as credentials"),
    ],
)
def test_program_says_what_keeps_it_from_starting(
    tmp_path: Path, extender_program: Callable[..., Process], settings: dict[str, str], message: str
) -> None:
    process = extender_program(tmp_path / "kubeconfig", **settings)
    process.start()
    assert wait_for_end(process) == 2
    (event,) = events(process)
    assert event["event"] == "cannot start"
    assert message in event["error"]


async def test_program_whose_port_is_taken_says_so(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    address = f"127.0.0.1:{api.url.rpartition(':')[2]}"
    process = extender_program(api.kubeconfig(tmp_path), BIREME_EXTENDER_ADDRESS=address)
    await in_thread(process.start)
    assert await in_thread(wait_for_end, process) == 2
    error = events(process)[-1]["error"]
    assert f"extender_address is '{address}', which cannot be listened on: Address al" in error


def wait_for_end(process: Process) -> int | None:
    deadline = time.monotonic() + 30
    while process.running and time.monotonic() < deadline:
        time.sleep(0.05)
    return process.returncode


def test_sigint_is_as_good_as_sigterm(
    tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "none",
                "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "none", "user": {}}],
                "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
            }
        )
    )
    process = extender_program(kubeconfig)
    process.start()
    wait_for_log(process, "starting")
    os.kill(process.pid, signal.SIGINT)
    assert wait_for_end(process) == 0


def wait_for_log(process: Process, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in process.log_path.read_text():
        assert time.monotonic() < deadline, process.log_tail()
        time.sleep(0.05)
    time.sleep(0.2)


async def test_the_metrics_port_tells_health_and_answers_no_verbs(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    (port,) = free_ports(1)
    settings = {"BIREME_METRICS_ADDRESS": f"0.0.0.0:{port}"}
    process = extender_program(api.kubeconfig(tmp_path), **settings)
    await in_thread(process.start)
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        await status_of(session, f"{url}/readyz", 200)
        assert "bireme_extender" in await status_of(session, f"{url}/metrics", 200)
        async with session.post(f"{url}/filter", data=a_body(a_pod(), ["n0"])) as answer:
            assert answer.status == 404
        own = process.ready_url.removesuffix("/readyz")
        async with session.post(f"{own}/filter", data=a_body(a_pod(), ["n0"])) as answer:
            assert answer.status == 200


async def test_a_neighbour_who_crowds_the_metrics_port_shuts_out_nobody(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    process = extender_program(api.kubeconfig(tmp_path), BIREME_METRICS_ADDRESS=address)
    await in_thread(process.start)
    await in_thread(process.wait_ready)
    async with crowd(port, 3 * MAX_OF_ONE) as ended, aiohttp.ClientSession() as session:
        await until(lambda: sum(ended) >= 2 * MAX_OF_ONE)
        assert ended == [True] * (2 * MAX_OF_ONE) + [False] * MAX_OF_ONE
        assert "bireme_extender" in await status_of(
            session, f"http://127.0.0.1:{port}/metrics", 200
        )
        own = process.ready_url.removesuffix("/readyz")
        async with session.post(f"{own}/filter", data=a_body(a_pod(), ["n0"])) as answer:
            assert answer.status == 200
        began = time.monotonic()
        assert await in_thread(process.terminate) == 0
        assert time.monotonic() - began < 5, "it does not wait for who says nothing"


async def test_a_metrics_port_that_is_taken_is_named(
    api: FakeApi, tmp_path: Path, extender_program: Callable[..., Process]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = extender_program(api.kubeconfig(tmp_path), BIREME_METRICS_ADDRESS=address)
        await in_thread(process.start)
        message = f"metrics_address is '{address}', which cannot be listened on"
        await in_thread(wait_for_log, process, message)
