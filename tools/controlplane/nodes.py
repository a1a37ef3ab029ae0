"""Fake GPU nodes: Node manifests that kwok plays kubelet for.

Nodes fill racks in order, racks fill blocks, blocks fill zones.
"""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from tools.controlplane.api import Api, Manifest
from tools.controlplane.waiting import wait_until

KWOK_ANNOTATION: Final = "kwok.x-k8s.io/node"
FAKE_TAINT: Final = {"key": KWOK_ANNOTATION, "value": "fake", "effect": "NoSchedule"}
"""Carried by fake nodes beside a real one: pods land on them only if they tolerate it."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
BLOCK: Final = "topology.bireme.dev/block"
RACK: Final = "topology.bireme.dev/rack"
GPU: Final = "nvidia.com/gpu"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
EPHEMERAL_STORAGE: Final = "2Ti"


def fake_nodes(
    count: int,
    gpus: int = 8,
    racks: int = 4,
    blocks: int = 1,
    zones: int = 1,
    *,
    cpu: str = "96",
    memory: str = "1Ti",
    pods: str = "110",
    product: str = "NVIDIA-H100-80GB-HBM3",
    prefix: str = "gpu",
) -> list[dict[str, Any]]:
    """Return ``count`` nodes ``<prefix>-00``, ``<prefix>-01``, ... with ``gpus`` GPUs each.

    ``cpu``, ``memory`` and ``pods`` are Kubernetes quantities. With ``gpus=0`` the nodes carry
    neither the GPU resource nor the product label.

    Raises:
        ValueError: not zones <= blocks <= racks <= count, or a number below its minimum.
    """
    if not 1 <= zones <= blocks <= racks <= count:
        raise ValueError(
            f"count={count}, racks={racks}, blocks={blocks}, zones={zones}: "
            "need 1 <= zones <= blocks <= racks <= count, so that no domain is empty"
        )
    if gpus < 0:
        raise ValueError(f"gpus={gpus}: give 0 or more GPUs per node")
    capacity = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": EPHEMERAL_STORAGE}
    kind = {}
    if gpus:
        capacity[GPU] = str(gpus)
        kind[GPU_PRODUCT] = product
    width = max(2, len(str(count - 1)))
    places = [_place(index, count, racks, blocks, zones) for index in range(count)]
    return [
        _node(f"{prefix}-{index:0{width}d}", place | kind, capacity)
        for index, place in enumerate(places)
    ]


def repelling(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "spec": {**node.get("spec", {}), "taints": [FAKE_TAINT]}}


def nodes_manifest() -> str:
    """Return the demo's machines, 16 nodes of 8 GPUs in 4 racks, as a manifest file."""
    heading = (
        "# 16 fake nodes of 8 GPUs in 4 racks. Generated, do not edit:\n"
        "#   python -m tools.controlplane nodes > manifests/kwok/nodes.yaml\n"
    )
    return heading + yaml.safe_dump_all(fake_nodes(16), sort_keys=False)


def _place(index: int, count: int, racks: int, blocks: int, zones: int) -> dict[str, str]:
    """Return topology labels of node ``index``: equal shares, in order, at every level."""
    rack = index * racks // count
    block = rack * blocks // racks
    zone = block * zones // blocks
    return {ZONE: f"zone-{zone}", BLOCK: f"block-{block}", RACK: f"rack-{rack}"}


def _node(name: str, labels: dict[str, str], capacity: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME_LABEL: name, **labels},
            "annotations": {KWOK_ANNOTATION: "fake"},
        },
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }


# --- registration of fake nodes, thousands at a time --------------------------------------------


def register(api: Api, nodes: Sequence[Manifest], timeout_seconds: float | None = None) -> None:
    """Create the Nodes and return when all are Ready and untainted.

    On two cores 1000 take about 10 s. By default the wait ends after 60 s + 50 ms per node.
    """
    api.post_all("/api/v1/nodes", nodes)
    missing = {node["metadata"]["name"] for node in nodes}

    def all_usable() -> bool:
        listed = api.get("/api/v1/nodes?resourceVersion=0")["items"]
        missing.difference_update(node["metadata"]["name"] for node in listed if is_usable(node))
        return not missing

    wait_until(
        all_usable,
        60 + 0.05 * len(nodes) if timeout_seconds is None else timeout_seconds,
        f"{len(nodes)} nodes",
        lambda: f"{len(missing)} are not ready, such as {sorted(missing)[:3]}",
        poll_seconds=max(0.1, len(nodes) / 2000),  # every look costs in proportion
    )


def is_usable(node: Manifest) -> bool:
    """Return whether a node is Ready and the controllers have taken their taints off it."""
    taints = [t for t in node["spec"].get("taints", []) if t["key"] != FAKE_TAINT["key"]]
    conditions = node["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not taints
