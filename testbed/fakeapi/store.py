"""The fake API server's memory: objects with versions, their history for watches, and selectors.

One counter versions everything, as in etcd. Objects are plain dictionaries that are replaced, never
edited, so history and open pages can share them.
"""

import itertools
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bireme.kube import crd, names
from bireme_lab.embedded.api.errors import ApiRefusal

Object = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One step of history; ``before`` and ``after`` are None at creation and deletion."""

    version: int
    before: Object | None
    after: Object | None


@dataclass(slots=True)
class Collection:
    """All objects of one resource in all namespaces."""

    kind: str
    api_version: str
    objects: dict[Key, Object] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    oldest_version: int = 0
    """Watches from before this version get 410."""
    subscribers: list[Callable[[Change], None]] = field(default_factory=list)


class Store:
    """Every collection, by resource path (``/api/v1/pods``)."""

    def __init__(self, now: Callable[[], str] = lambda: "2030-01-01T00:00:00Z") -> None:
        self.version = 100
        self.lingers: Callable[[Object], bool] = lambda _: False
        """True of objects that, deleted with grace, stay for others to remove."""
        self.admission: dict[str, list[Callable[[Object, bool], None]]] = {}
        """By kind: each is given what is about to be created, and whether by a dry run."""
        self.now = now
        self._uids = itertools.count(1)
        self._collections: dict[str, Collection] = {}

    def collection(self, resource: str) -> Collection:
        if resource not in self._collections:
            prefix, _, plural = resource.rpartition("/")
            api_version = prefix.removeprefix("/apis/").removeprefix("/api/")
            self._collections[resource] = Collection(plural.removesuffix("s").title(), api_version)
        return self._collections[resource]

    def get(self, resource: str, key: Key) -> Object:
        """Return the stored object; do not edit it."""
        found = self.collection(resource).objects.get(key)
        if found is None:
            raise ApiRefusal(404, "NotFound", f'{resource.rpartition("/")[2]} "{key[1]}" not found')
        return found

    def create(
        self, resource: str, key: Key, body: Object, *, uid: str = "", dry_run: bool = False
    ) -> Object:
        """Store a new object with ``uid`` or a new one, version and generation 1; or only try."""
        collection = self.collection(resource)
        if key in collection.objects:
            plural = resource.rpartition("/")[2]
            raise ApiRefusal(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
        new = deepcopy(body)
        meta = new.setdefault("metadata", {})
        meta |= {
            "name": key[1],
            "uid": uid or f"uid-{next(self._uids)}",
            "generation": 1,
            "creationTimestamp": self.now(),
        }
        if key[0]:
            meta["namespace"] = key[0]
        new.setdefault("kind", collection.kind)
        new.setdefault("apiVersion", collection.api_version)
        for admission in self.admission.get(collection.kind, ()):
            admission(new, dry_run)
        return new if dry_run else self._commit(collection, key, None, new)

    def update(self, resource: str, key: Key, body: Object, subresource: str = "") -> Object:
        """Replace an object, or only its status; preconditions in ``body`` must hold."""
        old = self.get(resource, key)
        _check_preconditions(old, body.get("metadata") or {})
        if subresource == "status":
            new = {**old, "status": body.get("status", {}), "metadata": dict(old["metadata"])}
        else:
            new = deepcopy(body)
            kept = ("uid", "generation", "creationTimestamp", "resourceVersion", "name")
            new["metadata"] = {**new.get("metadata", {}), **{k: old["metadata"][k] for k in kept}}
            if key[0]:
                new["metadata"]["namespace"] = key[0]
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1
        return self._commit(self.collection(resource), key, old, new)

    def delete(
        self,
        resource: str,
        key: Key,
        preconditions: Mapping[str, str],
        grace_seconds: int | None = None,
    ) -> Object:
        """Remove an object whose uid and version match the preconditions that are given."""
        old = self.get(resource, key)
        _check_preconditions(old, preconditions)
        if grace_seconds != 0 and self.lingers(old):
            # A second deletion keeps the time of the first.
            meta = {"deletionTimestamp": self.now(), **old["metadata"]}
            new = {**old, "metadata": meta}
            return old if new == old else self._commit(self.collection(resource), key, old, new)
        self._commit(self.collection(resource), key, old, None)
        return old

    def backup(self) -> Callable[[], None]:
        """Return a function that brings this moment back, its version included.

        Cut the watches after it, as the API server is stopped meanwhile.
        """
        version = self.version
        objects = {name: dict(each.objects) for name, each in self._collections.items()}

        def restore() -> None:
            self.version = version
            for name, collection in self._collections.items():
                collection.objects = dict(objects.get(name, {}))
                collection.history = [c for c in collection.history if c.version <= version]

        return restore

    def compact(self) -> None:
        """Forget all history: watches and pages from earlier versions get 410."""
        for collection in self._collections.values():
            collection.history.clear()
            collection.oldest_version = self.version

    def _commit(
        self, collection: Collection, key: Key, old: Object | None, new: Object | None
    ) -> Object:
        self.version += 1
        version = str(self.version)
        if new is not None:
            new["metadata"]["resourceVersion"] = version
            collection.objects[key] = new
        elif old is not None:
            del collection.objects[key]
            # A DELETED event has the revision of the deletion, as in etcd.
            old = {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
        change = Change(self.version, old, new)
        collection.history.append(change)
        for subscriber in list(collection.subscribers):
            subscriber(change)
        return new or old or {}


def _check_preconditions(stored: Object, wanted: Mapping[str, Any]) -> None:
    meta = stored["metadata"]
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != meta[name]:
            raise ApiRefusal(
                409, "Conflict", f"the {name} precondition: {wanted[name]}, stored: {meta[name]}"
            )


_OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
# More of them, by resource: those of the built-in kinds that tests select by, and what the
# definitions of Bireme's kinds declare.
_SELECTABLE: Final = {
    "/api/v1/pods": {
        *("spec.nodeName", "spec.schedulerName", "status.phase", "status.nominatedNodeName")
    },
    **{
        names.path(kind.plural): {path.removeprefix(".") for path in kind.selectable}
        for kind in crd.KINDS
    },
}


@dataclass(frozen=True, slots=True)
class Selector:
    """Predicate over objects: namespace, labels and fields of a request."""

    namespace: str
    labels: tuple[tuple[str, str | None, bool], ...]
    fields: tuple[tuple[str, str | None, bool], ...]

    @classmethod
    def from_query(cls, query: Mapping[str, str], resource: str, namespace: str) -> Self:
        """Parse ``labelSelector`` (``a=b``, ``a!=b``, ``a``, ``!a``) and ``fieldSelector``.

        A field that is not selectable is refused (400), as the real server does.
        """
        labels = filter(None, query.get("labelSelector", "").split(","))
        fields = list(filter(None, query.get("fieldSelector", "").split(",")))
        for text in fields:
            if "=" not in text:
                raise ApiRefusal(400, "BadRequest", f"invalid field selector: {text!r}")
            if _term(text)[0] not in _OF_ALL | _SELECTABLE.get(resource, set()):
                raise ApiRefusal(400, "BadRequest", f"field label not supported: {_term(text)[0]}")
        return cls(namespace, tuple(map(_term, labels)), tuple(map(_term, fields)))

    def __call__(self, obj: dict[str, Any]) -> bool:
        meta = obj["metadata"]
        labels = meta.get("labels") or {}
        return (
            self.namespace in {"", meta.get("namespace", "")}
            and all((labels.get(name) == value) is equal for name, value, equal in self.labels)
            and all((_field(obj, name) == value) is equal for name, value, equal in self.fields)
        )


def _term(text: str) -> tuple[str, str | None, bool]:
    if "=" not in text:  # existence: no value equals None
        return text.removeprefix("!"), None, text.startswith("!")
    name, _, value = text.partition("=")
    return name.removesuffix("!"), value.removeprefix("="), not name.endswith("!")


def _field(obj: dict[str, Any], path: str) -> str:
    found: Any = obj
    for part in path.split("."):
        found = (found or {}).get(part)
    return found or ""
