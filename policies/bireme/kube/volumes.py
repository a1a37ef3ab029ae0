"""Volumes: the nodes on which the PersistentVolumeClaims of a gang allow its pods.

The rules are those of kube-scheduler's plug-ins VolumeBinding, VolumeZone, VolumeRestrictions and
NodeVolumeLimits (1.37). A rule becomes one of five things:

* a fault, in kube-scheduler's own words: a claim that does not exist or is lost;
* a demand on the node: the node affinity and zone labels of a bound volume, or the nodes on which
  a volume for an unbound claim exists or can be provisioned;
* an amount of a resource of nodes: slots for volumes of a CSI driver, local volumes;
* a demand on other pods: no other pod uses the same claim (ReadWriteOncePod);
* the reason why a claim is not planned, so that kube-scheduler chooses the nodes.

Nothing is watched or cached before a gang names a claim.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from bireme.core.gangs import Key, Task
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.pod_constraints import (
    NodeDemand,
    PodKind,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.core.reasons import Reason
from bireme.core.resources import ATTACHABLE, Request, add, request_of
from bireme.kube import volume_objects, wire
from bireme.kube.quantities import QuantityError, parse_quantity
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
_NONE: Final = SelectorTerm()
"""A term without any requirement, which matches no node."""
Fault = tuple[Reason, str]
Attached = tuple[str, str, str]
"""Node, driver and handle of a volume."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands of some volumes on the node of one pod, or their fault."""

    fault: str = ""
    nodes: tuple[NodeDemand, ...] = ()
    request: Request = ()
    volumes: tuple[tuple[str, str], ...] = ()
    """Volumes that are attached to the node once for all its pods, as in a PodKind."""
    reasons: tuple[str, ...] = ()
    """Claims that are not planned, with the reason."""


@dataclass(frozen=True, slots=True)
class ResolvedClaims:
    """Tasks with the demands of their claims; ``reasons`` are for kube-scheduler, as in Demands."""

    tasks: tuple[Task, ...]
    fault: Fault | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    gang: Key | None
    claims: tuple[Key, ...]


