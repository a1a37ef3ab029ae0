"""Requests to an API server in memory, for the tests of this folder."""

from typing import Any

import msgspec

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ADMIN, ApiAnswer, ApiRequest, ApiUser
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.cluster import make_api

NOW = 1_900_000_000.0
PODS = "/api/v1/namespaces/default/pods"


def an_api() -> ApiServer:
    return make_api(lambda: NOW)


def ask(
    api: ApiServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "application/json",
    accept: str = "application/json",
    manager: str = "test",
    user: ApiUser = ADMIN,
    **query: str,
) -> ApiAnswer:
    """Send a request; its answer may be a refusal."""
    answer = api.answer(
        ApiRequest(
            method,
            path,
            query=query,
            user=user,
            content_type=content_type,
            accept=accept,
            user_agent=f"{manager}/1",
            body=b"" if body is None else msgspec.json.encode(body),
        )
    )
    assert isinstance(answer, ApiAnswer)
    return answer


def done(api: ApiServer, method: str, path: str, body: Any = None, **options: Any) -> Object:
    """Send a request that is not refused; return the object of its answer."""
    answer = ask(api, method, path, body, **options)
    assert answer.code < 300, answer.body
    found: Object = answer.body
    return found


def a_pod(name: str = "p", **spec: Any) -> Object:
    container = {"name": "c", "image": "trainer"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }
