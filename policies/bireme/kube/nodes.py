"""Convert Node objects to :class:`bireme.core.nodes.Node`."""

from bireme.core.nodes import MaintenanceWindow, Node
from bireme.core.pod_constraints import Taint
from bireme.kube import node_features, quantities, wire


def from_manifest(node: wire.V1Node) -> Node:
    """Return the node as the core uses it."""
    allocatable: dict[str, int] = {}
    for name, value in (node.status.allocatable or {}).items():
        try:
            allocatable[name] = quantities.parse_quantity(name, value, rounding="down")
        except quantities.QuantityError:
            allocatable[name] = 0  # the node does not offer it
    taints = [Taint(t.key, t.value or "", t.effect) for t in node.spec.taints or ()]
    labels = node.metadata.labels or {}
    features = node_features.labels(node.status.declared_features)
    return Node(
        name=node.metadata.name,
        allocatable=allocatable,
        labels={**labels, **features} if features else labels,
        taints=tuple(t for t in taints if t.effect in ("NoSchedule", "NoExecute")),
        soft_taints=tuple(t for t in taints if t.effect == "PreferNoSchedule"),
        is_ready=_is_ready(node),
        is_cordoned=bool(node.spec.unschedulable),
        is_leaving=node.metadata.deletion_timestamp is not None,
        maintenance=window_of(node.metadata.annotations),
    )


def window_of(annotations: wire.NodeAnnotations | None) -> MaintenanceWindow | None:
    """Return the maintenance window of a node's annotation; None without a valid one.

    The API server accepts any text: an unreadable one is ignored.
    """
    text = (annotations.maintenance if annotations is not None else None) or ""
    begins, ends = (quantities.parse_timestamp(part) for part in text.partition("/")[::2])
    if begins is None or ends is None or ends <= begins:
        return None
    return MaintenanceWindow(begins, ends)


def _is_ready(node: wire.V1Node) -> bool:
    """Return whether the kubelet reports Ready; the deletion of the node alone does not matter."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
