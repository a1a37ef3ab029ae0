"""Reflector: a collection of the API server, mirrored in memory.

List in pages of bounded size, then watch from the list's version on, as client-go's Reflector does.
A new list reveals missed events: objects that are no longer listed are reported as deleted. A
stream that fails or falls silent is reopened from the last version with jittered backoff. A version
too old for the server (410) means a new list; a missing resource (404) means an empty collection.
An object that cannot be decoded is logged and left out.

If the newest version of a server is older than an earlier one, its etcd was restored from a backup:
changes are lost. A watch from the earlier version would get no events, and reused versions mean
other objects. So the program ends; a fresh one has no outdated memory.
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
from bireme.kube import envelopes, pages, wire
from bireme.kube.client import ApiClient, ApiError, Params, pause_with_jitter

_log = structlog.get_logger(__name__)
# A watch that the server ends sooner, without any event, counts as a failure.
_SHORT_SECONDS = 1.0

T = TypeVar("T", bound=wire.MetadataOnly)


class HistoryLostError(Exception):
    """The API server has lost changes that it sent before: the whole cache may be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pace of a reflector; the defaults suit a production API server."""

    page_size: int = 500
    watch_seconds: tuple[float, float] = (240, 300)
    """Range of the lifetime of a watch: a random one spreads the reconnects."""
    inactivity_seconds: float = 70
    """A connection without a byte for this time is dead: bookmarks come once a minute."""
    backoff_first_seconds: float = 0.2
    backoff_limit_seconds: float = 10
    missing_retry_seconds: float = 2


@dataclass(slots=True)
class Reflector(Generic[T]):
    """Reports the collection at ``path``, object by object, while :meth:`run` runs.

    ``on_put(key, obj)`` follows every creation or change, ``on_delete(key)`` every deletion. A
    replacement under the same name (another uid) is a delete and a put. The objects themselves are
    not stored: a hundred thousand pods would take half a gigabyte. Exceptions of the callbacks end
    :meth:`run`: a program that misses events must not continue.
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
    """Set after the first list, or if the resource does not exist."""
    is_live: bool = False
    """A watch is open, or the server ended it normally and it is being renewed."""
    resource_version: int = 0
    """The newest version seen, including bookmarks; 0 before the first list."""
    last_contact_seconds: float = field(init=False)
    """Time of the server's last byte, by ``clock``."""
    _needs_list: bool = True
    _had_news: bool = True
    """The last watch brought events and ended normally."""
    _missing: bool = False
    _failures: int = 0
    _waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    _log: Any = field(init=False)
    _page_size: pages.PageSize = field(init=False)
    _reader: envelopes.ObjectReader[T] = field(init=False)

    def __post_init__(self) -> None:
        self.last_contact_seconds = self.clock()
        self._log = _log.bind(reflector=self.name or self.path.rpartition("/")[2])
        self._page_size = pages.PageSize(self.timing.page_size)
        self._reader = envelopes.ObjectReader(self.kind, self._log)

    async def run(self) -> None:
        """Mirror until cancelled. API errors are logged and retried.

        Raises:
            HistoryLostError: etcd was restored from a backup.
        """
        while True:
            began = self.clock()
            try:
                had_news = await self._follow()
                # In a burst the server ends lagging watches: a pause would increase the lag.
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
        reached = asyncio.get_running_loop().create_future()
        waiter = (resource_version, reached)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_seconds):
                await reached
        finally:
            self._waiters.remove(waiter)

    def _advance(self, version: int) -> None:
        self.resource_version = version
        for target_version, reached in self._waiters:
            if target_version <= version and not reached.done():
                reached.set_result(None)

    async def _follow(self) -> bool:
        """List if needed, then watch until the stream ends; return whether it brought events."""
        if self._needs_list:
            await self._list()
        elif not self._had_news:
            await self._check_history()
        self._had_news = False
        previous_version = self.resource_version
        try:
            await self._watch()
            self._had_news = self.resource_version > previous_version
            return self._had_news
        except ApiError as error:
            # After any other error the last version is still valid: the watch resumes from there.
            self._needs_list = error.is_gone
            raise

    async def _pause(self, error: ApiError | None, lived_seconds: float) -> None:
        """Wait before reconnecting; the pause grows until a stream has lived long enough."""
        if lived_seconds >= self.timing.backoff_limit_seconds:
            self._failures = 0
        first, limit = self.timing.backoff_first_seconds, self.timing.backoff_limit_seconds
        delay = pause_with_jitter(self._failures, first, limit, self.random)
        if error is not None and error.retry_after_seconds is not None:
            delay = max(delay, min(error.retry_after_seconds, 6 * limit))
        self._failures += 1
        cause = str(error) if error else "the watch ended early"
        self._log.warning("watch interrupted", error=cause, retry_seconds=round(delay, 2))
        await self.sleep(delay)

    async def _wait_for_resource(self) -> None:
        """Empty the cache: without the resource (its CRD was removed) there are no objects."""
        if not self._missing:
            self._log.warning("no such resource; taken as empty until it is back", path=self.path)
        # The program continues: the CRD may be installed at any time.
        self._missing = self._needs_list = True
        self._delete_all_but(set())
        self.synced.set()
        await self.sleep(self.timing.missing_retry_seconds)

    async def _list(self) -> None:
        """Read all pages of one version; delete the objects that are in none of them."""
        listed: set[Key] = set()
        page = await self._page("")
        self._check_version(page.metadata.resource_version)
        # All pages have the version of the first one, so a watch from that version misses nothing.
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
        # Without a version in the request, the answer comes from etcd and never from a cache.
        page = await pages.read(self.client, self.path, pages.PageSize(1), params=self.params)
        self._check_version(page.metadata.resource_version)

    def _check_version(self, newest: int) -> None:
        if newest < self.resource_version:
            raise HistoryLostError(
                f"the API server is at version {newest} of {self.path}, after "
                f"{self.resource_version} was seen: etcd was restored from a backup"
            )

    async def _page(self, token: str) -> envelopes.ListPage:
        page = await pages.read(
            self.client, self.path, self._page_size, token=token, params=self.params
        )
        self.last_contact_seconds = self.clock()
        return page

    def _take_page(self, page: envelopes.ListPage, listed: set[Key]) -> None:
        for raw in page.items or ():
            stub = self._reader.stub(raw)
            if stub is not None and (obj := self._reader.decode(stub.key, raw)) is not None:
                listed.add(stub.key)
                self._put(stub.key, obj)

    async def _watch(self) -> None:
        low, high = self.timing.watch_seconds
        params: dict[str, str | int | Sequence[str]] = {
            **self.params,
            "watch": "1",
            # Bookmarks advance the version in a quiet collection: an old version would mean a 410.
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
        event = envelopes.event(line)
        stub = self._reader.stub(event.object)
        if stub is None or stub.version < self.resource_version:
            return  # a repeated line could restore a deleted object
        match event.type:
            case "ADDED" | "MODIFIED":
                obj = self._reader.decode(stub.key, event.object)
                if obj is None:
                    self._delete(stub.key)
                else:
                    self._put(stub.key, obj)
            case "DELETED":
                self._delete(stub.key)
            case "BOOKMARK":
                pass
            case other:  # ends the stream; the next watch starts before this line
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
