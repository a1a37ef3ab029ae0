"""A proxy in front of an API server that passes on all but what the test holds back.

It runs in a thread of its own, so synchronous tests can steer it and kill the process under test
from within. It authenticates with its kubeconfig, but passes requests with a token under that.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from bireme.kube import names
from bireme.kube.credentials import Credentials, CredentialSource
from testbed.fakeapi.faults import WRITES, Fault, FaultScript
from testbed.fakeapi.server import hang_up, kubeconfig_of, status_answer

_T = TypeVar("_T")
# The length goes as well: bodies are passed on in chunks.
_HOP_BY_HOP = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
_START_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Write:
    """A counted write; the first one has number 1."""

    number: int
    method: str
    path: str


def not_lease_nor_event(method: str, path: str) -> bool:
    """Match the writes that are counted by default: those that change what users see."""
    claims = names.path("clusterclaims")
    resources = ("/apis/coordination.k8s.io/", "/apis/events.k8s.io/", claims)
    return method in WRITES and not path.startswith(resources) and "/events" not in path


class FaultProxy:
    """``with FaultProxy(kubeconfig) as proxy:`` serves until the block ends.

    Give the process under test ``proxy.kubeconfig``. ``proxy.requests`` counts by (method or
    ``WATCH``, path).
    """

    def __init__(
        self, kubeconfig: Path, *, is_counted: Callable[[str, str], bool] = not_lease_nor_event
    ) -> None:
        self.faults = FaultScript()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.writes: list[Write] = []
        self.dry_runs = 0
        """Counted writes in the order of their arrival, whatever became of them."""
        self.url = ""
        self._source = CredentialSource(kubeconfig)
        self._is_counted = is_counted
        self._kills: dict[tuple[int, str], Callable[[Write], None]] = {}
        self._folder = TemporaryDirectory(prefix="faultproxy-")
        self._watches: list[web.Request] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faultproxy")
        self._open = asyncio.Event()
        self._open.set()

    @property
    def kubeconfig(self) -> Path:
        return Path(self._folder.name) / "kubeconfig"

    def __enter__(self) -> Self:
        """Serve on a free loopback port; CredentialsError when the kubeconfig cannot be used."""
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end_thread()
            raise
        self.kubeconfig.write_bytes(msgspec.json.encode(kubeconfig_of(self.url)))
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._end_thread()

    def on_write(
        self, number: int, hook: Callable[[Write], None], *, when: Literal["before", "after"]
    ) -> None:
        """Call ``hook`` in the proxy's thread at the counted write ``number``, then hang up.

        ``before``: the API server never sees the write. ``after``: it was done, but its author
        never learns of it. These are the two ways a crash can meet a write.
        """
        self._kills[number, when] = hook

    def cut_watches(self) -> int:
        """Break every open watch and return how many there were."""
        return self._call(self._cut_watches())

    def hold(self) -> None:
        """Let nothing pass, neither requests nor lines of watches, until released."""
        self._call(self._do(self._open.clear))

    def release(self) -> None:
        self._call(self._do(self._open.set))

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(_START_TIMEOUT_SECONDS)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_SECONDS)
        self._loop.close()
        self._folder.cleanup()

    async def _start(self) -> None:
        own = await self._source.current()
        # Trusts the same server, but shows no certificate: clients bring their own tokens.
        if isinstance(own.tls, ssl.SSLContext):
            trusted = b"".join(own.tls.get_ca_certs(binary_form=True))
            own = replace(own, tls=ssl.create_default_context(cadata=trusted))
        self._anonymous = own
        self._session = aiohttp.ClientSession(
            # Every watch holds a connection for as long as it lasts.
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.1,
            handler_cancellation=True,
            auto_decompress=False,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _stop(self) -> None:
        self._open.set()
        await self._cut_watches()
        await self._runner.cleanup()
        await self._session.close()

    async def _cut_watches(self) -> int:
        for request in self._watches:
            hang_up(request)
        return len(self._watches)

    async def _do(self, act: Callable[[], None]) -> None:
        act()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") in {"1", "true"}
        self.requests["WATCH" if is_watch else request.method, request.path] += 1
        write = self._count(request)
        await self._open.wait()
        fault = self.faults.next(request.method, request.path, is_watch)
        if fault is not None:
            await asyncio.sleep(fault.delay_seconds)
            if fault.status is not None:
                return status_answer(
                    fault.status, fault.reason, "injected fault", fault.retry_after_seconds
                )
        if self._killed(write, "before") or (fault is not None and fault.drop):
            hang_up(request)
            return web.Response()
        return await self._forward(request, write, fault, is_watch=is_watch)

    def _count(self, request: web.Request) -> Write | None:
        if not self._is_counted(request.method, request.path):
            return None
        if "dryRun" in request.query:  # it writes nothing
            self.dry_runs += 1
            return None
        write = Write(len(self.writes) + 1, request.method, request.path)
        self.writes.append(write)
        return write

    def _killed(self, write: Write | None, when: str) -> bool:
        hook = self._kills.get((write.number, when)) if write else None
        if hook is None or write is None:
            return False
        hook(write)
        return True

    async def _forward(
        self, request: web.Request, write: Write | None, fault: Fault | None, *, is_watch: bool
    ) -> web.StreamResponse:
        try:
            upstream = await self._ask(request, await self._source.current())
        except aiohttp.ClientError as error:
            return status_answer(502, "BadGateway", f"the API server did not answer: {error}")
        async with upstream:
            if self._killed(write, "after") or (fault is not None and fault.drop_answer):
                # Only a whole answer proves that the write was done.
                await upstream.read()
                hang_up(request)
                return web.Response()
            silent = fault is not None and fault.silent
            return await self._pass_on(request, upstream, is_watch=is_watch, silent=silent)

    async def _ask(self, request: web.Request, credentials: Credentials) -> aiohttp.ClientResponse:
        headers = _passed_on(request.headers)
        if "Authorization" in headers:
            credentials = self._anonymous
        elif authorization := credentials.authorization():
            headers["Authorization"] = authorization
        return await self._session.request(
            request.method,
            URL(credentials.server + request.raw_path, encoded=True),
            headers=headers,
            data=BytesIO(await request.read()) if request.can_read_body else None,
            ssl=credentials.tls,
            server_hostname=credentials.server_hostname,
            timeout=aiohttp.ClientTimeout(total=None, connect=10),
            allow_redirects=False,
        )

    async def _pass_on(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        *,
        is_watch: bool,
        silent: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=upstream.status, headers=_passed_on(upstream.headers))
        if is_watch:
            self._watches.append(request)
        try:
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await self._open.wait()
                if not silent:
                    await response.write(chunk)
        except (aiohttp.ClientError, ConnectionResetError):
            hang_up(request)
        finally:
            self._watches = [watch for watch in self._watches if watch is not request]
        return response


def _passed_on(headers: Any) -> CIMultiDict[str]:
    kept = CIMultiDict(headers)
    for name in _HOP_BY_HOP:
        kept.popall(name, None)
    return kept
