"""Tokens of accounts: those that TokenRequests issue, and whose they are.

A token is a signed list of claims, as a real one. It holds while its account, and the pod that it
may be bound to, exist.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api import bodies, kinds
from bireme_lab.embedded.api.errors import ApiRefusal, Object, bad_request
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, ApiUser
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.store import Key
from bireme_lab.embedded.builtin.rbac import account_user

AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
"""The audience of the API server itself."""
_SECONDS: Final = 3600
_MIN_SECONDS: Final = 600
_EXTRA: Final = "authentication.kubernetes.io"
_BINDING: Final = "kubernetes.io"
_HEADER: Final = {"alg": "HS256"}


class InvalidTokenError(ValueError):
    """A token that nobody has, or not for these audiences; in the API server's words."""


@dataclass(eq=False)
class AccountTokens:
    """Issues tokens, and says whose they are.

    Attributes:
        users: By token, users whose tokens the cluster got at its start.
    """

    users: Mapping[str, ApiUser] = field(default_factory=dict)
    _api: ApiServer = field(init=False)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def register(self, api: ApiServer) -> None:
        """Have an API server issue tokens."""
        self._api = api
        api.connects[kinds.SERVICE_ACCOUNTS, "token"] = self._issue

    def user(self, token: str) -> ApiUser | None:
        """Return who sends a token to the API server; None for nobody."""
        try:
            return self.review(token, ())[0]
        except InvalidTokenError:
            return None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[ApiUser, list[str]]:
        """Return whose a token is, and for which of the audiences; none are the API server's.

        Raises:
            InvalidTokenError: it is nobody's, or for others.
        """
        wanted = list(audiences) or [AUDIENCE]
        if (user := self.users.get(token)) is not None:
            return user, wanted
        claims = self._claims(token)
        common = [each for each in wanted if each in claims["aud"]]
        if not common:
            stated, targets = (_listed(each) for each in (claims["aud"], wanted))
            raise InvalidTokenError(
                f"[invalid bearer token, token audiences {stated} is invalid for the target "
                f"audiences {targets}]"
            )
        return self._owner(claims[_BINDING]), common

    def _owner(self, binding: Object) -> ApiUser:
        namespace, name = binding["namespace"], binding["serviceaccount"]["name"]
        self._require(kinds.SERVICE_ACCOUNTS, (namespace, name), binding["serviceaccount"]["uid"])
        user = account_user(namespace, name)
        extra: dict[str, tuple[str, ...]] = {}
        if (pod := binding.get("pod")) is not None:
            self._require(kinds.PODS, (namespace, pod["name"]), pod["uid"])
            extra = {f"{_EXTRA}/pod-{word}": (pod[word],) for word in ("name", "uid")}
        return ApiUser(user.name, user.groups, binding["serviceaccount"]["uid"], extra)

    def _require(self, path: str, key: Key, uid: str) -> None:
        obj = self._api.store.get(path, key)
        if obj is None or obj["metadata"]["uid"] != uid:
            raise InvalidTokenError("[invalid bearer token, service account token has expired]")

    def _claims(self, token: str) -> Object:
        head, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature, self._signature(head)):
            raise InvalidTokenError("invalid bearer token")
        payload = head.partition(".")[2]
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims: Object = msgspec.json.decode(text)
        if claims["exp"] <= self._api.now():
            raise InvalidTokenError("[invalid bearer token, service account token has expired]")
        return claims

    def _signature(self, head: str) -> str:
        return _encoded(hmac.digest(self._key, head.encode(), hashlib.sha256))

    def _issue(
        self, request: ApiRequest, resource: ResourceKind, key: Key, account: Object
    ) -> ApiAnswer:
        """Answer a TokenRequest."""
        body = bodies.decode(request)
        spec = (body.get("spec") if isinstance(body, dict) else None) or {}
        seconds = spec.get("expirationSeconds") or _SECONDS
        if seconds < _MIN_SECONDS:
            text = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            kind = 'TokenRequest.authentication.k8s.io ""'
            message = f"{kind} is invalid: spec.expirationSeconds: {text}"
            raise ApiRefusal(422, "Invalid", message)
        meta = account["metadata"]
        binding: Object = {
            "namespace": key[0],
            "serviceaccount": {"name": key[1], "uid": meta["uid"]},
        }
        if (reference := spec.get("boundObjectRef")) is not None:
            binding["pod"] = self._bound_pod(key[0], reference)
        now = int(self._api.now())
        claims = {
            "aud": spec.get("audiences") or [AUDIENCE],
            "exp": now + seconds,
            "iat": now,
            "iss": AUDIENCE,
            _BINDING: binding,
            "sub": account_user(*key).name,
        }
        head = ".".join(_encoded(msgspec.json.encode(each)) for each in (_HEADER, claims))
        expiry = datetime.fromtimestamp(now + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return ApiAnswer(
            201,
            {
                "kind": "TokenRequest",
                "apiVersion": "authentication.k8s.io/v1",
                "metadata": {"name": key[1], "namespace": key[0]},
                "spec": {**spec, "audiences": claims["aud"], "expirationSeconds": seconds},
                "status": {
                    "token": f"{head}.{self._signature(head)}",
                    "expirationTimestamp": expiry,
                },
            },
        )

    def _bound_pod(self, namespace: str, reference: Object) -> Object:
        kind, name = reference.get("kind"), reference.get("name", "")
        if kind != "Pod":
            raise bad_request(f"the embedded cluster binds tokens to pods alone, not to {kind}")
        pod = self._api.store.get(kinds.PODS, (namespace, name))
        if pod is None:
            raise ApiRefusal(404, "NotFound", f'pods "{name}" not found')
        uid = pod["metadata"]["uid"]
        if reference.get("uid") not in (None, "", uid):
            text = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the "
                "UID in record. The object might have been deleted and then recreated"
            )
            raise ApiRefusal(409, "Conflict", text)
        return {"name": name, "uid": uid}


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _listed(values: Sequence[Any]) -> str:
    return "[" + " ".join(f'"{each}"' for each in values) + "]"
