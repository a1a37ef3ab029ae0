"""A small API client for the control plane's own needs: readiness, fake nodes, test set-up.

It is apart from Bireme's client on purpose: what checks a program should not share its code.
"""

import http.client
import json
import ssl
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from testbed.controlplane.errors import ControlPlaneError

Manifest = dict[str, Any]
_THREADS = 8
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
_NONE: Final[Mapping[str, str]] = {}


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
        self._context = None  # an embedded cluster, over plain HTTP
        if "certificate-authority" in cluster:
            self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
            self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._idle: list[http.client.HTTPConnection] = []
        self.close = weakref.finalize(self, _close_all, self._idle)
        """Closes the connections that stand idle."""

    def connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.server).netloc
        if self._context is None:
            return http.client.HTTPConnection(address, timeout=30.0)
        return http.client.HTTPSConnection(address, context=self._context, timeout=30.0)

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = _NONE
    ) -> Reply:
        """Send one request, whatever the answer; a PATCH merges by default.

        Raises:
            OSError: there was no answer.
        """
        headers = {"Content-Type": MERGE_PATCH if method == "PATCH" else JSON, **headers}
        if method == "GET" and (reply := self._read_on_idle_connection(path, headers)):
            return reply
        return self._request_on_new_connection(method, path, body, headers)

    def _read_on_idle_connection(self, path: str, headers: Mapping[str, str]) -> Reply | None:
        """Return the answer to a GET; None without an idle connection, or where it broke.

        Tests ask ten times a second, and a TLS handshake costs more than an answer. Writes do not
        come here: whether a broken connection has carried one is unknown.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        try:
            reply = _exchange(connection, "GET", path, None, headers)
        except TimeoutError:
            connection.close()
            raise
        except (OSError, http.client.HTTPException):
            connection.close()
            return None
        self._keep(connection)
        return reply

    def _request_on_new_connection(
        self, method: str, path: str, body: object, headers: Mapping[str, str]
    ) -> Reply:
        connection = self.connect()
        try:
            reply = _exchange(connection, method, path, body, headers)
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return reply

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next GET, unless the server closes it."""
        if connection.sock is not None and len(self._idle) < _THREADS and self.close.alive:
            self._idle.append(connection)
        else:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] = _NONE) -> Manifest:
        """Return the object or list at ``path``; an error names path, status and message."""
        return _accepted(self.request("GET", path, headers=headers), f"GET {path}").json()

    def post(self, path: str, body: Manifest) -> Manifest:
        return _accepted(self.request("POST", path, body), f"POST {path}").json()

    def patch(self, path: str, change: Manifest, *, missing_ok: bool = False) -> None:
        """Merge ``change`` into the object at ``path``, which may be gone with ``missing_ok``."""
        reply = self.request("PATCH", path, change)
        if not (missing_ok and reply.status == http.client.NOT_FOUND):
            _accepted(reply, f"PATCH {path}")

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
                reply = _exchange(connection, "POST", path, body, {"Content-Type": JSON})
                _accepted(reply, f"POST {path} ({name})")


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object,
    headers: Mapping[str, str],
) -> Reply:
    payload = None if body is None else json.dumps(body)
    connection.request(method, path, payload, dict(headers))
    answer = connection.getresponse()
    return Reply(answer.status, answer.read())


def _accepted(reply: Reply, what: str) -> Reply:
    if reply.status >= http.client.BAD_REQUEST:
        text = reply.body.decode(errors="replace")[:2000]
        raise ControlPlaneError(f"{what} was answered with {reply.status}: {text}")
    return reply
