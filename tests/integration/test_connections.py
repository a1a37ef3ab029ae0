"""Limits of open connections, of one address and of all."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from bireme import connections
from bireme.connections import ConnectionLimiter
from bireme_operator import http_server
from testbed.controlplane.process import free_ports
from testbed.operator_term.term import until


class Visitors:
    """Connections to a door, each from an address of its own choice."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._reading: list[asyncio.Task[bytes]] = []

    async def come(self, *addresses: str) -> None:
        for address in addresses:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self._port, local_addr=(address, 0)
            )
            self._writers.append(writer)
            self._reading.append(asyncio.create_task(reader.read()))

    async def gone(self, *numbers: int) -> bool:
        """Whether these, and no others, have been hung up on."""
        await until(lambda: all(self._reading[number].done() for number in numbers))
        return sum(each.done() for each in self._reading) == len(numbers)

    def leave(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def visitors(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visitors]:
    """At a door for five, two of one address, where nobody is ever answered."""
    monkeypatch.setattr(connections, "MAX_OPEN", 5)
    monkeypatch.setattr(connections, "MAX_OF_ONE", 2)
    door = ConnectionLimiter(asyncio.Protocol)
    made = Visitors(door.open("127.0.0.1", 0))
    yield made
    made.leave()
    await door.close()


async def test_one_too_many_of_an_address_ends_its_oldest_and_nobody_elses(
    visitors: Visitors,
) -> None:
    await visitors.come("127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3")
    assert await visitors.gone(1)


async def test_one_too_many_of_all_ends_the_oldest(visitors: Visitors) -> None:
    await visitors.come("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4")
    assert await visitors.gone()
    await visitors.come("127.0.0.5")
    assert await visitors.gone(0)


async def test_who_has_left_takes_no_room(visitors: Visitors) -> None:
    await visitors.come("127.0.0.2", "127.0.0.2")
    visitors.leave()
    assert await visitors.gone(0, 1)
    await visitors.come("127.0.0.2", "127.0.0.2")
    assert await visitors.gone(0, 1)


async def test_a_port_that_is_taken_is_named() -> None:
    first, second = ConnectionLimiter(asyncio.Protocol), ConnectionLimiter(asyncio.Protocol)
    port = first.open("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        second.open("127.0.0.1", port)
    await second.close()
    await first.close()


@pytest.mark.parametrize("answers_users", [True, False])
async def test_users_behind_one_proxy_share_more_connections_than_a_neighbour_has(
    monkeypatch: pytest.MonkeyPatch, answers_users: bool
) -> None:
    """All who ask the operator through the API server come from its address."""

    class Part:
        def add_to(self, app: web.Application) -> None:
            pass

    monkeypatch.setattr(connections, "MAX_OF_ONE", 2)
    monkeypatch.setattr(http_server, "MAX_OF_PROXY", 4)
    (port,) = free_ports(1)
    endpoint = http_server.HealthEndpoint(CollectorRegistry(), lambda: "", lambda: "")
    await endpoint.start("127.0.0.1", port, *([Part()] if answers_users else []))
    made = Visitors(port)
    try:
        await made.come(*["127.0.0.2"] * 4)
        assert await made.gone(*(() if answers_users else (0, 1)))
    finally:
        made.leave()
        await endpoint.stop()


async def test_a_known_user_is_answered_although_a_neighbour_opens_ever_more_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_asked, is_ready = asyncio.Event(), asyncio.Event()

    class Part:
        def add_to(self, app: web.Application) -> None:
            app.router.add_get("/known", self.answer)

        async def answer(self, request: web.Request) -> web.Response:
            http_server.keep_connection(request)
            is_asked.set()
            await is_ready.wait()
            return web.Response(text="answered")

    monkeypatch.setattr(http_server, "MAX_OF_PROXY", 2)
    (port,) = free_ports(1)
    endpoint = http_server.HealthEndpoint(CollectorRegistry(), lambda: "", lambda: "")
    await endpoint.start("127.0.0.1", port, Part())
    made = Visitors(port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    try:
        for _ in range(2):  # by one connection, which is as any other in between
            writer.write(b"GET /known HTTP/1.1\r\nHost: bireme\r\n\r\n")
            await until(is_asked.is_set)
            await made.come(*["127.0.0.2"] * 3)
            is_ready.set()
            async with asyncio.timeout(10):
                answer = await reader.readuntil(b"answered")
            assert answer.startswith(b"HTTP/1.1 200")
            is_asked.clear()
            is_ready.clear()
        await made.come(*["127.0.0.2"] * 2)
        async with asyncio.timeout(10):
            assert await reader.read() == b"", "an idle connection is as any other"
    finally:
        writer.close()
        made.leave()
        await endpoint.stop()
