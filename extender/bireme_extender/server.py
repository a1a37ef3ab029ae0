"""The extender as a running process: one event loop, one HTTP server, its watches.

It serves from its first second, even if the API server does not answer: it refuses filter calls
that it cannot decide yet, and ``/readyz`` reports the reason. API errors never end a watch. A bug
ends the watch and the process, because an extender that misses events must not continue. After
SIGTERM requests in progress finish.
"""

import asyncio
import gc
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bireme.connections import ConnectionLimiter
from bireme.core.bounds import split_address
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.watch import Timing
from bireme_extender.app import VERSION, BodyReader, make_app
from bireme_extender.cache import ClusterCache, PlanWaits
from bireme_extender.connection import Front, VerbsProtocol
from bireme_extender.metrics import Metrics
from bireme_extender.scoring import ScorerLoader
from bireme_extender.settings import ExtenderSettings
from bireme_extender.verbs import Verbs

# Longer than kube-scheduler keeps idle connections (90 s). Otherwise a call could hit a connection
# that is being closed, and the scheduler does not try again.
KEEP_ALIVE_SECONDS: Final = 180

PLAN_WAIT_SECONDS = 0.2
"""Time that a filter call waits for a plan that the watch has not delivered yet, at most once per
pod: it must be well below the scheduler's ``httpTimeout``."""
MAX_BODY_BYTES = 8 * 2**20
"""Size of a request body: 20000 node names and a pod take about 1 MiB."""
# Time for a request body to arrive: kube-scheduler sends it at once.
_BODY_SECONDS = 2.0
_SHUTDOWN_SECONDS: Final = 5
_BACKLOG: Final = 128
_log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """uvicorn's server, with a second port that bounds the number of open connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.door = ConnectionLimiter(self._connection)

    def _connection(self) -> asyncio.Protocol:
        """Create the protocol of one connection, as uvicorn does for its own port."""
        return HttpToolsProtocol(self.config, self.server_state, {})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, then finish the requests in progress."""
        await self.door.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`run`; uvicorn would raise SIGTERM again at its end."""
        yield


class Program:
    """Composition root of the extender: cache, verbs, scorer, HTTP server; not yet running."""

    def __init__(
        self,
        client: ApiClient,
        settings: ExtenderSettings,
        scheduling: SchedulingSettings,
        *,
        timing: Timing | None = None,
    ) -> None:
        self._settings = settings
        metrics, waits = Metrics(), PlanWaits(PLAN_WAIT_SECONDS)
        self._scorers = scorers = ScorerLoader(settings.checkpoint_directory, metrics)
        state = ClusterState(scheduling, policies=scorers.known)
        self.cache = ClusterCache(client, state, timing, on_plan=waits.notify)
        metrics.show_cache(self.cache.ages, self.cache.troubles)
        self.verbs = Verbs(state, waits, metrics, self.cache, lambda: scorers.scorer)
        open_port = 0
        if settings.metrics_address:
            _, open_port = split_address(settings.metrics_address)
        bodies = BodyReader(MAX_BODY_BYTES, _BODY_SECONDS)
        front = Front(self.verbs, MAX_BODY_BYTES)
        self.app = make_app(self.verbs, metrics, self.cache, bodies, open_port)
        self._server = _Server(
            uvicorn.Config(
                self.app,
                http=cast(type[asyncio.Protocol], partial(VerbsProtocol, front)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
        )

    async def run(self) -> None:
        """Serve until :meth:`stop`.

        Raises:
            SettingError: the configured address and port cannot be used.
            ExceptionGroup: a watch ended by itself.
        """
        with self._verbs_socket() as verbs:
            self._open_door()
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self.cache.run())
                    freezing = group.create_task(self._freeze_when_synced())
                    await self._server.serve([verbs])
                    freezing.cancel()
                    watching.cancel()
                    await self._scorers.close()
            finally:
                await self._server.door.close()

    def _verbs_socket(self) -> socket.socket:
        address = self._settings.extender_address
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with _naming("extender_address", address):
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)

    def _open_door(self) -> None:
        address = self._settings.metrics_address
        if address:
            with _naming("metrics_address", address):
                self._server.door.open(*split_address(address))

    def stop(self) -> None:
        """Finish the requests in progress, then end :meth:`run`."""
        self._server.should_exit = True

    async def _freeze_when_synced(self) -> None:
        """Exempt the complete cache from garbage collection, which would cause pauses."""
        await self.cache.wait_synced()
        # A full collection walks the whole cache while the scheduler waits.
        gc.collect()
        gc.freeze()
        _log.info("ready", podgroups=len(self.cache.state.objects.groups))


@contextmanager
def _naming(setting: str, address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingError(
            f"{setting} is {address!r}, which cannot be listened on: "
            f"{error.strerror or error}; free the port or choose another"
        ) from error


async def run(
    settings: ExtenderSettings, scheduling: SchedulingSettings, kubeconfig: Path | None = None
) -> None:
    """Run an extender until SIGTERM or SIGINT.

    Raises:
        CredentialsError: no usable credentials for the API server.
        SettingError: the port cannot be used.
    """
    client = await ApiClient.connect(kubeconfig)
    try:
        program = Program(client, settings, scheduling)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, program.stop)
        _log.info("starting", address=settings.extender_address, version=VERSION)
        await program.run()
        _log.info("stopped")
    finally:
        await client.close()
