"""One run of kopf, which lists and watches Bireme's own kinds and reports their events.

kopf gets a thread and an event loop of its own. When it ends, it cancels every task of its loop
that was created after its start, and it takes over the loop's signals. kopf ends at an in-stream
error other than 410. In its own thread it can start again beside the lease and the scheduling loop.

This module also gives kopf its HTTP session (:meth:`_Session.login`), for three reasons.

1. The credentials are those of the operator's own clients, including rotated tokens.
2. kopf gets only the metadata of objects; their bytes wait for its handlers in a
   :class:`_Backlog`. kopf's own decoding gives up at about a thousand levels of nesting, and API
   servers store ten thousand: one such object would end every run of kopf.
3. kopf handles one event after another, however far it is behind. While an object's handler is
   due, kopf gets no second event of the object: the handler reads the newest bytes.
"""

import asyncio
import itertools
import logging
import math
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import aiohttp
import kopf
import msgspec
import structlog
import uvloop
from yarl import URL

from bireme.kube import client, envelopes, names, pages
from bireme.kube.client import JSON, ApiError, pause_with_jitter, whole_lines
from bireme.kube.credentials import Credentials, CredentialsError, CredentialSource
from bireme.kube.pages import PageSize

_log = structlog.get_logger(__name__)
_PAGE_SIZE: Final = 500
# Range of the requested lifetime of a watch, so that reconnects spread.
_WATCH_SECONDS: Final = (240, 300)
# The first pause before a failed request is repeated, and the longest.
_BACKOFF_SECONDS: Final = (0.2, 10.0)
# A watch that ends sooner, without any event, counts as failing.
_SHORT_SECONDS: Final = 1.0
# kopf gets an event again if it has not called the handler by then: it may have dropped the event.
_HANDLED_SECONDS: Final = 10.0
# Longest wait for kopf's tasks at the end of a run.
_CANCEL_SECONDS: Final = 5.0
# Longest wait for that end, in the owner's loop.
_JOIN_SECONDS: Final = 10.0


class Changed(NamedTuple):
    """An event of an object; ``type`` is the type of the watch event, None in a list."""

    plural: str
    type: str | None
    json: bytes


class WatchRequest(NamedTuple):
    """kopf lists or watches a kind, so it has discovered it."""

    plural: str


class Listed(NamedTuple):
    """kopf has listed a whole kind; calls of its handlers follow."""

    plural: str


class Watching(NamedTuple):
    """A watch of a kind was opened, or has ended."""

    plural: str
    is_open: bool


class Failed(NamedTuple):
    """An exception in a handler, which kopf would log and forget."""

    error: Exception


Notice = Changed | WatchRequest | Listed | Watching | Failed
Notify = Callable[[Notice], None]


