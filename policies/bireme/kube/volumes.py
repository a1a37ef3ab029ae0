"""Volumes: a cache of claims, volumes and what they depend on, with the capacity of nodes for them.

Nothing is watched or cached before a gang names a claim. :mod:`bireme.kube.claim_demands` resolves
claims to demands.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bireme.core.gangs import Key
from bireme.core.resources import ATTACHABLE
from bireme.kube import volume_objects, wire
from bireme.kube.volume_objects import (
    NO_CLAIMS,
    Claim,
    ClaimSpec,
    PodClaims,
    Volume,
)

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

Attached = tuple[str, str, str]
"""Node, driver and handle of a volume."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class ClaimUser:
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
    attached: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Node, driver and volume by name of the VolumeAttachment."""
    capacities: dict[Key, wire.V1CsiStorageCapacity] = field(default_factory=dict)
    pods: dict[Key, ClaimUser] = field(default_factory=dict)
    _users: dict[Key, set[Key]] = field(default_factory=dict)
    """Pods by claim. They have a node or are about to get one."""
    memo: dict[object, Any] = field(default_factory=dict)
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
        if self.attached.get(key[1]) != facts:
            self.attached[key[1]] = facts
            self._notify()

    def delete_attachment(self, key: Key) -> None:
        self._drop(self.attached, key[1])

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
        facts = ClaimUser(node, gang, tuple((namespace, name) for name in claims))
        if self.pods.get(key) == facts:
            return
        self.delete_pod(key)
        self.pods[key] = facts
        for claim in facts.claims:
            self._users.setdefault(claim, set()).add(key)
        self._notify()

    def delete_pod(self, key: Key) -> None:
        facts = self.pods.pop(key, None)
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
        self.memo.clear()
        self.revision += 1
        if self.is_known:
            self.on_change()

    def users(self, claim: Key) -> Set[Key]:
        """Return the pods that name a claim and have a node, or are about to get one."""
        return self._users.get(claim, frozenset())

    def is_of_gang(self, pod: Key) -> bool:
        """Return whether a pod that has a node, or is about to get one, is of a gang."""
        return self.pods[pod].gang is not None

    # --- capacity of nodes and its usage ---

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
        pod = self.pods.get(key)
        return PodClaims(tuple(name for _, name in pod.claims)) if pod is not None else NO_CLAIMS

    def drivers_with_limit(self) -> set[str]:
        """Return the drivers whose attached volumes are limited on some node."""
        cached: set[str] | None = self.memo.get("limited")
        if cached is None:
            limits = self.limits.values()
            cached = {
                driver
                for node_limits in limits
                for driver, limit in node_limits.items()
                if limit >= 0
            }
            self.memo["limited"] = cached
        return cached

    def of_storage_class(self, name: str) -> list[Volume]:
        """Return the volumes of a storage class that are not being deleted."""
        cached: dict[str, list[Volume]] | None = self.memo.get("by class")
        if cached is None:
            cached = self.memo["by class"] = {}
            for volume in self.volumes.values():
                if not volume.is_leaving:
                    cached.setdefault(volume.spec.storage_class, []).append(volume)
        return cached.get(name, [])

    def suitable(self, spec: ClaimSpec) -> tuple[list[Volume], list[Volume]]:
        """Return all volumes that suit a claim, and the free ones among them."""
        cached: tuple[list[Volume], list[Volume]] | None = self.memo.get(spec)
        if cached is None:
            suitable = [v for v in self.of_storage_class(spec.storage_class) if v.suits(spec)]
            free = [v for v in suitable if v.claim is None and v.is_available]
            cached = self.memo[spec] = suitable, free
        return cached

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
