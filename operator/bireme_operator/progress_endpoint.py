"""The progress endpoint over HTTP: where training pods report how far they are.

Only the leader keeps what is reported. A standby answers 503 with Retry-After: a Service gives the
next connection to another pod, and a report that is lost is followed by a fresher one.
"""

import asyncio
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from bireme.core.errors import told
from bireme.kube.progress_access import path
from bireme_operator.http_server import HttpServer
from bireme_operator.metrics import Metrics
from bireme_operator.progress_desk import ProgressDesk
from bireme_operator.progress_openapi import DOCUMENT, OPENAPI_PATH
from bireme_operator.progress_payload import MOST_BYTES, PayloadError, decode
from bireme_operator.progress_tokens import Refused

_log = structlog.get_logger(__name__)
_BODY_SECONDS: Final = 5.0
_STANDBY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 60.0
"""How often the certificate's files are looked at; they live for weeks."""


class Certificate:
    """A TLS context that follows its files; ``clock`` is monotonic seconds."""

    def __init__(self, cert_file: str, key_file: str, clock: Callable[[], float]) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._files = (Path(cert_file), Path(key_file))
        self._clock = clock
        self._looked = clock()
        self._loaded = self._stamp()
        self._refused: tuple[int, ...] | None = None
        self.context.load_cert_chain(*self._files)

    def follow(self) -> None:
        """Load the files again if they have changed; connections from then on get the new one.

        What cannot be loaded may be halfway through being replaced, and is tried at every look: the
        old certificate is served meanwhile. A warning says so, once for each state of the files.
        """
        if self._clock() - self._looked < _LOOK_SECONDS:
            return
        self._looked = self._clock()
        stamp: tuple[int, ...] = ()
        try:
            if (stamp := self._stamp()) != self._loaded:
                self.context.load_cert_chain(*self._files)
                self._loaded = stamp
            self._refused = None
        except OSError as error:  # ssl.SSLError is one
            if stamp != self._refused:
                files = [str(file) for file in self._files]
                _log.warning(
                    "certificate not loaded; the old one serves", files=files, error=told(error)
                )
            self._refused = stamp

    def _stamp(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns for file in self._files)


class ProgressEndpoint:
    """The server; ``desk`` gives that of the present term, or None on a standby."""

    def __init__(self, desk: Callable[[], ProgressDesk | None], metrics: Metrics) -> None:
        self._desk = desk
        self._metrics = metrics
        self._certificate: Certificate | None = None
        self._server = HttpServer()

    async def start(self, host: str, port: int, certificate: Certificate | None) -> int:
        """Listen on ``host:port``, with TLS if there is a certificate; the port.

        Raises:
            OSError: the port is taken.
        """
        self._certificate = certificate
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post(path(("{namespace}", "{name}")), self._receive)
        app.router.add_get(OPENAPI_PATH, _describe)
        tls = certificate.context if certificate else None
        return await self._server.start(app, host, port, tls)

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    async def _receive(self, request: web.Request) -> web.Response:
        if self._certificate is not None:
            self._certificate.follow()
        try:
            await self._hear(request)
        except Refused as refused:
            self._metrics.reports.labels(str(refused.status)).inc()
            return _refusal(refused)
        self._metrics.reports.labels("200").inc()
        return web.json_response({})

    async def _hear(self, request: web.Request) -> None:
        """Raises Refused unless the report is taken."""
        desk = self._desk()
        if desk is None:
            raise Refused(503, "this replica does not lead; try again", _STANDBY_SECONDS)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, "send the projected token as 'Authorization: Bearer TOKEN'")
        key = (request.match_info["namespace"], request.match_info["name"])
        uid = await desk.admit(key, token.strip(), request.remote or "")
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
            desk.accept(uid, decode(body))
        except TimeoutError as error:
            raise Refused(408, f"the body took longer than {_BODY_SECONDS:g} s") from error
        except web.HTTPRequestEntityTooLarge as error:
            raise Refused(413, f"the body is larger than {MOST_BYTES} bytes") from error
        except PayloadError as error:
            raise Refused(400, str(error)) from error


async def _describe(_: web.Request) -> web.Response:
    return web.json_response(DOCUMENT)


def _refusal(refused: Refused) -> web.Response:
    """Why, as JSON; the connection ends, because its body may not have been read."""
    headers = {"Connection": "close"}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.retry_after_seconds:
        headers["Retry-After"] = str(math.ceil(refused.retry_after_seconds))
    said = {"status": refused.status, "message": str(refused)}
    answer = web.json_response(said, status=refused.status, headers=headers)
    answer.force_close()
    return answer
