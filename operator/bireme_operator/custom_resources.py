"""Bireme's own kinds, as kopf reports them, with audits for missed events.

kopf (:mod:`bireme_operator.kopf_watch`) lists and watches; every event goes into the
:class:`Mirror` of its kind. kopf runs a worker for each object, so events of different objects
come in any order. kopf never reports objects that vanished before a relist. Therefore an audit
compares each mirror with a list of metadata, both ways, after every list by kopf and every ten
minutes. A count each minute shows whether an audit must come sooner.

kopf ends at many errors. This module starts it again, with backoff, and the term goes on. The term
ends if a kind is not watched for too long, or if a mirror raises an exception.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog

from bireme.core.gangs import Key
from bireme.kube import envelopes, names, pages, wire
from bireme.kube.client import METADATA, ApiClient, ApiError, pause_with_jitter
from bireme.kube.pages import PageSize
from bireme_operator import kopf_watch
from bireme_operator.kopf_watch import KopfWatch, Notice
from bireme_operator.metrics import WatchMetrics

_log = structlog.get_logger(__name__)
# Time limit of one batch of events, so that a list of thousands does not delay the renewal of the
# lease. It is a time, as a few large objects take as long as hundreds of small ones.
_SLICE_SECONDS: Final = 0.03
# A run of kopf that lasted this long resets the backoff.
_LONG_RUN_SECONDS: Final = 60.0


class NotWatched(Exception):  # noqa: N818  # it ends the term and says why
    """A kind has been without a watch for longer than the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTiming:
    """Intervals of audits and retries; the defaults suit a production API server."""

    audit_seconds: float = 600
    count_seconds: float = 60
    settle_seconds: float = 2
    """An audit waits for kopf's late events as long as one comes within this time."""
    missing_retry_seconds: float = 2
    discovery_seconds: float = 5
    """Time limit for kopf to list an existing kind; then it is restarted."""
    backoff_first_seconds: float = 0.1
    backoff_limit_seconds: float = 10
    idle_seconds: float = 0.5
    """Time without an event after which kopf ends the worker of an object."""
    page_size: int = 500


class Source(Protocol):
    """Objects of one kind."""

    @property
    def synced(self) -> asyncio.Event:
        """Set once all objects that existed at the start are known."""

    async def wait_past(self, key: Key, version: int, timeout_seconds: float) -> None:
        """Return once ``key`` is known as of ``version``; raise TimeoutError otherwise."""


class Sources(Protocol):
    """Objects of Bireme's own kinds."""

    def source(
        self,
        plural: str,
        on_put: Callable[..., None],
        on_delete: Callable[..., None],
        *,
        is_needed: bool = True,
    ) -> Source:
        """Return the source of one kind, before :meth:`run`.

        A source that is not needed may stay without a watch for any time.
        """

    async def run(self) -> None:
        """Keep all sources up to date until cancelled."""


@dataclass(frozen=True, slots=True)
class _Record:
    uid: str
    version: int
    is_reported: bool
    """False for an object that cannot be decoded."""


