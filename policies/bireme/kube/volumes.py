"""Volumes: which nodes the claims of a gang's pods leave to it, by the rules of kube-scheduler.

These are the rules of its plug-ins VolumeBinding, VolumeZone, VolumeRestrictions and
NodeVolumeLimits (1.37). A rule becomes one of five things:

* a fault, in kube-scheduler's own words: a claim that does not exist or is lost;
* a demand on the node: the node affinity and zone labels of a bound volume, or where a volume for
  a claim without one can be made or found;
* an amount of something that nodes offer: places for volumes of a CSI driver, local volumes;
* a demand on other pods: that none of them uses the same claim (ReadWriteOncePod);
* words about what is not planned, so that kube-scheduler chooses the nodes.

Nothing is watched, and nothing kept, before a gang names a claim.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from bireme.core.gangs import (
    Key,
    NodeDemand,
    PodKind,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Task,
)
from bireme.core.nodes import HOSTNAME_LABEL, Node
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
    """What some volumes ask: a fault, or what follows for the nodes of one pod."""

    fault: str = ""
    nodes: tuple[NodeDemand, ...] = ()
    request: Request = ()
    volumes: tuple[tuple[str, str], ...] = ()
    """What is attached to the node once for all its pods, as in a PodKind."""
    left: tuple[str, ...] = ()
    """What is not planned, in words."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Tasks with what their claims ask; ``fault`` and ``left`` as in a Gang."""

    tasks: tuple[Task, ...]
    fault: Fault | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    gang: Key | None
    claims: tuple[Key, ...]


