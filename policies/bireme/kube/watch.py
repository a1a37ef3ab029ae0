"""Reflector: a collection of the API server, mirrored in memory.

List in pages of bounded size, then watch from the list's version on, as client-go's Reflector does.
What was missed is the difference between the next list and the cache: objects that vanished unseen
are reported as deleted. A stream that fails or falls silent is reopened from the last version with
jittered backoff; a version too old for the server (410) means a new list; a missing resource (404)
means an empty collection. An object that cannot be decoded is logged and left out.

A server whose newest version is older than one that it sent before has lost history: its etcd was
restored from a backup. It would send nothing on a watch from a version that it has not reached
again, and versions that it gives out again mean other objects. So the program ends; a fresh one has
no memory to be wrong about.
"""

import asyncio
import random as random_module
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from bireme.core.gangs import Key
from bireme.kube import pages, wire
from bireme.kube.client import ApiClient, ApiError, Params, jittered_pause

_log = structlog.get_logger(__name__)
# A watch that the server ended sooner, without any event, is in trouble.
_SHORT_SECONDS = 1.0

T = TypeVar("T", bound=wire.MetadataOnly)


class HistoryLostError(Exception):
    """The API server has lost changes that were seen of it: everything known may be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pace of a reflector; the defaults suit a production API server."""

    page_size: int = 500
    watch_seconds: tuple[float, float] = (240, 300)
    """Range of the lifetime asked of the server, so that reconnects spread."""
    inactivity_seconds: float = 70
    """A connection without a byte for so long is dead: bookmarks come once a minute."""
    backoff_first_seconds: float = 0.2
    backoff_limit_seconds: float = 10
    missing_retry_seconds: float = 2