@dataclass(slots=True)
class Volumes:
    """Cache of the objects that volumes depend on; it resolves claims to demands.

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
    _limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum number of attached volumes by node and CSI driver; -1 without a limit."""
    _attached: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Node, driver and volume by name of the VolumeAttachment."""
    _capacities: dict[Key, wire.V1CsiStorageCapacity] = field(default_factory=dict)
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
        if _place(previous) != _place(facts):
            self.offers_revision += 1
        self._notify()

    def delete_volume(self, key: Key) -> None:
        if _place(self.volumes.get(key[1])) is not None:
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
        if self._limits.get(key[1]) != limits:
            self._limits[key[1]] = limits
            self.offers_revision += 1
            self._notify()

    def delete_csi_node(self, key: Key) -> None:
        self.offers_revision += 1
        self._drop(self._limits, key[1])

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
        self._capacities[key] = manifest
        self._notify()

    def delete_capacity(self, key: Key) -> None:
        self._drop(self._capacities, key)

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

    # --- capacity of nodes and its usage ---

    def offers(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return the resources of each node for claims: node to resource to amount."""
        limited = self._drivers_with_limit()
        local = self._local()
        if not (limited or local):
            return {}
        offers: dict[str, dict[str, int]] = {}
        for node in nodes:
            node_limits = self._limits.get(node.name, {})
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
        limited = self._drivers_with_limit()
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
        return bool(self._drivers_with_limit())

    def of_claim(self, key: Key) -> tuple[str, str]:
        """Return the volume of a claim as in a PodKind."""
        driver, handle = self._handle(key)
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
            limited = self._drivers_with_limit()
            for pod in self._pods.values() if limited else ():
                for key in pod.claims if pod.node else ():
                    volume = self._handle(key)
                    if volume[0] in limited:
                        cached.setdefault(volume, set()).add(pod.node)
        return cached

    def attachments_of(
        self, namespace: str, used: PodClaims, request: Request
    ) -> Iterator[tuple[str, str]]:
        """Yield driver and handle of volumes that a planned pod attaches without a request."""
        limited, amounts = self._drivers_with_limit(), dict(request)
        handles_by_driver: dict[str, list[str]] = {}
        for name in used.claims if limited else ():
            driver, handle = self._handle((namespace, name))
            if driver in limited:
                handles_by_driver.setdefault(driver, []).append(handle)
        for spec in (spec for _, spec in used.templates) if handles_by_driver else ():
            storage_class = self.classes.get(spec.storage_class)
            if storage_class is not None and storage_class.provisioner in handles_by_driver:
                amounts = add(amounts, {ATTACHABLE + storage_class.provisioner: -1})
        for driver, handles in handles_by_driver.items():
            if amounts.get(ATTACHABLE + driver, 0) < len(handles):
                yield from ((driver, handle) for handle in handles)

    def _drivers_with_limit(self) -> set[str]:
        """Return the drivers whose attached volumes are limited on some node."""
        cached: set[str] | None = self._memo.get("limited")
        if cached is None:
            limits = self._limits.values()
            cached = {
                driver
                for node_limits in limits
                for driver, limit in node_limits.items()
                if limit >= 0
            }
            self._memo["limited"] = cached
        return cached

    def _of_storage_class(self, name: str) -> list[Volume]:
        """Return the volumes of a storage class that are not being deleted."""
        cached: dict[str, list[Volume]] | None = self._memo.get("by class")
        if cached is None:
            cached = self._memo["by class"] = {}
            for volume in self.volumes.values():
                if not volume.is_leaving:
                    cached.setdefault(volume.spec.storage_class, []).append(volume)
        return cached.get(name, [])

    def _suitable(self, spec: ClaimSpec) -> tuple[list[Volume], list[Volume]]:
        """Return all volumes that suit a claim, and the free ones among them."""
        cached: tuple[list[Volume], list[Volume]] | None = self._memo.get(spec)
        if cached is None:
            suitable = [v for v in self._of_storage_class(spec.storage_class) if v.suits(spec)]
            free = [v for v in suitable if v.claim is None and v.is_available]
            cached = self._memo[spec] = suitable, free
        return cached

    def _local(self) -> dict[tuple[str, str], list[Volume]]:
        """Return the static local volumes by host name and storage class."""
        by_host: dict[tuple[str, str], list[Volume]] = {}
        for volume in self.volumes.values():
            if _place(volume) is not None and not self._is_provisioned(volume.spec.storage_class):
                by_host.setdefault((volume.host, volume.spec.storage_class), []).append(volume)
        return by_host

    def _is_provisioned(self, name: str) -> bool:
        """Return whether a provisioner creates the volumes of a storage class on demand."""
        storage_class = self.classes.get(name)
        return storage_class is not None and storage_class.provisioner not in ("", _NO_PROVISIONER)

    def _handle(self, key: Key) -> tuple[str, str]:
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

    # --- demands of a gang's claims ---

    def fold(self, gang: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> ResolvedClaims:
        """Return the tasks with the demands of their claims added to their own."""
        plain = tuple(task for task, _ in tasks)
        if not any(used.has_volumes for _, used in tasks):
            return ResolvedClaims(plain)
        self.want()
        if not self.is_known:
            message = "the operator has not read PersistentVolumeClaims and related objects yet"
            return ResolvedClaims(plain, (Reason.CLAIM_NOT_READY, message))
        replicas_by_claim: Counter[str] = Counter()
        for task, used in tasks:
            replicas_by_claim.update(dict.fromkeys(used.claims, task.replicas))
        resolved, faults = [], []
        reasons: list[str] = []
        for task, used in tasks:
            demands = self._of_pod(gang, used, replicas_by_claim)
            faults.append(demands.fault)
            reasons += demands.reasons
            constraints = replace(
                task.constraints, demands=(*task.constraints.demands, *demands.nodes)
            )
            request = request_of(add(dict(task.request), demands.request))
            pod = task.pod
            exclusive = self._exclusive_claims(gang[0], used.claims)
            if exclusive or demands.volumes:
                pod = replace(pod or PodKind(), alone=exclusive, volumes=demands.volumes)
            resolved.append(replace(task, request=request, constraints=constraints, pod=pod))
        fault = next(filter(None, faults), "")
        return ResolvedClaims(
            tuple(resolved),
            (Reason.CLAIM_NOT_READY, fault) if fault else None,
            tuple(dict.fromkeys(reasons)),
        )

    def _exclusive_claims(self, namespace: str, names: Iterable[str]) -> tuple[Key, ...]:
        """Return the claims that only one pod at a time can use (ReadWriteOncePod)."""
        keys = ((namespace, name) for name in names)
        return tuple(
            key for key in keys if (claim := self.claims.get(key)) and claim.is_for_one_pod
        )

    def _of_pod(self, gang: Key, used: PodClaims, replicas_by_claim: Mapping[str, int]) -> Demands:
        """Return the demands of the volumes of one pod."""
        parts = [self._of_claim(gang, name, used, replicas_by_claim[name]) for name in used.claims]
        parts += [
            self._of_delayed_binding(f"volume {name}", spec, 1) for name, spec in used.templates
        ]
        if used.own_disk:
            parts.append(
                Demands(reasons=(f"the disk of volume {used.own_disk}, which has no claim",))
            )
        request: dict[str, int] = {}
        for part in parts:
            request = add(request, part.request)
        return Demands(
            fault=next((part.fault for part in parts if part.fault), ""),
            nodes=tuple(dict.fromkeys(demand for part in parts for demand in part.nodes)),
            request=request_of(request),
            volumes=tuple(dict.fromkeys(volume for part in parts for volume in part.volumes)),
            reasons=tuple(reason for part in parts for reason in part.reasons),
        )

    def _of_claim(self, gang: Key, name: str, used: PodClaims, sharers: int) -> Demands:
        """Return the demands of a claim on the node of each of its ``sharers`` pods."""
        key = (gang[0], name)
        claim, source = self.claims.get(key), f'persistentvolumeclaim "{name}"'
        if claim is None and name in used.ephemeral:
            return Demands(f"waiting for ephemeral volume controller to create the {source}")
        if claim is None:
            return Demands(f"{source} not found")
        if claim.is_lost:
            lost = f'persistentvolume "{claim.volume}"'
            return Demands(f"{source} bound to non-existent {lost}")
        if claim.is_leaving:
            return Demands(f"{source} is being deleted")
        if claim.is_for_one_pod:
            if sharers > 1:
                return Demands(
                    f"{source} has access mode ReadWriteOncePod and {sharers} replicas name it; "
                    "let one name it, or ask for ReadWriteMany"
                )
            # A gang that uses it may end or be preempted; only other pods are a fault.
            strangers = (user for user in self.users(key) if self._pods[user].gang is None)
            if stranger := min(strangers, default=None):
                return Demands(
                    f"{source} has access mode ReadWriteOncePod and pod {stranger[1]} uses it"
                )
        if not claim.is_bound:
            return self._of_unbound_claim(key, claim, sharers)
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return Demands(f'{source} is bound to persistentvolume "{claim.volume}", not found')
        return self._of_bound(key, volume)

    def _of_bound(self, key: Key, volume: Volume) -> Demands:
        if volume.is_translated or not volume.is_readable:
            return Demands(reasons=(f"volume {volume.name} of claim {key[1]}",))
        source = f"volume {volume.name} of claim {key[1]}"
        affinity = () if volume.terms is None else (NodeDemand(source, volume.terms),)
        attachment = self._attachment(f"claim {key[1]}", *self._handle(key))
        return replace(attachment, nodes=(*affinity, *volume.zones, *attachment.nodes))

    def _of_unbound_claim(self, key: Key, claim: Claim, sharers: int) -> Demands:
        source = f'persistentvolumeclaim "{key[1]}"'
        storage_class = self.classes.get(claim.spec.storage_class)
        if claim.volume:
            return Demands(f'{source} is being bound to persistentvolume "{claim.volume}"')
        if storage_class is None and claim.spec.storage_class:
            missing = f'storageclass "{claim.spec.storage_class}" not found'
            return Demands(f"{source} has no volume yet: {missing}")
        if storage_class is None or storage_class.volume_binding_mode != "WaitForFirstConsumer":
            return Demands(f"{source} is not bound yet; its class binds before pods are placed")
        node = claim.selected_node
        reserved = [
            v
            for v in self._of_storage_class(claim.spec.storage_class)
            if v.claim is not None and v.is_kept_for(key, claim.uid)
        ]
        demands = self._of_delayed_binding(f"claim {key[1]}", claim.spec, sharers, reserved)
        if not node:
            return demands
        requirement = Requirement("metadata.name", SelectorOperator.IN, (node,))
        demand = NodeDemand(
            f"volume of claim {key[1]}, which is being created for node {node}",
            (SelectorTerm(names=(requirement,)),),
        )
        return replace(demands, nodes=(*demands.nodes, demand))

    def _of_delayed_binding(
        self, source: str, spec: ClaimSpec, sharers: int, reserved: Sequence[Volume] = ()
    ) -> Demands:
        """Return the demands of a claim that is bound once its pod is placed.

        ``reserved`` are volumes whose claimRef names it.
        """
        storage_class = self.classes.get(spec.storage_class)
        if storage_class is None or storage_class.volume_binding_mode != "WaitForFirstConsumer":
            # The claim is created with its pod and cannot be bound earlier.
            return Demands(reasons=(f"{source}, which is bound when its pod exists",))
        if not spec.is_readable:
            return Demands(reasons=(f"{source}, whose selector cannot be read",))
        candidates = list(reserved) or self._suitable(spec)[1]
        if any(not v.is_readable for v in candidates):
            return Demands(reasons=(f"{source}, whose volumes cannot be read",))
        if not self._is_provisioned(storage_class.metadata.name):
            return self._of_existing_volumes(
                source, spec, candidates, sharers, is_reserved=bool(reserved)
            )
        if sharers > 1:
            return Demands(reasons=(f"{source}, which gets its volume with its first pod",))
        provisioning_terms = self._provisioning_terms(spec, storage_class)
        attachment = self._attachment(source, storage_class.provisioner)
        if provisioning_terms is None:
            return attachment
        # An existing volume needs no provisioning, but two claims may match the same volume.
        reasons = (f"{source}, for which a volume may be found or created",) if candidates else ()
        terms = tuple(term for v in candidates for term in _terms(v))
        demand = NodeDemand(
            f"{source}, of class {storage_class.metadata.name}", (*terms, *provisioning_terms)
        )
        return replace(
            attachment, nodes=(demand, *attachment.nodes), reasons=(*attachment.reasons, *reasons)
        )

    def _of_existing_volumes(
        self,
        source: str,
        spec: ClaimSpec,
        candidates: Sequence[Volume],
        sharers: int,
        *,
        is_reserved: bool,
    ) -> Demands:
        """Return the demands of a claim that binds one of the volumes ``candidates``."""
        suitable, _ = self._suitable(spec)
        if not suitable and not candidates:
            return Demands(
                f"{source} finds no PersistentVolume of class {spec.storage_class!r} with its "
                "size, access modes and labels"
            )
        name = spec.storage_class
        demand = NodeDemand(
            f"{source}, which takes a volume of class {name}",
            _merge_terms(
                term for v in (candidates if is_reserved else suitable) for term in _terms(v)
            ),
        )
        if sharers > 1:
            reason = f"{source}, which gets its volume with its first pod"
            return Demands(nodes=(demand,), reasons=(reason,))
        if is_reserved:
            return Demands(nodes=(demand,))
        of_class = self._of_storage_class(name)
        if any(_place(v) is None for v in of_class):
            return Demands(
                nodes=(demand,), reasons=(f"{source}, whose volumes can be used on several nodes",)
            )
        if len(suitable) < len(of_class):
            return Demands(
                nodes=(demand,), reasons=(f"{source}, which fits only some volumes of its class",)
            )
        return Demands(nodes=(demand,), request=((LOCAL_VOLUMES + name, 1),))

    def _provisioning_terms(
        self, spec: ClaimSpec, storage_class: wire.V1StorageClass
    ) -> tuple[SelectorTerm, ...] | None:
        """Return the nodes for which a volume can be provisioned; None for all nodes."""
        topology_terms: list[SelectorTerm] | None = None
        if storage_class.allowed_topologies:
            topology_terms = [
                SelectorTerm(
                    tuple(
                        Requirement(expression.key, SelectorOperator.IN, expression.values)
                        for expression in term.match_label_expressions or ()
                    )
                )
                for term in storage_class.allowed_topologies
            ]
        driver = self.drivers.get(storage_class.provisioner)
        if driver is None or not driver.storage_capacity or not spec.size_bytes:
            return None if topology_terms is None else tuple(topology_terms)
        capacity_terms = [
            SelectorTerm(requirements)
            for capacity in self._capacities.values()
            if capacity.storage_class_name == storage_class.metadata.name
            if (requirements := _reach(capacity, spec.size_bytes)) is not None
        ]
        if topology_terms is None:
            return _merge_terms(capacity_terms) or (_NONE,)
        pairs = [
            SelectorTerm((*a.labels, *b.labels))
            for a in topology_terms
            if a.labels
            for b in capacity_terms
        ]
        return tuple(pairs) or (_NONE,)

    def _attachment(self, source: str, driver: str, handle: str = "") -> Demands:
        """Return the demands of attaching a volume of ``driver``.

        The volume ``handle`` counts once per node, however many pods use it there. Without a
        handle the volume does not exist yet and is for one pod.
        """
        if not driver:
            return Demands()
        nodes: tuple[NodeDemand, ...] = ()
        driver_spec = self.drivers.get(driver)
        if driver_spec is not None and driver_spec.prevent_pod_scheduling_if_missing:
            nodes_with_driver = tuple(
                sorted(n for n, limits in self._limits.items() if driver in limits)
            )
            requirement = Requirement("metadata.name", SelectorOperator.IN, nodes_with_driver)
            nodes = (
                NodeDemand(f"{source} by driver {driver}", (SelectorTerm(names=(requirement,)),)),
            )
        if driver not in self._drivers_with_limit():
            return Demands(nodes=nodes)
        if handle:
            return Demands(nodes=nodes, volumes=((ATTACHABLE + driver, handle),))
        return Demands(nodes=nodes, request=((ATTACHABLE + driver, 1),))


def _place(volume: Volume | None) -> tuple[str, str] | None:
    """Return host and storage class of a local volume; None for others."""
    if volume is None or not volume.host or volume.is_leaving or volume.driver:
        return None
    return volume.host, volume.spec.storage_class


def _terms(volume: Volume) -> tuple[SelectorTerm, ...]:
    if volume.terms is not None:
        return volume.terms
    anywhere = Requirement("metadata.name", SelectorOperator.NOT_IN, ())
    return (SelectorTerm(names=(anywhere,)),)


def _merge_terms(terms: Iterable[SelectorTerm]) -> tuple[SelectorTerm, ...]:
    """Merge terms with one label requirement on the same label into one term."""
    values: dict[str, dict[str, None]] = {}
    other_terms: dict[SelectorTerm, None] = {}
    for term in terms:
        first = term.labels[0] if len(term.labels) == 1 and not term.names else None
        if first is not None and first.operator is SelectorOperator.IN:
            values.setdefault(first.key, {}).update(dict.fromkeys(first.values))
        else:
            other_terms[term] = None
    merged = (
        SelectorTerm((Requirement(key, SelectorOperator.IN, tuple(some)),))
        for key, some in values.items()
    )
    return (*merged, *other_terms)


def _reach(capacity: wire.V1CsiStorageCapacity, size_bytes: int) -> tuple[Requirement, ...] | None:
    """Return the nodes of a capacity; None if it is too small or has no nodes."""
    limit = capacity.maximum_volume_size
    limit = capacity.capacity if limit is None else limit
    if limit is None or capacity.node_topology is None:
        return None
    try:
        if parse_quantity("storage", limit, rounding="down") < size_bytes:
            return None
        requirements = volume_objects.label_requirements(capacity.node_topology)
    except (QuantityError, ValueError):
        return None
    # An empty label selector selects every node, but a term without requirements selects none.
    return requirements or (Requirement(HOSTNAME_LABEL, SelectorOperator.NOT_IN, ()),)
