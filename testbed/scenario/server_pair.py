"""The embedded API server beside a real one: both get the same requests, and answers are compared.

The real one follows policies and quotas a moment later, so its answer is awaited.
"""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest
from bireme_lab.embedded.api.server import ApiServer
from testbed.controlplane.cluster import Cluster

PATIENCE_SECONDS: Final = 10.0
_JSON: Final = "application/json"
_OF_SERVER: Final = ("uid", "creationTimestamp", "managedFields", "resourceVersion", "namespace")
Answer = tuple[int, Any]


@dataclass(frozen=True)
class ServerPair:
    """An embedded API server, and a cluster with a real one."""

    embedded: ApiServer
    cluster: Cluster

    def ask_embedded(self, method: str, path: str, body: Any = None, form: str = _JSON) -> Answer:
        where, _, query = path.partition("?")
        answer = self.embedded.answer(
            ApiRequest(
                method,
                where,
                query=dict(each.split("=") for each in query.split("&") if each),
                content_type=form,
                body=b"" if body is None else msgspec.json.encode(body),
            )
        )
        if not isinstance(answer, ApiAnswer):
            raise TypeError(f"{method} {path} starts a watch")
        return answer.code, answer.body

    def ask_real(self, method: str, path: str, body: Any = None, form: str = _JSON) -> Answer:
        reply = self.cluster.api.request(method, path, body, {"Content-Type": form})
        return reply.status, reply.json()

    def do(self, method: str, path: str, body: Any = None, form: str = _JSON) -> None:
        """Send a request that both accept; a real cluster may have the object already."""
        for ask in (self.ask_embedded, self.ask_real):
            code, answer = ask(method, path, body, form)
            assert code < http.client.BAD_REQUEST or code == http.client.CONFLICT, answer

    def difference(self, method: str, path: str, body: Any = None, form: str = _JSON) -> str:
        """Return both answers where they are not the same after a while; empty otherwise."""
        expected = essence(self.ask_embedded(method, path, body, form))
        deadline_seconds = time.monotonic() + PATIENCE_SECONDS
        while (given := essence(self.ask_real(method, path, body, form))) != expected:
            if time.monotonic() > deadline_seconds:
                texts = (json.dumps(each, indent=1) for each in (expected, given))
                return "{} {}: embedded {}\nreal {}".format(method, path, *texts)
            time.sleep(0.05)
        return ""

    def differences(self, path: str, bodies: Mapping[str, Any]) -> str:
        """Return how creations at ``path`` differ, each after its name; nothing is stored."""
        return "\n".join(
            f"{name}: {difference}"
            for name, body in bodies.items()
            if (difference := self.difference("POST", f"{path}?dryRun=All", body))
        )


def essence(answer: Answer) -> Answer:
    """Return code and words of a refusal, or an object without what is the server's own."""
    code, body = answer
    if code >= http.client.BAD_REQUEST:
        return code, {name: body.get(name) for name in ("message", "reason")}
    meta = {name: value for name, value in body["metadata"].items() if name not in _OF_SERVER}
    if "generateName" in meta:
        meta.pop("name")
    return code, {**body, "metadata": meta}
