"""Fake GPU nodes: Node manifests for whatever plays kubelet."""

from typing import Final

from bireme_lab.embedded.api.errors import Object

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
BLOCK: Final = "topology.bireme.dev/block"
RACK: Final = "topology.bireme.dev/rack"
GPU: Final = "nvidia.com/gpu"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
MACHINE: Final = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "2Ti"}
"""Capacity beside GPUs, that of a usual machine with eight of them."""


def fake_nodes(count: int, gpus: int = 8, racks: int = 4, *, prefix: str = "gpu") -> list[Object]:
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
    nodes: list[Object] = []
    for index in range(count):
        name = f"{prefix}-{index:0{width}d}"
        domains = {ZONE: "zone-0", BLOCK: "block-0", RACK: f"rack-{index * racks // count}"}
        metadata = {"name": name, "labels": {HOSTNAME_LABEL: name, **domains, **product}}
        status = {"capacity": dict(capacity), "allocatable": dict(capacity)}
        nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    return nodes
