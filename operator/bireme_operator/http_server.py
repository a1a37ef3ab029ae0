"""HTTP servers of the operator, with bounded connections and refusals in the API server's form."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bireme.connections import MAX_OPEN, ConnectionLimiter, Peer

MAX_OF_PROXY: Final = MAX_OPEN // 2
"""Connections from one address if users are served, who all come through the API server."""

_LIMITER: Final = web.AppKey("limiter", ConnectionLimiter)


def keep_connection(request: web.Request) -> None:
    """Keep the connection of ``request``, whose sender is known, until its answer."""
    limiter, peer = request.app.get(_LIMITER), _peer_of(request)
    if limiter is not None and peer is not None:  # without a limiter connections stay open
        limiter.begin_answer(peer)


def _peer_of(request: web.Request) -> Peer | None:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return (peer[0], peer[1]) if peer else None


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    peer = _peer_of(request)
    try:
        return await handler(request)
    finally:
        if peer is not None:
            request.app[_LIMITER].end_answer(peer)


def _protocol(runner: web.AppRunner) -> asyncio.BaseProtocol:
    assert runner.server is not None  # noqa: S101  # start sets it up before opening the port
    return runner.server()


class HttpServer:
    """Serves one aiohttp application, with a bound on its open connections."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._limiter: ConnectionLimiter | None = None

    async def start(
        self,
        app: web.Application,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        max_of_one: int | None = None,
    ) -> int:
        """Listen on ``host:port``, with TLS if there is a context; return the port.

        ``max_of_one`` bounds the connections from one address.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        self._runner = runner = web.AppRunner(app, access_log=None)
        # The port is open to the cluster: without a bound, idle connections exhaust the files.
        self._limiter = ConnectionLimiter(lambda: _protocol(runner), tls, max_of_one)
        app[_LIMITER] = self._limiter
        app.middlewares.append(_answer)
        await runner.setup()
        return self._limiter.open(host, port)

    async def stop(self) -> None:
        """Stop accepting connections and close the open ones, if the server was started."""
        if self._limiter is not None:
            await self._limiter.close()
        if self._runner is not None:
            await self._runner.cleanup()


class Endpoint(Protocol):
    """An endpoint beside the probes."""

    def add_to(self, app: web.Application) -> None: ...


class HealthEndpoint:
    """Endpoint of /healthz, /readyz and /metrics; each check returns the fault, or ""."""

    def __init__(
        self, registry: CollectorRegistry, healthy: Callable[[], str], ready: Callable[[], str]
    ) -> None:
        self._registry = registry
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server = HttpServer()

    async def start(self, host: str, port: int, *parts: Endpoint) -> None:
        """Listen on ``host:port``, and serve ``parts`` too; raises OSError."""
        app = web.Application()
        for part in parts:
            part.add_to(app)
        for path in self._checks:
            app.router.add_get(path, self._check)
        app.router.add_get("/metrics", self._metrics)
        max_of_one = MAX_OF_PROXY if parts else None
        await self._server.start(app, host, port, max_of_one=max_of_one)

    async def stop(self) -> None:
        await self._server.stop()

    async def _check(self, request: web.Request) -> web.Response:
        wrong = self._checks[request.path]()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class RequestRefused(Exception):  # noqa: N818  # a verdict, not a malfunction
    """Refusal of a request with an HTTP ``status``; the text has the reason and the remedy."""

    def __init__(self, status: int, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
}


def refusal(refused: RequestRefused) -> web.Response:
    """Return the response to a refused request, in the form of the API server's.

    Behind its proxy a client reads both alike.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": refused.status,
        "reason": _REASONS.get(refused.status, "ServiceUnavailable"),
        "message": str(refused),
    }
    headers = {}
    if refused.retry_after_seconds:
        headers["Retry-After"] = str(int(refused.retry_after_seconds) + 1)
    return web.json_response(body, status=refused.status, headers=headers)
