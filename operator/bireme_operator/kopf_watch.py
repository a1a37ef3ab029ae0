"""One run of kopf, which lists and watches Bireme's own kinds and reports what it sees.

kopf gets a thread and an event loop of its own: when it ends it cancels every task of its loop that
was created after it started, and it takes over the loop's signals. So it can end, as it does at an
in-stream error other than 410, and be started again beside the lease and the scheduling loop.

kopf also gets its HTTP session from here (:meth:`_Session.login`), for three reasons.

1. Credentials are those of the operator's own clients, rotated tokens included.
2. kopf gets the metadata of objects alone; their bytes wait for its handlers in a
   :class:`_Backlog`. kopf's own decoding gives up at about a thousand levels of nesting, and API
   servers store ten thousand: one such object would end every run of kopf.
3. kopf handles one event after another, however far it is behind. Of an object whose handler it has
   not called yet it gets no second event: the handler finds the newest bytes when it is called.
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

from bireme.kube import client, names, pages, wire
from bireme.kube.client import JSON, ApiError, pause_with_jitter, whole_lines
from bireme.kube.credentials import Credentials, CredentialsError, CredentialSource
from bireme.kube.pages import PageSize

_log = structlog.get_logger(__name__)
_PAGE_SIZE: Final = 500
# Range of the lifetime asked of the server, so that reconnects spread.
_WATCH_SECONDS: Final = (240, 300)
# The first pause before a failed request is repeated, and the longest.
_BACKOFF_SECONDS: Final = (0.2, 10.0)
# A watch that the server ended sooner, and without any news, is in trouble.
_SHORT_SECONDS: Final = 1.0
# An event whose handler kopf has not called by then is passed to it again: kopf may have dropped
# it.
_HANDLED_SECONDS: Final = 10.0
# Longest wait for kopf's tasks at the end of a run.
_CANCEL_SECONDS: Final = 5.0
# Longest wait for that end, in the owner's loop.
_JOIN_SECONDS: Final = 10.0


class Changed(NamedTuple):
    """An event of an object; ``type`` is that of the watch event, None in a list."""

    plural: str
    type: str | None
    json: bytes


class Asked(NamedTuple):
    """kopf lists or watches a kind, so it has discovered it."""

    plural: str


class Listed(NamedTuple):
    """kopf has listed a whole kind; its handlers are still being called."""

    plural: str


class Watching(NamedTuple):
    """A watch of a kind was opened, or has ended."""

    plural: str
    is_open: bool


class Failed(NamedTuple):
    """An exception in a handler, which kopf would log and forget."""

    error: Exception


Notice = Changed | Asked | Listed | Watching | Failed
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
        """Watch until kopf ends, with its error if it has one; cancelled, end it first."""
        owner = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = owner.create_future()
        thread = threading.Thread(target=self._live, args=(owner, ended), name="kopf", daemon=True)
        thread.start()
        try:
            # Shielded: also a run that is cancelled waits below for the end of its thread.
            error = await asyncio.shield(ended)
        finally:
            self._end()
            await asyncio.wait([ended], timeout=_JOIN_SECONDS)
            if ended.done():
                thread.join(1)  # it has only to return
        if error is not None:
            raise error

    def _end(self) -> None:
        """End kopf, whether it has begun or not."""
        self._is_stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    # --- in kopf's thread -----------------------------------------------------------------

    def _live(
        self, owner: asyncio.AbstractEventLoop, ended: "asyncio.Future[BaseException | None]"
    ) -> None:
        error: BaseException | None = None
        try:
            _quieten_kopf()
            # A loop of its own: kopf cancels every task of its loop that is younger than itself,
            # and takes the signals over.
            loop = uvloop.new_event_loop()  # closed as it is: asyncio.run would wait for tasks
            loop.set_exception_handler(_ignore_leftovers)
            try:
                loop.run_until_complete(self._operate(owner))
            finally:
                loop.close()
        except BaseException as raised:  # noqa: BLE001  # run raises it
            error = raised
        with suppress(RuntimeError):  # nobody waits any more, the owner's loop is closed
            owner.call_soon_threadsafe(_settle, ended, error)

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
            # Else kopf asks for the user's name, which a container's user need not have.
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
        # Leaders write the claim and read it by themselves; tickets are read when presented.
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
    """Cancel every other task of this loop, which is kopf's alone, and wait until they are done."""
    # kopf's own way to end (run_tasks) closes its sessions before its watches: when one watch
    # fails, the others wait for a login that never comes, and kopf neither works nor ends.
    clock = asyncio.get_running_loop().time
    deadline = clock() + _CANCEL_SECONDS
    # One cancellation is not enough: a watch that is about to list again swallows it.
    while (others := asyncio.all_tasks() - {asyncio.current_task()}) and clock() < deadline:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.2)


def _quieten_kopf() -> None:
    """Log failed watches without their tracebacks: a missing CRD is no bug."""
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # no signals
    for module in ("orchestration", "queueing", "running"):
        logging.getLogger(f"kopf._core.reactor.{module}").addFilter(_drop_traceback)


def _drop_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