@dataclass(slots=True)
class Mirror:
    """The objects of one kind; drops events that are older than the known version.

    It calls ``on_put(key, obj)`` after every creation or change, and ``on_delete(key)`` after every
    disappearance. A replacement under the same name (another uid) is a delete and a put. An object
    that cannot be decoded is logged and skipped.
    """

    plural: str
    on_put: Callable[[Key, wire.CustomObject], None]
    on_delete: Callable[[Key], None]
    objects: dict[Key, _Record] = field(default_factory=dict)
    """All existing objects, decodable or not."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    # Versions of the latest deletions by name: earlier events are outdated.
    _deletions: dict[Key, int] = field(default_factory=dict)
    _waiting: dict[Key, list[tuple[int, asyncio.Future[None]]]] = field(default_factory=dict)
    _reader: envelopes.ObjectReader[wire.CustomObject] = field(init=False)

    def __post_init__(self) -> None:
        self._reader = envelopes.ObjectReader(wire.CustomObject, _log.bind(kind=self.plural))

    def newest(self, key: Key) -> int:
        """Return the latest known version of ``key``, existing or deleted; 0 if never known."""
        record = self.objects.get(key)
        return record.version if record is not None else self._deletions.get(key, 0)

    def put(self, raw: msgspec.Raw) -> None:
        """Apply a creation or change."""
        stub = self._reader.stub(raw)
        # kopf has a worker for each object, and audits read objects themselves. So an older state
        # may come after a newer one, and would bring back a deleted object.
        if stub is None or stub.version <= self.newest(stub.key):
            return
        key = stub.key
        obj = self._reader.decode(key, raw)
        last = self.objects.get(key)
        if last is not None and (obj is None or last.uid != stub.uid):
            self._drop(key)
        self._deletions.pop(key, None)
        self.objects[key] = _Record(stub.uid, stub.version, obj is not None)
        if obj is not None:
            self.on_put(key, obj)
        self._wake(key)

    def remove(self, raw: msgspec.Raw) -> None:
        """Apply a deletion; ``raw`` is the object's last state."""
        stub = self._reader.stub(raw)
        if stub is not None:
            self.delete(stub.key, stub.uid, stub.version)

    def delete(self, key: Key, uid: str, version: int) -> None:
        """Remove the object with ``uid``, unless ``key`` has had a later one."""
        last, newest = self.objects.get(key), self.newest(key)
        if version <= newest and not (last is not None and last.uid == uid):
            return
        if last is not None:
            self._drop(key)
        self._deletions[key] = max(version, newest)
        self._wake(key)

    def clear(self) -> None:
        for key in list(self.objects):
            self._drop(key)
        self._deletions.clear()

    def forget(self, version: int) -> None:
        """Forget deletions at ``version`` or before: no event as old can still arrive."""
        self._deletions = {
            key: deletion for key, deletion in self._deletions.items() if deletion > version
        }

    async def wait_past(self, key: Key, version: int, timeout_seconds: float) -> None:
        """Return once ``key`` is known as of ``version`` or later, existing or deleted.

        Raises:
            TimeoutError: the version did not arrive within ``timeout_seconds``.
        """
        if self.newest(key) >= version:
            return
        future = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, [])
        waiting.append((version, future))
        try:
            async with asyncio.timeout(timeout_seconds):
                await future
        finally:
            waiting.remove((version, future))
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def _drop(self, key: Key) -> None:
        if self.objects.pop(key).is_reported:
            self.on_delete(key)

    def _wake(self, key: Key) -> None:
        newest = self.newest(key)
        for version, future in self._waiting.get(key, ()):
            if version <= newest and not future.done():
                future.set_result(None)


@dataclass(slots=True)
class _Kind:
    """A mirror, and the state of its kind in kopf and in the server."""

    mirror: Mirror
    is_needed: bool
    # Latest time at which the kind was known to be watched, or being listed, or not to exist.
    live_at: float
    # Time and version of the latest list of an audit.
    audited: tuple[float, int]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_audit_wanted: bool = False
    is_missing: bool = False
    is_served: bool = False
    # The present run of kopf has listed it.
    was_asked: bool = False
    # Number of kopf's open watches; 2 for a moment when one follows another.
    watches: int = 0
    # Number of lists since the latest watch.
    lists: int = 0