@dataclass(slots=True)
class Volumes:
    """Cache of the objects that volumes depend on, and what follows from them.

    Attributes:
        on_change: Called after every change that can matter to a gang or a node.
        on_wanted: Called when the first pod or template names a claim: now it is worth to watch.
        is_known: All collections have been listed.
        revision: Number of changes so far.
        offers_revision: Number of changes of what nodes offer.
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
    """Node to CSI driver to the volumes that it can have attached; -1 without a limit."""
    _attached: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name of a VolumeAttachment to node, driver and volume."""
    _capacities: dict[Key, wire.V1CsiStorageCapacity] = field(default_factory=dict)
    _pods: dict[Key, _Pod] = field(default_factory=dict)
    _users: dict[Key, set[Key]] = field(default_factory=dict)
    """Claim to the pods that name it and have a node, or are about to have one."""
    _memo: dict[object, Any] = field(default_factory=dict)
    """Answers about all volumes and nodes as they are: thousands of claims ask the same."""

    # --- what is watched ---

    def put_claim(self, key: Key, manifest: wire.V1PersistentVolumeClaim) -> None:
        facts = volume_objects.claim(manifest)
        if self.claims.get(key) != facts:
            self.claims[key] = facts
            self._changed()

    def delete_claim(self, key: Key) -> None:
        self._drop(self.claims, key)

    def put_volume(self, key: Key, manifest: wire.V1PersistentVolume) -> None:
        facts, before = volume_objects.volume(manifest), self.volumes.get(key[1])
        if before == facts:
            return
        self.volumes[key[1]] = facts
        if _place(before) != _place(facts):
            self.offers_revision += 1
        self._changed()

    def delete_volume(self, key: Key) -> None:
        if _place(self.volumes.get(key[1])) is not None:
            self.offers_revision += 1
        self._drop(self.volumes, key[1])

    def put_class(self, key: Key, manifest: wire.V1StorageClass) -> None:
        self.classes[key[1]] = manifest
        self._changed()

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
            self._changed()

    def delete_csi_node(self, key: Key) -> None:
        self.offers_revision += 1
        self._drop(self._limits, key[1])

    def put_attachment(self, key: Key, manifest: wire.V1VolumeAttachment) -> None:
        spec = manifest.spec
        facts = spec.node_name, spec.attacher, spec.source.persistent_volume_name or key[1]
        if self._attached.get(key[1]) != facts:
            self._attached[key[1]] = facts
            self._changed()

    def delete_attachment(self, key: Key) -> None:
        self._drop(self._attached, key[1])

    def put_driver(self, key: Key, manifest: wire.V1CsiDriver) -> None:
        if self.drivers.get(key[1]) != manifest.spec:
            self.drivers[key[1]] = manifest.spec
            self._changed()

    def delete_driver(self, key: Key) -> None:
        self._drop(self.drivers, key[1])

    def put_capacity(self, key: Key, manifest: wire.V1CsiStorageCapacity) -> None:
        self._capacities[key] = manifest
        self._changed()

    def delete_capacity(self, key: Key) -> None:
        self._drop(self._capacities, key)

    def put_pod(
        self, key: Key, node: str, claims: Iterable[str], namespace: str, gang: Key | None = None
    ) -> None:
        """Take in a pod that has a node, or is about to have one, with the names of its claims."""
        facts = _Pod(node, gang, tuple((namespace, name) for name in claims))
        if self._pods.get(key) == facts:
            return
        self.delete_pod(key)
        self._pods[key] = facts
        for claim in facts.claims:
            self._users.setdefault(claim, set()).add(key)
        self._changed()

    def delete_pod(self, key: Key) -> None:
        facts = self._pods.pop(key, None)
        if facts is None:
            return
        for claim in facts.claims:
            self._users[claim].discard(key)
            if not self._users[claim]:
                del self._users[claim]
        self._changed()

    def want(self) -> None:
        """Have all this watched from now on."""
        if not self.is_wanted:
            self.is_wanted = True
            self.on_wanted()

    def all_listed(self) -> None:
        """Take note that every collection has been listed."""
        self.is_known = True
        self.offers_revision += 1
        self._changed()

    def _drop(self, known: dict[_K, _V], key: _K) -> None:
        if known.pop(key, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self._memo.clear()
        self.revision += 1
        if self.is_known:
            self.on_change()

    def users(self, claim: Key) -> Set[Key]:
        """Return the pods that name a claim and have a node, or are about to have one."""
        return self._users.get(claim, frozenset())

    # --- what nodes offer, and what is used of it ---

    def offers(self, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
        """Return what each node offers to claims: node to name to amount."""
        limited = self._limited()
        local = self._local()
        if not (limited or local):
            return {}
        found: dict[str, dict[str, int]] = {}
        for node in nodes:
            own = self._limits.get(node.name, {})
            offer = {}
            for driver in limited:
                most = own.get(driver, -1)
                offer[ATTACHABLE + driver] = _UNLIMITED if most < 0 else most
            host = node.labels.get(HOSTNAME_LABEL, "")
            for (where, name), some in local.items():
                if where == host:
                    offer[LOCAL_VOLUMES + name] = len(some)
            if offer:
                found[node.name] = offer
        return found

    def usage(
        self, nodes: Iterable[Node], planned: Set[Attached] = frozenset()
    ) -> Iterator[tuple[str, Request]]:
        """Yield (node, request) of volumes that are attached, and of local ones that are taken.

        ``planned`` are volumes that planned pods attach, beside what these request.
        """
        used: dict[str, Counter[str]] = {}
        limited = self._limited()
        there = {(node, *one) for one, some in self._nodes_with().items() for node in some}
        # What no pod uses kube-scheduler counts beside the volume that comes, even if it is that.
        for node, driver, _ in (*there, *(planned - there)):
            used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
        seen = there
        for node, driver, name in self._attached.values():
            volume = self.volumes.get(name)
            handle = volume.handle if volume is not None and volume.handle else name
            if driver in limited and (node, driver, handle) not in seen:
                seen.add((node, driver, handle))
                used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
        local = self._local()
        hosts = {n.labels.get(HOSTNAME_LABEL, ""): n.name for n in nodes} if local else {}
        for (host, name), some in local.items():
            taken = sum(not volume.is_available or volume.claim is not None for volume in some)
            if taken and host in hosts:
                used.setdefault(hosts[host], Counter())[LOCAL_VOLUMES + name] += taken
        for node, amounts in used.items():
            yield node, request_of(amounts)

    @property
    def has_limits(self) -> bool:
        """True if some node can have only so many volumes of some driver attached."""
        return bool(self._limited())

    def of_claim(self, key: Key) -> tuple[str, str]:
        """Return the volume of a claim as in a PodKind."""
        driver, handle = self._handle(key)
        return ATTACHABLE + driver, handle

    def of_pod(self, key: Key) -> PodClaims:
        """Return the claims that a pod names which has a node, or is about to have one."""
        pod = self._pods.get(key)
        return PodClaims(tuple(name for _, name in pod.claims)) if pod is not None else NO_CLAIMS

    def nodes_with(self, volume: tuple[str, str]) -> Set[str]:
        """Return the nodes on which a pod uses a volume, given as in a PodKind."""
        return self._nodes_with().get((volume[0].removeprefix(ATTACHABLE), volume[1]), frozenset())

    def _nodes_with(self) -> dict[tuple[str, str], set[str]]:
        """Return the nodes on which pods use each volume of a limited driver."""
        known: dict[tuple[str, str], set[str]] | None = self._memo.get("nodes")
        if known is None:
            known = self._memo["nodes"] = {}
            limited = self._limited()
            for pod in self._pods.values() if limited else ():
                for key in pod.claims if pod.node else ():
                    volume = self._handle(key)
                    if volume[0] in limited:
                        known.setdefault(volume, set()).add(pod.node)
        return known

    def shared(
        self, namespace: str, used: PodClaims, request: Request
    ) -> Iterator[tuple[str, str]]:
        """Yield driver and handle of volumes that a planned pod attaches and does not request."""
        limited, asked = self._limited(), dict(request)
        named: dict[str, list[str]] = {}
        for name in used.claims if limited else ():
            driver, handle = self._handle((namespace, name))
            if driver in limited:
                named.setdefault(driver, []).append(handle)
        for spec in (spec for _, spec in used.templates) if named else ():
            found = self.classes.get(spec.storage_class)
            if found is not None and found.provisioner in named:
                asked = add(asked, {ATTACHABLE + found.provisioner: -1})
        for driver, handles in named.items():
            if asked.get(ATTACHABLE + driver, 0) < len(handles):
                yield from ((driver, handle) for handle in handles)

    def _limited(self) -> set[str]:
        """Return the drivers of which some node can have only so many volumes attached."""
        known: set[str] | None = self._memo.get("limited")
        if known is None:
            limits = self._limits.values()
            known = {driver for own in limits for driver, most in own.items() if most >= 0}
            self._memo["limited"] = known
        return known

    def _of_storage_class(self, name: str) -> list[Volume]:
        """Return the volumes of a storage class that are not about to go."""
        known: dict[str, list[Volume]] | None = self._memo.get("by class")
        if known is None:
            known = self._memo["by class"] = {}
            for volume in self.volumes.values():
                if not volume.is_leaving:
                    known.setdefault(volume.spec.storage_class, []).append(volume)
        return known.get(name, [])

    def _suitable(self, asked: ClaimSpec) -> tuple[list[Volume], list[Volume]]:
        """Return the volumes that suit a claim, and those of them that are free."""
        known: tuple[list[Volume], list[Volume]] | None = self._memo.get(asked)
        if known is None:
            suitable = [v for v in self._of_storage_class(asked.storage_class) if v.suits(asked)]
            free = [v for v in suitable if v.claim is None and v.is_available]
            known = self._memo[asked] = suitable, free
        return known

    def _local(self) -> dict[tuple[str, str], list[Volume]]:
        """Return the volumes of one node by host name and storage class, no provisioner's."""
        found: dict[tuple[str, str], list[Volume]] = {}
        for volume in self.volumes.values():
            if _place(volume) is not None and not self._is_made(volume.spec.storage_class):
                found.setdefault((volume.host, volume.spec.storage_class), []).append(volume)
        return found

    def _is_made(self, name: str) -> bool:
        """Return whether volumes of a storage class are made when they are needed."""
        found = self.classes.get(name)
        return found is not None and found.provisioner not in ("", _NO_PROVISIONER)

    def _handle(self, key: Key) -> tuple[str, str]:
        """Return the CSI driver of a claim's volume, and what is the same for the same volume."""
        claim = self.claims.get(key)
        if claim is None:
            return "", ""
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.driver, volume.handle or volume.name
        found = self.classes.get(claim.spec.storage_class)
        return (found.provisioner if found is not None else ""), f"{key[0]}/{key[1]}"

    # --- what a gang's claims ask ---

    def fold(self, gang: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> Folded:
        """Return the tasks with what their claims ask of nodes added to what they ask."""
        plain = tuple(task for task, _ in tasks)
        if not any(used.has_volumes for _, used in tasks):
            return Folded(plain)
        self.want()
        if not self.is_known:
            words = "the operator has not read PersistentVolumeClaims and what belongs to them yet"
            return Folded(plain, (Reason.CLAIM_NOT_READY, words))
        naming: Counter[str] = Counter()
        for task, used in tasks:
            naming.update(dict.fromkeys(used.claims, task.replicas))
        folded, faults = [], []
        left: list[str] = []
        for task, used in tasks:
            found = self._of_pod(gang, used, naming)
            faults.append(found.fault)
            left += found.left
            constraints = replace(
                task.constraints, demands=(*task.constraints.demands, *found.nodes)
            )
            request = request_of(add(dict(task.request), found.request))
            pod = task.pod
            alone = self._alone(gang[0], used.claims)
            if alone or found.volumes:
                pod = replace(pod or PodKind(), alone=alone, volumes=found.volumes)
            folded.append(replace(task, request=request, constraints=constraints, pod=pod))
        fault = next(filter(None, faults), "")
        return Folded(
            tuple(folded),
            (Reason.CLAIM_NOT_READY, fault) if fault else None,
            tuple(dict.fromkeys(left)),
        )

    def _alone(self, namespace: str, names: Iterable[str]) -> tuple[Key, ...]:
        """Return those of the claims that one pod at a time can use."""
        found = ((namespace, name) for name in names)
        return tuple(
            key for key in found if (claim := self.claims.get(key)) and claim.is_for_one_pod
        )

    def _of_pod(self, gang: Key, used: PodClaims, naming: Mapping[str, int]) -> Demands:
        """Return what the volumes of one pod ask."""
        found = [self._of_claim(gang, name, used, naming[name]) for name in used.claims]
        found += [self._unbound(f"volume {name}", spec, 1) for name, spec in used.templates]
        if used.own_disk:
            found.append(Demands(left=(f"the disk of volume {used.own_disk}, which has no claim",)))
        request: dict[str, int] = {}
        for each in found:
            request = add(request, each.request)
        return Demands(
            fault=next((each.fault for each in found if each.fault), ""),
            nodes=tuple(dict.fromkeys(demand for each in found for demand in each.nodes)),
            request=request_of(request),
            volumes=tuple(dict.fromkeys(volume for each in found for volume in each.volumes)),
            left=tuple(words for each in found for words in each.left),
        )

    def _of_claim(self, gang: Key, name: str, used: PodClaims, sharers: int) -> Demands:
        """Return what a claim asks of the node of each of the ``sharers`` pods that name it."""
        key = (gang[0], name)
        claim, words = self.claims.get(key), f'persistentvolumeclaim "{name}"'
        if claim is None and name in used.ephemeral:
            return Demands(f"waiting for ephemeral volume controller to create the {words}")
        if claim is None:
            return Demands(f"{words} not found")
        if claim.is_lost:
            lost = f'persistentvolume "{claim.volume}"'
            return Demands(f"{words} bound to non-existent {lost}")
        if claim.is_leaving:
            return Demands(f"{words} is being deleted")
        if claim.is_for_one_pod:
            if sharers > 1:
                return Demands(
                    f"{words} has access mode ReadWriteOncePod and {sharers} replicas name it; "
                    "let one name it, or ask for ReadWriteMany"
                )
            # A gang that uses it may end, or make room.
            others = (user for user in self.users(key) if self._pods[user].gang is None)
            if other := min(others, default=None):
                return Demands(
                    f"{words} has access mode ReadWriteOncePod and pod {other[1]} uses it"
                )
        if not claim.is_bound:
            return self._of_unbound_claim(key, claim, sharers)
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return Demands(f'{words} is bound to persistentvolume "{claim.volume}", not found')
        return self._of_bound(key, volume)

    def _of_bound(self, key: Key, volume: Volume) -> Demands:
        if volume.is_translated or not volume.is_readable:
            return Demands(left=(f"volume {volume.name} of claim {key[1]}",))
        source = f"volume {volume.name} of claim {key[1]}"
        affinity = () if volume.terms is None else (NodeDemand(source, volume.terms),)
        place = self._attach(f"claim {key[1]}", *self._handle(key))
        return replace(place, nodes=(*affinity, *volume.zones, *place.nodes))

    def _of_unbound_claim(self, key: Key, claim: Claim, sharers: int) -> Demands:
        words = f'persistentvolumeclaim "{key[1]}"'
        found = self.classes.get(claim.spec.storage_class)
        if claim.volume:
            return Demands(f'{words} is being bound to persistentvolume "{claim.volume}"')
        if found is None and claim.spec.storage_class:
            missing = f'storageclass "{claim.spec.storage_class}" not found'
            return Demands(f"{words} has no volume yet: {missing}")
        if found is None or found.volume_binding_mode != "WaitForFirstConsumer":
            return Demands(f"{words} is unbound, and is bound before its pods are placed")
        chosen = claim.selected_node
        kept = [
            v
            for v in self._of_storage_class(claim.spec.storage_class)
            if v.claim is not None and v.is_kept_for(key, claim.uid)
        ]
        asked = self._unbound(f"claim {key[1]}", claim.spec, sharers, kept)
        if not chosen:
            return asked
        here = Requirement("metadata.name", SelectorOperator.IN, (chosen,))
        demand = NodeDemand(
            f"volume of claim {key[1]}, which is being made for node {chosen}",
            (SelectorTerm(names=(here,)),),
        )
        return replace(asked, nodes=(*asked.nodes, demand))

    def _unbound(
        self, source: str, spec: ClaimSpec, sharers: int, kept: Sequence[Volume] = ()
    ) -> Demands:
        """Return what a claim asks that gets its volume when its pod is placed.

        ``kept`` are volumes that are kept for it.
        """
        found = self.classes.get(spec.storage_class)
        if found is None or found.volume_binding_mode != "WaitForFirstConsumer":
            # A claim that is made with its pod: until then nobody can bind it.
            return Demands(left=(f"{source}, which is bound once its pod exists",))
        if not spec.is_readable:
            return Demands(left=(f"{source}, whose selector cannot be read",))
        there = list(kept) or self._suitable(spec)[1]
        if any(not v.is_readable for v in there):
            return Demands(left=(f"{source}, whose volumes cannot be read",))
        if not self._is_made(found.metadata.name):
            return self._taken(source, spec, there, sharers, is_kept=bool(kept))
        if sharers > 1:
            return Demands(left=(f"{source}, which gets its volume with the first of its pods",))
        made = self._made_terms(spec, found)
        place = self._attach(source, found.provisioner)
        if made is None:
            return place
        # Where a volume is there already none has to be made. Two claims may find the same one.
        left = (f"{source}, for which a volume may be found or made",) if there else ()
        terms = tuple(term for v in there for term in _terms(v))
        demand = NodeDemand(f"{source}, of class {found.metadata.name}", (*terms, *made))
        return replace(place, nodes=(demand, *place.nodes), left=(*place.left, *left))

    def _taken(
        self,
        source: str,
        spec: ClaimSpec,
        there: Sequence[Volume],
        sharers: int,
        *,
        is_kept: bool,
    ) -> Demands:
        """Return what a claim asks that takes one of the volumes that are ``there``."""
        suitable, _ = self._suitable(spec)
        if not suitable and not there:
            return Demands(
                f"{source} finds no PersistentVolume of class {spec.storage_class!r} with its "
                "size, access modes and labels"
            )
        name = spec.storage_class
        demand = NodeDemand(
            f"{source}, which takes a volume of class {name}",
            _merged(term for v in (there if is_kept else suitable) for term in _terms(v)),
        )
        if sharers > 1:
            words = f"{source}, which gets its volume with the first of its pods"
            return Demands(nodes=(demand,), left=(words,))
        if is_kept:
            return Demands(nodes=(demand,))
        of_class = self._of_storage_class(name)
        if any(_place(v) is None for v in of_class):
            return Demands(
                nodes=(demand,), left=(f"{source}, whose volumes can be used on several nodes",)
            )
        if len(suitable) < len(of_class):
            return Demands(
                nodes=(demand,), left=(f"{source}, which fits only some volumes of its class",)
            )
        return Demands(nodes=(demand,), request=((LOCAL_VOLUMES + name, 1),))

    def _made_terms(
        self, spec: ClaimSpec, found: wire.V1StorageClass
    ) -> tuple[SelectorTerm, ...] | None:
        """Return the nodes for which a volume can be made; None for all nodes."""
        allowed: list[SelectorTerm] | None = None
        if found.allowed_topologies:
            allowed = [
                SelectorTerm(
                    tuple(
                        Requirement(each.key, SelectorOperator.IN, each.values)
                        for each in term.match_label_expressions or ()
                    )
                )
                for term in found.allowed_topologies
            ]
        driver = self.drivers.get(found.provisioner)
        if driver is None or not driver.storage_capacity or not spec.size_bytes:
            return None if allowed is None else tuple(allowed)
        enough = [
            SelectorTerm(requirements)
            for capacity in self._capacities.values()
            if capacity.storage_class_name == found.metadata.name
            if (requirements := _reach(capacity, spec.size_bytes)) is not None
        ]
        if allowed is None:
            return _merged(enough) or (_NONE,)
        pairs = [SelectorTerm((*a.labels, *b.labels)) for a in allowed if a.labels for b in enough]
        return tuple(pairs) or (_NONE,)

    def _attach(self, source: str, driver: str, handle: str = "") -> Demands:
        """Return what it takes to attach a volume of ``driver``.

        What ``handle`` names is one volume on a node, however many pods use it there. Without it
        the volume is yet to be made, for one pod.
        """
        if not driver:
            return Demands()
        nodes: tuple[NodeDemand, ...] = ()
        known = self.drivers.get(driver)
        if known is not None and known.prevent_pod_scheduling_if_missing:
            having = tuple(sorted(n for n, own in self._limits.items() if driver in own))
            there = Requirement("metadata.name", SelectorOperator.IN, having)
            nodes = (NodeDemand(f"{source} by driver {driver}", (SelectorTerm(names=(there,)),)),)
        if driver not in self._limited():
            return Demands(nodes=nodes)
        if handle:
            return Demands(nodes=nodes, volumes=((ATTACHABLE + driver, handle),))
        return Demands(nodes=nodes, request=((ATTACHABLE + driver, 1),))


def _place(volume: Volume | None) -> tuple[str, str] | None:
    """Return host and storage class of a volume that can be used on one node alone."""
    if volume is None or not volume.host or volume.is_leaving or volume.driver:
        return None
    return volume.host, volume.spec.storage_class


def _terms(volume: Volume) -> tuple[SelectorTerm, ...]:
    if volume.terms is not None:
        return volume.terms
    anywhere = Requirement("metadata.name", SelectorOperator.NOT_IN, ())
    return (SelectorTerm(names=(anywhere,)),)


def _merged(terms: Iterable[SelectorTerm]) -> tuple[SelectorTerm, ...]:
    """Return ``terms`` with those that ask one label for a value made one: fewer to look at."""
    values: dict[str, dict[str, None]] = {}
    others: dict[SelectorTerm, None] = {}
    for term in terms:
        first = term.labels[0] if len(term.labels) == 1 and not term.names else None
        if first is not None and first.operator is SelectorOperator.IN:
            values.setdefault(first.key, {}).update(dict.fromkeys(first.values))
        else:
            others[term] = None
    merged = (
        SelectorTerm((Requirement(key, SelectorOperator.IN, tuple(some)),))
        for key, some in values.items()
    )
    return (*merged, *others)


def _reach(capacity: wire.V1CsiStorageCapacity, size_bytes: int) -> tuple[Requirement, ...] | None:
    """Return which nodes a capacity is for; None where it is too small, or for none."""
    limit = capacity.maximum_volume_size
    limit = capacity.capacity if limit is None else limit
    if limit is None or capacity.node_topology is None:
        return None
    try:
        if parse_quantity("storage", limit, rounding="down") < size_bytes:
            return None
        found = volume_objects.label_requirements(capacity.node_topology)
    except (QuantityError, ValueError):
        return None
    # An empty label selector selects every node, a term without requirements none.
    return found or (Requirement(HOSTNAME_LABEL, SelectorOperator.NOT_IN, ()),)
