"""One open watch of the fake API server: a feed of lines, and the connection they go to."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from tests.support.fakeapi.selection import Selector
from tests.support.fakeapi.store import Change, Object


class Feed:
    """Makes the lines of one watch out of changes; ``put`` takes them, and None as the end."""

    def __init__(
        self, selector: Selector, put: Callable[[bytes | None], None], *, bookmarks: bool
    ) -> None:
        self._selector = selector
        self._put = put
        self._bookmarks = bookmarks

    def change(self, change: Change) -> None:
        """Queue the event that this change is to a watcher with this selector."""
        before = change.before is not None and self._selector(change.before)
        after = change.after is not None and self._selector(change.after)
        if after:
            self._event("MODIFIED" if before else "ADDED", change.after)
        elif before:
            left = change.before or {}
            meta = {**left["metadata"], "resourceVersion": str(change.version)}
            self._event("DELETED", {**left, "metadata": meta})

    def bookmark(self, version: int) -> None:
        """Queue a bookmark, if this watch asked for them."""
        if self._bookmarks:
            self._event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def error(self, code: int, reason: str, message: str) -> None:
        """Queue an in-stream error and the end of the stream, as the real server does."""
        self._event("ERROR", {"code": code, "reason": reason, "message": message})
        self.end()

    def end(self) -> None:
        """Queue the end of the stream."""
        self._put(None)

    def send(self, line: bytes) -> None:
        """Queue a raw line."""
        self._put(line + b"\n")

    def _event(self, type_: str, obj: Object | dict[str, Any] | None) -> None:
        self.send(msgspec.json.encode({"type": type_, "object": obj}))


class Watch(Feed):
    """Lines are queued at once and sent by :meth:`run`; a silent watch keeps them all."""

    def __init__(
        self, resource: str, selector: Selector, request: web.Request, *, silent: bool
    ) -> None:
        self.resource = resource
        self.silent = silent
        self._request = request
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        asked = request.query.get("allowWatchBookmarks") in {"1", "true"}
        super().__init__(selector, self._lines.put_nowait, bookmarks=asked)

    def cut(self, last: bytes) -> None:
        """Send ``last`` as it is and break the connection (a silent watch breaks at once)."""
        transport = self._request.transport
        if transport is None:
            return
        if last:
            transport.write(b"%x\r\n%s\r\n" % (len(last), last))
            transport.close()
        else:
            transport.abort()
        self._lines.put_nowait(None)

    async def run(self, timeout_seconds: float) -> web.StreamResponse:
        """Stream until an error was sent, the time is over or the client is gone."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(self._request)
        try:
            async with asyncio.timeout(timeout_seconds):
                while (line := await self._lines.get()) is not None:
                    if not self.silent:
                        await response.write(line)
        except (TimeoutError, ConnectionResetError):
            pass  # the end of every watch: the server's time limit or the client's hang-up
        return response