@dataclass(slots=True)
class KopfWatch:
    """One run of kopf; ``notify`` is called in its thread.

    :meth:`run` is called once, in the loop that owns ``source``.
    """

    source: CredentialSource
    notify: Notify
    idle_seconds: float
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _is_stopping: bool = False
    _loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Watch until kopf ends, and raise its error; when cancelled, end kopf first."""
        owner = asyncio.get_running_loop()
        outcome: asyncio.Future[BaseException | None] = owner.create_future()
        thread = threading.Thread(
            target=self._live, args=(owner, outcome), name="kopf", daemon=True
        )
        thread.start()
        try:
            # Shielded: a cancelled run, too, waits below for the end of its thread.
            error = await asyncio.shield(outcome)
        finally:
            self._end()
            await asyncio.wait([outcome], timeout=_JOIN_SECONDS)
            if outcome.done():
                thread.join(1)  # it only has to return
        if error is not None:
            raise error

    def _end(self) -> None:
        """End kopf, even before its start."""
        self._is_stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    # --- in kopf's thread -----------------------------------------------------------------

    def _live(
        self, owner: asyncio.AbstractEventLoop, outcome: "asyncio.Future[BaseException | None]"
    ) -> None:
        error: BaseException | None = None
        try:
            _quieten_kopf()
            # A separate loop: kopf cancels every younger task of its loop, and takes over signals.
            loop = uvloop.new_event_loop()  # closed as it is: asyncio.run would wait for tasks
            loop.set_exception_handler(_ignore_leftovers)
            try:
                loop.run_until_complete(self._operate(owner))
            finally:
                loop.close()
        except BaseException as raised:  # noqa: BLE001  # run raises it
            error = raised
        with suppress(RuntimeError):  # the owner's loop is closed, so no task waits
            owner.call_soon_threadsafe(_settle, outcome, error)

    async def _operate(self, owner: asyncio.AbstractEventLoop) -> None:
        self._loop = asyncio.get_running_loop()
        if self._is_stopping:
            return
        backlog = _Backlog()
        session = _Session(self.source, owner, self.notify, backlog)
        # Standalone: the Lease elects the leader, and kopf's peering would write objects for it.
        tasks = await kopf.spawn_tasks(
            registry=self._registry(session, backlog),
            settings=_settings(self.idle_seconds),
            clusterwide=True,
            standalone=True,
            # Without it kopf asks for the user's name, which a container's user may lack.
            identity="bireme",  # type: ignore[arg-type]  # a str whose name is private
        )
        stop = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel_others()
        await session.close()
        for task in done:
            task.result()

    def _registry(self, session: "_Session", backlog: "_Backlog") -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, backoff=1.0)(session.login)
        # Leaders read the claim by themselves, and tickets are read on presentation.
        passed_over = {"ClusterClaim", "Ticket"}
        for plural in (p for kind, p in names.PLURALS.items() if kind not in passed_over):
            watches = kopf.on.event(
                names.GROUP, names.VERSION, plural, registry=registry, id=plural
            )
            watches(self._handler(plural, backlog))
        return registry

    def _handler(self, plural: str, backlog: "_Backlog") -> Any:
        async def take_event(uid: str | None, **_: Any) -> None:
            try:
                if (newest := backlog.take(uid or "")) is not None:
                    self.notify(Changed(plural, *newest))
            except Exception as error:  # noqa: BLE001  # kopf swallows what its handlers raise
                self.notify(Failed(error))

        return take_event


async def _cancel_others() -> None:
    """Cancel every other task of this loop, which only kopf uses, and wait for their end."""
    # kopf's own run_tasks closes its sessions before its watches: after a failed watch, the others
    # wait for a login that never comes, and kopf neither works nor ends.
    clock = asyncio.get_running_loop().time
    deadline = clock() + _CANCEL_SECONDS
    # One cancellation is not enough: a watch that is about to list again swallows it.
    while (other_tasks := asyncio.all_tasks() - {asyncio.current_task()}) and clock() < deadline:
        for task in other_tasks:
            task.cancel()
        await asyncio.wait(other_tasks, timeout=0.2)


def _quieten_kopf() -> None:
    """Log failed watches without their tracebacks: a missing CRD is no bug."""
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # no signals
    for module in ("orchestration", "queueing", "running"):
        logging.getLogger(f"kopf._core.reactor.{module}").addFilter(_drop_traceback)


def _drop_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


def _ignore_leftovers(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # kopf has logged the errors of failed tasks itself.
    _log.debug("in kopf's loop", message=context.get("message"))


def _settle(outcome: "asyncio.Future[BaseException | None]", error: BaseException | None) -> None:
    if not outcome.done():
        outcome.set_result(error)


def _settings(idle_seconds: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None  # it is a SIGKILL to the whole process
    settings.peering.standalone = True  # the Lease elects the leader
    settings.posting.enabled = False
    settings.scanning.disabled = True  # no watch of CRDs or namespaces, so no right to them
    settings.queueing.idle_timeout = idle_seconds  # of two tasks and a queue for each object
    settings.watching.chunk_size = _PAGE_SIZE
    settings.watching.server_timeout = random.randint(*_WATCH_SECONDS)  # noqa: S311  # spreads
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 0.2
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = _Backoffs()
    # kopf's own storages would write annotations to objects, so it gets empty ones.
    settings.persistence.diffbase_storage = _NothingCompared(())
    settings.persistence.progress_storage = kopf.MultiProgressStorage(())
    return settings


class _Backoffs:
    """kopf's pauses between attempts at one request: jittered, growing, endless."""

    # Endless: otherwise a forbidden kind would end kopf, and with it the watches of all others.
    def __iter__(self) -> Iterator[float]:
        return (pause_with_jitter(failures, *_BACKOFF_SECONDS) for failures in itertools.count())


