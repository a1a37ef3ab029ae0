"""The extender's HTTP side: the two verbs, health, metrics, and the OpenAPI document.

:meth:`ExtenderApp.__call__` answers ``/filter`` and ``/prioritize`` from bytes to bytes, before
FastAPI's middleware and routing; :mod:`bireme_extender.connection` gives most answers even before
that. All other paths are ordinary routes. A failed request is never a 500: the caller gets a 4xx or
503 with one JSON sentence.

Any client in the cluster may send any body. So bodies are bounded before they are read: in length,
in time, and in the total number of bytes in progress.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Receive, Scope, Send

from bireme_extender import protocol
from bireme_extender.cache import ClusterCache
from bireme_extender.metrics import Metrics
from bireme_extender.scoring import HIGHEST_SCORE
from bireme_extender.verbs import CacheBehind, Verb, Verbs

VERSION: Final = version("bireme")
VERBS: Final[Mapping[str, Verb]] = {"/filter": "filter", "/prioritize": "prioritize"}
# Number of unfinished bodies of maximum length in memory: a client could open many connections and
# finish no body.
_BODIES_AT_ONCE: Final = 4
_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
_ALLOW: Final = (b"allow", b"POST")


class BodyRefused(Exception):  # noqa: N818  # it becomes an answer, not a traceback
    """The body is refused: ``status`` and text of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Disconnected(Exception):  # noqa: N818  # no client is left to answer
    """The client hung up before its body was complete."""


class BodyReader:
    """Reads whole bodies within ``limit_bytes`` each and ``timeout_seconds`` each."""

    def __init__(self, limit_bytes: int, timeout_seconds: float) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_seconds = timeout_seconds
        self._budget_bytes = _BODIES_AT_ONCE * limit_bytes

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            BodyRefused: it is too long, too slow, or too much is being read already.
            Disconnected: the client hung up.
        """
        # Refuse a too large content-length before any byte of the body is read. Chunked bodies have
        # no length and are counted while they arrive.
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._limit_bytes:
                raise self._too_long()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body"):
                    body: bytes = message["body"]
                    if len(body) > self._limit_bytes:
                        raise self._too_long()
                    return body
                return await self._rest(message, receive)
        except TimeoutError:
            raise BodyRefused(
                408, f"the body was not complete after {self._timeout_seconds:g} s; send it at once"
            ) from None

    async def _rest(self, message: Any, receive: Receive) -> bytes:
        body = bytearray()
        try:
            while True:
                if message["type"] != "http.request":
                    raise Disconnected
                self._take(body, message["body"])
                if not message.get("more_body"):
                    return bytes(body)
                message = await receive()
        finally:
            self._budget_bytes += len(body)

    def _take(self, body: bytearray, chunk: bytes) -> None:
        if len(chunk) > self._budget_bytes:
            raise BodyRefused(503, "too many large bodies at once; send fewer at a time")
        body += chunk
        self._budget_bytes -= len(chunk)
        if len(body) > self._limit_bytes:
            raise self._too_long()

    def _too_long(self) -> BodyRefused:
        return BodyRefused(
            413,
            f"the body is longer than {self._limit_bytes} bytes; set nodeCacheCapable: true for "
            "this extender",
        )


class ExtenderApp(FastAPI):
    """The extender as an ASGI application.

    It does not answer the verbs at ``open_port``, which is open to the network; 0 means no such
    port.
    """

    def __init__(
        self, verbs: Verbs, metrics: Metrics, bodies: BodyReader, open_port: int = 0
    ) -> None:
        super().__init__(
            title="Bireme scheduler extender", version=VERSION, docs_url=None, redoc_url=None
        )
        self._bodies = bodies
        self._metrics = metrics
        self._open_port = open_port
        self._verbs = verbs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: a verb at once, anything else by the routes."""
        verb = VERBS.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None or (self._open_port and scope["server"][1] == self._open_port):
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
            await _answer(send, 200, await self._verbs.call(verb, body))
        except Disconnected:
            self._count(scope, "disconnected")
        except BodyRefused as refusal:
            self._count(scope, str(refusal.status))
            headers = (
                (_CLOSE, _ALLOW) if refusal.status == HTTPStatus.METHOD_NOT_ALLOWED else (_CLOSE,)
            )
            await _answer(send, refusal.status, _error(str(refusal)), *headers)
        except CacheBehind as error:
            self._count(scope, "503")
            await _answer(send, 503, _error(str(error)))
        except protocol.MALFORMED as error:
            self._count(scope, "400")
            await _answer(send, 400, _error(f"the body is not an ExtenderArgs object: {error}"))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != "POST":
            raise BodyRefused(405, f"{scope['path']} is called with POST, not {scope['method']}")
        return await self._bodies.read(scope, receive)

    def _count(self, scope: Scope, outcome: str) -> None:
        self._metrics.count(scope["path"].removeprefix("/"), outcome)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, including the verbs, which are no routes."""
        return _with_verbs(super().openapi())


def make_app(
    verbs: Verbs, metrics: Metrics, cache: ClusterCache, bodies: BodyReader, open_port: int = 0
) -> FastAPI:
    """Return the application with its health, metrics and version routes."""
    app = ExtenderApp(verbs, metrics, bodies, open_port)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", responses={503: {"description": "Not ready, and why"}})
    async def readyz(response: Response) -> dict[str, list[str]]:
        """The cache is complete and the API server was heard lately; otherwise 503 and why."""
        troubles = cache.troubles()
        response.status_code = 503 if troubles else 200
        return {"troubles": troubles}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics_page() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/version")
    async def version_page() -> dict[str, str]:
        """The version of Bireme."""
        return {"version": VERSION}

    return app


async def _answer(
    send: Callable[[Any], Awaitable[None]], status: int, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _error(message: str) -> bytes:
    return msgspec.json.encode({"error": message})


class FilterResult(msgspec.Struct, rename="pascal"):
    nodes: None
    node_names: list[str]
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


class HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_SCORE)]


def _with_verbs(document: dict[str, Any]) -> dict[str, Any]:
    """Add the verbs to ``document``."""
    # The schema of a request comes from the types that decode it, so that both agree. Only
    # NodeNames is raw in these types.
    kinds = (protocol.ExtenderArgs, FilterResult, list[HostPriority])
    (args, result, scores), types = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    names = {"type": ["array", "null"], "items": {"type": "string"}}
    types["ExtenderArgs"]["properties"]["NodeNames"] = names
    document.setdefault("components", {}).setdefault("schemas", {}).update(types)
    document["paths"] |= {
        "/filter": {"post": _operation("Nodes that may take the pod", args, result)},
        "/prioritize": {"post": _operation("Scores of the best nodes", args, scores)},
    }
    return document


def _operation(summary: str, args: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    return {
        "summary": summary,
        "requestBody": {"required": True, **content(args)},
        "responses": {
            "200": {"description": summary, **content(reply)},
            "400": {"description": "The body is not an ExtenderArgs object"},
            "405": {"description": "The method is not POST"},
            "408": {"description": "The body came too slowly"},
            "413": {"description": "The body is too long"},
            "503": {"description": "The cache is behind, or too many large bodies at once"},
        },
    }
