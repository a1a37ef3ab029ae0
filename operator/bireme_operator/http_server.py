"""HTTP servers of the operator: one with bounded connections, and /healthz, /readyz, /metrics."""

import ssl
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bireme.connections import MOST_OPEN, ConnectionLimiter

MAX_OF_PROXY: Final = MOST_OPEN // 2
"""Connections from one address where users are answered, who all come through the API server."""


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
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101  # setup made it
        # The port is open to the cluster: without a bound, idle connections use up the files.
        self._limiter = ConnectionLimiter(self._runner.server, tls, max_of_one)
        return self._limiter.open(host, port)

    async def stop(self) -> None:
        """Accept no more connections and end those that are open, if it was started."""
        if self._limiter is not None:
            await self._limiter.close()
        if self._runner is not None:
            await self._runner.cleanup()


class Part(Protocol):
    """What answers beside the probes."""

    def add_to(self, app: web.Application) -> None: ...


class HealthEndpoint:
    """Endpoint of /healthz, /readyz and /metrics; each check returns what is wrong, or ""."""

    def __init__(
        self, registry: CollectorRegistry, healthy: Callable[[], str], ready: Callable[[], str]
    ) -> None:
        self._registry = registry
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server = HttpServer()

    async def start(self, host: str, port: int, *parts: Part) -> None:
        """Listen on ``host:port``, with ``parts`` beside what it serves itself; raises OSError."""
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