@dataclass(slots=True)
class Reflector(Generic[T]):
    """Reports the collection at ``path``, object by object, while :meth:`run` runs.

    ``on_put(key, obj)`` follows every creation or change, ``on_delete(key)`` every disappearance; a
    replacement under the same name (another uid) is a delete and a put. The objects themselves are
    not kept: of a hundred thousand pods they would take half a gigabyte.
    Exceptions of the callbacks end :meth:`run`: a program that misses events must not go on.
    """

    client: ApiClient
    path: str
    kind: type[T]
    on_put: Callable[[Key, T], None]
    on_delete: Callable[[Key], None]
    params: Params = field(default_factory=dict)
    name: str = ""
    timing: Timing = Timing()  # frozen
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random_module.random
    known: dict[Key, tuple[str, str]] = field(default_factory=dict)
    """UID and resource version of every object."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first list is in, or there is nothing to list."""
    is_live: bool = False
    """A watch is open, or was ended by the server in good order and is renewed."""
    resource_version: int = 0
    """The newest version passed, bookmarks included; 0 before the first list."""
    last_contact_seconds: float = field(init=False)
    """Time of the server's last byte, by ``clock``."""
    _needs_list: bool = True
    _had_news: bool = True
    """The last watch brought events and ended in good order."""
    _missing: bool = False
    _failures: int = 0
    _waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    _log: Any = field(init=False)
    _page_size: pages.PageSize = field(init=False)
    _reader: wire.ObjectReader[T] = field(init=False)

    def __post_init__(self) -> None:
        self.last_contact_seconds = self.clock()
        self._log = _log.bind(reflector=self.name or self.path.rpartition("/")[2])
        self._page_size = pages.PageSize(self.timing.page_size)
        self._reader = wire.ObjectReader(self.kind, self._log)

    async def run(self) -> None:
        """Mirror until cancelled. API errors are logged and retried.

        Raises:
            HistoryLostError: etcd was restored from a backup.
        """
        while True:
            began = self.clock()
            try:
                had_news = await self._follow()
                # In a burst the server ends watches that lag: a pause would make them lag more.
                if not had_news and self.clock() - began < _SHORT_SECONDS:
                    await self._pause(None, self.clock() - began)
            except ApiError as error:
                self.is_live = False
                if error.is_not_found:
                    await self._wait_for_resource()
                else:
                    await self._pause(error, self.clock() - began)

    async def wait_past(self, resource_version: int, timeout_seconds: float) -> None:
        """Return once ``resource_version`` of this resource has been seen.

        Raises:
            TimeoutError: it was not seen within ``timeout_seconds``.
        """
        if self.resource_version >= resource_version:
            return
        seen = asyncio.get_running_loop().create_future()
        waiting = (resource_version, seen)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_seconds):
                await seen
        finally:
            self._waiting.remove(waiting)

    def _advance(self, version: int) -> None:
        self.resource_version = version
        for wanted, seen in self._waiting:
            if wanted <= version and not seen.done():
                seen.set_result(None)

    async def _follow(self) -> bool:
        """List if needed, then watch until the stream ends; return whether it brought events."""
        if self._needs_list:
            await self._list()
        elif not self._had_news:
            await self._check_history()
        self._had_news = False
        before = self.resource_version
        try:
            await self._watch()
            self._had_news = self.resource_version > before
            return self._had_news
        except ApiError as error:
            # After any other error the last version is still good: the watch goes on from there.
            self._needs_list = error.is_gone
            raise

    async def _pause(self, error: ApiError | None, lived_seconds: float) -> None:
        """Wait before reconnecting, ever longer until a stream has lived for long enough."""
        if lived_seconds >= self.timing.backoff_limit_seconds:
            self._failures = 0
        first, limit = self.timing.backoff_first_seconds, self.timing.backoff_limit_seconds
        delay = jittered_pause(self._failures, first, limit, self.random)
        if error is not None and error.retry_after_seconds is not None:
            delay = max(delay, min(error.retry_after_seconds, 6 * limit))
        self._failures += 1
        why = str(error) if error else "the watch ended early"
        self._log.warning("watch interrupted", error=why, retry_seconds=round(delay, 2))
        await self.sleep(delay)

    async def _wait_for_resource(self) -> None:
        """Empty the cache: without the resource (its CRD was removed) there are no objects."""
        if not self._missing:
            self._log.warning("no such resource; taken as empty until it is back", path=self.path)
        # The program goes on: a CRD may be installed, or come back, at any time.
        self._missing = self._needs_list = True
        self._delete_all_but(set())
        self.synced.set()
        await self.sleep(self.timing.missing_retry_seconds)

    async def _list(self) -> None:
        """Read all pages of one version; what none of them has is gone."""
        listed: set[Key] = set()
        page = await self._page("")
        self._check_version(page.metadata.resource_version)
        # All pages are of the version of the first, from which a watch therefore misses nothing.
        version = page.metadata.resource_version
        self._take_page(page, listed)
        while page.metadata.next:
            page = await self._page(page.metadata.next)
            self._take_page(page, listed)
        self._delete_all_but(listed)
        self._needs_list = self._missing = False
        self._had_news = True
        self._advance(version)
        self.synced.set()

    async def _check_history(self) -> None:
        # Without a version asked for, the answer is of etcd's newest state, never of a cache.
        page = await pages.read(self.client, self.path, pages.PageSize(1), params=self.params)
        self._check_version(page.metadata.resource_version)

    def _check_version(self, newest: int) -> None:
        if newest < self.resource_version:
            raise HistoryLostError(
                f"the API server is at version {newest} of {self.path}, after "
                f"{self.resource_version} was seen: etcd was restored from a backup"
            )

    async def _page(self, token: str) -> wire.ListPage:
        page = await pages.read(
            self.client, self.path, self._page_size, token=token, params=self.params
        )
        self.last_contact_seconds = self.clock()
        return page

    def _take_page(self, page: wire.ListPage, listed: set[Key]) -> None:
        for raw in page.items or ():
            stub = self._reader.stub(raw)
            if stub is not None and (obj := self._reader.decoded(stub.key, raw)) is not None:
                listed.add(stub.key)
                self._put(stub.key, obj)

    async def _watch(self) -> None:
        low, high = self.timing.watch_seconds
        params: dict[str, str | int | Sequence[str]] = {
            **self.params,
            "watch": "1",
            # Bookmarks keep the version young in a quiet collection: an old one means a 410.
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": round(low + (high - low) * self.random()),
        }
        stream = self.client.stream(
            self.path,
            params,
            read_timeout_seconds=self.timing.inactivity_seconds,
            on_open=self._set_live,
        )
        async with aclosing(stream) as lines:
            async for line in lines:
                self.last_contact_seconds = self.clock()
                self._take_event(line)

    def _set_live(self) -> None:
        self.is_live = True

    def _take_event(self, line: bytes) -> None:
        event = wire.event(line)
        stub = self._reader.stub(event.object)
        if stub is None or stub.version < self.resource_version:
            return  # a line sent twice: taking it in again could restore a deleted object
        match event.type:
            case "ADDED" | "MODIFIED":
                obj = self._reader.decoded(stub.key, event.object)
                if obj is None:
                    self._delete(stub.key)
                else:
                    self._put(stub.key, obj)
            case "DELETED":
                self._delete(stub.key)
            case "BOOKMARK":
                pass
            case other:  # ends the stream, which is resumed before this line
                raise ApiError(0, "BadAnswer", f"unknown type of watch event: {other!r}")
        self._advance(stub.version)

    def _delete_all_but(self, listed: set[Key]) -> None:
        for key in [key for key in self.known if key not in listed]:
            self._delete(key)

    def _put(self, key: Key, obj: T) -> None:
        meta, last = obj.metadata, self.known.get(key)
        if last is not None:
            if last[0] != meta.uid:
                self._delete(key)
            elif last[1] == meta.resource_version:
                return
        self.known[key] = (meta.uid, meta.resource_version)
        self.on_put(key, obj)

    def _delete(self, key: Key) -> None:
        if self.known.pop(key, None) is not None:
            self.on_delete(key)
