"""Volumes: a cache of claims, volumes and what they depend on, with the capacity of nodes for them.

Nothing is watched or cached before a gang names a claim. :mod:`bireme.kube.claim_demands` resolves
claims to demands.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bireme.core.gangs import Key
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.resources import ATTACHABLE, Request, add, request_of
from bireme.kube import volume_objects, wire
from bireme.kube.volume_objects import (
    LOCAL_VOLUMES,
    NO_CLAIMS,
    Claim,
    ClaimSpec,
    PodClaims,
    Volume,
)

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_UNLIMITED: Final = 2**31
Attached = tuple[str, str, str]
"""Node, driver and handle of a volume."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    gang: Key | None
    claims: tuple[Key, ...]


@dataclass(slots=True)
class Volumes:
    """Cache of the objects that volumes depend on.

    Attributes:
        on_change: Called after every change that can matter to a gang or a node.
        on_wanted: Called when the first pod or template names a claim, to start the watches.
        is_known: All collections have been listed.
        revision: Number of changes so far.
        offers_revision: Number of changes of the resources that nodes offer to claims.
    """

    on_change: Callable[[], None]
    on_wanted: Callable[[], None] = lambda: None
    is_wanted: bool = False
    is_known: bool = False
    revision: int = 0
    offers_revision: int = 0
    claims: dict[Key, Claim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    classes: dict[str, wire.V1StorageClass] = field(default_factory=dict)
    drivers: dict[str, wire.V1CsiDriverSpec] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum number of attached volumes by node and CSI driver; -1 without a limit."""
    _attached: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Node, driver and volume by name of the VolumeAttachment."""
    capacities: dict[Key, wire.V1CsiStorageCapacity] = field(default_factory=dict)
    _pods: dict[Key, _Pod] = field(default_factory=dict)
    _users: dict[Key, set[Key]] = field(default_factory=dict)
    """Pods by claim. They have a node or are about to get one."""
    _memo: dict[object, Any] = field(default_factory=dict)
    """Results about all volumes and nodes until the next change: many claims need the same."""

    # --- watched objects ---

    def put_claim(self, key: Key, manifest: wire.V1PersistentVolumeClaim) -> None:
        facts = volume_objects.claim(manifest)
        if self.claims.get(key) != facts:
            self.claims[key] = facts
            self._notify()

    def delete_claim(self, key: Key) -> None:
        self._drop(self.claims, key)

    def put_volume(self, key: Key, manifest: wire.V1PersistentVolume) -> None:
        facts, previous = volume_objects.volume(manifest), self.volumes.get(key[1])
        if previous == facts:
            return
        self.volumes[key[1]] = facts
        if local_place(previous) != local_place(facts):
            self.offers_revision += 1
        self._notify()

    def delete_volume(self, key: Key) -> None:
        if local_place(self.volumes.get(key[1])) is not None:
            self.offers_revision += 1
        self._drop(self.volumes, key[1])

    def put_class(self, key: Key, manifest: wire.V1StorageClass) -> None:
        self.classes[key[1]] = manifest
        self._notify()

    def delete_class(self, key: Key) -> None:
        self._drop(self.classes, key[1])

    def put_csi_node(self, key: Key, manifest: wire.V1CsiNode) -> None:
        limits = {}
        for driver in manifest.spec.drivers or ():
            count = driver.allocatable.count if driver.allocatable is not None else None
            limits[driver.name] = -1 if count is None else count
        if self.limits.get(key[1]) != limits:
            self.limits[key[1]] = limits
            self.offers_revision += 1
            self._notify()

    def delete_csi_node(self, key: Key) -> None:
        self.offers_revision += 1
        self._drop(self.limits, key[1])

    def put_attachment(self, key: Key, manifest: wire.V1VolumeAttachment) -> None:
        spec = manifest.spec
        facts = spec.node_name, spec.attacher, spec.source.persistent_volume_name or key[1]
        if self._attached.get(key[1]) != facts:
            self._attached[key[1]] = facts
            self._notify()

    def delete_attachment(self, key: Key) -> None:
        self._drop(self._attached, key[1])

    def put_driver(self, key: Key, manifest: wire.V1CsiDriver) -> None:
        if self.drivers.get(key[1]) != manifest.spec:
            self.drivers[key[1]] = manifest.spec
            self._notify()

    def delete_driver(self, key: Key) -> None:
        self._drop(self.drivers, key[1])

    def put_capacity(self, key: Key, manifest: wire.V1CsiStorageCapacity) -> None:
        self.capacities[key] = manifest
        self._notify()

    def delete_capacity(self, key: Key) -> None:
        self._drop(self.capacities, key)

    def put_pod(
        self, key: Key, node: str, claims: Iterable[str], namespace: str, gang: Key | None = None
    ) -> None:
        """Store a pod that has a node, or is about to get one, with the names of its claims."""
        facts = _Pod(node, gang, tuple((namespace, name) for name in claims))
        if self._pods.get(key) == facts:
            return
        self.delete_pod(key)
        self._pods[key] = facts
        for claim in facts.claims:
            self._users.setdefault(claim, set()).add(key)
        self._notify()

    def delete_pod(self, key: Key) -> None:
        facts = self._pods.pop(key, None)
        if facts is None:
            return
        for claim in facts.claims:
            self._users[claim].discard(key)
            if not self._users[claim]:
                del self._users[claim]
        self._notify()

    def want(self) -> None:
        """Start to watch these objects."""
        if not self.is_wanted:
            self.is_wanted = True
            self.on_wanted()

    def all_listed(self) -> None:
        """Record that every collection has been listed."""
        self.is_known = True
        self.offers_revision += 1
        self._notify()

    def _drop(self, objects: dict[_K, _V], key: _K) -> None:
        if objects.pop(key, None) is not None:
            self._notify()

    def _notify(self) -> None:
        self._memo.clear()
        self.revision += 1
        if self.is_known:
            self.on_change()

    def users(self, claim: Key) -> Set[Key]:
        """Return the pods that name a claim and have a node, or are about to get one."""
        return self._users.get(claim, frozenset())

    def is_of_gang(self, pod: Key) -> bool:
        """Return whether a pod that has a node, or is about to get one, is of a gang."""
        return self._pods[pod].gang is not None

    # --- capacity of nodes and its usage ---

    def offers(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the resources of each node for claims: node to resource to amount."""
        limited = self.drivers_with_limit()
        local = self._local()
        if not (limited or local):
            return {}
        offers: dict[str, dict[str, int]] = {}
        for node in nodes:
            node_limits = self.limits.get(node.name, {})
            offer = {}
            for driver in limited:
                limit = node_limits.get(driver, -1)
                offer[ATTACHABLE + driver] = _UNLIMITED if limit < 0 else limit
            host = node.labels.get(HOSTNAME_LABEL, "")
            for (volume_host, name), volumes in local.items():
                if volume_host == host:
                    offer[LOCAL_VOLUMES + name] = len(volumes)
            if offer:
                offers[node.name] = offer
        return offers

    def usage(
        self, nodes: Iterable[Node], planned: Set[Attached] = frozenset()
    ) -> Iterator[tuple[str, Request]]:
        """Yield (node, request) of attached volumes and of local volumes in use.

        ``planned`` are volumes that planned pods attach in addition to their requests.
        """
        used: dict[str, Counter[str]] = {}
        limited = self.drivers_with_limit()
        in_use = {(node, *one) for one, some in self._nodes_with().items() for node in some}
        # kube-scheduler counts an attached volume without a pod in addition to the volume of the
        # new pod, even if both are the same.
        for node, driver, _ in (*in_use, *(planned - in_use)):
            used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
        counted = in_use
        for node, driver, name in self._attached.values():
            volume = self.volumes.get(name)
            handle = volume.handle if volume is not None and volume.handle else name
            if driver in limited and (node, driver, handle) not in counted:
                counted.add((node, driver, handle))
                used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
        local = self._local()
        hosts = {n.labels.get(HOSTNAME_LABEL, ""): n.name for n in nodes} if local else {}
        for (host, name), some in local.items():
            number = sum(not volume.is_available or volume.claim is not None for volume in some)
            if number and host in hosts:
                used.setdefault(hosts[host], Counter())[LOCAL_VOLUMES + name] += number
        for node, amounts in used.items():
            yield node, request_of(amounts)

    @property
    def has_limits(self) -> bool:
        """True if some node limits the number of attached volumes of some driver."""
        return bool(self.drivers_with_limit())

    def of_claim(self, key: Key) -> tuple[str, str]:
        """Return the volume of a claim as in a PodKind."""
        driver, handle = self.handle(key)
        return ATTACHABLE + driver, handle

    def of_pod(self, key: Key) -> PodClaims:
        """Return the claims of a pod that has a node, or is about to get one."""
        pod = self._pods.get(key)
        return PodClaims(tuple(name for _, name in pod.claims)) if pod is not None else NO_CLAIMS

    def nodes_with(self, volume: tuple[str, str]) -> Set[str]:
        """Return the nodes on which a pod uses ``volume``, which is as in a PodKind."""
        return self._nodes_with().get((volume[0].removeprefix(ATTACHABLE), volume[1]), frozenset())

    def _nodes_with(self) -> dict[tuple[str, str], set[str]]:
        """Return the nodes on which pods use each volume of a limited driver."""
        cached: dict[tuple[str, str], set[str]] | None = self._memo.get("nodes")
        if cached is None:
            cached = self._memo["nodes"] = {}
            limited = self.drivers_with_limit()
            for pod in self._pods.values() if limited else ():
                for key in pod.claims if pod.node else ():
                    volume = self.handle(key)
                    if volume[0] in limited:
                        cached.setdefault(volume, set()).add(pod.node)
        return cached

    def attachments_of(
        self, namespace: str, used: PodClaims, request: Request
    ) -> Iterator[tuple[str, str]]:
        """Yield driver and handle of volumes that a planned pod attaches without a request."""
        limited, amounts = self.drivers_with_limit(), dict(request)
        handles_by_driver: dict[str, list[str]] = {}
        for name in used.claims if limited else ():
            driver, handle = self.handle((namespace, name))
            if driver in limited:
                handles_by_driver.setdefault(driver, []).append(handle)
        for spec in (spec for _, spec in used.templates) if handles_by_driver else ():
            storage_class = self.classes.get(spec.storage_class)
            if storage_class is not None and storage_class.provisioner in handles_by_driver:
                amounts = add(amounts, {ATTACHABLE + storage_class.provisioner: -1})
        for driver, handles in handles_by_driver.items():
            if amounts.get(ATTACHABLE + driver, 0) < len(handles):
                yield from ((driver, handle) for handle in handles)

    def drivers_with_limit(self) -> set[str]:
        """Return the drivers whose attached volumes are limited on some node."""
        cached: set[str] | None = self._memo.get("limited")
        if cached is None:
            limits = self.limits.values()
            cached = {
                driver
                for node_limits in limits
                for driver, limit in node_limits.items()
                if limit >= 0
            }
            self._memo["limited"] = cached
        return cached

    def of_storage_class(self, name: str) -> list[Volume]:
        """Return the volumes of a storage class that are not being deleted."""
        cached: dict[str, list[Volume]] | None = self._memo.get("by class")
        if cached is None:
            cached = self._memo["by class"] = {}
            for volume in self.volumes.values():
                if not volume.is_leaving:
                    cached.setdefault(volume.spec.storage_class, []).append(volume)
        return cached.get(name, [])

    def suitable(self, spec: ClaimSpec) -> tuple[list[Volume], list[Volume]]:
        """Return all volumes that suit a claim, and the free ones among them."""
        cached: tuple[list[Volume], list[Volume]] | None = self._memo.get(spec)
        if cached is None:
            suitable = [v for v in self.of_storage_class(spec.storage_class) if v.suits(spec)]
            free = [v for v in suitable if v.claim is None and v.is_available]
            cached = self._memo[spec] = suitable, free
        return cached

    def _local(self) -> dict[tuple[str, str], list[Volume]]:
        """Return the static local volumes by host name and storage class."""
        by_host: dict[tuple[str, str], list[Volume]] = {}
        for volume in self.volumes.values():
            if local_place(volume) is not None and not self.is_provisioned(
                volume.spec.storage_class
            ):
                by_host.setdefault((volume.host, volume.spec.storage_class), []).append(volume)
        return by_host

    def is_provisioned(self, name: str) -> bool:
        """Return whether a provisioner creates the volumes of a storage class on demand."""
        storage_class = self.classes.get(name)
        return storage_class is not None and storage_class.provisioner not in ("", _NO_PROVISIONER)

    def handle(self, key: Key) -> tuple[str, str]:
        """Return the CSI driver of a claim's volume, and a stable identity of that volume."""
        claim = self.claims.get(key)
        if claim is None:
            return "", ""
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.driver, volume.handle or volume.name
        storage_class = self.classes.get(claim.spec.storage_class)
        return (
            storage_class.provisioner if storage_class is not None else ""
        ), f"{key[0]}/{key[1]}"


def local_place(volume: Volume | None) -> tuple[str, str] | None:
    """Return host and storage class of a local volume; None for others."""
    if volume is None or not volume.host or volume.is_leaving or volume.driver:
        return None
    return volume.host, volume.spec.storage_class