def _ignore_leftovers(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Tasks that failed and that nobody awaits: kopf has logged their errors itself.
    _log.debug("in kopf's loop", message=context.get("message"))


def _settle(ended: "asyncio.Future[BaseException | None]", error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)


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
    # kopf's own storages would write annotations to objects: here there is none to write to.
    settings.persistence.diffbase_storage = _NothingCompared(())
    settings.persistence.progress_storage = kopf.MultiProgressStorage(())
    return settings


class _Backoffs:
    """kopf's pauses between attempts at one request: jittered, growing, endless."""

    # With an end, a kind that may not be read would end kopf, and with it the other four.
    def __iter__(self) -> Iterator[float]:
        return (pause_with_jitter(failures, *_BACKOFF_SECONDS) for failures in itertools.count())


class _NothingCompared(kopf.MultiDiffBaseStorage):
    """No storage of the last state on objects: events are not compared."""

    # kopf would deep-copy every object here, for handlers of changes, which there are none of.
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})


# --- kopf's HTTP session ------------------------------------------------------------------


class _Backlog:
    """The newest bytes of every object whose handler kopf has still to call."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str | None, bytes, float]] = {}

    def offer(self, uid: str, type_: str | None, json: bytes) -> bool:
        """Keep an event of an object; return whether kopf must get it too."""
        now = time.monotonic()
        _, _, since = self._newest.get(uid, (None, b"", -math.inf))
        # kopf drops its queue of an object at a deletion, so it gets every deletion; what it has
        # not handled for long it may have dropped.
        is_late = now - since > _HANDLED_SECONDS
        self._newest[uid] = type_, json, now if is_late else since
        return is_late or type_ == "DELETED"

    def take(self, uid: str) -> tuple[str | None, bytes] | None:
        """Return type and bytes of the newest event; None if an earlier call has taken them."""
        newest = self._newest.pop(uid, None)
        return None if newest is None else newest[:2]


@dataclass(slots=True)
class _Session:
    """Makes the sessions of one run: kopf logs in when it starts and after every 401."""

    source: CredentialSource
    owner: asyncio.AbstractEventLoop
    notify: Notify
    backlog: _Backlog
    _made: list[aiohttp.ClientSession] = field(default_factory=list)
    _sizes: dict[str, PageSize] = field(default_factory=dict)
    _used: Credentials | None = None

    async def login(self, **_: Any) -> kopf.AiohttpSession:
        """Log in with the operator's credentials, or newer ones than those refused."""
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
        self._made.append(session)
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    async def close(self) -> None:
        """Close what kopf has left open."""
        for session in self._made:
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
            self.notify(Asked(plural))
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
        """Read one page, of fewer objects than kopf asks for where these are large."""
        size = self._sizes.setdefault(plural, PageSize(_PAGE_SIZE))
        most = pages.MAX_PAGE_BYTES
        while True:
            request.url = request.url.update_query(limit=size.now)
            response = await handler(request)
            if response.status != 200:
                return response
            body = await client.body_within(response, most)
            if body is not None:
                size.record(len(body))
                response._body = body  # as its read() does, which has no limit
                return response
            if not size.shrink():
                raise aiohttp.ClientPayloadError(f"an object of more than {most} bytes")


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
                page = wire.page(await self.read())
            except ApiError as error:
                raise aiohttp.ClientPayloadError(str(error)) from error  # kopf lists again
            items = [_metadata_of(raw) for raw in page.items or ()]
            for item, raw in zip(items, page.items or (), strict=True):
                # kopf takes the items one by one after this; a newer event may replace these bytes
                # by then.
                backlog.offer(item["metadata"].get("uid", ""), None, wire.trim(raw))
            if not page.metadata.next:
                notify(Listed(plural))
            version = str(page.metadata.resource_version)
            metadata = {"resourceVersion": version, "continue": page.metadata.next}
            return {"metadata": metadata, "items": items}

    return MetadataResponse


def _plural(url: URL) -> str:
    """Return which of our kinds this is a collection of; empty for discovery."""
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
                if shown := self._shown(line):
                    yield shown + b"\n"
        finally:
            self.notify(Watching(self.plural, is_open=False))
        if not has_news and clock() - began < _SHORT_SECONDS:
            await asyncio.sleep(random.uniform(0.5, 1))  # noqa: S311  # kopf reconnects at once

    def _shown(self, line: bytes) -> bytes:
        """Return the part of a line for kopf, maybe none; errors and garbage stay as they are."""
        try:
            event = wire.event(line)
        except ApiError:
            return line
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            return line
        known = _metadata_of(event.object)
        uid = known["metadata"].get("uid", "")
        if not self.backlog.offer(uid, event.type, wire.trim(event.object)):
            return b""
        return msgspec.json.encode({"type": event.type, "object": known})


def _metadata_of(raw: msgspec.Raw) -> dict[str, dict[str, str]]:
    """Return the metadata that kopf identifies an object by; empty without any."""
    try:
        meta = wire.stub(raw).metadata
    except wire.UNDECODABLE:  # the mirror reports it
        return {"metadata": {}}
    version = str(meta.resource_version)
    known = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    return {"metadata": {**known, "resourceVersion": version}}
