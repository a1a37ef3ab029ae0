"""Who sends a request and what they may do, by the API server: TokenReview, SubjectAccessReview.

A review changes nothing in the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme_operator.progress_auth import RequestRefused

_LONGEST_TOKEN: Final = 8192
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class User:
    """A user whom the API server has authenticated; ``told`` is all it says of them."""

    name: str
    told: Mapping[str, Any] = field(default_factory=dict, compare=False)


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    allowed: bool = False
    user: dict[str, Any] = {}


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def bearer(authorization: str) -> str:
    """Return the token of an Authorization header. Raises RequestRefused where it has none."""
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
        raise RequestRefused(401, "send a bearer token of the cluster")
    return token


@dataclass(frozen=True, slots=True)
class Reviews:
    """Asks the API server; ``client`` must not be fenced."""

    client: ApiClient

    async def user(self, token: str) -> User:
        """Return whose ``token`` it is. Raises RequestRefused: nobody's, or nobody can say."""
        found = await self._review(_TOKENS, "authentication", "TokenReview", {"token": token})
        if not found.authenticated:
            raise RequestRefused(401, "the API server does not accept the token")
        return User(str(found.user.get("username") or ""), found.user)

    async def may(self, user: User, **asked: Mapping[str, str]) -> bool:
        """Return whether ``user`` may do what ``asked`` names, a field of the review's spec.

        Raises RequestRefused where the API server cannot be asked.
        """
        spec = {
            "user": user.name,
            "uid": user.told.get("uid") or "",
            "groups": user.told.get("groups") or [],
            "extra": user.told.get("extra") or {},
            **asked,
        }
        found = await self._review(_ACCESS, "authorization", "SubjectAccessReview", spec)
        return found.allowed

    async def _review(self, path: str, group: str, kind: str, spec: Mapping[str, Any]) -> _Status:
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            answer = await self.client.create(path, body)
            return msgspec.json.decode(answer, type=_Review).status
        except (ApiError, NotLeader, msgspec.DecodeError) as error:
            raise RequestRefused(503, f"the API server cannot be asked: {error}") from error
