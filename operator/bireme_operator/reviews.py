"""Permissions of users, by the API server's SubjectAccessReview, which changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.tickets import User

_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


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
