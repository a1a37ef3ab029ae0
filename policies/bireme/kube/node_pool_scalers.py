"""Watch cache of NodePoolScalers, and the node that a pool would get next.

If several scale the same target, the oldest does, ties by name; the others report the conflict.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.core.nodes import Node
from bireme.kube import nodes, wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec, NodeTemplate

_CONDITION_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of taints that follow from a node's condition, which a new node will not have."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One NodePoolScaler; ``fault`` says why its spec is unreadable, empty if it is readable."""

    name: str
    uid: str
    generation: int
    resource_version: str
    created: str
    spec: NodePoolScalerSpec | None
    fault: str
    status: dict[str, Any]

    @property
    def applies_to(self) -> tuple[str, ...] | None:
        """The target whose replicas it writes, without version; None if it writes none."""
        if self.spec is None or self.spec.mode != "Apply" or self.spec.scale_target_ref is None:
            return None
        target = self.spec.scale_target_ref
        group = target.api_version.rpartition("/")[0]
        return group, target.kind, target.namespace or "", target.name


def from_manifest(manifest: wire.CustomObject) -> PoolFacts:
    """Return the facts of a NodePoolScaler."""
    meta = manifest.metadata
    spec, fault = NodePoolScalerSpec.read(manifest.spec)
    return PoolFacts(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.creation_timestamp or "",
        spec=spec,
        fault=fault,
        status=manifest.status,
    )


class NodePoolScalers:
    """NodePoolScalers by name; ``on_change`` is called when one appears, is edited or deleted."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.known: dict[str, PoolFacts] = {}
        self._on_change = on_change

    def put(self, key: Key, manifest: wire.CustomObject) -> None:
        before, facts = self.known.get(key[1]), from_manifest(manifest)
        self.known[key[1]] = facts
        # A new status is no change.
        if before is None or (before.uid, before.generation) != (facts.uid, facts.generation):
            self._on_change()

    def delete(self, key: Key, manifest: wire.CustomObject) -> None:
        if self.known.pop(key[1], None) is not None:
            self._on_change()

    def first_of_target(self, pool: PoolFacts) -> PoolFacts:
        """Return the oldest scaler of the target of ``pool``, or ``pool`` itself."""
        rivals = (other for other in self.known.values() if other.applies_to == pool.applies_to)
        return min(rivals, key=lambda other: (other.created, other.name), default=pool)


def template_of(pool: str, spec: NodePoolScalerSpec, newest: Node | None) -> Node | None:
    """Return what the next node of ``pool`` will be, or None if that is unknown.

    ``newest`` is the pool's newest ready node. The result has a name that no node has.
    """
    name = f"new-{pool}"
    if spec.node_template is not None:
        return _stated(name, spec.node_template, spec.node_selector.match_labels)
    if newest is None:
        return None
    taints = tuple(taint for taint in newest.taints if not taint.key.startswith(_CONDITION_TAINTS))
    return replace(newest, name=name, taints=taints, is_cordoned=False)


def _stated(name: str, template: NodeTemplate, labels: Mapping[str, str]) -> Node:
    """Return the node of a template, read like one off the wire for equal units and rounding."""
    taints = (wire.V1Taint(t.key, t.value or None, t.effect) for t in template.taints)
    return nodes.from_manifest(
        wire.V1Node(
            metadata=wire.V1ObjectMeta(name=name, labels={**template.labels, **labels}),
            spec=wire.V1NodeSpec(taints=tuple(taints)),
            status=wire.V1NodeStatus(
                allocatable=dict(template.allocatable),
                conditions=(wire.V1Condition(type="Ready", status="True"),),
            ),
        )
    )
