"""The extender as a running server against the fake API server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme.kube.watch import Timing
from bireme_extender.server import Program
from bireme_extender.settings import ExtenderSettings
from testbed.controlplane.process import free_ports
from testbed.extender_calls import JOB_UID, a_body, a_group, a_node, a_pod
from testbed.fakeapi import FakeApi, Fault
from testbed.internals import changed

JOBS = "/apis/bireme.dev/v1alpha1/trainingjobs"
GROUPS = "/apis/bireme.dev/v1alpha1/podgroups"
JOB = "/apis/bireme.dev/v1alpha1/namespaces/team/trainingjobs/job"
FAST = Timing(
    inactivity_seconds=0.5,
    backoff_first_seconds=0.01,
    backoff_limit_seconds=0.05,
    missing_retry_seconds=0.05,
)
ALL = ["n0", "n1", "n2"]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as served:
        for name in ALL:
            put(served, f"/api/v1/nodes/{name}", a_node(name))
        yield served


def put(api: FakeApi, path: str, manifest: dict[str, Any]) -> None:
    """Create or replace an object; the uid of one that is no TrainingJob is the server's."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
    uid = JOB_UID if path == JOB else ""
    api.put(path, {**manifest, "metadata": metadata}, uid)


class Caller:
    """A client of a running extender, as kube-scheduler is one."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.url = f"http://127.0.0.1:{port}"

    async def status(self, verb: str, pod: Any) -> int:
        async with self.session.post(f"{self.url}/{verb}", data=a_body(pod, ALL)) as answer:
            return answer.status

    async def post(self, verb: str, pod: Any, names: list[str] | None = None) -> Any:
        body = a_body(pod, ALL if names is None else names)
        async with self.session.post(f"{self.url}/{verb}", data=body) as answer:
            assert answer.status == 200
            return await answer.json()

    async def names(self, pod: Any) -> list[str]:
        found: list[str] = (await self.post("filter", pod))["NodeNames"]
        return found

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()

    async def becomes(self, status: int) -> str:
        """The body of /readyz once it has ``status``."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                found, text = await self.get("/readyz")
                if found == status:
                    return text
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.02)
        raise AssertionError(f"/readyz did not become {status}")


@asynccontextmanager
async def extender(api: FakeApi, folder: Path, **internals: float) -> AsyncIterator[Caller]:
    """A server in this event loop, with other ``internals``."""
    with changed(**{"plan_wait_seconds": 0.9, **internals}):
        async with _extender(api, folder) as caller:
            yield caller


@asynccontextmanager
async def _extender(api: FakeApi, folder: Path) -> AsyncIterator[Caller]:
    (port,) = free_ports(1)
    settings = ExtenderSettings(extender_address=f"127.0.0.1:{port}")
    client = await ApiClient.connect(api.kubeconfig(folder))
    program = Program(client, settings, SchedulingSettings(), timing=FAST)
    running = asyncio.create_task(program.run())
    try:
        async with aiohttp.ClientSession() as session:
            yield Caller(session, port)
    finally:
        program.stop()
        await asyncio.wait_for(running, 10)
        await client.close()


async def test_watched_plan_decides_where_a_pod_goes(api: FakeApi, tmp_path: Path) -> None:
    put(api, JOB, a_group(places=(("worker", "n1", "0"),)))
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        assert await caller.names(a_pod()) == ["n1"]
        assert await caller.post("prioritize", a_pod()) == [{"Host": "n1", "Score": 10}]
        put(api, JOB, a_group(places=(("worker", "n2", "0"),), attempt=1))
        assert await caller.names(a_pod(plan="1.1")) == ["n2"]
        assert await caller.names(a_pod(plan="1.0")) == []


async def test_pod_that_overtakes_its_plan_is_let_through_when_it_arrives(
    api: FakeApi, tmp_path: Path
) -> None:
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        asking = asyncio.create_task(caller.names(a_pod()))
        await asyncio.sleep(0.1)
        assert not asking.done()
        put(api, JOB, a_group(places=(("worker", "n2", "0"),)))
        assert await asking == ["n2"]


async def test_a_plan_that_is_given_back_is_forgotten_though_its_job_stays(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(is_planned=False))
    async with extender(api, tmp_path, plan_wait_seconds=0.0) as caller:
        await caller.becomes(200)
        for attempt in range(2):
            planned = a_group(places=(("worker", "n1", "0"),), attempt=attempt)
            put(api, JOB, planned)
            await until_names(caller, a_pod(plan=f"1.{attempt}"), ["n1"])
            put(api, JOB, {**planned, "status": {"phase": "Restarting"}})
            await until_names(caller, a_pod(plan=f"1.{attempt}"), [])


async def test_deleted_job_and_deleted_node_are_forgotten(api: FakeApi, tmp_path: Path) -> None:
    put(api, JOB, a_group(mode="Score"))
    async with extender(api, tmp_path, plan_wait_seconds=0.0) as caller:
        await caller.becomes(200)
        assert await caller.names(a_pod()) == ALL
        api.store.delete("/api/v1/nodes", ("", "n1"), {})
        await until_names(caller, a_pod(), ["n0", "n2"])
        api.store.delete(JOBS, ("team", "job"), {})
        await until_names(caller, a_pod(), [])


async def until_names(caller: Caller, pod: Any, wanted: list[str]) -> None:
    deadline = time.monotonic() + 10
    while await caller.names(pod) != wanted:
        assert time.monotonic() < deadline, f"the answer did not become {wanted}"
        await asyncio.sleep(0.01)


