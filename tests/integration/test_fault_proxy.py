"""The fault proxy in front of the fake API server: transparent unless a fault is set."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from bireme.kube.client import ApiClient, ApiError
from bireme.kube.credentials import CredentialsError
from testbed.fakeapi import FakeApi, Fault, watches
from testbed.faultproxy import FaultProxy, Write

PODS = "/api/v1/namespaces/team/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/team/leases"

WRITER = """
import json, sys, urllib.request
server = json.load(open(sys.argv[1]))["clusters"][0]["cluster"]["server"]
for n in range(1, 6):
    body = json.dumps({"metadata": {"name": f"p{n}"}}).encode()
    urllib.request.urlopen(urllib.request.Request(server + sys.argv[2], body), timeout=10)
"""


@pytest.fixture
def proxy(api: FakeApi, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(api.kubeconfig(tmp_path)) as running:
        yield running


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[ApiClient]:
    connected = await ApiClient.connect(proxy.kubeconfig)
    yield connected
    await connected.close()


def names(api: FakeApi) -> set[str]:
    return {name for _, name in api.store.collection("/api/v1/pods").objects}


def watch_from_now(api: FakeApi) -> dict[str, str | int]:
    return {"watch": "1", "resourceVersion": api.store.version}


def pod(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}}


async def test_requests_answers_and_errors_pass_unchanged(client: ApiClient, api: FakeApi) -> None:
    created = json.loads(await client.create(PODS, pod("a")))
    assert created == api.store.get("/api/v1/pods", ("team", "a"))
    assert len(json.loads(await client.get(PODS, params={"limit": 1}))["items"]) == 1
    with pytest.raises(ApiError) as raised:
        await client.create(PODS, pod("a"))
    assert raised.value.is_already_exists


async def test_big_bodies_pass_both_ways(client: ApiClient) -> None:
    body = {**pod("big"), "spec": {"x": "y" * 3_000_000}}
    await client.create(PODS, body)
    assert json.loads(await client.get(f"{PODS}/big"))["spec"] == body["spec"]


async def test_watch_lines_pass_as_they_come_and_a_cut_ends_them(
    client: ApiClient, api: FakeApi, proxy: FaultProxy
) -> None:
    async with aclosing(client.stream(PODS, watch_from_now(api))) as lines:
        for name in ("a", "b"):
            api.put(f"{PODS}/{name}", pod(name))
            line = await asyncio.wait_for(anext(lines), 5)
            assert json.loads(line)["object"]["metadata"]["name"] == name
        assert proxy.cut_watches() == 1
        with pytest.raises(ApiError) as raised:
            await anext(lines)
        assert raised.value.status == 0
    assert proxy.requests["WATCH", PODS] == 1


async def test_a_client_that_hangs_up_closes_the_watch_behind_the_proxy(
    client: ApiClient, api: FakeApi
) -> None:
    async with aclosing(client.stream(PODS, watch_from_now(api))) as lines:
        api.put(f"{PODS}/a", pod("a"))
        await anext(lines)
        assert api.open_watches("/api/v1/pods") == 1
    async with asyncio.timeout(5):
        while api.open_watches("/api/v1/pods"):
            await asyncio.sleep(0.01)


async def test_writes_are_counted_without_leases_and_events(
    client: ApiClient, proxy: FaultProxy
) -> None:
    await client.create(LEASES, pod("lease"))
    await client.create("/api/v1/namespaces/team/events", pod("event"))
    await client.create("/apis/events.k8s.io/v1/namespaces/team/events", pod("event"))
    await client.create(PODS, pod("a"))
    await client.get(PODS)
    await client.delete(f"{PODS}/a")
    assert proxy.writes == [Write(1, "POST", PODS), Write(2, "DELETE", f"{PODS}/a")]


@pytest.mark.parametrize(
    ("when", "done"), [("before", {"p1", "p2"}), ("after", {"p1", "p2", "p3"})]
)
async def test_a_writer_is_killed_at_its_third_write(
    api: FakeApi, proxy: FaultProxy, when: str, done: set[str]
) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(proxy.kubeconfig), PODS
    )
    killed: list[Write] = []

    def kill(write: Write) -> None:
        killed.append(write)
        os.kill(writer.pid, signal.SIGKILL)

    proxy.on_write(3, kill, when="before" if when == "before" else "after")
    assert await asyncio.wait_for(writer.wait(), 20) == -signal.SIGKILL
    assert killed == [Write(3, "POST", PODS)]
    assert names(api) == done


@pytest.mark.parametrize("status", [429, 503])
async def test_requests_can_be_refused(client: ApiClient, proxy: FaultProxy, status: int) -> None:
    proxy.faults.add(Fault(status=status, retry_after_seconds=3), times=2)
    for _ in range(2):
        with pytest.raises(ApiError) as raised:
            await client.create(PODS, pod("a"))
        assert (raised.value.status, raised.value.retry_after_seconds) == (status, 3)
    await client.create(PODS, pod("a"))


async def test_requests_can_be_delayed(client: ApiClient, proxy: FaultProxy) -> None:
    proxy.faults.add(Fault(delay_seconds=5))
    with pytest.raises(ApiError) as raised:
        await client.request("GET", PODS, timeout_seconds=0.2)
    assert raised.value.reason == "Timeout"


@pytest.mark.parametrize(("fault", "stored"), [
    (Fault(drop=True), False),
    (Fault(drop_answer=True), True),
])  # fmt: skip
async def test_connections_can_be_dropped_before_or_after_the_work(
    client: ApiClient, api: FakeApi, proxy: FaultProxy, fault: Fault, stored: bool
) -> None:
    proxy.faults.add(fault)
    with pytest.raises(ApiError) as raised:
        await client.create(PODS, pod("a"))
    assert raised.value.status == 0
    assert bool(names(api)) is stored


async def test_a_watch_can_be_silenced(client: ApiClient, api: FakeApi, proxy: FaultProxy) -> None:
    proxy.faults.add(Fault(silent=True), watches)
    api.put(f"{PODS}/a", pod("a"))
    stream = client.stream(PODS, {"watch": "1"}, read_timeout_seconds=0.3)
    with pytest.raises(ApiError) as raised:
        await anext(stream)
    assert raised.value.reason == "Timeout"


async def test_held_traffic_waits_until_it_is_released(
    client: ApiClient, api: FakeApi, proxy: FaultProxy
) -> None:
    async with aclosing(client.stream(PODS, watch_from_now(api))) as lines:
        api.put(f"{PODS}/first", pod("first"))
        await anext(lines)
        proxy.hold()
        api.put(f"{PODS}/second", pod("second"))
        line = asyncio.ensure_future(anext(lines))
        request = asyncio.create_task(client.create(PODS, pod("third")))
        await asyncio.sleep(0.2)
        assert not line.done()
        assert not request.done()
        assert names(api) == {"first", "second"}
        proxy.release()
        assert b"second" in await asyncio.wait_for(line, 5)
        await asyncio.wait_for(request, 5)
        assert names(api) == {"first", "second", "third"}


async def test_a_token_of_the_client_goes_before_that_of_the_proxy(
    client: ApiClient, api: FakeApi, proxy: FaultProxy
) -> None:
    api.token = "the-client's"  # noqa: S105  # not a secret
    with pytest.raises(ApiError) as raised:
        await client.get(PODS)
    assert raised.value.status == 401
    content = json.loads(proxy.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": api.token}
    proxy.kubeconfig.write_text(json.dumps(content))
    await client.get(PODS)


async def test_a_server_that_is_away_is_a_bad_gateway(tmp_path: Path) -> None:
    async with FakeApi() as api:
        kubeconfig = api.kubeconfig(tmp_path)
    with FaultProxy(kubeconfig) as proxy:
        client = await ApiClient.connect(proxy.kubeconfig)
        with pytest.raises(ApiError) as raised:
            await client.get(PODS)
        assert raised.value.status == 502
        await client.close()


def test_an_unusable_kubeconfig_is_refused_and_leaves_nothing_running(tmp_path: Path) -> None:
    proxy = FaultProxy(tmp_path / "nowhere")
    with pytest.raises(CredentialsError, match="nowhere"), proxy:
        pass
    assert not proxy.kubeconfig.parent.exists()
