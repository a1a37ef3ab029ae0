"""Whose token it is: the API server says (TokenReview), and we remember for a while.

A token names a pod before anybody has vouched for it. That much is read first, without trust, so
that only tokens which name a member of a gang cost a TokenReview, and for each such pod and sender
no more than one in five minutes: the kubelet renews a token every 48 minutes. What the API server
answered is remembered by the token's digest, refusals too.
"""

import asyncio
import base64
import binascii
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme.kube.progress_access import AUDIENCE
from bireme_operator.rations import Rations

REMEMBERED_SECONDS: Final = 300.0
_MOST_REMEMBERED: Final = 8192
_REVIEWS_PER_SECOND: Final = 20
_LONGEST_TOKEN: Final = 8192
_RETRY_SECONDS: Final = 5.0
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_USER: Final = "system:serviceaccount:"


class Refused(Exception):  # noqa: N818  # a verdict, not a malfunction
    """A request is turned away with an HTTP ``status``; the text says why, and the remedy."""

    def __init__(self, status: int, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Sender:
    """The pod that a token was made for."""

    namespace: str
    pod: str
    uid: str


class _Pod(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    namespace: str = ""
    pod: _Pod = _Pod()


class _Claims(msgspec.Struct, frozen=True):
    aud: list[str] | str = ""
    bound: _Bound = msgspec.field(default=_Bound(), name="kubernetes.io")


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: list[str] = []
    user: _User = _User()
    error: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


def claimed(token: str) -> Sender:
    """Whom ``token`` says it was made for; nobody has vouched for it yet.

    Raises:
        Refused: it is no token of a pod for this endpoint.
    """
    if len(token) > _LONGEST_TOKEN:
        raise Refused(401, f"the token is longer than {_LONGEST_TOKEN} characters")
    try:
        payload = token.split(".")[1]
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims = msgspec.json.decode(text, type=_Claims)
    except (IndexError, binascii.Error, ValueError, RecursionError) as error:
        raise Refused(401, "the bearer token is no ServiceAccount token") from error
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if AUDIENCE not in audiences:
        raise Refused(
            401, f"the token is not for audience {AUDIENCE!r}; send that of the projected volume"
        )
    pod = claims.bound.pod
    if not (pod.name and pod.uid and claims.bound.namespace):
        raise Refused(401, "the token is not bound to a pod; send that of the projected volume")
    return Sender(claims.bound.namespace, pod.name, pod.uid)


class Tokens:
    """Senders by token; ``clock`` is monotonic seconds."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._per_pod = Rations(1 / REMEMBERED_SECONDS, 1, clock)
        self._in_all = Rations(_REVIEWS_PER_SECOND, _REVIEWS_PER_SECOND, clock)
        self._known: OrderedDict[bytes, tuple[float, asyncio.Future[Sender | None]]] = OrderedDict()

    async def sender(self, token: str, claim: Sender, address: str) -> Sender:
        """Whom the API server says that ``token`` was made for.

        Args:
            claim: What :func:`claimed` read from it.
            address: Where the request comes from.

        Raises:
            Refused: it vouches for nobody, or cannot be asked now.
        """
        digest = hashlib.sha256(token.encode()).digest()
        until, answer = self._known.get(digest, (-math.inf, None))
        if answer is None or until <= self._clock():
            self._ration((claim.uid, address))
            answer = asyncio.ensure_future(self._reviewed(digest, token, (claim.uid, address)))
            # Whoever waits for it may hang up before it is there.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._known[digest] = (self._clock() + REMEMBERED_SECONDS, answer)
            while len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        found = await asyncio.shield(answer)
        if found is None:
            raise Refused(401, "the API server does not accept the token; read its file again")
        return found

    def _ration(self, who: tuple[str, str]) -> None:
        """Raises Refused where a TokenReview for ``who`` would be one too many."""
        if wait := self._per_pod.take(who):
            raise Refused(429, "this pod has shown too many tokens; keep to one", wait)
        if wait := self._in_all.take("all"):
            self._per_pod.give_back(who)
            raise Refused(429, "too many pods report for the first time; try again", wait)

    async def _reviewed(self, digest: bytes, token: str, who: tuple[str, str]) -> Sender | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            review = msgspec.json.decode(await self._client.create(_REVIEWS, body), type=_Review)
        except (ApiError, NotLeader, msgspec.DecodeError) as error:
            self._known.pop(digest, None)  # no verdict: ask again
            self._per_pod.give_back(who)
            why = "may not create tokenreviews" if _is_forbidden(error) else "cannot ask now"
            raise Refused(503, f"the operator {why}: {error}", _RETRY_SECONDS) from error
        return _vouched(review.status)


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.is_forbidden


def _vouched(status: _ReviewStatus) -> Sender | None:
    """The pod the API server vouches for; None for nobody, or for another audience."""
    if not status.authenticated or AUDIENCE not in status.audiences:
        return None
    if not status.user.username.startswith(_USER):
        return None
    namespace = status.user.username.removeprefix(_USER).partition(":")[0]
    names, uids = (status.user.extra.get(key) for key in (_POD_NAME, _POD_UID))
    return Sender(namespace, names[0], uids[0]) if names and uids else None