async def test_bound_pods_of_others_and_of_gangs_take_room_in_score_mode(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(mode="Score"))
    eight = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    other = a_pod(0, group=None, node="n0", phase="Running", requests=eight)
    member = a_pod(0, group="x", node="n1", phase="Running", requests=eight)
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        put(api, "/api/v1/namespaces/team/pods/other", other)
        put(api, "/api/v1/namespaces/team/pods/member", member)
        await until_names(caller, a_pod(), ["n2"])
        ended = {**other, "status": {"phase": "Succeeded"}}
        put(api, "/api/v1/namespaces/team/pods/other", ended)
        await until_names(caller, a_pod(), ["n0", "n2"])


async def test_watch_that_ends_by_itself_ends_the_server(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    client = await ApiClient.connect(api.kubeconfig(tmp_path))
    program = Program(
        client, ExtenderSettings(extender_address=f"127.0.0.1:{port}"), SchedulingSettings()
    )

    def broken(key: tuple[str, str], planned: object) -> None:
        raise RuntimeError(f"cannot take in {key}")

    monkeypatch.setattr(program.cache.state.objects, "put_job_plan", broken)
    put(api, JOB, a_group())
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(program.run(), 10)
    assert caught.group_contains(RuntimeError, match="cannot take in")
    await client.close()


async def test_not_ready_and_nothing_is_decided_until_everything_is_read(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(places=(("worker", "n1", "0"),)))
    api.faults.add(Fault(status=503), lambda _m, path, _w: path == JOBS, times=None)
    async with extender(api, tmp_path) as caller:
        assert "trainingjobs have not been read yet" in await caller.becomes(503)
        assert (await caller.get("/healthz"))[0] == 200
        assert await caller.status("filter", a_pod()) == 503
        api.faults.clear()
        await caller.becomes(200)
        assert await caller.names(a_pod()) == ["n1"]


async def test_silent_api_server_makes_it_unready_but_plans_still_count(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(places=(("worker", "n1", "0"),)))
    async with extender(api, tmp_path, contact_limit_seconds=0.7) as caller:
        await caller.becomes(200)
        api.faults.add(Fault(drop=True), times=None)
        api.watch_cut()
        assert "has been silent for 0.7 s" in await caller.becomes(503)
        assert await caller.names(a_pod()) == ["n1"]
        assert await caller.status("filter", a_pod(group="planned-meanwhile")) == 503
        api.faults.clear()
        telling = asyncio.create_task(bookmarks(api))
        await caller.becomes(200)
        telling.cancel()


async def bookmarks(api: FakeApi) -> None:
    """Send bookmarks into idle watches as a healthy API server does, only more often."""
    while True:
        for resource in ("/api/v1/nodes", "/api/v1/pods", JOBS, GROUPS):
            api.watch_bookmark(resource)
        await asyncio.sleep(0.05)


async def test_metrics_tell_calls_refusals_and_age_of_the_cache(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(places=(("worker", "n1", "0"),)))
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        await caller.names(a_pod())
        await caller.names(a_pod(plan="0.9"))
        async with caller.session.post(f"{caller.url}/filter", data=b"{") as answer:
            assert answer.status == 400
        status, text = await caller.get("/metrics")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    calls = "bireme_extender_requests_total"
    assert status == 200
    assert samples[calls, (("outcome", "pinned"), ("verb", "filter"))] == 1
    assert samples[calls, (("outcome", "refused"), ("verb", "filter"))] == 1
    assert samples[calls, (("outcome", "400"), ("verb", "filter"))] == 1
    assert samples["bireme_extender_refusals_total", (("reason", "StalePlan"),)] == 1
    assert samples["bireme_extender_request_seconds_count", (("verb", "filter"),)] == 2
    assert samples["bireme_extender_cache_age_seconds", (("watch", "podgroups"),)] >= 0
    assert samples["bireme_extender_ready", ()] == 1


async def test_nodes_and_pods_are_followed_from_the_first_plan_in_score_mode_on(
    api: FakeApi, tmp_path: Path
) -> None:
    put(api, JOB, a_group(places=(("worker", "n1", "0"),)))
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        assert await caller.names(a_pod()) == ["n1"]
        assert 'watch="podgroups"' in (await caller.get("/metrics"))[1]
        assert 'watch="nodes"' not in (await caller.get("/metrics"))[1]
        put(api, JOB, a_group(mode="Score", attempt=1))
        await until_names(caller, a_pod(plan="1.1"), ALL)
        for watch in ("nodes", "members", "others"):
            assert f'watch="{watch}"' in (await caller.get("/metrics"))[1]


async def test_slow_body_is_answered_408_and_hung_up_on(api: FakeApi, tmp_path: Path) -> None:
    async with extender(api, tmp_path, body_timeout_seconds=0.2) as caller:
        await caller.becomes(200)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url[-5:]))
        writer.write(b'POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"Pod"')
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 408")


async def test_too_long_body_is_answered_413_unread(api: FakeApi, tmp_path: Path) -> None:
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url[-5:]))
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 413")


async def test_connection_stays_open_longer_than_the_scheduler_keeps_it(
    api: FakeApi, tmp_path: Path
) -> None:
    async with extender(api, tmp_path) as caller:
        await caller.becomes(200)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url[-5:]))
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(2):
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert b"connection: close" not in head.lower()
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
            await asyncio.sleep(6)  # uvicorn's own default would hang up after five seconds
        writer.close()
        await writer.wait_closed()
