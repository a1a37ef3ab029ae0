"""The operator process: start-up, lease, probes, shutdown. It decides nothing.

kopf runs within a term of leadership (:mod:`bireme_operator.custom_resources`). The lease, the loop
and the endpoint of the probes are outside kopf, which ends at errors that they survive. The end of
the term ends the process: a new process has no stale memory.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from bireme.core.bounds import split_address
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient
from bireme.kube.credentials import CredentialsError
from bireme_operator import cluster_version, debug_dump, lease, loop
from bireme_operator.debug_dump import LastCycles
from bireme_operator.http_callers import AccessReviews, HttpCallers
from bireme_operator.http_server import Endpoint, HealthEndpoint
from bireme_operator.leader import LeaderTerm
from bireme_operator.lease import Lease
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.observer import ObserverTerm, refuse
from bireme_operator.outlook_endpoint import Leading, OutlookEndpoint
from bireme_operator.progress import Certificate, ProgressEndpoint
from bireme_operator.progress_auth import ProgressService
from bireme_operator.settings import OperatorSettings, ProgressListener
from bireme_operator.term import TermContext, wall_clock
from bireme_operator.tickets import Tickets

_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The operator cannot start: no credentials, or its port is taken."""


class Operator:
    """The operator process.

    ``queue`` is the spec of a Queue ``default`` to create, and ``shadow`` the checkpoint of a
    learned shadow, if any.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        scheduling: SchedulingSettings,
        queue: Mapping[str, Any] | None = None,
        shadow: Mapping[str, Any] | None = None,
    ) -> None:
        self.stop = asyncio.Event()
        self.failed = False
        self._settings = settings
        self._observes = settings.mode == "Observe"
        self._scheduling = scheduling
        self._queue, self._shadow = queue, shadow
        self._metrics = OperatorMetrics()
        self._metrics.cycle_age.set_function(self._cycle_age)
        host = os.environ.get("HOSTNAME") or socket.gethostname()
        self._identity = f"{host}_{secrets.token_hex(4)}"
        self._term: LeaderTerm | ObserverTerm | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lease: Lease | None = None
        self._clients: list[ApiClient] = []
        self._endpoint = HealthEndpoint(self._metrics.registry, self.unhealthy, self.unready)
        self._progress = ProgressEndpoint(self._progress_service, self._metrics)

    async def run(self) -> int:
        """Run until :attr:`stop` is set; return the exit code.

        Raises:
            StartError: there are no credentials, or a port is taken.
        """
        try:
            try:
                await self._open()
            except (CredentialsError, OSError) as error:
                raise StartError(str(error)) from error
            version = cluster_version.keep_showing(self._clients[1], self._metrics.kubernetes)
            self._tasks.append(asyncio.create_task(version))
            if self._observes:
                self._observe()
            else:
                assert self._lease is not None  # noqa: S101  # _open created it
                lost = partial(self._fail, "the lease was lost")
                self._tasks.append(asyncio.create_task(self._lease.run(self._on_started, lost)))
            await self.stop.wait()
        finally:
            await self._close()
        return 1 if self.failed else 0

    async def _open(self) -> None:
        """Connect, and listen for probes."""
        lease_client = await ApiClient.connect()
        self._clients = [lease_client]
        self._lease = Lease(
            lease_client,
            self._settings.lease_namespace,
            names.OPERATOR_LEASE,
            self._identity,
            duration_seconds=lease.DURATION_SECONDS,
        )
        # Renewals have a separate client: they must neither pass the fence that they keep open nor
        # wait for a connection behind the pods of a gang.
        fence = refuse if self._observes else self._lease.fence
        client = ApiClient(lease_client.credentials, fence=fence)
        self._clients.append(client)
        self._metrics.show_writes(client.write_counts)
        self._metrics.show_errors([open_client.error_counts for open_client in self._clients])
        if self._settings.metrics_address:
            address = split_address(self._settings.metrics_address)
            await self._endpoint.start(*address, *self._answering())
        if self._settings.progress_url and not self._observes:
            await self._serve_progress(ProgressListener.parse(self._settings.progress_address))

    def _answering(self) -> Iterator[Endpoint]:
        """Yield the endpoints that check their callers' permissions with the API server."""
        if not (self._settings.debug_dump or self._settings.outlook):
            return
        # Without a fence, as reviews change nothing, and separate from the client of renewals.
        client = ApiClient(self._clients[0].credentials)
        self._clients.append(client)
        clock, namespace = time.monotonic, self._settings.lease_namespace
        tickets = Tickets(
            client,
            namespace,
            clock,
            wall_clock,
            cleans=lambda: isinstance(self._term, LeaderTerm),
        )
        if self._settings.debug_dump:
            yield debug_dump.make(tickets, self._last_cycles, self._facts, clock)
        if self._settings.outlook:
            readers = HttpCallers(tickets, AccessReviews(client), clock)
            yield OutlookEndpoint(readers, self._leading, wall_clock)

    def _leading(self) -> Leading | None:
        if self._term is None or self._term.outlooks is None:
            return None
        return Leading(self._term.outlooks, self._term.state.tenancy)

    def _last_cycles(self) -> LastCycles | None:
        return self._term.last if self._term is not None else None

    def _facts(self) -> dict[str, Any]:
        return {
            "identity": self._identity,
            "mode": self._settings.mode,
            "secondsSinceCycle": round(self._cycle_age(), 3),
            "ready": self.unready() or "yes",
        }

    async def _serve_progress(self, listener: ProgressListener) -> None:
        certificate = Certificate(listener.folder, time.monotonic) if listener.folder else None
        await self._progress.start(listener.host, listener.port, certificate)

    def _progress_service(self) -> ProgressService | None:
        """Return the progress service; None until this process leads and has filled its caches."""
        if not isinstance(self._term, LeaderTerm) or not self._term.watches.are_synced:
            return None
        return self._term.progress

    async def _close(self) -> None:
        self.stop.set()
        # End the term first, which stops writes; then the lease, which hands itself back.
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._endpoint.stop()
        await self._progress.stop()
        for client in self._clients:
            await client.close()

    # --- leadership -----------------------------------------------------------------------

    def _on_started(self, epoch: int) -> None:
        assert self._lease is not None  # noqa: S101  # the lease calls this
        self._metrics.is_leader.set(1)
        self._metrics.epoch.set(epoch)
        term = TermContext(
            client=self._clients[1],
            settings=self._settings,
            scheduling=self._scheduling,
            metrics=self._metrics,
            epoch=epoch,
            identity=self._identity,
            fence=self._lease.fence,
            queue=self._queue,
            shadow=self._shadow,
        )
        self._term = LeaderTerm(term)
        _log.info("leading", epoch=epoch, identity=self._identity)
        self._tasks.append(asyncio.create_task(self._lead(self._term)))

    def _observe(self) -> None:
        process = (self._clients[1], self._settings, self._scheduling, self._metrics)
        self._term = ObserverTerm(TermContext(*process, 0, self._identity, lambda: None))
        _log.info("observing: nothing is written", identity=self._identity)
        self._tasks.append(asyncio.create_task(self._lead(self._term)))

    async def _lead(self, term: LeaderTerm | ObserverTerm) -> None:
        try:
            await term.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # every failure ends the process
            self._fail("the term ended", error)

    def _fail(self, message: str, error: BaseException | None = None) -> None:
        if not self.stop.is_set():
            _log.error(message, exc_info=error)
            self.failed = True
            self._metrics.is_leader.set(0)
            self.stop.set()

    # --- probes ---------------------------------------------------------------------------

    def unhealthy(self) -> str:
        """Return the fault of this process; empty when it has none."""
        if self.failed:
            return "stopping after a failure"
        age = 0.0 if self._term is None else self._term.heartbeat.age_seconds
        limit = loop.MAX_SILENCE_SECONDS
        return f"no sign of life for {age:.0f} s, limit {limit:.0f}" if age > limit else ""

    def _cycle_age(self) -> float:
        """Return the seconds since the end of the last cycle; 0 if none is due."""
        return 0.0 if self._term is None else time.monotonic() - self._term.loop.pacing.finished_at

    def unready(self) -> str:
        """Return why the process is not ready; empty on a standby and on a deciding leader."""
        if self._lease is None:
            return "starting"
        if self._lease.trouble:
            return f"no operator of this release can lead: {self._lease.trouble}"
        if self._lease.rival:
            return f"{self._lease.rival} leads in this cluster: uninstall one of the two"
        if self._term is not None and not self._term.watches.are_synced:
            return "filling caches"
        return self.unhealthy()
