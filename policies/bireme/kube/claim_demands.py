"""Demands of claims: the nodes on which the PersistentVolumeClaims of a gang allow its pods.

The rules are those of kube-scheduler's plug-ins VolumeBinding, VolumeZone, VolumeRestrictions and
NodeVolumeLimits (1.37). A rule becomes one of five things:

* a fault, in kube-scheduler's own words: a claim that does not exist or is lost;
* a demand on the node: the node affinity and zone labels of a bound volume, or the nodes on which
  a volume for an unbound claim exists or can be provisioned;
* an amount of a resource of nodes: slots for volumes of a CSI driver, local volumes;
* a demand on other pods: no other pod uses the same claim (ReadWriteOncePod);
* the reason why a claim is not planned, so that kube-scheduler chooses the nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bireme.core.gangs import Key, Task
from bireme.core.nodes import HOSTNAME_LABEL
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
    Claim,
    ClaimSpec,
    PodClaims,
    Volume,
)
from bireme.kube.volumes import Volumes, local_place

_NONE: Final = SelectorTerm()
"""A term without any requirement, which matches no node."""
Fault = tuple[Reason, str]


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
class ClaimDemands:
    """Resolves the claims of gangs to demands on nodes and on other pods."""

    volumes: Volumes

    def fold(self, gang: Key, tasks: Sequence[tuple[Task, PodClaims]]) -> ResolvedClaims:
        """Return the tasks with the demands of their claims added to their own."""
        plain = tuple(task for task, _ in tasks)
        if not any(used.has_volumes for _, used in tasks):
            return ResolvedClaims(plain)
        self.volumes.want()
        if not self.volumes.is_known:
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
            key for key in keys if (claim := self.volumes.claims.get(key)) and claim.is_for_one_pod
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
        claim, source = self.volumes.claims.get(key), f'persistentvolumeclaim "{name}"'
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
            strangers = (
                user for user in self.volumes.users(key) if not self.volumes.is_of_gang(user)
            )
            if stranger := min(strangers, default=None):
                return Demands(
                    f"{source} has access mode ReadWriteOncePod and pod {stranger[1]} uses it"
                )
        if not claim.is_bound:
            return self._of_unbound_claim(key, claim, sharers)
        volume = self.volumes.volumes.get(claim.volume)
        if volume is None:
            return Demands(f'{source} is bound to persistentvolume "{claim.volume}", not found')
        return self._of_bound(key, volume)

    def _of_bound(self, key: Key, volume: Volume) -> Demands:
        if volume.is_translated or not volume.is_readable:
            return Demands(reasons=(f"volume {volume.name} of claim {key[1]}",))
        source = f"volume {volume.name} of claim {key[1]}"
        affinity = () if volume.terms is None else (NodeDemand(source, volume.terms),)
        attachment = self._attachment(f"claim {key[1]}", *self.volumes.handle(key))
        return replace(attachment, nodes=(*affinity, *volume.zones, *attachment.nodes))

    def _of_unbound_claim(self, key: Key, claim: Claim, sharers: int) -> Demands:
        source = f'persistentvolumeclaim "{key[1]}"'
        storage_class = self.volumes.classes.get(claim.spec.storage_class)
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
            for v in self.volumes.of_storage_class(claim.spec.storage_class)
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
        storage_class = self.volumes.classes.get(spec.storage_class)
        if storage_class is None or storage_class.volume_binding_mode != "WaitForFirstConsumer":
            # The claim is created with its pod and cannot be bound earlier.
            return Demands(reasons=(f"{source}, which is bound when its pod exists",))
        if not spec.is_readable:
            return Demands(reasons=(f"{source}, whose selector cannot be read",))
        candidates = list(reserved) or self.volumes.suitable(spec)[1]
        if any(not v.is_readable for v in candidates):
            return Demands(reasons=(f"{source}, whose volumes cannot be read",))
        if not self.volumes.is_provisioned(storage_class.metadata.name):
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
        suitable, _ = self.volumes.suitable(spec)
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
        of_class = self.volumes.of_storage_class(name)
        if any(local_place(v) is None for v in of_class):
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
        driver = self.volumes.drivers.get(storage_class.provisioner)
        if driver is None or not driver.storage_capacity or not spec.size_bytes:
            return None if topology_terms is None else tuple(topology_terms)
        capacity_terms = [
            SelectorTerm(requirements)
            for capacity in self.volumes.capacities.values()
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
        driver_spec = self.volumes.drivers.get(driver)
        if driver_spec is not None and driver_spec.prevent_pod_scheduling_if_missing:
            nodes_with_driver = tuple(
                sorted(n for n, limits in self.volumes.limits.items() if driver in limits)
            )
            requirement = Requirement("metadata.name", SelectorOperator.IN, nodes_with_driver)
            nodes = (
                NodeDemand(f"{source} by driver {driver}", (SelectorTerm(names=(requirement,)),)),
            )
        if driver not in self.volumes.drivers_with_limit():
            return Demands(nodes=nodes)
        if handle:
            return Demands(nodes=nodes, volumes=((ATTACHABLE + driver, handle),))
        return Demands(nodes=nodes, request=((ATTACHABLE + driver, 1),))


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
