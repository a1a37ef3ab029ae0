"""The bench's own servers and its client: bytes that come back are the bytes that were given."""

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks.timings import round_trips
from benchmarks.timings.bare_servers import BareServer
from benchmarks.timings.populated_api import PopulatedApi
from bireme.core.gpus import GPU
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme_extender.cache import ClusterCache
from testbed.controlplane.process import Process, free_ports
from testbed.fakeapi import FakeApi
from testbed.operator_term.term import until


@pytest.mark.parametrize("length", [0, 2, 300_000])
async def test_the_bare_server_answers_the_same_bytes_every_time(length: int) -> None:
    reply = b"x" * length
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareServer(reply), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for body in (b"", b"{}", b"y" * 200_000):
            sent = round_trips.request("/filter", body)
            assert await asyncio.to_thread(round_trips.reply_of, port, sent) == reply
        times = await asyncio.to_thread(round_trips.timed, [port, port], [sent], 3)
        assert [len(taken) for taken in times] == [20, 20]
        assert all(seconds > 0 for taken in times for seconds in taken)


async def test_an_answer_that_is_no_200_is_an_error() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(round_trips.RoundTripError, match="404"):
            await asyncio.to_thread(
                round_trips.reply_of, port, round_trips.request("/filter", b"{}")
            )


async def test_the_populated_cluster_is_what_the_programs_would_have_written(
    api: FakeApi, client: ApiClient
) -> None:
    cluster = PopulatedApi(api, 8)
    cluster.add_gang("gang", cluster.nodes[:4], 2)
    cluster.add_others(5)
    (pod,) = cluster.plan_gang("late", cluster.nodes[4:5], 1, "Pinned")
    cache = ClusterCache(client, ClusterState(SchedulingSettings()))
    running = asyncio.create_task(cache.run())
    try:
        assert await cache.has_nodes(10)
        await asyncio.wait_for(cache.wait_synced(), 10)
        view = cache.state.views.get(("bench", "gang"))
        assert view is not None
        assert view.is_ready
        late = cache.state.views.get(("bench", "late"))
        assert late is not None
        assert [member.node for member in late.unbound] == [cluster.nodes[4]]
        gpu = cache.state.nodes.table.axis.names.index(GPU)
        used = cache.state.snapshot(0.0).used[:, gpu]
        assert used.tolist() == [2, 2, 2, 2, 1, 0, 0, 0]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert pod["spec"]["schedulerName"] == names.SCHEDULER_NAME


async def test_the_operator_starts_against_a_fake_server_that_says_what_it_serves(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    async with FakeApi() as api:
        cluster = PopulatedApi(api, 4)
        cluster.add_gang("gang", cluster.nodes[:2], 2)
        operator = Process(
            "operator",
            [sys.executable, "-m", "bireme_operator"],
            log_path=tmp_path / "operator.log",
            ready_url=f"http://127.0.0.1:{port}/readyz",
            env={
                "KUBECONFIG": str(api.kubeconfig(tmp_path)),
                "BIREME_METRICS_ADDRESS": f"127.0.0.1:{port}",
            },
        )
        try:
            await asyncio.to_thread(operator.start)
            await asyncio.to_thread(operator.wait_ready, 30)
            await until(lambda: api.open_watches(names.path("queues")) == 1)
        finally:
            await asyncio.to_thread(operator.terminate)
        stored = api.store.get("/apis/bireme.dev/v1alpha1/trainingjobs", ("bench", "gang"))
        assert stored["status"]["phase"] == "Running"
        assert not any("customresourcedefinitions" in path for _, path in api.requests)
