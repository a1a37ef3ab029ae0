"""The simulated network and the API server at its end: requests, answers and watches take time.

A request that has left its client arrives whatever becomes of the client: so the writes of a dead
or deposed leader come late. Connections do not order requests, but a watch is in order.
:class:`MemoryClient` is the client of operator and extender with its session replaced.

A request takes at most ``MAX_WAY_SECONDS`` to arrive: the margin that the lease leaves between
a leader's last write and the next leader's first. An answer may take any time, or never come.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from bireme.kube.client import JSON, ApiClient, Params, connection_errors, error_of_answer
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.answers import Answers, Call, Feed, address, replay, status_object
from testbed.fakeapi.faults import WRITES, Fault
from testbed.fakeapi.store import Selector, Store
from testbed.simcluster.virtual import PROCESS, VirtualLoop

MAX_WAY_SECONDS: Final = 4.0
_ERRORS: Final = (
    Fault(status=500, reason="InternalError"),
    Fault(status=503, reason="ServiceUnavailable"),
    Fault(status=504, reason="Timeout"),
    Fault(status=429, reason="TooManyRequests", retry_after_seconds=1),
    Fault(drop=True),
)


@dataclass(slots=True)
class NetworkConditions:
    """Shares are chances per request, from 0 to 1. All 0 and ``is_down`` False means no fault."""

    chance: Random
    is_down: bool = False
    errors: float = 0.0
    conflicts: float = 0.0
    late_errors: float = 0.0
    """The write is done, and then its answer is an error or never comes."""
    slow: float = 0.0
    lag_seconds: dict[str, float] = field(default_factory=dict)
    """Delay of the watches of a process, beyond milliseconds."""

    def clear(self) -> None:
        self.is_down = False
        self.errors = self.conflicts = self.late_errors = self.slow = 0.0
        self.lag_seconds.clear()

    def way_seconds(self, *, back: bool = False) -> float:
        """Draw how long a request, or its answer, is under way."""
        if self.slow and self.chance.random() < self.slow:
            # The lease counts on a bound of requests; answers may outlast any client's patience.
            return self.chance.uniform(0.0, 25.0 if back else MAX_WAY_SECONDS)
        return self.chance.uniform(0.001, 0.02)

    def watch_lag_seconds(self, process: str) -> float:
        usual = self.chance.uniform(0.001, 0.05)
        return usual + self.chance.uniform(0.0, self.lag_seconds.get(process, 0.0))

    def fault(self, method: str) -> Fault | None:
        if self.errors and self.chance.random() < self.errors:
            return self.chance.choice(_ERRORS)
        if method not in WRITES:
            return None
        if self.late_errors and self.chance.random() < self.late_errors:
            return Fault(drop_answer=True, silent=self.chance.random() < 0.5)
        # Creations and deletions carry no version that another write could have outdated.
        changes = method in ("PUT", "PATCH")
        if changes and self.conflicts and self.chance.random() < self.conflicts:
            return Fault(status=409, reason="Conflict")
        return None


_BOOKMARK_SECONDS = 50.0
Answer = tuple[int, bytes, dict[str, str]]
"""HTTP status, body and headers."""


class Stream:
    """One open watch: lines arrive in order, each after the lag of its moment."""

    def __init__(self, resource: str, process: str, lag: Callable[[str], float]) -> None:
        self.resource = resource
        self.process = process
        self.is_deaf = False
        """All that is sent from now on is lost on the way."""
        self.last = b""
        self._lag = lag
        self._on_the_way: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._latest = 0.0
        self._is_cut = False
        self._waiting: asyncio.Future[None] | None = None

    def put(self, line: bytes | None) -> None:
        """Send a line; None ends the stream in good order."""
        if self.is_deaf:
            return
        loop = asyncio.get_running_loop()
        self.last = line or self.last
        # A watch does not overtake itself: a short lag after a long one still arrives after it.
        self._latest = max(self._latest, loop.time() + self._lag(self.process))
        self._on_the_way.append(line)
        loop.call_at(self._latest, self._arrive, context=WORLD)

    def cut(self) -> None:
        """Break the connection; what has not arrived is lost."""
        self._is_cut = self.is_deaf = True
        self._on_the_way.clear()
        self._wake()

    async def next(self) -> bytes | None:
        """Return the next line, None at the end; ConnectionResetError when the watch was cut."""
        while not self._arrived:
            if self._is_cut:
                raise ConnectionResetError("the watch was cut")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._arrived.popleft()

    def _arrive(self) -> None:
        if self._on_the_way:
            self._arrived.append(self._on_the_way.popleft())
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ApiServer:
    """Objects in ``store`` behind ``conditions``, and open watches."""

    def __init__(self, store: Store, conditions: NetworkConditions, loop: VirtualLoop) -> None:
        self.store = store
        self.conditions = conditions
        self.loop = loop
        self.streams: list[Stream] = []
        self._answers = Answers(store)
        self.documents = self._answers.documents

    def take(self, call: Call, answer: asyncio.Future[Answer]) -> None:
        """Take a request that has left its client; ``answer`` is set some time, or never."""
        later = asyncio.get_running_loop().call_later
        # In the context of no process: a request arrives though its sender is dead or paused.
        later(self.conditions.way_seconds(), self._arrive, call, answer, context=WORLD)

    def _arrive(self, call: Call, answer: asyncio.Future[Answer]) -> None:
        fault = self.conditions.fault(call.method)
        if self.conditions.is_down or (fault is not None and fault.drop):
            self._send(answer, None)
            return
        given = self._refused(fault) if fault is not None and fault.status else self._done(call)
        if fault is None or not fault.drop_answer:
            self._send(answer, given)
        elif not fault.silent:
            self._send(answer, None)

    def _done(self, call: Call) -> Answer:
        try:
            status, body = self._answers.answer(call)
        except ApiRefusal as refusal:
            status = refusal.status
            body = status_object(status, refusal.reason, str(refusal))
        return status, msgspec.json.encode(body), {}

    def _refused(self, fault: Fault) -> Answer:
        body = status_object(fault.status or 500, fault.reason, "injected fault")
        wait = fault.retry_after_seconds
        headers = {} if wait is None else {"Retry-After": str(wait)}
        return fault.status or 500, msgspec.json.encode(body), headers

    def _send(self, answer: asyncio.Future[Answer], given: Answer | None) -> None:
        """Send an answer, or with None the end of the connection."""

        def arrive() -> None:
            if answer.done():
                return
            if given is None:
                answer.set_exception(ConnectionResetError("the connection was broken"))
            else:
                answer.set_result(given)

        way = self.conditions.way_seconds(back=True)
        asyncio.get_running_loop().call_later(way, arrive, context=WORLD)

    # --- watches ---------------------------------------------------------------------------

    @contextmanager
    def watch(self, path: str, query: dict[str, str]) -> Iterator[Stream]:
        """Open a watch; ConnectionRefusedError when the server is down."""
        if self.conditions.is_down:
            raise ConnectionRefusedError("the API server is down")
        at = address(path)
        collection = self.store.collection(at.resource)
        stream = Stream(at.resource, PROCESS.get(), self.conditions.watch_lag_seconds)
        selected = Selector.from_query(query, at.resource, at.namespace)
        feed = Feed(selected, stream.put, bookmarks=True)
        replay(collection, int(query["resourceVersion"]), feed)
        collection.subscribers.append(feed.change)
        self.streams.append(stream)
        loop = asyncio.get_running_loop()
        end = loop.call_later(float(query["timeoutSeconds"]), feed.end, context=WORLD)
        bookmarks = loop.create_task(self._bookmarks(feed), context=WORLD.copy())
        try:
            yield stream
        finally:
            end.cancel()
            bookmarks.cancel()
            self.streams.remove(stream)
            collection.subscribers.remove(feed.change)

    async def _bookmarks(self, feed: Feed) -> None:
        while True:
            await asyncio.sleep(_BOOKMARK_SECONDS)
            feed.bookmark(self.store.version)

    def cut(self, resource: str | None = None) -> None:
        """Break the watches of a resource, or all."""
        for stream in [s for s in self.streams if resource in (None, s.resource)]:
            stream.cut()

    def forget(self) -> None:
        self.store.compact()
        self._answers.forget_pages()


WORLD: Context = copy_context()
"""Context of everything that belongs to no process."""


@dataclass(eq=False)
class Part:
    """One program or controller of a cluster; no other draws from its ``chance``."""

    server: ApiServer
    chance: Random
    tell: Callable[[str], None]
    """Adds a line to the story of the run."""

    @property
    def loop(self) -> VirtualLoop:
        return self.server.loop


@dataclass(slots=True)
class Plug:
    """Connection of a process to the network; pulled out, nothing of it leaves any more.

    ``trap`` is asked about every write, just before the fence and just after it has left, whether
    the process stops there.
    """

    is_in: bool = True
    trap: Callable[[str], bool] | None = None

    async def pass_trap(self, path: str) -> None:
        if self.trap is not None and self.trap(path):
            await asyncio.sleep(0)

    def check(self) -> None:
        """Raise ConnectionRefusedError when the process is dead."""
        if not self.is_in:
            raise ConnectionRefusedError("the process is dead")


class MemoryClient(ApiClient):
    """An :class:`ApiClient` whose session is the simulated network."""

    def __init__(
        self, server: ApiServer, plug: Plug, fence: Callable[[], None] = lambda: None
    ) -> None:
        self.fence = fence
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
        accept: str = JSON,  # whole objects for everybody
        timeout_seconds: float | None = 30,
        max_bytes: int = 0,  # objects are small here
        headers: Mapping[str, str] | None = None,  # nobody reads them
    ) -> bytes:
        query = {name: str(value) for name, value in (params or {}).items()}
        with connection_errors():
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
                status, content, told = await answer
        if status >= 300:
            raise error_of_answer(status, content, told)
        return content

    async def stream(
        self,
        path: str,
        params: Params | None = None,
        *,
        read_timeout_seconds: float | None = 70,
        on_open: Callable[[], None] = lambda: None,
        with_last_part: bool = False,  # its lines are whole
    ) -> AsyncGenerator[bytes]:
        query = {name: str(value) for name, value in (params or {}).items()}
        with connection_errors():
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
        await asyncio.sleep(self._server.conditions.way_seconds() / 4)
        self._plug.check()
