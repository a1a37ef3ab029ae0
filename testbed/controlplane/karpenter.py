"""Karpenter on a local cluster: node pools that make and remove real Node objects.

Its kwok provider creates a Node for every NodeClaim; the cluster's own kwok then plays its kubelet.
Its health and metrics ports are open on every address of the machine: it has no option for that.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bireme_lab.embedded.fake_nodes import ZONE
from testbed.controlplane.api import Manifest
from testbed.controlplane.binaries import KARPENTER, build
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.process import Process, free_ports

INSTANCE_TYPE: Final = "gpu-8"
NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
_NODE_CLASS_GROUP: Final = "karpenter.kwok.sh"
_CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"


@contextmanager
def karpenter(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Run Karpenter against ``cluster``, its CRDs installed; ``folder`` takes its log.

    It ends with the block; its node pools and nodes stay as they are.
    """
    built = build(KARPENTER)
    cluster.install(built / "manifests")
    folder.mkdir(parents=True, exist_ok=True)
    machines = folder / "instance-types.json"
    machines.write_text(instance_types())
    metrics_port, health_port = free_ports(2)
    with Process(
        "karpenter",
        [str(built / "karpenter")],
        log_path=folder / "karpenter.log",
        ready_url=f"http://127.0.0.1:{health_port}/readyz",
        env={
            "KUBECONFIG": str(cluster.kubeconfig),
            "INSTANCE_TYPES_FILE_PATH": str(machines),
            "FEATURE_GATES": "StaticCapacity=true",  # NodePools with ``replicas``
            "DISABLE_LEADER_ELECTION": "true",  # it would wait for the lease of one that was killed
            "SYSTEM_NAMESPACE": "kube-system",
            "METRICS_PORT": str(metrics_port),
            "HEALTH_PROBE_PORT": str(health_port),
        },
    ) as process:
        yield process.start().wait_ready(60)


def static_pool(name: str, replicas: int = 0, *, delay: str = "0s") -> list[Manifest]:
    """Return a NodePool of ``replicas`` nodes with its node class.

    A new node registers after ``delay``, a Go duration.
    """
    node_class = {
        "apiVersion": f"{_NODE_CLASS_GROUP}/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {"nodeRegistrationDelay": delay},
    }
    requirements = [_is("node.kubernetes.io/instance-type", INSTANCE_TYPE)]
    spec = {
        "expireAfter": "Never",
        "requirements": requirements,  # a static pool needs the instance type in so many words
        "nodeClassRef": {"group": _NODE_CLASS_GROUP, "kind": "KWOKNodeClass", "name": name},
    }
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }
    return [node_class, pool]


def dynamic_pool(name: str) -> list[Manifest]:
    """Return a NodePool that Karpenter grows for pods, and consolidates once it may (patch it)."""
    node_class, pool = static_pool(name)
    del pool["spec"]["replicas"]
    budgets = [{"nodes": "100%"}]
    pool["spec"]["disruption"] = {"consolidateAfter": "Never", "budgets": budgets}
    return [node_class, pool]


def instance_types() -> str:
    """Return the file by which the kwok provider knows its machines."""
    (machine,) = fake_nodes(1, racks=1)
    place = [_is(_CAPACITY_TYPE, "on-demand"), _is(ZONE, machine["metadata"]["labels"][ZONE])]
    offering = {"Price": 1.0, "Available": True, "Requirements": place}
    described = {
        "name": INSTANCE_TYPE,
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": machine["status"]["allocatable"],
    }
    return json.dumps([described])


def _is(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
