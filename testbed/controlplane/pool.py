"""A pool of control planes: one that its borrower returns is emptied for the next.

Whatever was not there when a cluster was new is deleted: of every kind, with its finalizers. A
cluster that cannot be emptied, or whose own objects were changed, is stopped, and a new one takes
its place.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Final, NamedTuple

from testbed.controlplane.api import Api, Manifest
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError

EMPTY_SECONDS: Final = 40.0
LIST_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1
_PASSES: Final = 20
"""Passes over what remains, after which all kinds are looked through again."""
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_METADATA: Final = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList"
_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACE: Final = "/api/v1/namespaces"
_POD: Final = "/api/v1/pods"
_CONTROLLERS: Final = "kube-controller-manager"
_OF_EVERY_NAMESPACE: Final = frozenset({"kube-root-ca.crt", "default"})
"""Names of the ConfigMap and the ServiceAccount that controllers make, maybe late."""
_OWN_KINDS: Final = frozenset({_NAMESPACE, "/apis/scheduling.k8s.io/v1/priorityclasses"})
"""Kinds whose first objects nobody but a borrower changes."""


class Key(NamedTuple):
    """An object: the path of its collection over all namespaces, its namespace and name."""

    collection: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        if not self.namespace:
            return f"{self.collection}/{self.name}"
        group, _, plural = self.collection.rpartition("/")
        return f"{group}/namespaces/{self.namespace}/{plural}/{self.name}"


@dataclass(frozen=True, slots=True)
class _Meta:
    uid: str
    version: str
    is_leaving: bool
    has_finalizers: bool


_Inventory = Mapping[Key, _Meta]


def collections(api: Api) -> list[str]:
    """Return the path of every collection whose objects can be listed and deleted."""
    paths = []
    for root in ("/api", "/apis"):
        for group in api.get(root, {"Accept": _DISCOVERY})["items"]:
            group_name = group["metadata"].get("name", "")
            (version, *_) = group["versions"]
            base = f"{root}/{group_name}/{version['version']}".replace("//", "/")
            paths += [
                f"{base}/{resource['resource']}"
                for resource in version.get("resources") or ()
                if {"list", "delete"} <= set(resource["verbs"] or ())
                and resource["resource"] != "events"  # controllers write some at any time
            ]
    return paths


def inventory(api: Api, paths: list[str]) -> dict[Key, _Meta]:
    """Return the objects of these collections; a collection that has gone has none."""
    contents = {}
    for path in paths:
        for item in _list(api, path):
            meta = item["metadata"]
            contents[Key(path, meta.get("namespace", ""), meta["name"])] = _Meta(
                meta["uid"],
                meta["resourceVersion"],
                "deletionTimestamp" in meta,
                bool(meta.get("finalizers")),
            )
    return contents


def _list(api: Api, path: str) -> Sequence[Manifest]:
    deadline_seconds = time.monotonic() + LIST_SECONDS
    while True:
        reply = api.request("GET", path, headers={"Accept": _METADATA})
        if reply.status == HTTPStatus.OK:
            return reply.json()["items"] or ()
        if reply.status == HTTPStatus.NOT_FOUND:
            return ()
        # The storage of a kind that was just defined begins a moment later.
        if time.monotonic() > deadline_seconds:
            raise ControlPlaneError(f"GET {path} was answered with {reply.status}")
        time.sleep(POLL_SECONDS)


@dataclass
class _Member:
    """A cluster with what belongs to it: from its start, and from ``furnish``, if it was called."""

    cluster: Cluster
    bare: _Inventory
    furnish: Callable[[Cluster], None] | None = None
    furnished: _Inventory = field(default_factory=dict)

    def empty(self, furnish: Callable[[Cluster], None] | None) -> bool:
        """Take away what a borrower left and return True; False if that cannot be done in time."""
        try:
            self._await_health()
            stays = furnish is not None and self._is_furnished(furnish)
            own = self.furnished if stays else self.bare
            if not self._remove_all_but(own):
                return False
        except (ControlPlaneError, OSError):
            return False
        if own is self.bare:
            self.furnish = None
            if furnish is not None:
                self.add(furnish)
        return True

    def add(self, furnish: Callable[[Cluster], None]) -> None:
        furnish(self.cluster)
        # The garbage collector looks for new kinds every 30 s only, and at its start.
        controllers = self.cluster.component(_CONTROLLERS)
        controllers.stop()
        controllers.start()
        self.furnish = furnish
        self.furnished = inventory(self.cluster.api, collections(self.cluster.api))

    def _await_health(self) -> None:
        for name in ("etcd", "kube-apiserver", _CONTROLLERS, "kube-scheduler", "kwok-controller"):
            self.cluster.component(name).wait_healthy()

    def _is_furnished(self, furnish: Callable[[Cluster], None]) -> bool:
        """Return whether ``furnish`` was called and its definitions are still the same."""
        if self.furnish is not furnish:
            return False
        definitions = inventory(self.cluster.api, [_CRD])
        uids = {key: meta.uid for key, meta in self.furnished.items() if key.collection == _CRD}
        return uids.items() <= {key: meta.uid for key, meta in definitions.items()}.items()

    def _remove_all_but(self, own: _Inventory) -> bool:
        """Return True once nothing else is there, and what is there is unchanged."""
        api = self.cluster.api
        remaining: list[str] = []
        deadline_seconds = time.monotonic() + EMPTY_SECONDS
        for namespace in sorted(key.name for key in own if key.collection == _NAMESPACE):
            api.request("DELETE", f"/api/v1/namespaces/{namespace}/events")
        for number in count():
            if time.monotonic() > deadline_seconds:
                return False
            everything = not remaining or number % _PASSES == 0
            contents = inventory(api, collections(api) if everything else remaining)
            foreign = {k: meta for k, meta in contents.items() if _is_foreign(k, meta, own)}
            if everything and not foreign:
                return _is_unchanged(contents, own)
            _remove(api, foreign)
            remaining = sorted({key.collection for key in foreign})
            if remaining:
                time.sleep(POLL_SECONDS)
        raise AssertionError("count() does not end")


def _is_foreign(key: Key, meta: _Meta, own: _Inventory) -> bool:
    """Return whether a borrower has to take an object away that is not its cluster's own."""
    if key in own or _is_late(key):
        return False
    if not key.namespace or Key(_NAMESPACE, "", key.namespace) in own:
        return True
    # All else in a borrower's namespace goes with it; pods would wait for their grace.
    return key.collection == _POD or (meta.is_leaving and meta.has_finalizers)


