"""Cache of the nodes of a cluster, and the table of them that the core uses."""

from collections.abc import Iterable
from dataclasses import replace

from bireme.core.gangs import Key
from bireme.core.gpus import read_gpu_models
from bireme.core.nodes import Node, NodeTable
from bireme.core.resources import Request
from bireme.core.settings import SchedulingSettings
from bireme.kube import nodes, volume_usage, wire
from bireme.kube.changes import Changes
from bireme.kube.devices import Devices
from bireme.kube.node_usage import NodeUsage
from bireme.kube.preferences import NodeImages
from bireme.kube.volumes import Volumes


class NodeCache:
    """The nodes by name, with the offers of volumes and devices and the pods that never leave.

    Attributes:
        images: The images that the nodes have.
        creation_times: Creation times of nodes by name, as the API server writes them.
    """

    def __init__(
        self, settings: SchedulingSettings, changes: Changes, volumes: Volumes, devices: Devices
    ) -> None:
        self.images = NodeImages()
        self.creation_times: dict[str, str | None] = {}
        self._settings = settings
        self._changes = changes
        self._volumes = volumes
        self._devices = devices
        self._nodes: dict[str, Node] = {}
        # Usage of pods that never leave their node: DaemonSets and static pods.
        self._fixed_usage = NodeUsage()
        self._table: NodeTable | None = None
        self._offers_of = (0, 0)

    def put(self, key: Key, node: wire.V1Node) -> None:
        facts = nodes.from_manifest(node)
        self.creation_times[facts.name] = node.metadata.creation_timestamp
        self.images.put(facts.name, node.status.images)
        if self._nodes.get(facts.name) != facts:  # a heartbeat changes no fact
            self._nodes[facts.name] = facts
            self._table = None
            self._changes.note()

    def delete(self, key: Key) -> None:
        self.creation_times.pop(key[1], None)
        self.images.delete(key[1])
        if self._nodes.pop(key[1], None) is not None:
            self._table = None
            self._changes.note()

    def put_fixed_pod(self, pod: Key, node: str, request: Request = ()) -> None:
        """Store the node, "" for none, of a pod that never leaves it."""
        if self._fixed_usage.put(pod, node, request):
            self._table = None

    def is_fixed(self, pod: Key) -> bool:
        """Return whether ``pod`` is on a node and never leaves it."""
        return bool(self._fixed_usage.node_of(pod))

    def get(self, name: str) -> Node | None:
        """Return the node ``name``; None if it does not exist."""
        return self._nodes.get(name)

    def label(self, name: str, key: str) -> str:
        """Return the value of a node's label; empty without the label or the node."""
        node = self._nodes.get(name)
        return node.labels.get(key, "") if node is not None else ""

    @property
    def table(self) -> NodeTable:
        """All nodes as arrays; the same object until a node changes."""
        offers_of = self._volumes.offers_revision, self._devices.offers_revision
        if self._table is None or self._offers_of != offers_of:
            self._offers_of = offers_of
            self._table = NodeTable(
                self._with_offers(self._nodes.values()),
                self._settings.topology_levels,
                read_gpu_models(self._settings.gpu_models),
                self._settings.known_accelerators,
            )
        return self._table

    def _with_offers(self, plain: Iterable[Node]) -> list[Node]:
        facts = [replace(node, fixed=self._fixed_usage.on(node.name)) for node in plain]
        for offers in (volume_usage.offers(self._volumes, facts), self._devices.offers(facts)):
            if offers:
                facts = [
                    replace(node, allocatable={**node.allocatable, **offers.get(node.name, {})})
                    for node in facts
                ]
        return facts
