"""Convert Node objects to :class:`bireme.core.nodes.Node`, and back for parity tests."""

from typing import Any

from bireme.core.gangs import Taint
from bireme.core.nodes import CORDON, Node
from bireme.kube import quantities, wire

_REPELS = ("NoSchedule", "NoExecute")


def from_manifest(node: wire.V1Node) -> Node:
    """Return the node as the core uses it.

    An unreadable quantity counts as zero, so that the node does not offer it. Only taints that keep
    pods away are read.
    """
    allocatable: dict[str, int] = {}
    for name, value in (node.status.allocatable or {}).items():
        try:
            allocatable[name] = quantities.parse_quantity(name, value, rounding="down")
        except quantities.QuantityError:
            allocatable[name] = 0
    taints = tuple(
        Taint(taint.key, taint.value or "", taint.effect)
        for taint in node.spec.taints or ()
        if taint.effect in _REPELS
    )
    return Node(
        name=node.metadata.name,
        allocatable=allocatable,
        labels=node.metadata.labels or {},
        taints=taints,
        is_ready=is_ready(node),
        is_cordoned=bool(node.spec.unschedulable),
    )


def is_ready(node: wire.V1Node) -> bool:
    """Return whether the node has the condition Ready and is not being deleted."""
    if node.metadata.deletion_timestamp is not None:
        return False
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())


def to_manifest(node: Node) -> dict[str, Any]:
    """Return a Node object that :func:`from_manifest` reads back as ``node``."""
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in node.taints
        if taint != CORDON
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": taints} | ({"unschedulable": True} if node.is_cordoned else {}),
        "status": {
            "allocatable": {
                name: quantities.format_quantity(name, amount)
                for name, amount in node.allocatable.items()
            },
            "conditions": [{"type": "Ready", "status": "True" if node.is_ready else "False"}],
        },
    }