class _NothingCompared(kopf.MultiDiffBaseStorage):
    """No storage of the last state on objects: events are not compared."""

    # kopf would deep-copy every object here for change handlers, and there are none.
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})


# --- kopf's HTTP session ------------------------------------------------------------------


class _Backlog:
    """The newest bytes of every object whose handler is due."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str | None, bytes, float]] = {}

    def offer(self, uid: str, type_: str | None, json: bytes) -> bool:
        """Keep an event of an object; return whether kopf must get it too."""
        now = time.monotonic()
        _, _, since = self._newest.get(uid, (None, b"", -math.inf))
        # kopf drops its queue of an object at a deletion, so pass it every deletion. It may have
        # dropped an event whose handler is long overdue.
        is_late = now - since > _HANDLED_SECONDS
        self._newest[uid] = type_, json, now if is_late else since
        return is_late or type_ == "DELETED"

    def take(self, uid: str) -> tuple[str | None, bytes] | None:
        """Return type and bytes of the newest event; None if an earlier call has taken them."""
        newest = self._newest.pop(uid, None)
        return None if newest is None else newest[:2]


@dataclass(slots=True)
class _Session:
    """Creates the sessions of one run: kopf logs in at its start and after every 401."""

    source: CredentialSource
    owner: asyncio.AbstractEventLoop
    notify: Notify
    backlog: _Backlog
    _sessions: list[aiohttp.ClientSession] = field(default_factory=list)
    _sizes: dict[str, PageSize] = field(default_factory=dict)
    _used: Credentials | None = None

    async def login(self, **_: Any) -> kopf.AiohttpSession:
        """Log in with the operator's credentials, newer than the refused ones if any."""
        credentials = self._used = await self._newer_than(self._used)
        session = aiohttp.ClientSession(
            # Every watch holds a connection for minutes: with a limit the lists could wait for one.
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "bireme"},
            middlewares=(self._send,),
            proxy=credentials.proxy,
            response_class=_response_type(self.notify, self.backlog),
        )
        self._sessions.append(session)
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    async def close(self) -> None:
        """Close the sessions that kopf has left open."""
        for session in self._sessions:
            await session.close()

    async def _newer_than(self, refused: Credentials | None) -> Credentials:
        # The source belongs to the loop of the operator's own clients.
        loading = self.source.after(refused) if refused else self.source.current()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(loading, self.owner))

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request with the current token."""
        used = self._used
        assert used is not None  # noqa: S101  # login made the session
        plural = _plural(request.url)
        if plural:
            self.notify(WatchRequest(plural))
        try:
            authorization = used.authorization()
        except CredentialsError as error:
            raise aiohttp.ClientConnectionError(str(error)) from error  # kopf tries again
        if authorization:
            request.headers["Authorization"] = authorization
        request.server_hostname = used.server_hostname
        try:
            if plural and not request.url.query.get("watch"):
                return await self._page(plural, request, handler)
            return await handler(request)
        except aiohttp.ClientConnectorCertificateError as error:
            # kopf would try for ever with this authority; its next run logs in with a new one.
            await self._newer_than(used)
            raise CredentialsError(f"the server's certificate: {error}") from error

    async def _page(
        self, plural: str, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Read one page, with fewer objects than kopf asks for if they are large."""
        size = self._sizes.setdefault(plural, PageSize(_PAGE_SIZE))
        max_bytes = pages.MAX_PAGE_BYTES
        while True:
            request.url = request.url.update_query(limit=size.now)
            response = await handler(request)
            if response.status != 200:
                return response
            body = await client.body_within(response, max_bytes)
            if body is not None:
                size.record(len(body))
                response._body = body  # like its read(), which has no limit
                return response
            if not size.shrink():
                raise aiohttp.ClientPayloadError(f"an object of more than {max_bytes} bytes")


