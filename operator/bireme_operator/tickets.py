"""Tickets identify callers of this process, so that no token passes through it.

A caller creates a Ticket in the namespace of the operator, and sends its name and secret in the
header ``Bireme-Ticket``. The API server admits only tickets that name their own creator. An
administrator may have removed that policy, so this module tests it before it accepts a ticket. It
accepts no ticket from before that test. The secret is valid for five minutes and only for this
process.

A ticket is read by its name, so one caller's tickets never delay another's. A wrong secret holds
one of a few lookup places for a moment: many of them cost little, and delay others by a moment.
"""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from bireme.kube import names, pages, quantities
from bireme.kube.api.base import DNS_SUBDOMAIN
from bireme.kube.client import METADATA, AnswerTooLargeError, ApiClient, ApiError, NotLeader
from bireme_operator.http_server import RequestRefused

TICKET_HEADER: Final = "Bireme-Ticket"
MAX_AGE_SECONDS: Final = 300.0
MAX_SKEW_SECONDS: Final = 60.0
"""Time by which the API server's clock may be ahead of this process's."""
_MAX_HEADER: Final = 512
_NAME: Final = re.compile(DNS_SUBDOMAIN)
_MAX_NAME: Final = 253
_MAX_BYTES: Final = 64 * 1024
"""Size limit of a ticket, which contains the API server's facts about one user."""
_LOOKUPS: Final = 16
"""Limit of concurrent lookups, for all callers together."""
_MISS_SECONDS: Final = 0.1
"""Time for which a wrong secret holds its place among the lookups."""
_MAX_REMEMBERED: Final = 1000
_PAGE_SIZE: Final = 500
_CLEAN_SECONDS: Final = 60.0
_TRUST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5.0
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_STRANGER: Final = "bireme.dev:no-user"
_PROOF: Final = ("ValidatingAdmissionPolicy", "a ticket names its own creator")
"""Texts that only a refusal by the policy on tickets contains."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class User:
    """A user whom the API server has authenticated."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def tenant(self) -> str:
        """Key of the rate limits; the ServiceAccounts of a namespace share one."""
        if not self.name.startswith(_SERVICE_ACCOUNT):
            return self.name
        return self.name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0] + "/"

    @property
    def digest(self) -> bytes:
        """Digest of everything that the API server said about the user."""
        identity = (self.name, self.uid, sorted(self.groups), sorted(self.extra.items()))
        return hashlib.sha256(msgspec.json.encode(identity)).digest()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Listed(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    user: str
    secret_digest: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Ticket(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec


@dataclass(slots=True)
class Tickets:
    """Identifies callers by their tickets.

    Attributes:
        client: Client without a fence.
        namespace: Namespace of the tickets.
        clock: Monotonic seconds.
        now: POSIX seconds.
        cleans: Returns whether this process deletes old tickets.
    """

    client: ApiClient
    namespace: str
    clock: Callable[[], float]
    now: Callable[[], float]
    cleans: Callable[[], bool] = lambda: False
    _tickets: dict[str, _Ticket] = field(default_factory=dict)
    """Accepted tickets, while they are valid."""
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKUPS))
    _cleaning: asyncio.Task[None] | None = None
    _next_cleaning: float = -math.inf
    _trusted_until: float = -math.inf
    _trusted_since: float = math.inf
    """POSIX seconds of the first successful test of the policy since the start or a failed test."""
    _trying: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def user(self, header: str) -> User:
        """Return the sender of ``header``; raise RequestRefused if it is unknown."""
        name, dot, secret = header.partition(".")
        if not (name and dot and secret) or len(header) > _MAX_HEADER:
            raise RequestRefused(
                401, f"send a ticket in {TICKET_HEADER}: NAME.SECRET, as the command bireme does"
            )
        self._start_cleaning()
        digest = hashlib.sha256(secret.encode()).hexdigest()
        ticket = self._tickets.get(name) or await self._look_up(name, digest)
        if ticket is None or not _is_of(ticket, digest):
            raise RequestRefused(401, "there is no such ticket; create another one")
        created = _creation_of(ticket.metadata)
        age = self.now() - created
        if not -MAX_SKEW_SECONDS <= age <= MAX_AGE_SECONDS:
            raise RequestRefused(
                401,
                f"the ticket is {age:.0f} s old, and good for {MAX_AGE_SECONDS:.0f}; create"
                " another one",
            )
        await self._check_policy()
        if created < self._trusted_since:
            raise RequestRefused(
                401,
                "the ticket was created before the policy bireme-tickets was known to be in"
                " force; create another one",
            )
        self._remember(name, ticket)
        spec = ticket.spec
        return User(spec.user, spec.uid, spec.groups, spec.extra)

    # --- lookup and deletion of tickets -------------------------------------------------------

    async def _look_up(self, name: str, digest: str) -> _Ticket | None:
        """Return the ticket with that name if its secret matches ``digest``."""
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            return None  # such a name could also lead to another path
        path = f"{names.path('tickets', self.namespace)}/{name}"
        async with self._places:
            try:
                body = await self.client.get(path, max_bytes=_MAX_BYTES)
                ticket = msgspec.json.decode(body, type=_Ticket)
                if _is_of(ticket, digest):
                    return ticket
            except (AnswerTooLargeError, msgspec.DecodeError) as error:
                _log.info("ticket not understood", ticket=name, error=str(error))
            except ApiError as error:
                if not error.is_not_found:
                    raise RequestRefused(
                        503, f"tickets cannot be read: {error}", _RETRY_SECONDS
                    ) from error
            await asyncio.sleep(_MISS_SECONDS)
        return None

    def _remember(self, name: str, ticket: _Ticket) -> None:
        if name in self._tickets:
            return
        if len(self._tickets) >= _MAX_REMEMBERED:
            first = self.now() - MAX_AGE_SECONDS
            good = {n: t for n, t in self._tickets.items() if _creation_of(t.metadata) >= first}
            self._tickets = good
        if len(self._tickets) < _MAX_REMEMBERED:
            self._tickets[name] = ticket

    def _start_cleaning(self) -> None:
        """Start to delete old tickets in the background, at intervals."""
        if not self.cleans() or self.clock() < self._next_cleaning:
            return
        if self._cleaning is None or self._cleaning.done():
            self._next_cleaning = self.clock() + _CLEAN_SECONDS
            self._cleaning = asyncio.create_task(self._clean())

    async def _clean(self) -> None:
        path, size, token = names.path("tickets", self.namespace), pages.PageSize(_PAGE_SIZE), ""
        limit = self.now() - MAX_AGE_SECONDS - MAX_SKEW_SECONDS
        try:
            while True:
                page = await pages.read(self.client, path, size, token=token, accept=METADATA)
                for raw in page.items or ():
                    meta = msgspec.json.decode(raw, type=_Listed).metadata
                    if _creation_of(meta) < limit and not meta.deletion_timestamp:
                        await self._delete(f"{path}/{meta.name}")
                if not (token := page.metadata.next):
                    return
        except (ApiError, msgspec.DecodeError) as error:
            _log.info("tickets not listed", error=str(error))

    async def _delete(self, path: str) -> None:
        try:
            await self.client.delete(path)
        except (ApiError, NotLeader) as error:
            _log.info("old ticket not deleted", path=path, error=str(error))

    # --- test of the policy on tickets --------------------------------------------------------

    async def _check_policy(self) -> None:
        """Raise RequestRefused unless the API server refuses tickets that name another user."""
        async with self._trying:
            if self._trusted_until > self.clock():
                return
            try:
                await self._try_policy()
            except RequestRefused:
                self._trusted_since = math.inf
                raise
            self._trusted_since = min(self._trusted_since, self.now())
            self._trusted_until = self.clock() + _TRUST_SECONDS

    async def _try_policy(self) -> None:
        digest = hashlib.sha256(secrets.token_bytes()).hexdigest()
        forged = {
            "apiVersion": names.API_VERSION,
            "kind": "Ticket",
            "metadata": {"name": f"tried-{digest[:16]}", "namespace": self.namespace},
            "spec": {"user": _STRANGER, "secretDigest": digest},
        }
        path = names.path("tickets", self.namespace)
        try:
            await self.client.create(path, forged, params={"dryRun": "All"})
        except ApiError as error:
            if error.status in (403, 422) and all(part in error.message for part in _PROOF):
                return
            raise RequestRefused(
                503,
                f"the operator cannot check whether tickets are genuine: {error}",
                _RETRY_SECONDS,
            ) from error
        _log.error("the operator accepts no tickets, because the API server admits forged ones")
        raise RequestRefused(
            503,
            "the API server admits forged tickets; install the chart's policy bireme-tickets again",
        )


def _is_of(ticket: _Ticket, digest: str) -> bool:
    """Return whether ``digest`` is that of the ticket's secret."""
    return hmac.compare_digest(digest.encode(), ticket.spec.secret_digest.encode())


def _creation_of(metadata: _Metadata) -> float:
    """Return the time of creation by the API server; long ago if it is missing."""
    return quantities.parse_timestamp(metadata.creation_timestamp) or 0.0
