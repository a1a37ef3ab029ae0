"""The two objects that name the leader: a Lease among replicas, a ClusterClaim among releases.

Every write is conditional on the version that was read. The objects differ only in their fields,
which :mod:`bireme.kube.leadership` reads within bounds. Dates in them have no effect.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.leadership import CLAIM_NAME, Statement, claim_statement, lease_statement
from bireme.kube.wire import V1ObjectMeta

# Share of a duration that a request may take; a leader has time for two requests.
_ANSWER: Final = 4 / 15
_UNSEEN: Final = "unseen"
_ABSENT: Final = "absent"


class _Object(msgspec.Struct):
    metadata: V1ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LeaderRecord(ABC):
    """One of the two objects, as this process last saw it.

    Attributes:
        client: Client that only leadership uses.
        namespace: Namespace of this release.
        identity: Identity of this process.
        duration_seconds: Duration of the lease that this process asks for.
        clock: Monotonic seconds.
        statement: The content; None if there is no such object.
    """

    client: ApiClient
    namespace: str
    identity: str
    duration_seconds: int
    clock: Callable[[], float]
    statement: Statement | None = None
    _version: str = ""
    _stamp: str = _UNSEEN
    _changed_at: float = -math.inf

    @property
    @abstractmethod
    def path(self) -> str:
        """API path of the object."""

    @abstractmethod
    def _manifest(self) -> dict[str, Any]:
        """Return the object for its creation, without its spec."""

    @abstractmethod
    def _fields(self, holder: str, seconds: int, epoch: int | None, now: str) -> dict[str, Any]:
        """Return the spec that names ``holder``; without ``epoch`` the recorded one stays."""

    @abstractmethod
    def _parse(self, spec: Mapping[str, Any]) -> Statement:
        """Return the statement in a decoded spec."""

    @property
    def answer_seconds(self) -> float:
        return self.duration_seconds * _ANSWER

    async def observe(self) -> None:
        """Read the object, and keep the time of its last change by this process's clock.

        Raises:
            ApiError: the object cannot be read.
        """
        try:
            raw = await self.client.get(self.path, timeout_seconds=self.answer_seconds)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._see(None)
        else:
            self._see(raw)

    def is_ours(self) -> bool:
        """Return whether this process holds the object, perhaps by a claim with a lost answer."""
        return self.statement is not None and self.statement.holder == self.identity

    def is_free(self) -> bool:
        """Return whether no other process may still trust it."""
        # It is free if released, never created, or unchanged for as long as its holder trusts it.
        silence = self.clock() - self._changed_at
        if self.statement is None:
            return silence >= self.duration_seconds
        if not self.statement.holder or self.is_ours():
            return True
        return silence >= max(self.duration_seconds, self.statement.seconds or 0)

    async def claim(self, epoch: int, now: str) -> None:
        """Write this process as the holder, if the object is unchanged since the read.

        Raises:
            ApiError: another client wrote it, or the API server did not answer.
        """
        await self._write(self._fields(self.identity, self.duration_seconds, epoch, now))

    async def renew(self, epoch: int, now: str) -> bool:
        """Claim the object once more; return False when another process holds it.

        Raises:
            ApiError: the holder is unknown.
        """
        if self.statement is not None and not self.is_ours():
            return False
        try:
            await self.claim(epoch, now)
        except ApiError as error:
            if not (error.is_conflict or error.is_not_found or error.is_already_exists):
                raise
        else:
            return True
        # Another client wrote it, or an earlier renewal arrived after its timeout.
        await self.observe()
        if self.statement is not None and not self.is_ours():
            return False
        await self.claim(epoch, now)
        return True

    async def hand_back(self, now: str) -> None:
        """Release the object if this process holds it, also by a claim with a lost answer."""
        await self.observe()
        if self.is_ours():
            # The API server refuses a duration of 0; client-go also releases with 1.
            await self._write(self._fields("", 1, None, now))

    async def _write(self, spec: Mapping[str, Any]) -> None:
        if self.statement is None:
            body = {**self._manifest(), "spec": spec}
            collection = self.path.rpartition("/")[0]
            raw = await self.client.create(collection, body, timeout_seconds=self.answer_seconds)
        else:
            # The version makes the patch fail after any other write since the read.
            body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
            raw = await self.client.merge_patch(
                self.path, body, timeout_seconds=self.answer_seconds
            )
        self._see(raw)

    def _see(self, raw: bytes | None) -> None:
        stamp = _ABSENT
        if raw is None:
            self.statement = None
        else:
            stored = msgspec.json.decode(raw, type=_Object)
            self.statement = self._parse(stored.spec)
            self._version = stored.metadata.resource_version
            stamp = f"{stored.metadata.uid}/{self._version}"  # changes with every write
        if stamp != self._stamp:
            # An object that never existed is free at once. A deleted one is not: its holder may
            # still write until its own time is up.
            is_new = self._stamp == _UNSEEN and raw is None
            self._stamp = stamp
            self._changed_at = -math.inf if is_new else self.clock()


@dataclass(slots=True, kw_only=True)
class LeaseRecord(LeaderRecord):
    """The Lease ``name`` in the namespace of the release, which elects among its replicas."""

    name: str

    @property
    def path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"

    def _manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name},
        }

    def _fields(self, holder: str, seconds: int, epoch: int | None, now: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        if epoch is not None:
            spec |= {"leaseTransitions": epoch, "renewTime": now}
            if self.statement is None or not self.is_ours():
                spec["acquireTime"] = now
        return spec

    def _parse(self, spec: Mapping[str, Any]) -> Statement:
        return lease_statement(self.namespace, self.name, spec)


@dataclass(slots=True, kw_only=True)
class ClaimRecord(LeaderRecord):
    """The ClusterClaim, by which one release holds the whole cluster."""

    @property
    def path(self) -> str:
        return names.path("clusterclaims", name=CLAIM_NAME)

    def _manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": names.API_VERSION,
            "kind": "ClusterClaim",
            "metadata": {"name": CLAIM_NAME},
        }

    def _fields(self, holder: str, seconds: int, epoch: int | None, now: str) -> dict[str, Any]:
        spec = {"holder": holder, "durationSeconds": seconds, "renewTime": now}
        if epoch is not None:
            spec |= {"namespace": self.namespace, "transitions": epoch}
        return spec

    def _parse(self, spec: Mapping[str, Any]) -> Statement:
        return claim_statement(spec)


async def observe(*records: LeaderRecord) -> None:
    """Read all ``records`` concurrently.

    Raises:
        ApiError: one of them cannot be read.
    """
    await asyncio.gather(*(record.observe() for record in records))
