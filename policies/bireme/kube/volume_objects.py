"""Facts of claims and volumes, and the claims that pods name.

Only fields that kube-scheduler's volume plugins read are stored. A PersistentVolumeClaim is called
a claim here, a PersistentVolume a volume.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bireme.core.gangs import Key
from bireme.core.pod_constraints import NodeDemand, Requirement, SelectorOperator, SelectorTerm
from bireme.core.resources import NODE_ONLY
from bireme.kube import wire
from bireme.kube.pods import selector_terms
from bireme.kube.quantities import LARGEST, QuantityError, parse_quantity

LOCAL_VOLUMES: Final = f"{NODE_ONLY}local-volumes-"
"""Prefix of the resource of local volumes; a storage class follows."""
_ONCE_POD: Final = "ReadWriteOncePod"
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"
# In the order of kube-scheduler's VolumeZone: each label with its successor.
_TOPOLOGY: Final = {_OLD_ZONE: _ZONE, _OLD_REGION: _REGION, _ZONE: _ZONE, _REGION: _REGION}
_HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """Requirements of a claim on its volume. ``selector`` None selects every volume."""

    storage_class: str
    modes: tuple[str, ...]
    size_bytes: int
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    selector: tuple[Requirement, ...] | None = None
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """One PersistentVolumeClaim.

    Attributes:
        volume: The volume that it is or will be bound to; empty for none.
        is_bound: Both sides of the binding are written.
        selected_node: The node for which its volume is being provisioned; empty for none.
    """

    uid: str
    spec: ClaimSpec
    volume: str
    is_bound: bool
    selected_node: str
    is_lost: bool
    is_leaving: bool

    @property
    def is_for_one_pod(self) -> bool:
        """True if only one pod of the cluster at a time can use it."""
        return _ONCE_POD in self.spec.modes


@dataclass(frozen=True, slots=True)
class Volume:
    """One PersistentVolume.

    Attributes:
        claim: Namespace, name and uid (may be empty) of its claimRef.
        terms: Required node affinity; None without one.
        zones: Node demands of its zone labels.
        host: The host name of its only node; empty without such a node.
        driver: Its CSI driver; empty for none.
        is_translated: kube-scheduler may treat this in-tree volume as one of a CSI driver.
    """

    name: str
    spec: ClaimSpec
    labels: tuple[tuple[str, str], ...]
    claim: tuple[str, str, str] | None
    is_available: bool
    is_leaving: bool
    terms: tuple[SelectorTerm, ...] | None
    zones: tuple[NodeDemand, ...]
    host: str
    driver: str
    handle: str
    is_translated: bool
    is_readable: bool

    def is_kept_for(self, key: Key, uid: str) -> bool:
        """Return whether the claimRef of the volume names the claim ``key`` with ``uid``."""
        return self.claim is not None and self.claim[:2] == key and self.claim[2] in ("", uid)

    def suits(self, claim_spec: ClaimSpec) -> bool:
        """Return whether the volume meets the requirements of a claim, bound or not."""
        spec = self.spec
        if self.is_leaving or spec.size_bytes < claim_spec.size_bytes:
            return False
        kinds = spec.storage_class, spec.volume_mode, spec.attributes_class
        if kinds != (claim_spec.storage_class, claim_spec.volume_mode, claim_spec.attributes_class):
            return False
        labels = dict(self.labels)
        is_selected = all(
            _selects(requirement, labels) for requirement in claim_spec.selector or ()
        )
        return is_selected and set(claim_spec.modes) <= set(spec.modes)


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of volumes and devices that one pod names, or pods of one template.

    Attributes:
        claims: Names of claims.
        ephemeral: Names of the ephemeral claims among them.
        templates: Volume name and spec of ephemeral claims of pods that do not exist yet.
        own_disk: A disk that the pod names without a claim; empty for none.
        devices: Device claims.
    """

    claims: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    templates: tuple[tuple[str, ClaimSpec], ...] = ()
    own_disk: str = ""
    devices: tuple[wire.V1PodResourceClaim, ...] = ()

    @property
    def has_volumes(self) -> bool:
        """True if the pod uses claims or disks."""
        return bool(self.claims or self.templates or self.own_disk)


NO_CLAIMS: Final = PodClaims()
_OWN_DISKS: Final = (
    "gce_persistent_disk",
    "aws_elastic_block_store",
    "azure_disk",
    "cinder",
    "portworx_volume",
    "iscsi",
    "rbd",
)
_TRANSLATED: Final = _OWN_DISKS[:5]


def of_pod(spec: wire.V1PodSpec, pod: str = "") -> PodClaims:
    """Return the claims of a pod, or of a template without the name of a ``pod``."""
    claims, ephemeral, templates = [], [], []
    own_disk = ""
    for volume in spec.volumes or ():
        if (source := volume.persistent_volume_claim) is not None:
            claims.append(source.claim_name)
        elif (ephemeral_source := volume.ephemeral) is not None:
            if pod:
                ephemeral.append(f"{pod}-{volume.name}")
            else:
                templates.append(
                    (volume.name, claim_spec(ephemeral_source.volume_claim_template.spec))
                )
        elif any(getattr(volume, kind) is not None for kind in _OWN_DISKS):
            own_disk = own_disk or volume.name
    if not (claims or ephemeral or templates or own_disk or spec.resource_claims):
        return NO_CLAIMS
    names = tuple(dict.fromkeys((*claims, *ephemeral)))
    devices = spec.resource_claims or ()
    return PodClaims(names, tuple(ephemeral), tuple(templates), own_disk, devices)


def claim_spec(spec: wire.V1PersistentVolumeClaimSpec, old_class: str | None = None) -> ClaimSpec:
    """Return the requirements of a claim. Never raises."""
    requests = spec.resources.requests if spec.resources is not None else None
    selector, is_readable = None, True
    if spec.selector is not None:
        try:
            selector = label_requirements(spec.selector)
        except ValueError:
            is_readable = False
    return ClaimSpec(
        storage_class=old_class or spec.storage_class_name or "",
        modes=tuple(sorted(spec.access_modes or ())),
        size_bytes=_bytes((requests or {}).get("storage", 0)),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        selector=selector,
        is_readable=is_readable,
    )


def claim(manifest: wire.V1PersistentVolumeClaim) -> Claim:
    """Return the facts of a PersistentVolumeClaim. Never raises."""
    meta, spec = manifest.metadata, manifest.spec
    notes = meta.annotations or wire.ClaimAnnotations()
    return Claim(
        uid=meta.uid,
        spec=claim_spec(spec, notes.storage_class),
        volume=spec.volume_name or "",
        is_bound=bool(spec.volume_name) and notes.bind_completed is not None,
        selected_node=notes.selected_node or "",
        is_lost=manifest.status.phase == "Lost",
        is_leaving=meta.deletion_timestamp is not None,
    )


def volume(manifest: wire.V1PersistentVolume) -> Volume:
    """Return the facts of a PersistentVolume. Never raises."""
    meta, spec = manifest.metadata, manifest.spec
    notes = meta.annotations or wire.ClaimAnnotations()
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    terms, is_readable = None, True
    try:
        terms = selector_terms(required)
    except ValueError:
        is_readable = False
    claim_ref = spec.claim_ref
    return Volume(
        name=meta.name,
        spec=ClaimSpec(
            storage_class=notes.storage_class or spec.storage_class_name or "",
            modes=tuple(sorted(spec.access_modes or ())),
            size_bytes=_bytes((spec.capacity or {}).get("storage", 0)),
            volume_mode=spec.volume_mode or "Filesystem",
            attributes_class=spec.volume_attributes_class_name or "",
        ),
        labels=tuple(sorted((meta.labels or {}).items())),
        claim=(claim_ref.namespace, claim_ref.name, claim_ref.uid)
        if claim_ref is not None
        else None,
        is_available=manifest.status.phase == "Available",
        is_leaving=meta.deletion_timestamp is not None,
        terms=terms,
        zones=tuple(_zone_demands(meta.name, meta.labels or {})),
        host=_host(terms),
        driver=spec.csi.driver if spec.csi is not None else "",
        handle=spec.csi.volume_handle if spec.csi is not None else "",
        is_translated=any(getattr(spec, kind) is not None for kind in _TRANSLATED),
        is_readable=is_readable,
    )


def label_requirements(selector: wire.V1LabelSelector) -> tuple[Requirement, ...]:
    """Return a label selector as requirements, all of which must hold.

    Raises:
        ValueError: an operator is unknown.
    """
    plain = sorted((selector.match_labels or {}).items())
    more = selector.match_expressions or ()
    return (
        *(Requirement(key, SelectorOperator.IN, (value,)) for key, value in plain),
        *(Requirement(e.key, SelectorOperator(e.operator), tuple(e.values or ())) for e in more),
    )


def _bytes(quantity: str | float) -> int:
    try:
        return parse_quantity("storage", quantity)
    except QuantityError:
        return LARGEST


def _selects(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value is not None and value in requirement.values
        case SelectorOperator.NOT_IN:
            return value is None or value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case _:  # a label selector has no other operators
            return value is None


def _host(terms: tuple[SelectorTerm, ...] | None) -> str:
    """Return the host name of the only node that ``terms`` match; empty without such a node."""
    if terms is None or len(terms) != 1:
        return ""
    for requirement in terms[0].labels:
        is_one = requirement.operator is SelectorOperator.IN and len(requirement.values) == 1
        if requirement.key == _HOSTNAME and is_one:
            return requirement.values[0]
    return ""


def _zone_demands(name: str, labels: dict[str, str]) -> Iterable[NodeDemand]:
    """Yield the node demands of kube-scheduler's VolumeZone for the labels of a volume."""
    # VolumeZone accepts nodes without any zone label: a cluster of one zone.
    absent = SelectorOperator.DOES_NOT_EXIST
    unzoned = SelectorTerm(tuple(Requirement(key, absent) for key in _TOPOLOGY))
    for key, current_key in _TOPOLOGY.items():
        values = [part.strip() for part in labels.get(key, "").split("__")]
        if key not in labels or not all(values):
            continue
        inside = SelectorOperator.IN
        terms = [unzoned, SelectorTerm((Requirement(key, inside, tuple(values)),))]
        if current_key != key:
            renamed = Requirement(current_key, inside, tuple(values))
            terms.append(SelectorTerm((Requirement(key, absent), renamed)))
        yield NodeDemand(
            f"volume {name} in {key.rpartition('/')[2]} {' or '.join(values)}", tuple(terms)
        )
