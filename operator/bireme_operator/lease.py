"""Leader election on two objects, measured with this process's own monotonic clock.

A Lease in the release's own namespace elects among its replicas. Bireme acts on the whole cluster,
so there is one leader per cluster: the ClusterClaim names the release that leads. It is
cluster-scoped, so permissions in a namespace do not cover it. A leader holds both objects. No
object of another namespace is read.

A contender takes an object over once it has seen it unchanged for a whole duration. That duration
has an upper bound, whatever the object says. The leader trusts its own leadership for two thirds of
a duration after it *sent* its last successful renewal. So it always stops before another can start.
Wall clocks may jump and have no effect. Every write is conditional on the version that was read,
and every change of holder raises the epoch, which plans carry.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import uniform
from typing import Any, Final

import msgspec
import structlog

from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme.kube.leadership import MAX_TRANSITIONS
from bireme_operator.leader_records import ClaimRecord, LeaseRecord, observe

DURATION_SECONDS = 15
"""Time after which a standby replaces a leader that no longer renews, as the default of
Kubernetes' own programs. A shorter time fails over faster, and renews more often."""
# Share of a duration between renewals, as in client-go. With a larger share the last renewal is
# older when the API server stops answering, and leadership ends sooner.
_RENEWAL: Final = 2 / 15
_log = structlog.get_logger(__name__)


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # renewTime is for people; nothing here reads it


