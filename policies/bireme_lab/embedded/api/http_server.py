"""The HTTP side of the API server: requests in, JSON and watch streams out."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.reading import WatchStart
from bireme_lab.embedded.api.requests import ADMIN, ApiAnswer, ApiRequest, ApiUser
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.service_proxy import ServiceProxy
from bireme_lab.embedded.api.store import StoreChange

_JSON: Final = "application/json"
_BOOKMARK_SECONDS: Final = 60.0
_BODY_LIMIT_BYTES: Final = 3 * 1024**2
_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}


@dataclass(eq=False)
class ApiHttpServer:
    """Serves an API server at ``host`` and ``port``.

    Attributes:
        authenticate: Returns who sends a bearer token, None for nobody. Requests without one are
            the administrator's.
    """

    api: ApiServer
    host: str = "127.0.0.1"
    port: int = 0
    authenticate: Callable[[str], ApiUser | None] = lambda _: None
    anonymous: ApiUser = ADMIN
    url: str = ""
    proxy: ServiceProxy = field(init=False)
    _runner: web.AppRunner | None = None

    def __post_init__(self) -> None:
        self.proxy = ServiceProxy(self.api)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Watches that clients left open must not hold up the end.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.host, self.port = self._runner.addresses[0][:2]
        self.url = f"http://{self.host}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, incoming: web.Request) -> web.StreamResponse:
        if self._is_from_page(incoming):
            text = "the embedded API server answers programs on this machine, no pages of browsers"
            return _encoded(ApiAnswer(403, ApiRefusal(403, "Forbidden", text).to_object()))
        user = self._user(incoming)
        if user is None:
            return _encoded(ApiAnswer(401, _UNAUTHORIZED))
        request = ApiRequest(
            method=incoming.method,
            path=incoming.path,
            query=dict(incoming.query),
            user=user,
            content_type=incoming.content_type,
            accept=incoming.headers.get("Accept", _JSON),
            user_agent=incoming.headers.get("User-Agent", ""),
            body=await incoming.read() if incoming.can_read_body else b"",
        )
        try:
            if (passed_on := await self.proxy.answer(incoming, request)) is not None:
                return passed_on
        except ApiRefusal as refusal:
            return _encoded(ApiAnswer(refusal.status, refusal.to_object()))
        answer = self.api.answer(request)
        if isinstance(answer, WatchStart):
            return await self._watch(incoming, answer)
        return _encoded(answer)

    def _is_from_page(self, incoming: web.Request) -> bool:
        """Return whether a page in a browser sends a request: it would act as the administrator."""
        host = incoming.host.rpartition(":")[0] or incoming.host
        return "Origin" in incoming.headers or host not in ("localhost", self.host)

    def _user(self, incoming: web.Request) -> ApiUser | None:
        """Return who sends a request; None for a token that nobody has."""
        scheme, _, token = incoming.headers.get("Authorization", "").partition(" ")
        user: ApiUser | None = self.anonymous
        if scheme.lower() == "bearer" and token:
            user = self.authenticate(token)
        name = incoming.headers.get("Impersonate-User")
        if user is None or not name:
            return user
        groups = tuple(incoming.headers.getall("Impersonate-Group", ()))
        return ApiUser(name, (*groups, "system:authenticated"))

    async def _watch(self, incoming: web.Request, start: WatchStart) -> web.StreamResponse:
        """Stream the changes that a watch wants, until its time is over or the client is gone."""
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        feed = Feed(start, lines.put_nowait)
        for obj in start.initial:
            feed.send("ADDED", start.form(obj))
        for change in start.changes:
            feed.change(change)
        if start.marks_initial_end:
            feed.bookmark(self.api.store.version, _INITIAL_END)
        subscribers = self.api.store.collection(start.resource.path).subscribers
        subscribers.append(feed.change)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        await response.prepare(incoming)
        try:
            async with asyncio.timeout(start.timeout_seconds):
                while True:
                    try:
                        async with asyncio.timeout(_BOOKMARK_SECONDS):
                            await response.write(await lines.get())
                    except TimeoutError:
                        if start.sends_bookmarks:
                            feed.bookmark(self.api.store.version, {})
        except (TimeoutError, ConnectionResetError):
            pass  # the end of every watch: its time, or the client hung up
        finally:
            subscribers.remove(feed.change)
        return response


class Feed:
    """Makes the lines of one watch from changes; ``put`` takes them."""

    def __init__(self, start: WatchStart, put: Callable[[bytes], None]) -> None:
        self._start = start
        self._put = put

    def change(self, change: StoreChange) -> None:
        """Send the event that a change is to a watcher with this selector."""
        selector = self._start.selector
        was_in = change.old is not None and selector(change.old)
        is_in = change.new is not None and selector(change.new)
        if is_in and change.new is not None:
            self.send("MODIFIED" if was_in else "ADDED", self._start.form(change.new))
        elif was_in and change.old is not None:
            meta = {**change.old["metadata"], "resourceVersion": str(change.version)}
            self.send("DELETED", self._start.form({**change.old, "metadata": meta}))

    def bookmark(self, version: int, annotations: Mapping[str, str]) -> None:
        resource = self._start.resource
        meta: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = dict(annotations)
        obj = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": meta}
        self.send("BOOKMARK", obj)

    def send(self, kind: str, obj: Object) -> None:
        self._put(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")


_UNAUTHORIZED: Final = ApiRefusal(401, "Unauthorized", "Unauthorized").to_object()


def _encoded(answer: ApiAnswer) -> web.Response:
    if isinstance(answer.body, str):
        return web.Response(text=answer.body, status=answer.code)
    if isinstance(answer.body, bytes):
        return web.Response(body=answer.body, status=answer.code)
    body: Any = answer.body
    response = web.Response(body=msgspec.json.encode(body), status=answer.code, content_type=_JSON)
    for text in answer.warnings:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{quoted}"')
    if answer.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(answer.retry_after_seconds)
    return response
