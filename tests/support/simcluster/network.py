"""The API server and the wires to it, in memory: requests, answers and watches take time.

A request that has left its client arrives whatever becomes of the client: that is how the writes
of a dead or deposed leader come late. Connections do not order requests, but a watch is in order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context

import msgspec

from tests.support.fakeapi.answers import Answers, Call, address, replay, status_object
from tests.support.fakeapi.faults import Fault
from tests.support.fakeapi.selection import Selector
from tests.support.fakeapi.store import Refusal, Store
from tests.support.fakeapi.watching import Feed
from tests.support.simcluster.virtual import PROCESS
from tests.support.simcluster.weather import Weather

_BOOKMARK_SECONDS = 50.0
Answer = tuple[int, bytes, dict[str, str]]
"""HTTP status, body and headers."""


class Stream:
    """One open watch: lines arrive in order, each after the lag of its moment."""

    def __init__(self, resource: str, process: str, lag: Callable[[str], float]) -> None:
        self.resource = resource
        self.process = process
        self.is_deaf = False
        """Whether what is said from now on is lost on the way."""
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
        self._latest = max(self._latest, loop.time() + self._lag(self.process))
        self._on_the_way.append(line)
        loop.call_at(self._latest, self._arrive, context=WORLD)

    def cut(self) -> None:
        """Break the connection; what has not arrived is lost."""
        self._is_cut = self.is_deaf = True
        self._on_the_way.clear()
        self._wake()

    async def next(self) -> bytes | None:
        """The next line, None at the end.

        Raises:
            ConnectionResetError: the connection was broken.
        """
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
    """Objects in ``store``, what the ``weather`` lets through, and open watches."""

    def __init__(self, store: Store, weather: Weather) -> None:
        self.store = store
        self.weather = weather
        self.streams: list[Stream] = []
        self._answers = Answers(store)
        self.documents = self._answers.documents

    def take(self, call: Call, answer: asyncio.Future[Answer]) -> None:
        """A request has left its client; ``answer`` is set some time, or never."""
        later = asyncio.get_running_loop().call_later
        later(self.weather.way_seconds(), self._arrive, call, answer, context=WORLD)

    def _arrive(self, call: Call, answer: asyncio.Future[Answer]) -> None:
        fault = self.weather.fault(call.method)
        if self.weather.is_down or (fault is not None and fault.drop):
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
        except Refusal as refusal:
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

        way = self.weather.way_seconds(back=True)
        asyncio.get_running_loop().call_later(way, arrive, context=WORLD)

    # --- watches ---------------------------------------------------------------------------

    @contextmanager
    def watch(self, path: str, query: dict[str, str]) -> Iterator[Stream]:
        """An open watch.

        Raises:
            ConnectionRefusedError: the server is down.
        """
        if self.weather.is_down:
            raise ConnectionRefusedError("the API server is down")
        at = address(path)
        collection = self.store.collection(at.resource)
        stream = Stream(at.resource, PROCESS.get(), self.weather.watch_lag_seconds)
        feed = Feed(Selector.from_query(query, at.namespace), stream.put, bookmarks=True)
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
        """Forget history: older watches and pages get 410."""
        self.store.compact()
        self._answers.forget_pages()


WORLD: Context = copy_context()
"""Where everything runs that belongs to no process."""
