"""Reads: single objects, pages of lists, watches, and the forms in which clients want them."""

import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bireme_lab.embedded.api import errors
from bireme_lab.embedded.api.errors import ApiRefusal, Faults, Object, bad_request
from bireme_lab.embedded.api.object_selectors import OF_ALL, Selector, UnknownFieldError
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Key, Store, StoreChange
from bireme_lab.embedded.api.tables import table

_MAX_PAGES: Final = 64
_PAGE: Final = b"page-"


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
        if fault := request.version_fault:
            raise ApiRefusal(500, "", fault)
        obj = self.find(resource, target.key)
        if target.subresource == "scale":
            return ApiAnswer(200, scale_of(obj))
        return ApiAnswer(200, self.form(request, resource)(obj))

    def list(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> ApiAnswer:
        """Answer one page, cut from the state that the first page saw."""
        _check_list(request)
        token = request.query.get("continue")
        if token:
            if token not in self._pages:
                if not _is_token(token):
                    text = "invalid continue token: continue key is not valid: it is none of pages"
                    raise bad_request(text)
                message = "The provided continue parameter is too old to display a consistent list"
                raise ApiRefusal(410, "Expired", message)
            version, rest = self._pages[token]  # a client may ask again
        else:
            selector = self.selector(request, resource, target)
            version, rest = self.store.version, self.store.select(resource.path, selector)
        limit = max(0, request.number("limit") or 0)
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Object = {"resourceVersion": str(version)}
        if rest:
            name = base64.urlsafe_b64encode(_PAGE + b"%d" % next(self._numbers)).decode()
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
        selectable = resource.selectable | OF_ALL
        if resource.is_custom and not resource.is_namespaced:
            selectable -= {"metadata.namespace"}
        try:
            selector = Selector.from_query(request.query, target.namespace, selectable)
        except UnknownFieldError as error:
            raise bad_request(_unselectable(resource, str(error))) from error
        if not target.name:
            return selector
        named = Selector.from_query({"fieldSelector": f"metadata.name={target.name}"}, "", OF_ALL)
        return Selector(selector.namespace, selector.labels, (*selector.fields, *named.fields))

    def watch(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> WatchStart:
        selector = self.selector(request, resource, target)
        query = request.query
        wants_initial = query.get("sendInitialEvents") == "true"
        initial: tuple[Object, ...] = ()
        if fault := request.version_fault:
            raise bad_request(f"invalid resource version: {fault}")
        since = int(query.get("resourceVersion") or 0)
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


def _unselectable(resource: ResourceKind, name: str) -> str:
    """Return the words for a field by which a kind cannot be selected."""
    if resource.group in ("batch", "apps") and resource.selectable:
        return f'field label "{name}" not supported for {resource.kind}'
    if resource.is_custom or resource.selectable:
        return f"field label not supported: {name}"
    fields = '"metadata.name", "metadata.namespace"'
    return f'"{name}" is not a known field selector: only {fields}'


def _check_list(request: ApiRequest) -> None:
    """Raise a Refusal for options of a list that cannot be read or do not go together."""
    request.number("timeoutSeconds")
    if fault := request.version_fault:
        raise bad_request(f"invalid resource version: {fault}")
    match = request.query.get("resourceVersionMatch", "")
    if match and not request.query.get("resourceVersion"):
        faults = Faults()
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        faults.forbidden("resourceVersionMatch", text)
        raise errors.invalid(errors.Subject("ListOptions", "meta.k8s.io", "", ""), faults.causes)


def _is_token(text: str) -> bool:
    """Return whether a text has the form of a token for the next page."""
    try:
        return base64.urlsafe_b64decode(text).startswith(_PAGE)
    except ValueError:
        return False


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
