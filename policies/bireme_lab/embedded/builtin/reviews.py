"""Reviews: questions about users and their rights, which are answered and not stored."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiRequest, ApiUser
from bireme_lab.embedded.builtin.account_tokens import AccountTokens, InvalidTokenError
from bireme_lab.embedded.builtin.rbac import Rights

_AUTHENTICATION: Final = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1"
Answerer = Callable[[ApiRequest, Object], Object]


def reviews(rights: Rights, tokens: AccountTokens) -> dict[str, Answerer]:
    """Return the function that answers each kind of review."""

    def access(user: ApiUser, spec: Mapping[str, Any]) -> Object:
        asked = spec.get("resourceAttributes")
        if asked is None:
            # Paths that are no resources: discovery and health, which everybody may read.
            return {"allowed": True}
        resource = asked.get("resource", "*")
        if asked.get("subresource"):
            resource = f"{resource}/{asked['subresource']}"
        is_allowed = rights.may(
            user,
            asked.get("verb", "*"),
            asked.get("group", ""),
            resource,
            asked.get("namespace", ""),
            asked.get("name", ""),
        )
        return {"allowed": is_allowed}

    def of_subject(_: ApiRequest, body: Object) -> Object:
        spec = body["spec"]
        extra = {name: tuple(values) for name, values in (spec.get("extra") or {}).items()}
        user = ApiUser(spec.get("user", ""), tuple(spec.get("groups") or ()), extra=extra)
        return {**body, "status": access(user, spec)}

    def of_self(request: ApiRequest, body: Object) -> Object:
        return {**body, "status": access(request.user, body["spec"])}

    def rules_of_self(request: ApiRequest, body: Object) -> Object:
        namespace = body["spec"].get("namespace", "")
        rules = list(rights.rules(request.user, namespace))
        status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        return {**body, "status": status}

    def who(request: ApiRequest, body: Object) -> Object:
        return {**body, "status": {"userInfo": request.user.to_info()}}

    def token(_: ApiRequest, body: Object) -> Object:
        spec = body.get("spec") or {}
        try:
            user, audiences = tokens.review(spec.get("token", ""), spec.get("audiences") or ())
        except InvalidTokenError as error:
            status: Object = {"authenticated": False, "user": {}, "error": str(error)}
        else:
            status = {"authenticated": True, "user": user.to_info(), "audiences": audiences}
        return {**body, "status": status}

    return {
        f"{_AUTHENTICATION}/tokenreviews": token,
        f"{_AUTHENTICATION}/selfsubjectreviews": who,
        f"{_AUTHORIZATION}/subjectaccessreviews": of_subject,
        f"{_AUTHORIZATION}/selfsubjectaccessreviews": of_self,
        f"{_AUTHORIZATION}/selfsubjectrulesreviews": rules_of_self,
    }
