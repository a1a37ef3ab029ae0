"""Leader election on a coordination.k8s.io Lease, measured with this process's own monotonic clock.

A contender takes the lease over once it has seen it unchanged for a whole duration. The leader
trusts its own leadership for two thirds of a duration after it *sent* its last successful renewal,
so it always stops before another can start; wall clocks, which jump, decide nothing. Every write is
conditional on the version that was read, and every change of holder raises the epoch, which plans
carry.

All that Bireme acts on belongs to the whole cluster, so there is one leader per cluster. Leases of
the same name in other namespaces are those of other releases: while one of them is held, this one
is not taken. Two that claim at once each find the other's claim afterwards, and both step back.
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
from bireme.kube.wire import V1ObjectMeta

# Share of a duration between renewals, as in client-go. The more, the older the last renewal is
# when an API server stops answering, and the sooner leadership ends.
_RENEWAL: Final = 2 / 15
# Share of a duration that a request may take; a leader can ask twice in its time.
_ANSWER: Final = 4 / 15
_UNSEEN: Final = "unseen"
_ABSENT: Final = "absent"
_log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Record(msgspec.Struct):
    metadata: V1ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def stamp(self) -> str:
        """Another one after every write."""
        return f"{self.metadata.uid}/{self.metadata.resource_version}"


class _Records(msgspec.Struct):
    items: tuple[_Record, ...] = ()


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # renewTime is for people; nothing here reads it


@dataclass(slots=True)
class Lease:
    """One process's claim on the lease ``name`` in ``namespace``.

    ``client`` belongs to the lease alone: renewals must neither be fenced by the lease itself nor
    queue for a connection behind the pods of a gang. ``identity`` must be unique to the process
    (pod name and a random part): a restarted process is another holder. ``epoch`` is 0 until the
    lease is acquired and grows with every holder.
    """

    client: ApiClient
    namespace: str
    name: str
    identity: str
    duration_seconds: int = 15
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], datetime] = _wall_clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    epoch: int = 0
    rival: str = ""
    """Leader of another release, and its namespace; empty when there is none."""
    _rivals: dict[str, tuple[str, float]] = field(default_factory=dict)
    _leads_until: float = -math.inf
    _stamped: datetime | None = None
    _highest_epoch: int = 0
    _record: _Record | None = None
    _seen: str = _UNSEEN
    _seen_at: float = -math.inf
    _path: str = field(init=False)
    _log: Any = field(init=False)

    def __post_init__(self) -> None:
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"
        self._log = _log.bind(lease=self.name, identity=self.identity)

    def _answer_seconds(self) -> float:
        return self.duration_seconds * _ANSWER

    def is_leader(self) -> bool:
        """Return whether writing is safe at this moment."""
        return self.clock() < self._leads_until

    def fence(self) -> None:
        """Let a write pass, or raise NotLeader."""
        if not self.is_leader():
            raise NotLeader(f"{self.identity} does not hold the lease {self.name}")

    async def run(self, on_started: Callable[[int], None], on_stopped: Callable[[], None]) -> None:
        """Acquire, call ``on_started(epoch)``, renew; return after leadership was lost.

        ``on_stopped()`` follows every ``on_started``, on loss and on cancellation alike, with
        the fence already closed. Cancelled, it hands the lease back for the next to take.
        """
        try:
            while not await self._try(self.acquire):
                await self.sleep(self.duration_seconds / 6 * uniform(0.8, 1.2))  # noqa: S311  # spreads contenders
        except asyncio.CancelledError:
            await self._try(self._hand_back)
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
                await self._try(self._hand_back)

    async def acquire(self) -> bool:
        """Try once to become the leader; return False while another may be leading.

        Raises:
            ApiError: the lease can be neither read nor written.
        """
        await self._observe()
        if not self._is_free() or await self._meets_rival():
            return False
        await self._claim(self._highest_epoch + 1)
        if not await self._meets_rival():
            return True
        self._leads_until = -math.inf
        await self._hand_back()
        return False

    async def renew(self) -> bool:
        """Try once to stay the leader; return False when another holds the lease.

        Raises:
            ApiError: it is not known who holds it (try again while :meth:`is_leader`).
        """
        try:
            return await self._claim(self.epoch)
        except ApiError as error:
            if not (error.is_conflict or error.is_not_found or error.is_already_exists):
                raise
        # Another client wrote the lease, or an earlier renewal arrived after its timeout.
        await self._observe()
        if self._record is None or self._record.spec.holder_identity == self.identity:
            return await self._claim(self.epoch)
        return False

    async def _renew_while_leading(self) -> None:
        pause = self.duration_seconds * _RENEWAL
        while True:
            await self.sleep(pause)
            # The sleep may have been longer than asked: a paused machine, a loop that was held up.
            if not self.is_leader():
                return
            renewed = await self._try(self.renew)
            if renewed is False:
                self._leads_until = -math.inf
                return
            # Without an answer it asks again sooner, while there is time.
            pause = self.duration_seconds * (_RENEWAL if renewed else 1 / 15)

    async def _try(self, step: Callable[[], Awaitable[bool]]) -> bool | None:
        """Return the step's result; None when the API server did not answer."""
        try:
            return await step()
        except (ApiError, msgspec.DecodeError) as error:
            self._log.warning("lease request failed", step=step.__name__, error=str(error))
            return None

    async def _observe(self) -> None:
        """Read the record, and keep the time by our own clock at which it last changed."""
        try:
            raw = await self.client.get(self._path, timeout_seconds=self._answer_seconds())
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._see(None)
        else:
            self._see(msgspec.json.decode(raw, type=_Record))

    async def _meets_rival(self) -> bool:
        """Return whether another release leads, by a Lease that it still renews."""
        raw = await self.client.get(
            "/apis/coordination.k8s.io/v1/leases",
            params={"fieldSelector": f"metadata.name={self.name}"},
            timeout_seconds=self._answer_seconds(),
        )
        rival, now = "", self.clock()
        for record in msgspec.json.decode(raw, type=_Records).items:
            namespace = record.metadata.namespace
            if namespace == self.namespace:
                continue
            # A release that moved here from there goes on where that one stopped.
            self._highest_epoch = max(self._highest_epoch, record.spec.lease_transitions or 0)
            stamp, seen_at = self._rivals.get(namespace, ("", now))
            if stamp != record.stamp:
                seen_at = now
            self._rivals[namespace] = (record.stamp, seen_at)
            if record.spec.holder_identity and now - seen_at < self._patience(record):
                rival = f"{record.spec.holder_identity} of the release in namespace {namespace}"
        if rival and rival != self.rival:
            self._log.warning("another release leads in this cluster", rival=rival)
        self.rival = rival
        return bool(rival)

    def _patience(self, record: _Record) -> int:
        return max(self.duration_seconds, record.spec.lease_duration_seconds or 0)

    def _see(self, record: _Record | None) -> None:
        self._record = record
        if record is not None:
            self._highest_epoch = max(self._highest_epoch, record.spec.lease_transitions or 0)
        seen = record.stamp if record else _ABSENT
        if seen != self._seen:
            # One that was never there is free at once. One that vanished is not: its holder may
            # still be writing until its own time is up.
            first_and_absent = self._seen == _UNSEEN and record is None
            self._seen = seen
            self._seen_at = -math.inf if first_and_absent else self.clock()

    def _is_free(self) -> bool:
        # Released, never there, or unchanged for as long as its holder may still trust it.
        if self._record is None:
            return self.clock() - self._seen_at >= self.duration_seconds
        holder = self._record.spec.holder_identity
        if not holder or holder == self.identity:
            return True  # ours: a claim whose answer was lost
        return self.clock() - self._seen_at >= self._patience(self._record)

    async def _claim(self, epoch: int) -> bool:
        """Write this process as the holder, if the record has not changed since it was read."""
        now = self._stamp()
        spec: dict[str, object] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration_seconds,
            "leaseTransitions": epoch,
            "renewTime": now,
        }
        if epoch != self.epoch:
            spec["acquireTime"] = now
        # Counted from before the request: contenders may see the renewal at any moment after.
        sent_at = self.clock()
        await self._write(spec)
        self.epoch = epoch
        self._leads_until = sent_at + self.duration_seconds * 2 / 3
        return True

    def _stamp(self) -> str:
        # Never the same twice: a renewal that changes nothing would not be seen by contenders.
        now = self.wall_clock()
        self._stamped = now if now != self._stamped else now + timedelta(microseconds=1)
        return self._stamped.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def _hand_back(self) -> bool:
        """Release the lease if it is ours, also by a claim whose answer was not awaited."""
        await self._observe()
        if self._record is not None and self._record.spec.holder_identity == self.identity:
            # The API server refuses a duration of 0; client-go, too, hands back with 1.
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})
        return True

    async def _write(self, spec: dict[str, object]) -> None:
        if self._record is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": spec,
            }
            collection = self._path.rpartition("/")[0]
            raw = await self.client.create(collection, body, timeout_seconds=self._answer_seconds())
        else:
            # With the version, the patch is refused if anybody has written since the read.
            version = {"resourceVersion": self._record.metadata.resource_version}
            body = {"metadata": version, "spec": spec}
            raw = await self.client.merge_patch(
                self._path, body, timeout_seconds=self._answer_seconds()
            )
        self._see(msgspec.json.decode(raw, type=_Record))
