"""Records every revision of what a cluster holds, through watches of its own.

A watch that breaks goes on from the last revision seen; one that expired is listed anew, with a GAP
record, because what happened in between is lost. Nothing of Bireme is imported here.
"""

import asyncio
import json
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml

from testbed.history.records import Change, Key, Manifest, Record, to_line

COLLECTIONS: Final[Mapping[str, str]] = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "TrainingJob": "/apis/bireme.dev/v1alpha1/trainingjobs",
    "PodGroup": "/apis/bireme.dev/v1alpha1/podgroups",
    "Queue": "/apis/bireme.dev/v1alpha1/queues",
}
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_RETRY_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 0.02
START_SECONDS: Final = 30.0
_DEEPEST: Final = 100


class _ExpiredError(Exception):
    """The revision to go on from is too old."""


class Recorder:
    """Watches within its block, and writes ``path`` as it goes, unless it is None.

    ``kubeconfig`` names certificate files, as kwokctl writes them, or a plain-http server.
    """

    def __init__(
        self,
        kubeconfig: Path,
        path: Path | None = None,
        collections: Mapping[str, str] = COLLECTIONS,
    ) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server: str = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
        if "client-certificate" in user:
            self._tls.load_cert_chain(user["client-certificate"], user["client-key"])
        self._collections = dict(collections)
        self._path = path
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._mirrors: dict[str, dict[Key, Manifest]] = {kind: {} for kind in collections}
        self._revisions = dict.fromkeys(collections, 0)
        self._listed: set[str] = set()
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)
        self._began = time.monotonic()

    # --- what callers use ------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Return when every collection has been listed once; RuntimeError when that fails."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._began = time.monotonic()
        self._thread.start()
        if not self._ready.wait(START_SECONDS) or self._failure:
            self.__exit__()
            missing = ", ".join(sorted(set(self._collections) - self._listed))
            raise RuntimeError(f"could not list {missing} at {self._server}: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def count(self) -> int:
        """Number of records up to now."""
        return len(self._records)

    def records(self) -> list[Record]:
        with self._lock:
            return list(self._records)

    def objects(self, kind: str) -> list[Manifest]:
        """Return the objects of a kind as they are now; not to be changed."""
        with self._lock:
            return list(self._mirrors[kind].values())

    def settle(self, timeout_seconds: float = 15.0) -> None:
        """Return when everything in the cluster at the time of the call is recorded.

        Raises:
            RuntimeError: it did not arrive in time, or the recorder does not run.
        """
        if self._loop is None or not self._thread.is_alive():
            raise RuntimeError(f"the recorder does not run: {self._failure or 'enter it first'}")
        waiting = asyncio.run_coroutine_threadsafe(self._settle(timeout_seconds), self._loop)
        try:
            waiting.result(timeout_seconds + 5)
        except TimeoutError as error:
            raise RuntimeError(f"history not complete after {timeout_seconds:g} s") from error

    # --- the recording thread --------------------------------------------------------------

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  # raised again by __enter__() and settle()
            self._failure = error
            self._ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=60)
        # Line by line, so that the history of a run that was killed can be read.
        path = self._path or Path(os.devnull)
        with path.open("w", buffering=1) as self._file:
            async with aiohttp.ClientSession(
                self._server, connector=connector, timeout=timeout
            ) as self._session:
                watches = [asyncio.create_task(self._mirror(kind)) for kind in self._collections]
                stopping = asyncio.create_task(self._stopping.wait())
                done, _ = await asyncio.wait(
                    [*watches, stopping], return_when=asyncio.FIRST_COMPLETED
                )
                for task in (*watches, stopping):
                    task.cancel()
                await asyncio.gather(*watches, return_exceptions=True)
                for task in done - {stopping}:
                    task.result()
            # TLS connections that were cut in their handshake would close seconds later, or never.
            for transport in list(self._loop._transports.values()):  # type: ignore[attr-defined]
                transport.abort()
            await asyncio.sleep(_POLL_SECONDS)

    async def _mirror(self, kind: str) -> None:
        revision = 0
        while True:
            try:
                if not revision:
                    revision = await self._list(kind)
                async for change, manifest in self._watch(kind, revision):
                    revision = int(manifest["metadata"]["resourceVersion"])
                    if change != "BOOKMARK":
                        self._take(change, kind, revision, manifest)
            except _ExpiredError:
                self._record("GAP", kind, revision, {})
                revision = 0
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._failure = error if kind not in self._listed else None
                await asyncio.sleep(_RETRY_SECONDS)

    async def _get(self, kind: str) -> Manifest:
        async with self._session.get(self._collections[kind]) as answer:
            answer.raise_for_status()
            return _decoded(await answer.read())

    async def _get_in_the_end(self, kind: str) -> Manifest:
        while True:
            try:
                return await self._get(kind)
            except (aiohttp.ClientError, OSError):  # as a server that has just come back answers
                await asyncio.sleep(_RETRY_SECONDS)

    async def _list(self, kind: str) -> int:
        """Take over the collection as it is; what is known and not there any more was deleted."""
        listed = await self._get(kind)
        revision = int(listed["metadata"]["resourceVersion"])
        present: set[Key] = set()
        for item in listed["items"]:
            key = _key(item)
            present.add(key)
            known = self._mirrors[kind].get(key)
            if known is None:
                self._take("ADDED", kind, _revision(item), item)
            elif _revision(known) != _revision(item):
                self._take("MODIFIED", kind, _revision(item), item)
        # Only the list says so: the event was lost with the watch.
        for key in set(self._mirrors[kind]) - present:
            self._take("DELETED", kind, revision, self._mirrors[kind][key])
        self._failure = None
        self._listed.add(kind)
        if self._listed == set(self._collections):
            self._ready.set()
        return revision

    async def _watch(self, kind: str, revision: int) -> AsyncIterator[tuple[Any, Manifest]]:
        params = {
            "watch": "true",
            "resourceVersion": str(revision),
            "allowWatchBookmarks": "true",
            # Less than sock_read: a quiet watch ends in good order instead of breaking.
            "timeoutSeconds": "50",
        }
        async with self._session.get(self._collections[kind], params=params) as answer:
            if answer.status == 410:
                raise _ExpiredError
            answer.raise_for_status()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = _decoded(line)
                    if event["type"] == "ERROR":
                        if event["object"].get("code") == 410:
                            raise _ExpiredError
                        raise aiohttp.ClientError(f"{kind}: {event['object'].get('message')}")
                    yield event["type"], event["object"]

    def _take(self, change: Change, kind: str, revision: int, manifest: Manifest) -> None:
        meta = manifest["metadata"]
        # Large, and no invariant reads them.
        meta.pop("managedFields", None)
        (meta.get("annotations") or {}).pop(_APPLIED, None)
        with self._lock:
            if change == "DELETED":
                self._mirrors[kind].pop(_key(manifest), None)
            else:
                self._mirrors[kind][_key(manifest)] = manifest
        self._record(change, kind, revision, manifest)

    def _record(self, change: Change, kind: str, revision: int, manifest: Manifest) -> None:
        self._revisions[kind] = max(self._revisions[kind], revision)
        record = Record(round(self.elapsed_seconds, 3), change, kind, revision, manifest)
        if self._path is not None:
            self._file.write(to_line(record))
        with self._lock:
            self._records.append(record)

    async def _settle(self, timeout_seconds: float) -> None:
        async with asyncio.timeout(timeout_seconds):
            for kind in self._collections:
                listed = await self._get_in_the_end(kind)
                now = int(listed["metadata"]["resourceVersion"])
                there = {_key(item): _revision(item) for item in listed["items"]}
                while not self._has(kind, there, now):
                    await asyncio.sleep(_POLL_SECONDS)

    def _has(self, kind: str, there: dict[Key, int], now: int) -> bool:
        seen = self._revisions[kind] >= max(there.values(), default=0)
        mirror = self._mirrors[kind].items()
        return seen and all(key in there or _revision(known) > now for key, known in mirror)


def _decoded(text: bytes) -> Manifest:
    """Decode an object; what is nested deeper than any invariant reads is null."""
    # Tenants may write it, and Python's decoder gives up at a thousand levels.
    decoded: Manifest = json.loads(_shallow(text) if b"}" * _DEEPEST in text else text)
    return decoded


def _shallow(text: bytes) -> bytes:
    kept, depth, in_string, escaped = bytearray(), 0, False, False
    for byte in text:
        if in_string:
            in_string = escaped or byte != ord('"')
            escaped = byte == ord("\\") and not escaped
        elif byte == ord('"'):
            in_string = True
        elif byte in b"{[":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += b"null"
        elif byte in b"}]":
            depth -= 1
            if depth == _DEEPEST:
                continue
        if depth <= _DEEPEST:
            kept.append(byte)
    return bytes(kept)


def _key(manifest: Manifest) -> Key:
    meta = manifest["metadata"]
    return (meta.get("namespace", ""), meta["name"])


def _revision(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