@dataclass(slots=True)
class Lease:
    """One process's claim to lead, by the Lease ``name`` in ``namespace`` and the ClusterClaim.

    Only the lease uses ``client``: renewals must neither pass the lease's own fence nor queue for
    a connection behind the pods of a gang. ``identity`` must be unique to the process (pod name and
    a random part): a restarted process is another holder. ``epoch`` is 0 until the lease is
    acquired, and grows with every holder.
    """

    client: ApiClient
    namespace: str
    name: str
    identity: str
    duration_seconds: int = DURATION_SECONDS
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], datetime] = _wall_clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    epoch: int = 0
    rival: str = ""
    """Leader of another release, and its namespace; empty when there is none."""
    trouble: str = ""
    """Sentence that explains why no process of this release can lead; empty when one could."""
    _leads_until: float = -math.inf
    _stamped: datetime | None = None
    _faults: tuple[str, ...] = ()
    _record: LeaseRecord = field(init=False)
    _claim: ClaimRecord = field(init=False)
    _log: Any = field(init=False)

    def __post_init__(self) -> None:
        arguments: dict[str, Any] = {
            "client": self.client,
            "namespace": self.namespace,
            "identity": self.identity,
            "duration_seconds": self.duration_seconds,
            "clock": self.clock,
        }
        self._record = LeaseRecord(**arguments, name=self.name)
        self._claim = ClaimRecord(**arguments)
        self._log = _log.bind(lease=self.name, identity=self.identity)

    def is_leader(self) -> bool:
        """Return whether writing is safe at this moment."""
        return self.clock() < self._leads_until

    def fence(self) -> None:
        """Let a write pass, or raise NotLeader."""
        if not self.is_leader():
            raise NotLeader(f"{self.identity} does not hold the lease {self.name}")

    async def run(self, on_started: Callable[[int], None], on_stopped: Callable[[], None]) -> None:
        """Acquire, call ``on_started(epoch)``, renew; return after leadership was lost.

        ``on_stopped()`` follows every ``on_started``, on loss and on cancellation, with the fence
        already closed. A cancellation hands the lease back for the next process.
        """
        try:
            while not await self._try(self.acquire):
                await self.sleep(self.duration_seconds / 6 * uniform(0.8, 1.2))  # noqa: S311  # spreads contenders
        except asyncio.CancelledError:
            await self._hand_back()
            raise
        self._log.info("leading", epoch=self.epoch)
        try:
            on_started(self.epoch)
            await self._renew_while_leading()
        finally:
            was_leading = self.is_leader()
            self._leads_until = -math.inf
            self._log.info("no longer leading", epoch=self.epoch)
            on_stopped()
            if was_leading:
                await self._hand_back()

    async def acquire(self) -> bool:
        """Try once to become the leader; return False while another may be leading.

        Raises:
            ApiError: one of the two objects can be neither read nor written.
        """
        try:
            await observe(self._record, self._claim)
        except ApiError as error:
            self._explain(error)
            raise
        self._report()
        if not (self._record.is_free() and self._claim.is_free()):
            return False
        # Take the time before the requests: contenders may see them at any moment after.
        sent_at, epoch = self.clock(), self._next_epoch()
        await self._take(epoch)
        self.epoch, self.trouble = epoch, ""
        self._leads_until = sent_at + self.duration_seconds * 2 / 3
        return True

    async def renew(self) -> bool:
        """Try once to stay the leader; return False when another holds one of the two objects.

        Raises:
            ApiError: the holder is unknown (try again while :meth:`is_leader`).
        """
        sent_at, now = self.clock(), self._now()
        records = (self._record, self._claim)
        results = await asyncio.gather(
            *(record.renew(self.epoch, now) for record in records), return_exceptions=True
        )
        if False in results:
            return False
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self._leads_until = sent_at + self.duration_seconds * 2 / 3
        return True

    async def _take(self, epoch: int) -> None:
        """Write both objects; after a failure this process holds neither.

        Raises:
            ApiError: another process was faster, or one object cannot be written.
        """
        try:
            # Write the claim first: only one process in the whole cluster proceeds to its Lease.
            await self._claim.claim(epoch, self._now())
            await self._record.claim(epoch, self._now())
        except ApiError as error:
            self._explain(error)
            await self._try(self._release_claim)
            raise

    def _explain(self, error: ApiError) -> None:
        """Set :attr:`trouble` if an administrator has to help."""
        trouble = ""
        if error.is_forbidden:
            trouble = f"upgrade the roles with the chart of this version: {error.message[:300]}"
        elif error.is_not_found:  # a merely absent object is created
            trouble = (
                "the API server does not serve clusterclaims.bireme.dev, or the namespace"
                f" {self.namespace} does not exist: apply the CustomResourceDefinitions of this"
                " version (charts/bireme/files/crds)"
            )
        if trouble and trouble != self.trouble:
            self._log.error("no operator of this release can lead", trouble=trouble)
        self.trouble = trouble

    def _next_epoch(self) -> int:
        """Return one more than the epochs in the two objects."""
        statements = (self._record.statement, self._claim.statement)
        highest = max((s.transitions or 0 for s in statements if s is not None), default=0)
        # A number past the bound does not count, so epochs begin anew there.
        return highest + 1 if highest < MAX_TRANSITIONS else 1

    def _report(self) -> None:
        """Record another leading release, and log numbers out of bounds, once per content."""
        claim = self._claim.statement
        rival = ""
        if claim is not None and claim.namespace != self.namespace and not self._claim.is_free():
            rival = f"{claim.holder} of the release in namespace {claim.namespace}"
        if rival and rival != self.rival:
            self._log.warning("another release leads in this cluster", rival=rival)
        self.rival = rival
        statements = (self._record.statement, claim)
        faults = tuple(fault for s in statements if s is not None for fault in s.faults)
        if faults != self._faults:
            for fault in faults:
                self._log.warning("ignored an invalid number in a leader record", fault=fault)
        self._faults = faults

    async def _renew_while_leading(self) -> None:
        pause = self.duration_seconds * _RENEWAL
        while True:
            await self.sleep(pause)
            # The sleep may have been longer, on a paused machine or in a busy loop.
            if not self.is_leader():
                return
            renewed = await self._try(self.renew)
            if renewed is False:
                self._leads_until = -math.inf
                return
            # Without an answer, retry sooner while there is time.
            pause = self.duration_seconds * (_RENEWAL if renewed else 1 / 15)

    async def _try(self, step: Callable[[], Awaitable[bool]]) -> bool | None:
        """Return the step's result; None when the API server did not answer."""
        try:
            return await step()
        except (ApiError, msgspec.DecodeError) as error:
            self._log.warning("lease request failed", step=step.__name__, error=str(error))
            return None

    def _now(self) -> str:
        # Never return the same text twice: contenders would not see an unchanged renewal.
        now = self.wall_clock()
        self._stamped = now if now != self._stamped else now + timedelta(microseconds=1)
        return self._stamped.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def _hand_back(self) -> None:
        await asyncio.gather(self._try(self._release_claim), self._try(self._release_lease))

    async def _release_claim(self) -> bool:
        await self._claim.hand_back(self._now())
        return True

    async def _release_lease(self) -> bool:
        await self._record.hand_back(self._now())
        return True
