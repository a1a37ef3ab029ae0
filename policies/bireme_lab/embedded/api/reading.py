"""Reads: single objects, pages of lists, watches, and the forms in which clients want them."""

import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bireme_lab.embedded.api import errors
from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.object_selectors import Selector
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Key, Store, StoreChange
from bireme_lab.embedded.api.tables import table

_MAX_PAGES: Final = 64


@dataclass(frozen=True, slots=True)
class WatchStart:
    """A watch that the carrier has to serve.

    Attributes:
        initial: Objects that are sent first, as ADDED.
        changes: Those after the version from which the client watches.
        form: Makes of an object what is sent.
    """

    resource: ResourceKind
    selector: Selector
    initial: tuple[Object, ...]
    changes: tuple[StoreChange, ...]
    sends_bookmarks: bool
    marks_initial_end: bool
    timeout_seconds: float
    form: Callable[[Object], Object]


@dataclass(eq=False)
class StoreReader:
    """Answers reads out of a store; ``now`` is POSIX seconds."""

    store: Store
    now: Callable[[], float]
    _pages: dict[str, tuple[int, list[Object]]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def find(self, resource: ResourceKind, key: Key) -> Object:
        obj = self.store.get(resource.path, key)
        if obj is None:
            raise errors.not_found(resource.subject(key[1]))
        return obj

    def get(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> ApiAnswer:
        obj = self.find(resource, target.key)
        if target.subresource == "scale":
            return ApiAnswer(200, scale_of(obj))
        return ApiAnswer(200, self.form(request, resource)(obj))

    def list(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> ApiAnswer:
        """Answer one page, cut from the state that the first page saw."""
        token = request.query.get("continue")
        if token:
            if token not in self._pages:
                message = "The provided continue parameter is too old to display a consistent list"
                raise ApiRefusal(410, "Expired", message)
            version, rest = self._pages[token]  # a client may ask again
        else:
            selector = self.selector(request, resource, target)
            version, rest = self.store.version, self.store.select(resource.path, selector)
        limit = request.number("limit") or 0
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Object = {"resourceVersion": str(version)}
        if rest:
            name = base64.urlsafe_b64encode(f"page-{next(self._numbers)}".encode()).decode()
            self._pages[name] = version, rest
            while len(self._pages) > _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            meta |= {"continue": name, "remainingItemCount": len(rest)}
        if (include := _table_include(request)) is not None:
            body = table(resource, page, self.now(), include, str(version))
            body["metadata"] = meta
            return ApiAnswer(200, body)
        is_partial = "as=PartialObjectMetadataList" in request.accept
        form = _partial if is_partial else lambda obj: obj
        kind = "PartialObjectMetadata" if is_partial else resource.kind
        api_version = "meta.k8s.io/v1" if is_partial else resource.group_version
        items = list(map(form, page))
        if not is_partial and not resource.is_custom:
            # As the real server, which leaves type fields out of the items of its own kinds.
            items = [{k: v for k, v in i.items() if k not in ("kind", "apiVersion")} for i in items]
        body = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": items}
        return ApiAnswer(200, body)

    def selector(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> Selector:
        selector = Selector.from_query(request.query, target.namespace, resource.selectable)
        if not target.name:
            return selector
        named = Selector.from_query({"fieldSelector": f"metadata.name={target.name}"}, "", ())
        return Selector(selector.namespace, selector.labels, (*selector.fields, *named.fields))

    def watch(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> WatchStart:
        selector = self.selector(request, resource, target)
        query = request.query
        wants_initial = query.get("sendInitialEvents") == "true"
        initial: tuple[Object, ...] = ()
        since = request.number("resourceVersion") or 0
        if wants_initial or since == 0:
            initial = tuple(self.store.select(resource.path, selector))
            since = self.store.version
        elif since > self.store.version:
            message = f"Too large resource version: {since}, current: {self.store.version}"
            raise ApiRefusal(504, "Timeout", message)
        return WatchStart(
            resource,
            selector,
            initial,
            tuple(self.store.collection(resource.path).since(since)),
            sends_bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            marks_initial_end=wants_initial,
            timeout_seconds=request.number("timeoutSeconds") or 1800,
            form=self.form(request, resource),
        )

    def form(self, request: ApiRequest, resource: ResourceKind) -> Callable[[Object], Object]:
        """Return what makes of an object the form that the request wants."""
        include = _table_include(request)
        if include is not None:
            return lambda obj: table(
                resource, [obj], self.now(), include, obj["metadata"].get("resourceVersion", "")
            )
        return _partial if "as=PartialObjectMetadata" in request.accept else lambda obj: obj


def scale_of(obj: Object) -> Object:
    """Return the Scale of an object of a kind whose replicas are at ``spec.replicas``."""
    meta = obj["metadata"]
    replicas = (obj.get("spec") or {}).get("replicas")
    if replicas is None:
        message = 'the spec replicas field ".spec.replicas" does not exist'
        raise ApiRefusal(500, "InternalError", message)
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": replicas},
        "status": {"replicas": int((obj.get("status") or {}).get("replicas") or 0)},
    }


def _table_include(request: ApiRequest) -> str | None:
    """Return ``includeObject`` of a request for a Table; None for one for objects."""
    if "as=Table" not in request.accept:
        return None
    return request.query.get("includeObject", "Metadata")


def _partial(obj: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
