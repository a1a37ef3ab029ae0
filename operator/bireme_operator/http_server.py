"""An aiohttp application behind a door: what the operator's two endpoints listen with."""

import ssl

from aiohttp import web

from bireme.doors import Door


class HttpServer:
    """Serves one application, from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._door: Door | None = None

    async def start(
        self, app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen on ``host:port``, with TLS if there is a context; the port.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101  # setup made it
        self._door = Door(self._runner.server, tls)
        return self._door.open(host, port)

    async def stop(self) -> None:
        """Accept nobody any more and end what is open; nothing where it never started."""
        if self._door is not None:
            await self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
