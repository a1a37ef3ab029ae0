"""What a request to the fake API server comes to, whatever carried it there.

Paths are taken apart here, objects read and written, lists paged and watches fed with what
happened since; HTTP (:mod:`tests.support.fakeapi.server`) and the simulated network only carry
bytes.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.support.fakeapi.evictions import evict
from tests.support.fakeapi.scales import patch_scale, scale_of
from tests.support.fakeapi.selection import Selector
from tests.support.fakeapi.store import Collection, Key, Object, Refusal, Store, json_patch, merge
from tests.support.fakeapi.tokens import REVIEWS, review
from tests.support.fakeapi.watching import Feed

_GROUP = r"/api/v1|/apis/[^/]+/[^/]+"
_PATH = re.compile(
    rf"(?P<prefix>{_GROUP})(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"(?:/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?)?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """What a request path names; empty strings for what it leaves out."""

    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def is_group(self) -> bool:
        """Whether no resource is named, only the group and version it would be in."""
        return re.fullmatch(_GROUP, self.resource) is not None


@dataclass(frozen=True, slots=True)
class Call:
    """One request: ``at`` is its path taken apart."""

    method: str
    at: Address
    query: Mapping[str, str]
    content_type: str = "application/json"
    body: bytes = b""


def address(path: str) -> Address:
    """Take a request path apart, e.g. ``/api/v1/namespaces/a/pods/p/status``."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    part = found.groupdict(default="")
    resource = f"{part['prefix']}/{part['plural']}" if part["plural"] else part["prefix"]
    return Address(resource, part["namespace"], part["name"], part["subresource"])


class Answers:
    """Answers out of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.documents: dict[str, Object] = {}
        """What the server says of itself, by path: discovery."""
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._tokens = itertools.count(1)

    def forget_pages(self) -> None:
        """Lists that have been begun cannot be continued."""
        self._pages.clear()

    def answer(self, call: Call) -> tuple[int, Object]:
        """HTTP status and body.

        Raises:
            Refusal: the request is refused.
        """
        at, store = call.at, self.store
        if at.is_group:
            return 200, self._document(at.resource)
        if call.method == "GET" and at.subresource == "scale":
            return 200, scale_of(store.get(at.resource, at.key))
        if call.method == "GET":
            return 200, store.get(at.resource, at.key) if at.name else self._list(call)
        content = msgspec.json.decode(call.body) if call.body else {}
        match call.method:
            case "POST" if at.subresource == "eviction":
                return 201, evict(store, at.key, content)
            case "POST" if at.resource == REVIEWS:
                return 201, review(store, content)
            case "POST":
                content.pop("status", None)
                key = (at.namespace, content.get("metadata", {}).get("name", ""))
                tried = call.query.get("dryRun") == "All"
                return 201, store.create(at.resource, key, content, dry_run=tried)
            case "PUT":
                return 200, store.update(at.resource, at.key, content, at.subresource)
            case "PATCH":
                return self._patch(call, content)
            case "DELETE":
                wanted, grace = content.get("preconditions", {}), content.get("gracePeriodSeconds")
                return 200, store.delete(at.resource, at.key, wanted, grace)
        raise Refusal(405, "MethodNotAllowed", f"{call.method} is not supported")

    def _document(self, path: str) -> Object:
        if path not in self.documents:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        return self.documents[path]

    def _patch(self, call: Call, content: Any) -> tuple[int, Object]:
        """All three kinds; server-side apply is a merge here that may create."""
        at = call.at
        applies = call.content_type == "application/apply-patch+yaml"
        if applies and "fieldManager" not in call.query:
            raise Refusal(400, "BadRequest", "fieldManager is required for apply patch")
        if at.subresource == "scale":
            query = call.query
            return 200, patch_scale(
                self.store, at.resource, at.key, query, content, applies=applies
            )
        if applies and at.key not in self.store.collection(at.resource).objects:
            return 201, self.store.create(at.resource, at.key, content)
        old = self.store.get(at.resource, at.key)
        if call.content_type == "application/json-patch+json":
            new = json_patch(old, content)
        else:
            new = merge(old, content)
        return 200, self.store.update(at.resource, at.key, new, at.subresource)

    def _list(self, call: Call) -> Object:
        """One page, cut from the state that the first page saw."""
        token = call.query.get("continue")
        if token is not None:
            if token not in self._pages:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            version, rest = self._pages.pop(token)
        else:
            selected = Selector.from_query(call.query, call.at.namespace)
            objects = self.store.collection(call.at.resource).objects
            version = self.store.version
            rest = [objects[key] for key in sorted(objects) if selected(objects[key])]
        limit = int(call.query.get("limit", 0)) or len(rest)
        metadata = {"resourceVersion": str(version)}
        if len(rest) > limit:
            metadata["continue"] = f"page-{next(self._tokens)}"
            self._pages[metadata["continue"]] = version, rest[limit:]
        return {"kind": "List", "metadata": metadata, "items": rest[:limit]}


def replay(collection: Collection, since: int, feed: Feed) -> None:
    """Feed the history after ``since``, or the in-stream 410 of the real server."""
    if since < collection.oldest_version:
        feed.error(410, "Expired", f"too old resource version: {since}")
        return
    for change in collection.history:
        if change.version > since:
            feed.change(change)


def status_object(status: int, reason: str, message: str) -> Object:
    """A Status object, as every refusal of the real server is."""
    return {"kind": "Status", "code": status, "reason": reason, "message": message}
