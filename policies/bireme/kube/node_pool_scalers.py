"""NodePoolScalers as they are watched: which nodes are whose, and what one more would be.

Of several that scale the same target the oldest does, ties by name; the others say so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.core.nodes import Node
from bireme.kube import nodes, wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec, NodeTemplate

_PASSING: Final = "node.kubernetes.io/"
"""Taints of a node's condition, which the next node will not have."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One NodePoolScaler; ``fault`` says why its spec cannot be read, and is empty if it can."""

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
        """The target whose replicas it writes, whatever the version; None where it writes none."""
        if self.spec is None or self.spec.mode != "Apply" or self.spec.scale_target_ref is None:
            return None
        target = self.spec.scale_target_ref
        group = target.api_version.rpartition("/")[0]
        return group, target.kind, target.namespace or "", target.name


def from_manifest(manifest: wire.CustomObject) -> PoolFacts:
    """The facts of a NodePoolScaler as it came off the wire."""
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
    """All of a cluster. ``on_change`` is called when one appears, changes its spec or goes."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.known: dict[str, PoolFacts] = {}
        self._on_change = on_change

    def put(self, key: Key, manifest: wire.CustomObject) -> None:
        """A NodePoolScaler appeared or changed; a new status alone changes nothing."""
        before, facts = self.known.get(key[1]), from_manifest(manifest)
        self.known[key[1]] = facts
        if before is None or (before.uid, before.generation) != (facts.uid, facts.generation):
            self._on_change()

    def delete(self, key: Key, manifest: wire.CustomObject) -> None:
        """A NodePoolScaler is gone."""
        if self.known.pop(key[1], None) is not None:
            self._on_change()

    def first_of_target(self, pool: PoolFacts) -> PoolFacts:
        """The one that scales the target of ``pool``: the oldest that is told to, or itself."""
        rivals = (other for other in self.known.values() if other.applies_to == pool.applies_to)
        return min(rivals, key=lambda other: (other.created, other.name), default=pool)


def template_of(pool: str, spec: NodePoolScalerSpec, newest: Node | None) -> Node | None:
    """What one more node of ``pool`` would be; ``newest`` is its newest node that is ready.

    Its name is no node's. None where nobody knows.
    """
    name = f"new-{pool}"
    if spec.node_template is not None:
        return _stated(name, spec.node_template, spec.node_selector.match_labels)
    if newest is None:
        return None
    taints = tuple(taint for taint in newest.taints if not taint.key.startswith(_PASSING))
    return replace(newest, name=name, taints=taints, is_cordoned=False)


def _stated(name: str, template: NodeTemplate, labels: Mapping[str, str]) -> Node:
    """The node of a template; read as one off the wire, so that units and roundings are its."""
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
