"""The HTTP side of the fake API server, on a free loopback port.

``async with FakeApi() as api`` serves any resource below ``/api/v1`` and ``/apis/<group>/<v>``, and
the discovery documents of Bireme's kinds, which kopf and kubectl ask for first.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from bireme.kube import names
from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.controlplane.api import kubeconfig
from testbed.fakeapi.answers import (
    Address,
    Answers,
    Call,
    Feed,
    address,
    replay,
    status_object,
)
from testbed.fakeapi.faults import DRY_RUN, Fault, FaultScript
from testbed.fakeapi.store import Change, Object, Selector, Store


def kubeconfig_of(server: str, token: str | None = None) -> Object:
    return kubeconfig({"server": server}, {"token": token} if token else {})


class Watch(Feed):
    """Queues lines at once; :meth:`run` sends them, unless the watch is silent."""

    def __init__(
        self, resource: str, selector: Selector, request: web.Request, *, silent: bool
    ) -> None:
        self.resource = resource
        self.silent = silent
        self._request = request
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        asked = request.query.get("allowWatchBookmarks") in {"1", "true"}
        super().__init__(selector, self._lines.put_nowait, bookmarks=asked)

    def cut(self, last: bytes) -> None:
        """Send ``last`` as it is and break the connection (a silent watch breaks at once)."""
        transport = self._request.transport
        if transport is None:
            return
        if last:
            # By hand: the response itself would end its chunks in good order.
            transport.write(b"%x\r\n%s\r\n" % (len(last), last))
            transport.close()
        else:
            transport.abort()
        self._lines.put_nowait(None)

    async def run(self, timeout_seconds: float) -> web.StreamResponse:
        """Stream until an error was sent, the time is over or the client is gone."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(self._request)
        try:
            async with asyncio.timeout(timeout_seconds):
                while (line := await self._lines.get()) is not None:
                    if not self.silent:
                        await response.write(line)
        except (TimeoutError, ConnectionResetError):
            pass  # the end of every watch: the server's time limit or the client's hang-up
        return response


class FakeApi:
    """See the module; every attribute may be changed while it serves."""

    def __init__(self) -> None:
        self.store = Store()
        self.faults = FaultScript()
        self.requests: Counter[tuple[str, str]] = Counter()
        """Requests so far by (method, ``WATCH`` or ``PEEK`` at one object, resource path)."""
        self.lags_seconds: dict[str, float] = {}
        """By resource path, by how much watches bring changes later than they happened."""
        self.removed: set[str] = set()
        """Resource paths that answer 404, as when their CRD is gone; see :meth:`remove`."""
        self.token: str | None = None
        """Bearer token without which requests get 401, if any."""
        self.impersonated: set[tuple[str, ...]] = set()
        """Whom requests so far have impersonated: a user and its groups."""
        self.logs: dict[str, str] = {}
        """What pods have written, by path of their ``log``."""
        self.on_request: Callable[[web.Request], None] = lambda _: None
        """Sees every request before it is answered."""
        self.url = ""
        self._watches: list[Watch] = []
        self.answers = Answers(self.store)
        self.documents = self.answers.documents
        self.documents |= _DOCUMENTS
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # Watches that clients left open must not hold up the end of a test.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.watch_cut()
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        path.write_bytes(msgspec.json.encode(kubeconfig_of(self.url, self.token)))
        return path

    def put(self, path: str, body: Object, uid: str = "") -> Object:
        """Create (with ``uid``) or replace an object and its status, without a request."""
        at = address(path)
        if at.key not in self.store.collection(at.resource).objects:
            return self.store.create(at.resource, at.key, body, uid=uid)
        updated = self.store.update(at.resource, at.key, body)
        if "status" not in body:
            return updated
        return self.store.update(at.resource, at.key, {"status": body["status"]}, "status")

    def remove(self, resource: str) -> None:
        """Take a resource away with all its objects, as deleting its CRD does."""
        collection = self.store.collection(resource)
        for key in list(collection.objects):
            self.store.delete(resource, key, {})
        self.removed.add(resource)
        self.watch_cut(resource)

    def compact(self) -> None:
        """Forget history: older watches and pages get 410."""
        self.store.compact()
        self.answers.forget_pages()

    def watch_send(self, resource: str, line: bytes) -> None:
        """Send a raw line (a newline is added) into every open watch of ``resource``."""
        for watch in self._open(resource):
            watch.send(line)

    def watch_bookmark(self, resource: str | None = None) -> None:
        for watch in self._open(resource):
            watch.bookmark(self.store.version)

    def watch_cut(self, resource: str | None = None, *, last: bytes = b"") -> None:
        """Break open watches, after sending ``last`` (perhaps half a line) as it is."""
        for watch in self._open(resource):
            watch.cut(last)

    def watch_end(self, resource: str | None = None) -> None:
        """End open watches in good order, as the real server ends those that lag."""
        for watch in self._open(resource):
            watch.end()

    def open_watches(self, resource: str) -> int:
        return len(self._open(resource))

    def _open(self, resource: str | None) -> list[Watch]:
        return [watch for watch in self._watches if resource in {None, watch.resource}]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") in {"1", "true"}
        path = request.path.rstrip("/")
        self.on_request(request)
        if user := request.headers.get("Impersonate-User"):
            self.impersonated.add((user, *request.headers.getall("Impersonate-Group", ())))
        if (log := self.logs.get(path)) is not None:
            return log_answer(log, request.query)
        if (document := self.documents.get(path)) is not None:
            proxied = "/proxy/" in path and self.faults.next(request.method, path, watch)
            if proxied and (refused := await self._misbehave(request, proxied)) is not None:
                return refused
            return json_answer(_without(document, path, self.removed))
        try:
            at = address(request.path)
            method = DRY_RUN if request.query.get("dryRun") else request.method
            counted = "PEEK" if request.query.get("limit") == "1" else method
            self.requests["WATCH" if watch else counted, at.resource] += 1
            fault = self.faults.next(method, request.path, watch)
            if fault is not None and (answer := await self._misbehave(request, fault)) is not None:
                return answer
            self._check_access(request, at)
            if watch:
                return await self._watch(request, at, silent=bool(fault and fault.silent))
            answer = await self._answer(request, at)
        except ApiRefusal as refusal:
            answer = status_answer(refusal.status, refusal.reason, refusal.message)
        else:
            if fault is not None and fault.drop_answer:
                hang_up(request)
        return answer

    async def _misbehave(self, request: web.Request, fault: Fault) -> web.Response | None:
        """Return the answer of the fault in place of the real one."""
        await asyncio.sleep(fault.delay_seconds)
        if fault.drop:
            hang_up(request)
            return web.Response()
        if fault.status is None:
            return None
        return status_answer(fault.status, fault.reason, fault.message, fault.retry_after_seconds)

    def _check_access(self, request: web.Request, at: Address) -> None:
        if self.token is not None:
            given = request.headers.get("Authorization", "").partition(" ")[2]
            if given != self.token:
                raise ApiRefusal(401, "Unauthorized", "Unauthorized")
        if at.resource in self.removed:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")

    async def _answer(self, request: web.Request, at: Address) -> web.Response:
        body = await request.read() if request.can_read_body else b""
        accept = request.headers.get("Accept", "")
        call = Call(request.method, at, request.query, request.content_type, body, accept)
        status, found = self.answers.answer(call)
        return json_answer(found, status)

    async def _watch(
        self, request: web.Request, at: Address, *, silent: bool
    ) -> web.StreamResponse:
        collection = self.store.collection(at.resource)
        since = int(request.query.get("resourceVersion", 0))
        selector = Selector.from_query(request.query, at.resource, at.namespace)
        watch = Watch(at.resource, selector, request, silent=silent)
        replay(collection, since, watch)

        def bring(change: Change) -> None:
            if lag_seconds := self.lags_seconds.get(at.resource):
                asyncio.get_running_loop().call_later(lag_seconds, watch.change, change)
            else:
                watch.change(change)

        collection.subscribers.append(bring)
        self._watches.append(watch)
        try:
            return await watch.run(float(request.query.get("timeoutSeconds", 3600)))
        finally:
            self._watches.remove(watch)
            collection.subscribers.remove(bring)


