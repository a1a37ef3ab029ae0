"""Tickets: by which callers say to this process who they are, so that no token passes through it.

A caller creates a Ticket in the namespace of the operator, and sends its name and secret in the
header ``Bireme-Ticket``. The API server admits a ticket that names its own creator alone. Whether
it does is tried before one is believed, as the policy may have been removed. The secret is good for
five minutes and for this process alone.

A ticket that is not known costs a list of all, twice a second at most for everybody together: so
who sends secrets of nobody holds up nobody.
"""

import asyncio
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from bireme.kube import names, quantities
from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme_operator.progress_auth import RequestRefused

TICKET_HEADER: Final = "Bireme-Ticket"
MAX_AGE_SECONDS: Final = 300.0
MAX_SKEW_SECONDS: Final = 60.0
"""By which the clock of the API server may be ahead of this process's."""
_MAX_HEADER: Final = 512
_MAX_TICKETS: Final = 5000
_MAX_DELETIONS: Final = 50
_PAGE: Final = "500"
_PAUSE_SECONDS: Final = 0.5
_TRUST_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 5.0
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_STRANGER: Final = "bireme.dev:no-user"
_POLICY: Final = "ValidatingAdmissionPolicy"
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
        """Whose limits count: ServiceAccounts of a namespace share theirs, as their owner does."""
        if not self.name.startswith(_SERVICE_ACCOUNT):
            return self.name
        return self.name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0] + "/"

    @property
    def digest(self) -> bytes:
        """Identifies all that the API server said of the user."""
        known = (self.name, self.uid, sorted(self.groups), sorted(self.extra.items()))
        return hashlib.sha256(msgspec.json.encode(known)).digest()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    user: str
    secret_digest: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Ticket(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec


class _Page(msgspec.Struct, frozen=True):
    items: list[_Ticket]
    metadata: dict[str, Any] = {}


@dataclass(slots=True)
class Tickets:
    """Finds out by tickets who asks.

    Attributes:
        client: Must not be fenced.
        namespace: Where tickets are created.
        clock: Monotonic seconds.
        now: POSIX seconds.
        cleans: Says whether this process deletes old tickets.
    """

    client: ApiClient
    namespace: str
    clock: Callable[[], float]
    now: Callable[[], float]
    cleans: Callable[[], bool] = lambda: False
    _tickets: dict[str, _Ticket] = field(default_factory=dict)
    _listed: float = -math.inf
    _listing: asyncio.Task[None] | None = None
    """The list that has not begun yet, for whoever comes until then."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _trusted_until: float = -math.inf
    _trying: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def user(self, header: str) -> User:
        """Return who sends ``header``. Raises RequestRefused: nobody, or nobody can say."""
        name, dot, secret = header.partition(".")
        if not (name and dot and secret) or len(header) > _MAX_HEADER:
            raise RequestRefused(
                401, f"send a ticket in {TICKET_HEADER}: NAME.SECRET, as the command bireme does"
            )
        ticket = self._tickets.get(name)
        if ticket is None:
            await self._refresh()
            ticket = self._tickets.get(name)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        if ticket is None or not hmac.compare_digest(digest, ticket.spec.secret_digest):
            raise RequestRefused(401, "there is no such ticket; create another one")
        age = self.now() - _creation_of(ticket)
        if not -MAX_SKEW_SECONDS <= age <= MAX_AGE_SECONDS:
            raise RequestRefused(
                401,
                f"the ticket is {age:.0f} s old, and good for {MAX_AGE_SECONDS:.0f}; create"
                " another one",
            )
        await self._check_policy()
        spec = ticket.spec
        return User(spec.user, spec.uid, spec.groups, spec.extra)

    # --- the list -----------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """List the tickets, as one for all who wait, a moment after the last list."""
        if self._listing is None:
            self._listing = task = asyncio.create_task(self._list())
            self._tasks.add(task)
            task.add_done_callback(self._end)
        await asyncio.shield(self._listing)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it, if anybody still does

    async def _list(self) -> None:
        # Whoever comes meanwhile created the ticket before this list begins.
        await asyncio.sleep(max(0.0, self._listed + _PAUSE_SECONDS - self.clock()))
        self._listing = None
        path, params = names.path("tickets", self.namespace), {"limit": _PAGE}
        found: dict[str, _Ticket] = {}
        try:
            while True:
                page = msgspec.json.decode(await self.client.get(path, params=params), type=_Page)
                found |= {each.metadata.name: each for each in page.items}
                if not (more := page.metadata.get("continue")) or len(found) >= _MAX_TICKETS:
                    break
                params = {"limit": _PAGE, "continue": more}
        except (ApiError, msgspec.DecodeError) as error:
            raise RequestRefused(
                503, f"tickets cannot be listed: {error}", _RETRY_SECONDS
            ) from error
        finally:
            self._listed = self.clock()
        self._tickets = found
        if self.cleans():
            await self._delete_old(path)

    async def _delete_old(self, path: str) -> None:
        limit = self.now() - MAX_AGE_SECONDS - MAX_SKEW_SECONDS
        old = [name for name, each in self._tickets.items() if _creation_of(each) < limit]
        for name in old[:_MAX_DELETIONS]:
            del self._tickets[name]
            try:
                await self.client.delete(f"{path}/{name}")
            except (ApiError, NotLeader) as error:
                _log.info("old ticket not deleted", ticket=name, error=str(error))

    # --- whether tickets can be believed ------------------------------------------------------

    async def _check_policy(self) -> None:
        """Raise RequestRefused unless the API server refuses tickets that name somebody else."""
        async with self._trying:
            if self._trusted_until > self.clock():
                return
            await self._try_policy()
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
            if error.status in (403, 422) and _POLICY in error.message:
                return
            raise RequestRefused(
                503, f"whether tickets can be believed is not known: {error}", _RETRY_SECONDS
            ) from error
        _log.error("tickets are not believed: the API server admits forged ones")
        raise RequestRefused(
            503,
            "the API server admits tickets of anybody: have the policy bireme-tickets of the chart"
            " installed again",
        )


def _creation_of(ticket: _Ticket) -> float:
    """Return when the API server created it; long ago where it does not say."""
    return quantities.parse_timestamp(ticket.metadata.creation_timestamp) or 0.0
