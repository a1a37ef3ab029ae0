"""Fake GPU nodes: Node manifests that kwok plays kubelet for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from testbed.controlplane.api import Api, Manifest
from testbed.controlplane.waiting import wait_until

KWOK_ANNOTATION: Final = "kwok.x-k8s.io/node"
# Beside a real node, pods land on fake ones only if they tolerate it.
FAKE_TAINT: Final = {"key": KWOK_ANNOTATION, "value": "fake", "effect": "NoSchedule"}

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
BLOCK: Final = "topology.bireme.dev/block"
RACK: Final = "topology.bireme.dev/rack"
GPU: Final = "nvidia.com/gpu"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
# As providers taint nodes with GPUs. The admission plugin ExtendedResourceToleration gives the
# toleration to pods that ask for GPUs, so that nothing else lands there.
GPU_TAINT: Final = {"key": GPU, "value": "present", "effect": "NoSchedule"}
# Capacity beside GPUs, that of a usual machine with eight of them.
MACHINE: Final = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "2Ti"}


def fake_nodes(
    count: int, gpus: int = 8, racks: int = 4, *, prefix: str = "gpu"
) -> list[dict[str, Any]]:
    """Return ``count`` nodes ``<prefix>-00``, ``<prefix>-01``, ... with ``gpus`` GPUs each.

    They fill the racks in order, in equal shares. With ``gpus=0`` they carry neither the GPU
    resource nor the product label.

    Raises:
        ValueError: not 1 <= racks <= count, or negative GPUs.
    """
    if not 1 <= racks <= count:
        raise ValueError(
            f"count={count}, racks={racks}: need 1 <= racks <= count, so that no rack is empty"
        )
    if gpus < 0:
        raise ValueError(f"gpus={gpus}: give 0 or more GPUs per node")
    capacity = {**MACHINE, GPU: str(gpus)} if gpus else MACHINE
    product = {GPU_PRODUCT: "NVIDIA-H100-80GB-HBM3"} if gpus else {}
    width = max(2, len(str(count - 1)))  # so that names sort as numbers do
    nodes = []
    for index in range(count):
        name = f"{prefix}-{index:0{width}d}"
        place = {ZONE: "zone-0", BLOCK: "block-0", RACK: f"rack-{index * racks // count}"}
        metadata = {
            "name": name,
            "labels": {HOSTNAME_LABEL: name, **place, **product},
            "annotations": {KWOK_ANNOTATION: "fake"},
        }
        status = {"capacity": dict(capacity), "allocatable": dict(capacity)}
        nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    return nodes


def repelling(node: dict[str, Any], taint: Mapping[str, str] = FAKE_TAINT) -> dict[str, Any]:
    return {**node, "spec": {**node.get("spec", {}), "taints": [dict(taint)]}}


def nodes_manifest() -> str:
    """Return the demo's machines, 16 nodes of 8 GPUs in 4 racks, as a manifest file.

    For clusters with real nodes: pods that ask for no GPU stay there.
    """
    return (
        "# 16 fake nodes of 8 GPUs in 4 racks, with a taint. Generated, do not edit:\n"
        "#   python -m testbed.controlplane nodes > manifests/kwok/nodes.yaml\n"
    ) + yaml.safe_dump_all([repelling(node, GPU_TAINT) for node in fake_nodes(16)], sort_keys=False)


# --- registration of fake nodes, thousands at a time --------------------------------------------


def register(api: Api, nodes: Sequence[Manifest]) -> None:
    """Create the Nodes and return when all are Ready and untainted."""
    api.post_all("/api/v1/nodes", nodes)
    missing = {node["metadata"]["name"] for node in nodes}

    def all_usable() -> bool:
        listed = api.get("/api/v1/nodes?resourceVersion=0")["items"]
        missing.difference_update(node["metadata"]["name"] for node in listed if is_usable(node))
        return not missing

    wait_until(
        all_usable,
        60 + 0.05 * len(nodes),  # on two cores 1000 take about 10 s
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
