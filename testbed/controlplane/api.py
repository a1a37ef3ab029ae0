"""A small API client for the control plane's own needs: readiness, fake nodes, test set-up.

It is apart from Bireme's client on purpose: what checks a program should not share its code.
"""

import http.client
import json
import ssl
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from testbed.controlplane.errors import ControlPlaneError

Manifest = dict[str, Any]
_THREADS = 8


def kubeconfig(cluster: Manifest, user: Manifest) -> Manifest:
    """Return a kubeconfig of one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "only",
        "clusters": [{"name": "only", "cluster": cluster}],
        "users": [{"name": "only", "user": user}],
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
    }


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes

    def json(self) -> Manifest:
        decoded: Manifest = json.loads(self.body)
        return decoded


class Api:
    """Requests to one API server with the credentials of ``kubeconfig``; threads may share one."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self.server: str = cluster["server"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            urlsplit(self.server).netloc, context=self._context, timeout=30.0
        )

    def request(self, method: str, path: str, body: Manifest | None = None) -> Reply:
        """Send one request on its own connection, whatever the answer; OSError without one."""
        with closing(self.connect()) as connection:
            return _exchange(connection, method, path, body)

    def get(self, path: str) -> Manifest:
        """Return the object or list at ``path``; an error names path, status and message."""
        return _accepted(self.request("GET", path), f"GET {path}").json()

    def post(self, path: str, body: Manifest) -> Manifest:
        return _accepted(self.request("POST", path, body), f"POST {path}").json()

    def post_all(self, path: str, bodies: Sequence[Manifest]) -> None:
        """Create many objects at once, each thread on one kept connection."""
        # A TLS handshake for each object would be felt with thousands of them.
        shares = [bodies[start::_THREADS] for start in range(_THREADS)]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(partial(self._post_share, path), shares))

    def _post_share(self, path: str, bodies: Iterable[Manifest]) -> None:
        with closing(self.connect()) as connection:
            for body in bodies:
                name = body["metadata"].get("name", "")
                _accepted(_exchange(connection, "POST", path, body), f"POST {path} ({name})")


def _exchange(
    connection: http.client.HTTPSConnection, method: str, path: str, body: Manifest | None
) -> Reply:
    payload = None if body is None else json.dumps(body)
    connection.request(method, path, payload, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return Reply(answer.status, answer.read())


def _accepted(reply: Reply, what: str) -> Reply:
    if reply.status >= http.client.BAD_REQUEST:
        text = reply.body.decode(errors="replace")[:2000]
        raise ControlPlaneError(f"{what} was answered with {reply.status}: {text}")
    return reply
