"""``GET /outlook``: when those who wait should start, each reader the namespaces they may read.

A reader sends a bearer token, in ``Bireme-Token`` where the request comes through the API server's
proxy, which takes ``Authorization`` for itself. The API server says whose it is, and in which
namespaces that user may ``list`` TrainingJobs (SubjectAccessReview); nothing of others is told.
What it said is remembered for a minute. ``?namespace=NAME``, once for each, asks for less.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from bireme.core.gpus import GPU
from bireme.core.outlook import Prospect
from bireme.core.times import clock_time
from bireme.kube import names, quantities
from bireme.kube.client import ApiClient
from bireme_operator.outlooks import Foreseen, Outlooks
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.reviews import Reviews, User, bearer

PATH: Final = "/outlook"
TOKEN_HEADER: Final = "Bireme-Token"  # noqa: S105  # the name of a header
VERSION: Final = "outlook.bireme.dev/v1"
MOST_NAMESPACES: Final = 100
"""Namespaces that one request is answered for, of a reader who may not list in all of them."""
_REMEMBERED_SECONDS: Final = 60.0
_MOST_REMEMBERED: Final = 8192
_REVIEWS_PER_SECOND: Final = 20
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
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found


@dataclass(slots=True)
class OutlookEndpoint:
    """Serves the outlook; ``outlooks`` gives that of this process, None where it does not lead.

    ``now`` gives POSIX seconds.
    """

    reviews: Reviews
    outlooks: Callable[[], Outlooks | None]
    clock: Callable[[], float]
    now: Callable[[], float]
    _users: _Remembered = field(init=False)
    _access: _Remembered = field(init=False)
    _asked: RateLimiter = field(init=False)
    _in_all: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self._users, self._access = _Remembered(self.clock), _Remembered(self.clock)
        self._asked = RateLimiter(_PER_SECOND, _BURST, self.clock)
        self._in_all = RateLimiter(_REVIEWS_PER_SECOND, _REVIEWS_PER_SECOND, self.clock)

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            given = request.headers.get(TOKEN_HEADER)
            header = request.headers.get("Authorization", "")
            token = bearer(header if given is None else f"Bearer {given}")
            wanted = sorted(set(request.query.getall("namespace", ())))
            body = await self._answer(token, wanted)
        except RequestRefused as refused:
            return _refusal(refused)
        return web.Response(body=body, content_type="application/json")

    async def _answer(self, token: str, wanted: Sequence[str]) -> bytes:
        digest = hashlib.sha256(token.encode()).digest()
        if wait := self._asked.take(digest):
            raise RequestRefused(429, "one in a second is enough; try again", wait)
        user = await self._users.get(digest, lambda: self._reviewed(token))
        outlooks = self.outlooks()
        if outlooks is None:
            raise RequestRefused(503, "this replica does not lead; ask another one")
        found = outlooks.latest
        if found is None:
            raise RequestRefused(503, "no outlook has been made yet; try again in a minute")
        may_read = await self._readable(digest, user, wanted, found)
        return await asyncio.to_thread(self._encoded, found, may_read)

    async def _reviewed(self, token: str) -> User:
        self._limit()
        return await self.reviews.user(token)

    def _limit(self) -> None:
        if wait := self._in_all.take("all"):
            raise RequestRefused(429, "too many readers ask for the first time; try again", wait)

    async def _readable(
        self, digest: bytes, user: User, wanted: Sequence[str], found: Foreseen
    ) -> frozenset[str] | None:
        """Return the namespaces to answer for, None for all; RequestRefused where there is none."""
        if await self._may_list(digest, user, ""):
            return frozenset(wanted) if wanted else None
        present = {each.gang.namespace for each in found.outlook.prospects}
        asked = wanted or sorted(present)
        if len(asked) > MOST_NAMESPACES:
            raise RequestRefused(
                403,
                f"{user.name} may not list trainingjobs in all namespaces; name up to"
                f" {MOST_NAMESPACES} by ?namespace=",
            )
        readable = frozenset([name for name in asked if await self._may_list(digest, user, name)])
        if forbidden := sorted(set(wanted) - readable):
            raise RequestRefused(
                403,
                f"{user.name} may not list trainingjobs in namespace {forbidden[0]!r}; ask for a"
                " role that may",
            )
        return readable

    async def _may_list(self, digest: bytes, user: User, namespace: str) -> bool:
        asked = {"verb": "list", "group": names.GROUP, "resource": "trainingjobs"}
        if namespace:
            asked["namespace"] = namespace
        return await self._access.get(
            (digest, namespace), lambda: self.reviews.may(user, resourceAttributes=asked)
        )

    def _encoded(self, found: Foreseen, may_read: frozenset[str] | None) -> bytes:
        outlook = found.outlook
        told = {
            "apiVersion": VERSION,
            "kind": "Outlook",
            "time": clock_time(outlook.now),
            "ageSeconds": round(max(0.0, self.now() - outlook.now)),
            "until": clock_time(outlook.until),
            "cut": outlook.cut.value,
            "policy": found.policy,
            "namespaces": None if may_read is None else sorted(may_read),
            "gangs": [
                _told(each, found)
                for each in outlook.prospects
                if may_read is None or each.gang.namespace in may_read
            ],
        }
        return msgspec.json.encode(told)


def _told(each: Prospect, found: Foreseen) -> dict[str, Any]:
    gang, ends = each.gang, found.ranges.get(each.gang.uid)
    estimate: dict[str, Any] = {}
    if ends is not None:
        estimate["earliest"] = quantities.format_timestamp(ends.earliest)
        if ends.latest is not None:
            estimate["latest"] = quantities.format_timestamp(ends.latest)
        if ends.coverage is not None:
            estimate["coveragePercent"] = round(100 * ends.coverage)
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "queue": gang.queue,
        "gpus": gang.demand.get(GPU, 0),
        "position": each.position,
        "reason": each.reason.value if each.reason is not None else None,
        "start": quantities.format_timestamp(each.start) if each.start is not None else None,
        "estimatedStart": estimate or None,
    }


_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests"}


def _refusal(refused: RequestRefused) -> web.Response:
    # As the API server refuses: through its proxy a client reads the one as the other.
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


def make(
    client: ApiClient,
    outlooks: Callable[[], Outlooks | None],
    clock: Callable[[], float],
    now: Callable[[], float],
) -> OutlookEndpoint:
    """Return the endpoint; ``client`` must not be fenced, ``clock`` gives monotonic seconds."""
    return OutlookEndpoint(Reviews(client), outlooks, clock, now)
