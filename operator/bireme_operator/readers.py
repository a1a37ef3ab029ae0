"""Readers: who asks this process over HTTP, and in which namespaces they may do what.

A reader says by a ticket who they are (:mod:`bireme_operator.tickets`). The API server says what
that user may do with TrainingJobs (SubjectAccessReview), which is remembered for a minute. Limits
are those of a user, whatever address the request comes from: behind the API server's proxy all have
one. ServiceAccounts of one namespace share theirs.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from aiohttp import web

from bireme.kube import names
from bireme_operator.http_server import keep_connection
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.reviews import Reviews
from bireme_operator.tickets import TICKET_HEADER, Tickets, User

MAX_NAMESPACES: Final = 100
"""Namespaces that one request is answered for, of a reader who may not list in all of them."""
_REMEMBERED_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 8192
_PER_SECOND: Final = 1.0
_BURST: Final = 10
_V = TypeVar("_V")


@dataclass(slots=True)
class _Remembered:
    """Answers of the API server, each for a minute."""

    clock: Callable[[], float]
    _known: OrderedDict[Hashable, tuple[float, Any]] = field(default_factory=OrderedDict)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[_V]]) -> _V:
        until, known = self._known.get(key, (float("-inf"), None))
        if until > self.clock():
            found: _V = known
            return found
        found = await ask()  # what it raises is no answer, and asked again
        self._known[key] = (self.clock() + _REMEMBERED_SECONDS, found)
        self._known.move_to_end(key)
        while len(self._known) > _MAX_REMEMBERED:
            self._known.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class Reader:
    """A user whom the API server has authenticated; ``digest`` is of all that it said of them."""

    digest: bytes
    user: User

    @property
    def name(self) -> str:
        return self.user.name


@dataclass(slots=True)
class Readers:
    """Finds out who asks and what they may; ``clock`` gives monotonic seconds."""

    tickets: Tickets
    reviews: Reviews
    clock: Callable[[], float]
    _access: _Remembered = field(init=False)
    _requests: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self._access = _Remembered(self.clock)
        self._requests = RateLimiter(_PER_SECOND, _BURST, self.clock)

    async def who_sent(self, request: web.Request) -> Reader:
        """Return who sent ``request``; RequestRefused where nobody can say, or it is too early."""
        user = await self.tickets.user(request.headers.get(TICKET_HEADER, ""))
        if wait := self._requests.take(user.tenant):
            raise RequestRefused(429, "one in a second is enough; try again", wait)
        keep_connection(request)
        return Reader(user.digest, user)

    async def may(self, reader: Reader, verb: Literal["list", "create"], namespace: str) -> bool:
        """Return whether ``reader`` may ``verb`` TrainingJobs in ``namespace``; "" for in all."""
        asked = {"verb": verb, "group": names.GROUP, "resource": "trainingjobs"}
        if namespace:
            asked["namespace"] = namespace
        return await self._access.get(
            (reader.digest, verb, namespace),
            lambda: self.reviews.may(reader.user, resourceAttributes=asked),
        )

    async def require(
        self, reader: Reader, verb: Literal["list", "create"], namespace: str
    ) -> None:
        """Raise RequestRefused where ``reader`` may not ``verb`` in ``namespace``."""
        if not await self.may(reader, verb, namespace):
            raise RequestRefused(
                403,
                f"{reader.name} may not {verb} trainingjobs in namespace {namespace!r}; ask for a"
                " role that may",
            )

    async def serve(
        self,
        request: web.Request,
        answer: Callable[[Reader, Sequence[str]], Awaitable[bytes]],
    ) -> web.Response:
        """Return the JSON that ``answer`` makes for who sent ``request``, or the refusal.

        It gets the namespaces that the request names by ``?namespace=``, sorted.
        """
        try:
            reader = await self.who_sent(request)
            body = await answer(reader, sorted(set(request.query.getall("namespace", ()))))
        except RequestRefused as refused:
            return refusal(refused)
        return web.Response(body=body, content_type="application/json")

    async def scope(
        self, reader: Reader, wanted: Sequence[str], present: Iterable[str]
    ) -> frozenset[str] | None:
        """Return the namespaces to answer ``reader`` for, None for all.

        These are the ``wanted`` ones; where none is, those ``present`` in which they may list.
        RequestRefused where they may not list in a wanted one, or too many are asked about.
        """
        if await self.may(reader, "list", ""):
            return frozenset(wanted) if wanted else None
        asked = wanted or sorted(present)
        if len(asked) > MAX_NAMESPACES:
            raise RequestRefused(
                403,
                f"{reader.name} may not list trainingjobs in all namespaces; name up to"
                f" {MAX_NAMESPACES} by ?namespace=",
            )
        for name in wanted:
            await self.require(reader, "list", name)
        return await self.readable(reader, asked)

    async def readable(self, reader: Reader, asked: Iterable[str]) -> frozenset[str]:
        """Return those of the namespaces ``asked`` in which ``reader`` may list."""
        return frozenset([name for name in asked if await self.may(reader, "list", name)])


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
}


def refusal(refused: RequestRefused) -> web.Response:
    """Return the answer to who is refused, as the API server's.

    Through its proxy a client reads the one as the other.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": refused.status,
        "reason": _REASONS.get(refused.status, "ServiceUnavailable"),
        "message": str(refused),
    }
    headers = {}
    if refused.retry_after_seconds:
        headers["Retry-After"] = str(int(refused.retry_after_seconds) + 1)
    return web.json_response(body, status=refused.status, headers=headers)
