"""Connections of the verbs' port: what is answered at once, and what uvicorn gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from bireme_extender.app import BodyReader, ExtenderApp
from bireme_extender.cache import PlanWaits
from bireme_extender.connection import Front, VerbsProtocol
from bireme_extender.verbs import Verbs
from testbed.extender_calls import (
    FixedFreshness,
    a_body,
    a_group,
    a_node,
    a_pod,
    a_state,
    make_metrics,
)

ALL = [f"n{number}" for number in range(4)]
BODY = a_body(a_pod(), ALL)


def request(body: bytes = BODY, verb: str = "filter", more: str = "") -> bytes:
    """Return a request as Go's client sends it; ``more`` are further headers."""
    head = (
        f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1:8888\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\n{more}Content-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Port:
    """A port that serves the verbs; ``by_uvicorn`` counts the requests that uvicorn answered."""

    number: int = 0
    by_uvicorn: int = 0
    server_state: ServerState = field(default_factory=ServerState)
    clients: list["Client"] = field(default_factory=list)

    async def connect(self) -> "Client":
        client = Client(*await asyncio.open_connection("127.0.0.1", self.number))
        self.clients.append(client)
        return client


@dataclass
class Client:
    """A client that reads answers one after another."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, Any]:
        """Return status and decoded body of the next answer."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


@asynccontextmanager
async def serving(limit_bytes: int = 8 * 2**20) -> AsyncIterator[Port]:
    metrics = make_metrics()
    state = a_state([a_node(name) for name in ALL], [a_group(places=(("worker", "n2", "0"),))])
    verbs = Verbs(state, PlanWaits(0), metrics, FixedFreshness())
    app, port = ExtenderApp(verbs, metrics, BodyReader(limit_bytes, 2.0)), Port()

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        port.by_uvicorn += 1
        await app(scope, receive, send)

    config = uvicorn.Config(counting, ws="none", lifespan="off", log_config=None)
    front = Front(verbs, limit_bytes)
    server = await asyncio.get_running_loop().create_server(
        lambda: VerbsProtocol(front, config, port.server_state, {}), "127.0.0.1", 0
    )
    port.number = server.sockets[0].getsockname()[1]
    try:
        yield port
    finally:
        server.close()
        for client in port.clients:
            client.writer.close()
            await client.writer.wait_closed()


async def passes(client: Client) -> bool:
    status, reply = await client.answer()
    return status == 200 and reply["NodeNames"] == ["n2"]


async def test_request_of_the_scheduler_is_answered_without_uvicorn() -> None:
    async with serving() as port:
        client = await port.connect()
        for _ in range(3):
            client.send(request())
            assert await passes(client)
            client.send(request(verb="prioritize"))
            assert await client.answer() == (200, [{"Host": "n2", "Score": 10}])
        assert port.by_uvicorn == 0


@pytest.mark.parametrize("cut", [len(request()) - len(BODY), len(request()) - 10])
async def test_body_in_pieces_is_put_together(cut: int) -> None:
    async with serving() as port:
        client = await port.connect()
        for _ in range(2):
            client.send(request()[:cut])
            await asyncio.sleep(0.01)
            client.send(request()[cut:-5])
            await asyncio.sleep(0.01)
            client.send(request()[-5:])
            assert await passes(client)
        assert port.by_uvicorn == 0


@pytest.mark.parametrize("cut", [10, 100])
async def test_head_in_pieces_is_left_to_uvicorn(cut: int) -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request()[:cut])
        await asyncio.sleep(0.01)
        client.send(request()[cut:])
        assert await passes(client)
        assert port.by_uvicorn == 1
        client.send(request())  # and then it is as before
        assert await passes(client)
        assert port.by_uvicorn == 1


async def test_piece_that_looks_like_a_request_stays_a_part_of_its_own() -> None:
    inner = request()
    async with serving() as port:
        client = await port.connect()
        client.send(f"POST /filter HTTP/1.1\r\ncontent-length: {len(inner)}\r\n\r\n".encode())
        await asyncio.sleep(0.01)
        client.send(inner)
        status, _ = await client.answer()
        assert (status, port.by_uvicorn) == (400, 1)


async def test_slow_body_is_left_to_uvicorn() -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request()[:-5])
        await asyncio.sleep(0.2)
        client.send(request()[-5:])
        assert await passes(client)
        assert port.by_uvicorn == 1


async def test_only_one_connection_holds_an_unfinished_body() -> None:
    async with serving() as port:
        clients = [await port.connect() for _ in range(3)]
        for client in clients:
            client.send(request()[:-5])
            await asyncio.sleep(0.005)
        for client in clients:
            client.send(request()[-5:])
            assert await passes(client)
        assert port.by_uvicorn == 2


async def test_client_that_goes_in_the_middle_holds_nothing() -> None:
    async with serving() as port:
        gone, client = await port.connect(), await port.connect()
        gone.send(request()[:-5])
        await asyncio.sleep(0.01)
        gone.writer.close()
        await asyncio.sleep(0.01)
        client.send(request()[:-5])
        await asyncio.sleep(0.01)
        client.send(request()[-5:])
        assert await passes(client)
        assert port.by_uvicorn == 0


async def test_requests_sent_together_are_answered_in_order() -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request() + request(verb="prioritize") + request()[:50])
        client.send(request()[50:])
        assert await passes(client)
        assert (await client.answer())[1] == [{"Host": "n2", "Score": 10}]
        assert await passes(client)


@pytest.mark.parametrize(
    "more", ["Expect: 100-continue\r\n", "Connection: close\r\n", "X-Other: 1\r\n"]
)
async def test_other_headers_are_uvicorns(more: str) -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request(more=more))
        if more.startswith("Expect"):
            await client.reader.readuntil(b"100 Continue\r\n\r\n")
        assert await passes(client)
        assert port.by_uvicorn == 1


async def test_errors_and_other_paths_are_the_applications() -> None:
    async with serving(limit_bytes=2 * len(BODY)) as port:
        client = await port.connect()
        client.send(request(b"{"))
        assert (await client.answer())[0] == 400
        client.send(request(verb="preempt"))
        assert (await client.answer())[0] == 404
        client.send(request(BODY.ljust(2 * len(BODY) + 1)))
        assert (await client.answer())[0] == 413
        assert port.by_uvicorn == 3


async def test_shutdown_answers_the_request_that_is_being_received() -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request()[:-5])
        await asyncio.sleep(0.01)
        for connection in list(port.server_state.connections):
            connection.shutdown()
        client.send(request()[-5:])
        assert await passes(client)
        assert await client.reader.read() == b""
        assert not port.server_state.connections


async def test_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    async with serving() as port:
        client = await port.connect()
        client.send(request())
        assert await passes(client)
        (connection,) = port.server_state.connections
        connection.timeout_keep_alive = 0.1  # type: ignore[union-attr]  # as of every kind
        client.send(request())
        assert await passes(client)
        assert await client.reader.read() == b""