def _is_late(key: Key) -> bool:
    """Return whether a program of the control plane makes this object, maybe after its start."""
    plural = key.collection.rpartition("/")[2]
    return (
        (plural == "leases" and key.name.startswith("apiserver-"))
        or (plural in ("configmaps", "serviceaccounts") and key.name in _OF_EVERY_NAMESPACE)
        or (plural == "serviceaccounts" and key.namespace == "kube-system")
        or (plural in ("endpoints", "endpointslices") and key.name == "kubernetes")
    )


def _is_unchanged(contents: _Inventory, own: _Inventory) -> bool:
    """Return whether the kinds that only borrowers change are as they were."""
    first = {key: meta.version for key, meta in own.items() if key.collection in _OWN_KINDS}
    return first.items() <= {key: meta.version for key, meta in contents.items()}.items()


def _remove(api: Api, foreign: _Inventory) -> None:
    """Ask for the deletion of objects, and take the finalizers off those that wait for it."""
    # What judges or changes requests goes first, definitions of kinds last.
    order = sorted(foreign, key=lambda k: ("admission" not in k.collection, k.collection == _CRD))
    for key in order:
        meta = foreign[key]
        if meta.is_leaving and meta.has_finalizers and key.collection not in (_CRD, _NAMESPACE):
            api.patch(key.path, {"metadata": {"finalizers": None}}, missing_ok=True)
        elif not meta.is_leaving or key.collection == _POD:
            options: dict[str, object] = {"propagationPolicy": "Background"}
            if key.collection == _POD:
                options["gracePeriodSeconds"] = 0
            api.request("DELETE", key.path, options)


class ClusterPool:
    """Clusters of this program, at most one of which stands idle."""

    def __init__(self) -> None:
        self._idle: list[_Member] = []
        self.starts = 0

    @contextmanager
    def borrow(
        self, name: str, furnish: Callable[[Cluster], None] | None = None
    ) -> Iterator[Cluster]:
        """Lend a cluster that is as new, with what ``furnish`` adds to it.

        ``name`` is for one that has to be started. What leaves the block by an error ends the
        cluster.
        """
        member = self._emptied(furnish) or self._started(name, furnish)
        try:
            yield member.cluster
        except BaseException:
            member.cluster.stop()
            raise
        self.stop_idle()
        self._idle.append(member)

    def stop_idle(self) -> None:
        """Stop the clusters that nobody has borrowed."""
        while self._idle:
            self._idle.pop().cluster.stop()

    def _emptied(self, furnish: Callable[[Cluster], None] | None) -> _Member | None:
        if not self._idle:
            return None
        member = self._idle.pop()
        if member.empty(furnish):
            return member
        member.cluster.stop()
        return None

    def _started(self, name: str, furnish: Callable[[Cluster], None] | None) -> _Member:
        cluster = Cluster.start(name)
        self.starts += 1
        try:
            member = _Member(cluster, inventory(cluster.api, collections(cluster.api)))
            if furnish is not None:
                member.add(furnish)
        except BaseException:
            cluster.stop()
            raise
        return member
