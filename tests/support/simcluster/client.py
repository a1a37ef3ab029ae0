"""The operator's and the extender's own client, on the simulated network.

Everything above the wire is the real one: the fence is asked when the connection is there and
before a write leaves, answers become errors by the same rules, and nothing is retried.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from bireme.kube.client import JSON, ApiClient, Params, connection_trouble, from_answer
from tests.support.fakeapi.answers import Call, address
from tests.support.fakeapi.faults import WRITES
from tests.support.simcluster.network import Answer, ApiServer


@dataclass(slots=True)
class Plug:
    """What connects a process to the network; pulled out, nothing of it leaves any more.

    ``trap`` is asked about every write, just before the fence and just after it has left, whether
    the process stops there.
    """

    is_in: bool = True
    trap: Callable[[str], bool] | None = None

    async def pass_trap(self, path: str) -> None:
        """Go on, now or once the process does."""
        if self.trap is not None and self.trap(path):
            await asyncio.sleep(0)

    def check(self) -> None:
        """Let something leave the process.

        Raises:
            ConnectionRefusedError: the process is dead.
        """
        if not self.is_in:
            raise ConnectionRefusedError("the process is dead")


class MemoryClient(ApiClient):
    """An :class:`ApiClient` whose session is the simulated network."""

    def __init__(self, server: ApiServer, plug: Plug) -> None:
        self.fence = lambda: None
        self.write_counts = Counter()
        self._server = server
        self._plug = plug

    async def close(self) -> None:
        """Nothing is held."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_seconds: float = 30,
    ) -> bytes:
        """See :meth:`ApiClient.request`."""
        query = {name: str(value) for name, value in (params or {}).items()}
        with connection_trouble():
            async with asyncio.timeout(timeout_seconds):
                await self._connect()
                if method in WRITES:
                    await self._plug.pass_trap(path)
                    self._plug.check()
                    self._before_write(method, path)
                answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                call = Call(method, address(path), query, content_type, body or b"")
                self._server.take(call, answer)
                if method in WRITES:
                    await self._plug.pass_trap(path)
                status, content, headers = await answer
        if status >= 300:
            raise from_answer(status, content, headers)
        return content

    async def stream(
        self,
        path: str,
        params: Params | None = None,
        *,
        read_timeout_seconds: float = 70,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes]:
        """See :meth:`ApiClient.stream`."""
        query = {name: str(value) for name, value in (params or {}).items()}
        with connection_trouble():
            await self._connect()
            with self._server.watch(path, query) as stream:
                on_open()
                while True:
                    async with asyncio.timeout(read_timeout_seconds):
                        line = await stream.next()
                    if line is None:
                        return
                    yield line

    async def _connect(self) -> None:
        await asyncio.sleep(self._server.weather.way_seconds() / 4)
        self._plug.check()