def _response_type(notify: Notify, backlog: _Backlog) -> type[aiohttp.ClientResponse]:
    """Return the response class that passes metadata to kopf and reports lists and watches."""

    class MetadataResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> "MetadataResponse":
            await super().start(connection)
            plural = _plural(self.url) if self.status == 200 else ""
            if plural and self.url.query.get("watch"):
                lines = _Lines(self.content, plural, notify, backlog)
                self.content = lines  # type: ignore[assignment]  # it has all that kopf calls
            return self

        async def json(self, **options: Any) -> Any:
            plural = _plural(self.url) if self.status == 200 else ""
            if not plural:
                return await super().json(**options)
            try:
                page = envelopes.page(await self.read())
            except ApiError as error:
                raise aiohttp.ClientPayloadError(str(error)) from error  # kopf lists again
            items = [_metadata_of(raw) for raw in page.items or ()]
            for item, raw in zip(items, page.items or (), strict=True):
                # kopf takes the items one by one later; a newer event may replace these bytes.
                backlog.offer(item["metadata"].get("uid", ""), None, envelopes.trim(raw))
            if not page.metadata.next:
                notify(Listed(plural))
            version = str(page.metadata.resource_version)
            metadata = {"resourceVersion": version, "continue": page.metadata.next}
            return {"metadata": metadata, "items": items}

    return MetadataResponse


def _plural(url: URL) -> str:
    """Return the plural of Bireme's kind in a collection's URL; empty for discovery."""
    return url.path.partition(names.path(""))[2]


@dataclass(slots=True)
class _Lines:
    """The content of a watch: whole lines, each an event with the metadata of its object."""

    content: aiohttp.StreamReader
    plural: str
    notify: Notify
    backlog: _Backlog

    def __getattr__(self, name: str) -> Any:
        return getattr(self.content, name)

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        began, has_news = clock(), False
        self.notify(Watching(self.plural, is_open=True))
        try:
            async for line in whole_lines(self.content.iter_any()):
                has_news = True
                if part := self._line_for_kopf(line):
                    yield part + b"\n"
        finally:
            self.notify(Watching(self.plural, is_open=False))
        if not has_news and clock() - began < _SHORT_SECONDS:
            await asyncio.sleep(random.uniform(0.5, 1))  # noqa: S311  # kopf reconnects at once

    def _line_for_kopf(self, line: bytes) -> bytes:
        """Return kopf's part of a line, maybe empty; errors and garbage stay unchanged."""
        try:
            event = envelopes.event(line)
        except ApiError:
            return line
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            return line
        metadata = _metadata_of(event.object)
        uid = metadata["metadata"].get("uid", "")
        if not self.backlog.offer(uid, event.type, envelopes.trim(event.object)):
            return b""
        return msgspec.json.encode({"type": event.type, "object": metadata})


def _metadata_of(raw: msgspec.Raw) -> dict[str, dict[str, str]]:
    """Return the metadata by which kopf identifies an object; empty if it has none."""
    try:
        meta = envelopes.stub(raw).metadata
    except envelopes.UNDECODABLE:  # the mirror reports it
        return {"metadata": {}}
    version = str(meta.resource_version)
    identity = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    return {"metadata": {**identity, "resourceVersion": version}}
