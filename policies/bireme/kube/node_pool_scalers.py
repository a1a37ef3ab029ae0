"""Watch cache of NodePoolScalers, and the node that a pool would get next.

If several have the same target, only the oldest scales it, ties by name; the others report the
conflict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bireme.core.nodes import Node
from bireme.kube import nodes, wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec, NodeTemplate
from bireme.kube.cluster_objects import ClusterFacts, ClusterObjects

# Prefix of taints for a node's condition: a new node will not have them.
_CONDITION_TAINTS: Final = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class PoolFacts(ClusterFacts[NodePoolScalerSpec]):
    """One NodePoolScaler."""

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
    return PoolFacts.read(manifest, NodePoolScalerSpec)


class NodePoolScalers(ClusterObjects[PoolFacts]):
    """NodePoolScalers by name."""

    read = staticmethod(from_manifest)

    def first_of_target(self, pool: PoolFacts) -> PoolFacts:
        """Return the oldest scaler of the target of ``pool``, or ``pool`` itself."""
        rivals = (other for other in self.known.values() if other.applies_to == pool.applies_to)
        return min(rivals, key=lambda other: other.age, default=pool)


def template_of(pool: str, spec: NodePoolScalerSpec, newest: Node | None) -> Node | None:
    """Return the expected next node of ``pool``, or None if that is unknown.

    ``newest`` is the pool's newest ready node. The result has a unique name.
    """
    name = f"new-{pool}"
    if spec.node_template is not None:
        return _node_of_template(name, spec.node_template, spec.node_selector.match_labels)
    if newest is None:
        return None
    # Taints such as not-ready and unreachable are specific to the newest node.
    taints = tuple(taint for taint in newest.taints if not taint.key.startswith(_CONDITION_TAINTS))
    return replace(newest, name=name, taints=taints, is_cordoned=False, is_leaving=False)


def _node_of_template(name: str, template: NodeTemplate, labels: Mapping[str, str]) -> Node:
    """Return the node of a template, with the units and rounding of a real node."""
    taints = (wire.V1Taint(t.key, t.value or None, t.effect) for t in template.taints)
    return nodes.from_manifest(
        wire.V1Node(
            metadata=wire.NodeMeta(name=name, labels={**template.labels, **labels}),
            spec=wire.V1NodeSpec(taints=tuple(taints)),
            status=wire.V1NodeStatus(
                allocatable=dict(template.allocatable),
                conditions=(wire.V1Condition(type="Ready", status="True"),),
            ),
        )
    )
