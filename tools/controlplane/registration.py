"""Brings fake nodes into a cluster, thousands at a time."""

from collections.abc import Sequence

from tools.controlplane.api import Api, Manifest
from tools.controlplane.nodes import FAKE_TAINT
from tools.controlplane.waiting import wait_until


def register(api: Api, nodes: Sequence[Manifest], timeout_seconds: float | None = None) -> None:
    """Creates the Nodes and returns when all are Ready and untainted.

    On two cores 1000 take about 10 s. By default the wait ends after 60 s + 50 ms per node.

    Raises:
        ControlPlaneError: a node was refused, or some were not usable in time.
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
    """Whether a node reports Ready and the controllers have taken their taints off it."""
    taints = [t for t in node["spec"].get("taints", []) if t["key"] != FAKE_TAINT["key"]]
    conditions = node["status"].get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not taints
