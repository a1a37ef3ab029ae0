"""/healthz, /readyz and /metrics of the operator."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bireme_operator.http_server import HttpServer


class Endpoint:
    """A small HTTP server; ``healthy`` and ``ready`` return what is wrong, or nothing."""

    def __init__(
        self, registry: CollectorRegistry, healthy: Callable[[], str], ready: Callable[[], str]
    ) -> None:
        self._registry = registry
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server = HttpServer()

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``."""
        app = web.Application()
        for path in self._checks:
            app.router.add_get(path, self._check)
        app.router.add_get("/metrics", self._metrics)
        await self._server.start(app, host, port)

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    async def _check(self, request: web.Request) -> web.Response:
        wrong = self._checks[request.path]()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
