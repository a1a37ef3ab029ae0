"""Which job holds which GPU of which node.

Kubernetes counts GPUs and does not number them; a replica is shown on the lowest free ones of its
node and keeps them until it ends.
"""

from tests.support.history.amounts import GPU
from tests.support.history.observed import ObservedCluster
from tests.support.history.records import Key


class GpuMap:
    """Node to the name of the job on each of its GPUs; empty for a free one."""

    def __init__(self) -> None:
        self.slots: dict[str, list[str]] = {}
        self.racks: dict[str, list[str]] = {}
        """Rack to its nodes, both sorted."""
        self._held: dict[Key, tuple[str, list[int]]] = {}

    def update(self, world: ObservedCluster, rack_label: str) -> None:
        for key in [k for k in self._held if not self._still(world, k)]:
            node, numbers = self._held.pop(key)
            for number in numbers:
                self.slots[node][number] = ""
        for (_, name), manifest in sorted(world.objects.get("Node", {}).items()):
            if name not in self.slots:
                self.slots[name] = [""] * int(manifest["status"]["allocatable"].get(GPU, 0))
                rack = manifest["metadata"]["labels"].get(rack_label, "")
                self.racks.setdefault(rack, []).append(name)
        for key, pod in sorted(world.pods.items()):
            if pod.holds_node and key not in self._held and pod.node in self.slots:
                self._place(key, pod.gang[1], pod.node, int(pod.request.get(GPU, 0)))

    def _still(self, world: ObservedCluster, key: Key) -> bool:
        pod = world.pods.get(key)
        return pod is not None and pod.holds_node and pod.node == self._held[key][0]

    def _place(self, key: Key, job: str, node: str, gpus: int) -> None:
        free = [number for number, holder in enumerate(self.slots[node]) if not holder]
        self._held[key] = (node, free[:gpus])
        for number in free[:gpus]:
            self.slots[node][number] = job
