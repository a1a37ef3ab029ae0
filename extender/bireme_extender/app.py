"""The HTTP side: FastAPI for health, metrics and documentation, a short cut for the two verbs.

The verbs are answered straight from bytes, before routing and middleware: the scheduler handles
one pod at a time, so every microsecond here is added to every pod. No answer is ever a 500; what
is no request gets a 4xx with one JSON sentence that says what to change.
"""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Receive, Scope, Send

from bireme_extender import exchange
from bireme_extender.bodies import BodyReader, BodyRefused, Disconnected
from bireme_extender.cache import ClusterCache
from bireme_extender.metrics import Metrics
from bireme_extender.verbs import CacheBehind, Verbs

VERSION: Final = version("bireme")
_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")

_ARGS_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "Pod": {"type": ["object", "null"], "description": "a Kubernetes Pod"},
        "Nodes": {"type": ["object", "null"], "description": "a NodeList; names are wanted"},
        "NodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
_FILTER_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "Nodes": {"type": "null"},
        "NodeNames": {"type": "array", "items": {"type": "string"}},
        "FailedNodes": {"type": "object", "additionalProperties": {"type": "string"}},
        "FailedAndUnresolvableNodes": {
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
        "Error": {"type": "string"},
    },
}
_SCORES_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "Host": {"type": "string"},
            "Score": {"type": "integer", "minimum": 0, "maximum": 10},
        },
    },
}


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
            await _answer(send, refusal.status, _error(str(refusal)), _CLOSE)
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
        schema = super().openapi()
        schema["paths"] |= {
            "/filter": {"post": _operation("Nodes that may take the pod", _FILTER_SCHEMA)},
            "/prioritize": {"post": _operation("Scores of the best nodes", _SCORES_SCHEMA)},
        }
        return schema


def make_app(
    verbs: Verbs, metrics: Metrics, cache: ClusterCache, bodies: BodyReader, open_port: int = 0
) -> FastAPI:
    """The application with its health, metrics and version routes."""
    app = ExtenderApp(verbs, metrics, bodies, open_port)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, list[str]]:
        """The cache is complete and the API server was heard lately; otherwise 503 and why."""
        troubles = cache.troubles()
        response.status_code = 503 if troubles else 200
        return {"troubles": troubles}

    @app.get("/metrics")
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


def _operation(summary: str, reply: dict[str, Any]) -> dict[str, Any]:
    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    return {
        "summary": summary,
        "requestBody": {"required": True, **content(_ARGS_SCHEMA)},
        "responses": {
            "200": {"description": summary, **content(reply)},
            **{
                code: {"description": text}
                for code, text in (
                    ("400", "The body is no ExtenderArgs"),
                    ("408", "The body came too slowly"),
                    ("413", "The body is too long"),
                    ("503", "The cache is behind the API server, or too many large bodies at once"),
                )
            },
        },
    }
