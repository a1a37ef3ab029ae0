"""The HTTP side: FastAPI for health, metrics and documentation, a short cut for the two verbs.

The verbs are answered straight from bytes, before routing and middleware: the scheduler handles
one pod at a time, so every microsecond here is added to every pod. No answer is ever a 500; what
is no request gets a 4xx with one JSON sentence that says what to change.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Receive, Scope, Send

from bireme_extender import exchange
from bireme_extender.bodies import BodyReader, BodyRefused, Disconnected
from bireme_extender.cache import ClusterCache
from bireme_extender.metrics import Metrics
from bireme_extender.openapi import with_verbs
from bireme_extender.verbs import CacheBehind, Verbs

VERSION: Final = version("bireme")
_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
_ALLOW: Final = (b"allow", b"POST")


class ExtenderApp(FastAPI):
    """The extender as an ASGI application; it answers no verbs at ``open_port``."""

    def __init__(
        self, verbs: Verbs, metrics: Metrics, bodies: BodyReader, open_port: int = 0
    ) -> None:
        super().__init__(
            title="Bireme scheduler extender", version=VERSION, docs_url=None, redoc_url=None
        )
        self._bodies = bodies
        self._metrics = metrics
        self._open_port = open_port
        self._verbs = {"/filter": verbs.filter, "/prioritize": verbs.prioritize}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, the verbs first."""
        verb = self._verbs.get(scope["path"]) if scope["type"] == "http" else None
        if verb is None or (self._open_port and scope["server"][1] == self._open_port):
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
            await _answer(send, 200, await verb(body))
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
        except exchange.MALFORMED as error:
            self._count(scope, "400")
            await _answer(send, 400, _error(f"the body is no ExtenderArgs: {error}"))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != "POST":
            raise BodyRefused(405, f"{scope['path']} is called with POST, not {scope['method']}")
        return await self._bodies.read(scope, receive)

    def _count(self, scope: Scope, outcome: str) -> None:
        self._metrics.count(scope["path"].removeprefix("/"), outcome)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, verbs included."""
        return with_verbs(super().openapi())


def make_app(
    verbs: Verbs, metrics: Metrics, cache: ClusterCache, bodies: BodyReader, open_port: int = 0
) -> FastAPI:
    """The application with its health, metrics and version routes."""
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
