"""Knowledge of the scheduler: nodes, the pods on them, and what is assumed there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from bireme.kube.quantities import parse_quantity
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.builtin.pod_amounts import requests_of_pod
from bireme_lab.embedded.objects import is_ended

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # of a port, where none is stated
Amounts = dict[str, int]
Port = tuple[str, str, int]
"""Protocol, host address and number."""


@dataclass(slots=True)
class NodeUse:
    """Use of one node by its pods, and the pods."""

    used: Amounts = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)

    def add(self, pod: Object) -> None:
        self.pods[pod["metadata"]["uid"]] = pod
        for name, amount in request_of(pod["spec"]).items():
            self.used[name] = self.used.get(name, 0) + amount

    def drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            for name, amount in request_of(pod["spec"]).items():
                self.used[name] -= amount


@dataclass(slots=True)
class Cache:
    """Nodes by name, and their use by bound and assumed pods."""

    nodes: dict[str, Object] = field(default_factory=dict)
    capacities: dict[str, Amounts] = field(default_factory=dict)
    uses: dict[str, NodeUse] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    def put_node(self, name: str, node: Object | None) -> None:
        """Take in a node, or (None) its deletion."""
        if node is None:
            self.nodes.pop(name, None)
            self.capacities.pop(name, None)
            return
        self.nodes[name] = node
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        self.capacities[name] = {
            resource: parse_quantity(resource, amount, rounding="down")
            for resource, amount in allocatable.items()
        }

    def put_pod(self, uid: str, pod: Object | None, node: str = "") -> None:
        """Take in a pod on ``node`` or on its own node, or (None) that it is gone."""
        if (previous := self._places.pop(uid, None)) is not None:
            self.uses[previous].drop(uid)
        node_name = node or (pod or {}).get("spec", {}).get("nodeName", "")
        if pod is None or not node_name or is_ended(pod):
            return
        self._places[uid] = node_name
        self.uses.setdefault(node_name, NodeUse()).add(pod)

    @contextmanager
    def without(self, pods: Sequence[Object]) -> Iterator[None]:
        """Forget pods within the block, as if they had gone."""
        for pod in pods:
            self.put_pod(pod["metadata"]["uid"], None)
        try:
            yield
        finally:
            for pod in pods:
                self.put_pod(pod["metadata"]["uid"], pod)

    def use(self, node: str) -> NodeUse:
        return self.uses.setdefault(node, NodeUse())

    def placements(self) -> Iterator[tuple[Object, Object]]:
        """Yield every pod on a known node, after that node."""
        for name, use in self.uses.items():
            if name in self.nodes:
                for pod in use.pods.values():
                    yield self.nodes[name], pod


def request_of(spec: Object) -> Amounts:
    """Return what a pod asks of its node, in units of each resource."""
    requests = requests_of_pod(spec)
    return {"pods": 1, **{name: parse_quantity(name, str(n)) for name, n in requests.items()}}


def host_ports(spec: Mapping[str, Any]) -> set[Port]:
    """Return the ports of the node that a pod takes."""
    return {
        (port.get("protocol", "TCP"), port.get("hostIP") or ANY_ADDRESS, port["hostPort"])
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }
