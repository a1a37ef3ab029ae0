"""Readers: HTTP callers of this process, and their permissions by namespace.

A reader presents a ticket that identifies them (:mod:`bireme_operator.tickets`). The API server
decides what that user may do with TrainingJobs (SubjectAccessReview); the answer is cached for a
minute. Rate limits are per user, not per address: behind the API server's proxy all callers have
one address. ServiceAccounts of one namespace share their limit.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import msgspec
from aiohttp import web

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme_operator.http_server import RequestRefused, keep_connection
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.tickets import TICKET_HEADER, Tickets, User

_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MAX_NAMESPACES: Final = 100
"""Limit of namespaces in one request by a reader who may not list in all namespaces."""
_REMEMBERED_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 8192
_PER_SECOND: Final = 1.0
_BURST: Final = 10
_V = TypeVar("_V")


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class AccessReviews:
    """Asks the API server; ``client`` must have no fence."""

    client: ApiClient

    async def may(self, user: User, **attributes: Mapping[str, str]) -> bool:
        """Return whether ``user`` may do the action of ``attributes``, a field of its spec.

        Raises:
            RequestRefused: the API server cannot be asked.
        """
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            **attributes,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        try:
            answer = await self.client.create(_ACCESS, body)
            return msgspec.json.decode(answer, type=_Review).status.allowed
        except (ApiError, NotLeader, msgspec.DecodeError) as error:
            raise RequestRefused(503, f"the API server cannot be asked: {error}") from error


@dataclass(slots=True)
class _Remembered:
    """Answers of the API server, each cached for a minute."""

    clock: Callable[[], float]
    _answers: OrderedDict[Hashable, tuple[float, Any]] = field(default_factory=OrderedDict)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[_V]]) -> _V:
        until, cached = self._answers.get(key, (float("-inf"), None))
        if until > self.clock():
            answer: _V = cached
            return answer
        answer = await ask()  # an error is not cached
        self._answers[key] = (self.clock() + _REMEMBERED_SECONDS, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > _MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True)
class Reader:
    """An authenticated user; ``digest`` covers everything the API server said about them."""

    digest: bytes
    user: User

    @property
    def name(self) -> str:
        return self.user.name


@dataclass(slots=True)
class HttpCallers:
    """Authenticates callers and checks their permissions; ``clock`` gives monotonic seconds."""

    tickets: Tickets
    reviews: AccessReviews
    clock: Callable[[], float]
    _access: _Remembered = field(init=False)
    _requests: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self._access = _Remembered(self.clock)
        self._requests = RateLimiter(_PER_SECOND, _BURST, self.clock)

    async def who_sent(self, request: web.Request) -> Reader:
        """Return the sender of ``request``.

        Raises:
            RequestRefused: the sender is unknown, or sends too many requests.
        """
        user = await self.tickets.user(request.headers.get(TICKET_HEADER, ""))
        if wait := self._requests.take(user.tenant):
            raise RequestRefused(429, "you may send one request a second; try again", wait)
        keep_connection(request)
        return Reader(user.digest, user)

    async def may(self, reader: Reader, verb: Literal["list", "create"], namespace: str) -> bool:
        """Return whether ``reader`` may ``verb`` TrainingJobs in ``namespace``; "" for all."""
        attributes = {"verb": verb, "group": names.GROUP, "resource": "trainingjobs"}
        if namespace:
            attributes["namespace"] = namespace
        return await self._access.get(
            (reader.digest, verb, namespace),
            lambda: self.reviews.may(reader.user, resourceAttributes=attributes),
        )

    async def require(
        self, reader: Reader, verb: Literal["list", "create"], namespace: str
    ) -> None:
        """Raise RequestRefused if ``reader`` may not ``verb`` in ``namespace``."""
        if not await self.may(reader, verb, namespace):
            raise RequestRefused(
                403,
                f"{reader.name} may not {verb} trainingjobs in namespace {namespace!r}; ask for a"
                " role that may",
            )

    async def scope(
        self, reader: Reader, namespaces: Sequence[str], present: Iterable[str]
    ) -> frozenset[str] | None:
        """Return the namespaces of the answer to ``reader``, None for all.

        These are ``namespaces``, or if empty those of ``present`` in which the reader may list.

        Raises:
            RequestRefused: the reader may not list in one of ``namespaces``, or there are too many.
        """
        if await self.may(reader, "list", ""):
            return frozenset(namespaces) if namespaces else None
        candidates = namespaces or sorted(present)
        if len(candidates) > MAX_NAMESPACES:
            raise RequestRefused(
                403,
                f"{reader.name} may not list trainingjobs in all namespaces; name up to"
                f" {MAX_NAMESPACES} by ?namespace=",
            )
        for name in namespaces:
            await self.require(reader, "list", name)
        return await self.readable(reader, candidates)

    async def readable(self, reader: Reader, namespaces: Iterable[str]) -> frozenset[str]:
        """Return the subset of ``namespaces`` in which ``reader`` may list."""
        return frozenset([name for name in namespaces if await self.may(reader, "list", name)])