def json_answer(body: Object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )


def log_answer(log: str, query: Mapping[str, str]) -> web.Response:
    lines = log.splitlines(keepends=True)
    wanted = int(query.get("tailLines", len(lines)))
    return web.Response(text="".join(lines[max(0, len(lines) - wanted) :]))


def status_answer(
    status: int, reason: str, message: str, retry_after_seconds: int | None = None
) -> web.Response:
    answer = json_answer(status_object(status, reason, message), status)
    if retry_after_seconds is not None:
        answer.headers["Retry-After"] = str(retry_after_seconds)
    return answer


def hang_up(request: web.Request) -> None:
    """Reset the connection under the request."""
    if request.transport is not None:
        request.transport.abort()


_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
_GROUPS: Final = {
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": ("CustomResourceDefinition", False)},
    names.API_VERSION: {
        plural: (kind, kind in (*names.GANG_KINDS, "Ticket"))
        for kind, plural in names.PLURALS.items()
    },
}
_CORE: Final = {"namespaces": ("Namespace", False), "nodes": ("Node", False), "pods": ("Pod", True)}


def resources(
    group_version: str, kinds: dict[str, tuple[str, bool]], scalable: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the discovery document of a group; ``kinds`` say whether they are namespaced."""
    entries = [
        {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": is_namespaced}
        | {"verbs": _VERBS}
        for plural, (kind, is_namespaced) in kinds.items()
    ]
    entries += [
        {"name": f"{plural}/scale", "kind": "Scale", "namespaced": kinds[plural][1]}
        | {"verbs": ["get", "patch", "update"]}
        for plural in scalable
    ]
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": entries}


def _group(group_version: str) -> dict[str, Any]:
    name, _, version = group_version.partition("/")
    offered = {"groupVersion": group_version, "version": version}
    return {"name": name, "versions": [offered], "preferredVersion": offered}


_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.1"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1", _CORE),
    "/apis": {"kind": "APIGroupList", "groups": [_group(name) for name in _GROUPS]},
    **{f"/apis/{name}": resources(name, kinds) for name, kinds in _GROUPS.items()},
}
"""By path."""


def _without(document: dict[str, Any], path: str, removed: set[str]) -> dict[str, Any]:
    if "resources" not in document:
        return document
    served = [each for each in document["resources"] if f"{path}/{each['name']}" not in removed]
    return {**document, "resources": served}
