"""Fake GPU nodes: Node manifests that kwok plays kubelet for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from bireme_lab.embedded import fake_nodes as machines
from bireme_lab.embedded.fake_nodes import GPU
from testbed.controlplane.api import Api, Manifest
from testbed.controlplane.waiting import wait_until

KWOK_ANNOTATION: Final = "kwok.x-k8s.io/node"
# Beside a real node, pods land on fake ones only if they tolerate it.
FAKE_TAINT: Final = {"key": KWOK_ANNOTATION, "value": "fake", "effect": "NoSchedule"}

# As providers taint nodes with GPUs. The admission plugin ExtendedResourceToleration gives the
# toleration to pods that ask for GPUs, so that nothing else lands there.
GPU_TAINT: Final = {"key": GPU, "value": "present", "effect": "NoSchedule"}


def fake_nodes(
    count: int, gpus: int = 8, racks: int = 4, *, prefix: str = "gpu"
) -> list[dict[str, Any]]:
    """Return :func:`machines.fake_nodes` that kwok takes for its own."""
    nodes = machines.fake_nodes(count, gpus, racks, prefix=prefix)
    for node in nodes:
        node["metadata"]["annotations"] = {KWOK_ANNOTATION: "fake"}
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