@dataclass(slots=True)
class CustomResources:
    """All mirrors of a term. :meth:`run` ends with NotWatched, or with a callback's exception."""

    client: ApiClient
    metrics: WatchMetrics
    unwatched_limit_seconds: float = 60
    timing: AuditTiming = AuditTiming()  # frozen
    clock: Callable[[], float] = time.monotonic
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _inbox: deque[Notice] = field(default_factory=deque)
    _is_draining: bool = False
    _is_over: bool = False
    _bug: asyncio.Future[None] | None = None
    _kopf: asyncio.Task[None] | None = None
    _kopf_began: float = 0.0

    def source(
        self,
        plural: str,
        on_put: Callable[..., None],
        on_delete: Callable[..., None],
        *,
        is_needed: bool = True,
    ) -> Mirror:
        """Return the mirror of one kind, before :meth:`run`."""
        mirror = Mirror(plural, on_put, on_delete)
        self._kinds[plural] = _Kind(mirror, is_needed, self.clock(), (self.clock(), 0))
        return mirror

    async def run(self) -> None:
        """Watch and audit until cancelled."""
        self._bug = asyncio.get_running_loop().create_future()
        for kind in self._kinds.values():
            kind.live_at = self.clock()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_kopf())
                group.create_task(self._supervise_kopf())
                for kind in self._kinds.values():
                    group.create_task(self._keep_complete(kind))
                group.create_task(asyncio.wait_for(self._bug, timeout=None))
        finally:
            self._is_over = True

    # --- runs of kopf ---------------------------------------------------------------------

    async def _run_kopf(self) -> None:
        """Start kopf again whenever it ends, with jittered backoff."""
        failures = 0
        while True:
            self._kopf_began = self.clock()
            # kopf ends at any in-stream error but a 410. The audit after its next list finds the
            # events that it missed meanwhile.
            kopf = KopfWatch(self.client.credentials, self._notify, self.timing.idle_seconds)
            self._kopf = asyncio.create_task(kopf.run())
            error = await _outcome(self._kopf)
            for kind in self._kinds.values():
                kind.watches, kind.was_asked, kind.is_served = 0, False, False
                kind.woken.set()  # perhaps kopf ended because the resource did
            failures = failures + 1 if self._age() < _LONG_RUN_SECONDS else 1
            delay = self._back_off(failures - 1)
            self.metrics.restarts.inc()
            _log.warning("kopf ended", error=repr(error), restart_seconds=round(delay, 2))
            await asyncio.sleep(delay)

    def _age(self) -> float:
        return self.clock() - self._kopf_began

    def _back_off(self, failures: int) -> float:
        """Return the seconds to wait after ``failures`` earlier failures."""
        timing = self.timing
        return pause_with_jitter(
            failures, timing.backoff_first_seconds, timing.backoff_limit_seconds
        )

    async def _supervise_kopf(self) -> None:
        """End a run of kopf that misses a kind, and the term if a kind stays unwatched."""
        limit, discovery = self.unwatched_limit_seconds, self.timing.discovery_seconds
        while True:
            await asyncio.sleep(min(1.0, discovery / 2, limit / 4))
            now, kinds = self.clock(), self._kinds.values()
            for kind in kinds:
                if kind.watches or kind.is_missing:
                    kind.live_at = now
                elif kind.is_needed and now - kind.live_at > limit:
                    raise NotWatched(f"{kind.mirror.plural} not watched for {limit:.0f} s")
            unknown = any(kind.is_served and not kind.was_asked for kind in kinds)
            # Without permission to watch CRDs kopf does not see one that is installed later.
            if unknown and self._age() > discovery and self._kopf is not None:
                self._kopf.cancel()  # kopf discovers kinds only when it starts

    def _notify(self, notice: Notice) -> None:
        """Queue a notice; called in kopf's thread."""
        # Appending is atomic. Only the first notice of a burst wakes the loop.
        self._inbox.append(notice)
        if not self._is_draining and self._bug is not None:
            self._is_draining = True
            self._bug.get_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Process kopf's notices. An exception ends the term, or its notice would be lost."""
        self._is_draining = False  # first: an append from here on schedules another call
        assert self._bug is not None  # noqa: S101  # run created it
        try:
            until = self.clock() + _SLICE_SECONDS
            while self._inbox and self.clock() < until:
                notice = self._inbox.popleft()
                if not self._is_over:
                    self._take(notice)
        except Exception as error:  # noqa: BLE001  # run raises it
            if not self._bug.done():
                self._bug.set_exception(error)
        if self._inbox and not self._is_draining:
            self._is_draining = True
            self._bug.get_loop().call_soon(self._drain)

    def _take(self, notice: Notice) -> None:
        if isinstance(notice, kopf_watch.Failed):
            raise notice.error
        kind = self._kinds.get(notice.plural)
        if kind is None:
            return
        # A list of thousands takes long, and ends with the next watch. Without that watch kopf
        # lists again and again, so only the first list counts.
        if isinstance(notice, kopf_watch.Changed) and kind.lists <= 1:
            kind.live_at = self.clock()
        match notice:
            case kopf_watch.Changed(_, "DELETED", json):
                kind.mirror.remove(msgspec.Raw(json))
            case kopf_watch.Changed(_, _, json):
                kind.mirror.put(msgspec.Raw(json))
            case kopf_watch.WatchRequest():
                kind.was_asked = True
            case kopf_watch.Listed():
                kind.lists += 1
                kind.is_audit_wanted = True
                kind.woken.set()
            case kopf_watch.Watching(_, is_open):
                kind.watches = max(0, kind.watches + (1 if is_open else -1))
                kind.lists = 0

    # --- audits ---------------------------------------------------------------------------

    async def _keep_complete(self, kind: _Kind) -> None:
        """Audit ``kind`` after kopf's lists, when a count differs, and at intervals."""
        failures = 0
        while True:
            kind.woken.clear()
            is_audit_due, kind.is_audit_wanted = kind.is_audit_wanted, False
            is_audit_due |= self.clock() - kind.audited[0] >= self.timing.audit_seconds
            try:
                if is_audit_due or await self._count_differs(kind):
                    await self._audit(kind)
                failures = 0
            except ApiError as error:
                failures += 1
                # The audit is still due: objects missing from kopf's list stay unknown until then.
                kind.is_audit_wanted |= is_audit_due
                if error.is_not_found:
                    self._miss(kind)
                else:
                    _log.warning("not audited", kind=kind.mirror.plural, error=str(error))
            await self._rest(kind, failures)

    async def _rest(self, kind: _Kind, failures: int) -> None:
        """Wait until an audit or the next count is due; shorter after a failure."""
        timing = self.timing
        if kind.is_missing:
            await asyncio.sleep(timing.missing_retry_seconds)
        elif failures:
            await asyncio.sleep(self._back_off(failures))
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(timing.count_seconds):
                    await kind.woken.wait()

    async def _count_differs(self, kind: _Kind) -> bool:
        """Return whether the server's count differs from the mirror's, or is unknown."""
        # A list of one item includes the count, at no cost to the API server.
        page = await self._metadata_page(kind, "", PageSize(1))
        if not kind.mirror.synced.is_set():
            return False  # wait for kopf's first list
        if page.metadata.next and page.metadata.remaining is None:
            return True
        return len(page.items or ()) + (page.metadata.remaining or 0) != len(kind.mirror.objects)

    async def _audit(self, kind: _Kind) -> None:
        """Repair the differences between a mirror and the server's list."""
        mirror = kind.mirror
        # 1. List the metadata of all objects, at one version.
        listed, version = await self._metadata(kind)
        # 2. Wait for earlier changes that may still arrive through kopf.
        ghosts, stale = await self._lasting_differences(mirror, listed, version)
        # 3. Delete objects that the list lacks, unless they are newer than the list.
        for key in ghosts:
            self.metrics.repairs.labels(mirror.plural, "ghost").inc()
            mirror.delete(key, mirror.objects[key].uid, version)
        # 4. Read objects that the mirror lacks, or has in an older version.
        for key in stale:
            self.metrics.repairs.labels(mirror.plural, "lost").inc()
            await self._read(mirror, key)
        if ghosts or stale:
            _log.warning("repaired", kind=mirror.plural, ghosts=len(ghosts), lost=len(stale))
        listed_at, earlier = kind.audited
        if self.clock() - listed_at >= self.timing.count_seconds:
            # An event older than the previous audit cannot arrive any more.
            mirror.forget(earlier)
            kind.audited = self.clock(), version
        mirror.synced.set()

    async def _lasting_differences(
        self, mirror: Mirror, listed: Mapping[Key, int], version: int
    ) -> tuple[list[Key], list[Key]]:
        """Return the differences that remain once kopf is silent: keys to delete, keys to read."""
        ghosts = [key for key in mirror.objects if key not in listed]
        stale = list(listed)
        clock, count = self.clock, -1
        while True:
            ghosts = [k for k in ghosts if k in mirror.objects and mirror.newest(k) <= version]
            stale = [key for key in stale if mirror.newest(key) < listed[key]]
            remaining = len(ghosts) + len(stale)
            if remaining != count:
                count, since = remaining, clock()
            if not remaining or clock() - since >= self.timing.settle_seconds:
                return ghosts, stale
            await asyncio.sleep(0.02 if remaining < 100 else 0.1)

    async def _read(self, mirror: Mirror, key: Key) -> None:
        # A list of one object needs no permission to get single objects.
        path = names.path(mirror.plural, key[0] or None)
        params = {"fieldSelector": f"metadata.name={key[1]}"}
        for raw in envelopes.page(await self.client.get(path, params=params)).items or ():
            mirror.put(msgspec.Raw(envelopes.trim(raw)))

    async def _metadata(self, kind: _Kind) -> tuple[dict[Key, int], int]:
        """Return the version of every object, and the version of the list."""
        listed: dict[Key, int] = {}
        token, version, size = "", 0, PageSize(self.timing.page_size)
        while True:
            page = await self._metadata_page(kind, token, size)
            version = version or page.metadata.resource_version
            for raw in page.items or ():
                stub = envelopes.stub(raw)
                listed[stub.key] = stub.version
            token = page.metadata.next
            if not token:
                return listed, version

    async def _metadata_page(self, kind: _Kind, token: str, size: PageSize) -> envelopes.ListPage:
        path = names.path(kind.mirror.plural)
        page = await pages.read(self.client, path, size, token=token, accept=METADATA)
        if kind.is_missing:
            _log.info("the resource is back", kind=kind.mirror.plural)
        kind.is_missing, kind.is_served = False, True
        return page

    def _miss(self, kind: _Kind) -> None:
        """Record that the resource does not exist (its CRD was removed); drop its objects."""
        if not kind.is_missing:
            _log.warning("no such resource; empty until it is back", kind=kind.mirror.plural)
        kind.is_missing, kind.is_served = True, False
        kind.mirror.clear()
        kind.mirror.synced.set()


async def _outcome(task: "asyncio.Task[None]") -> BaseException | None:
    """Return the error of ``task`` at its end; when cancelled, cancel it too and wait for it."""
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    return None if task.cancelled() else task.exception()
