"""What nodes do to the pods bound to them: kubelets that reject pods, and images not to be had."""

import asyncio
from dataclasses import dataclass, field

from testbed.fakeapi.store import Object
from testbed.simcluster import objects
from testbed.simcluster.network import Part
from testbed.simcluster.objects import NODES
from testbed.simcluster.world import World

MISSING_IMAGE = "no-such-image"
_REASONS = ("UnexpectedAdmissionError", "TopologyAffinityError", "OutOfcpu")
_GPU = "nvidia.com/gpu"
_SPELL_SECONDS = (1.0, 45.0)
_PULL_SECONDS = (1.0, 90.0)
_FAILED_PULL_SECONDS = (0.5, 5.0)


@dataclass(eq=False)
class NodeFaults(Part):
    """Rejections and pulls of images, in worlds that have them."""

    world: World
    _refusing: dict[str, str] = field(default_factory=dict)
    """Nodes whose kubelets reject pods at the moment, and with which reason."""
    _without_registry: set[str] = field(default_factory=set)
    _pulled: set[tuple[str, str]] = field(default_factory=set)

    def start(self) -> None:
        """Cut some nodes off from the registry, until the calm."""
        if self.world.images_hang:
            nodes = sorted(name for _, name in self.server.store.collection(NODES).objects)
            cut_off = self.chance.randint(0, len(nodes) - 1)
            self._without_registry = set(self.chance.sample(nodes, cut_off))

    def clear(self) -> None:
        """End what was drawn for a while; an image that does not exist is never there."""
        self._refusing.clear()
        self._without_registry.clear()

    def has_rebooted(self) -> bool:
        """Draw whether a node that was away has lost its containers."""
        return self.world.kubelets_reject and self.chance.random() < 0.3

    # --- rejections ------------------------------------------------------------------------

    async def run(self) -> None:
        """Have kubelets of one node after another reject pods for a while, until cancelled."""
        pause = self.chance.uniform(5.0, 30.0)
        while self.world.kubelets_reject:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            nodes = sorted(name for _, name in self.server.store.collection(NODES).objects)
            if nodes:
                node = self.chance.choice(nodes)
                self._refusing[node] = self.chance.choice(_REASONS)
                self.tell(f"kubelet of {node} begins to reject pods: {self._refusing[node]}")
                lasts = self.chance.uniform(*_SPELL_SECONDS)
                self.loop.call_later(lasts, self._refusing.pop, node, None)

    def refusal(self, pod: Object) -> tuple[str, str] | None:
        """Return the reason and message with which a kubelet does not admit a pod, if so."""
        reason = self._refusing.get(objects.node_of(pod), "")
        asks_devices = any(
            _GPU in (each.get("resources") or {}).get("limits", {})
            for each in pod["spec"]["containers"]
        )
        if not reason or (reason != "OutOfcpu" and not asks_devices):
            return None
        # Some pods can still be aligned with a NUMA node, or fit beside what is there.
        if reason != "UnexpectedAdmissionError" and self.chance.random() < 0.5:
            return None
        return self.words(reason)

    @staticmethod
    def words(reason: str) -> tuple[str, str]:
        match reason:
            case "UnexpectedAdmissionError":
                cause = f"no healthy devices present; cannot allocate unhealthy devices {_GPU}"
                return reason, f"Allocate failed due to {cause}, which is unexpected"
            case "TopologyAffinityError":
                return reason, "Resources cannot be allocated with Topology locality"
        # Of static pods, or of what the node keeps for itself, a scheduler may not know yet.
        words = "Node didn't have enough resource: cpu, requested: 1000, used: 95500, "
        return reason, words + "capacity: 96000"

    # --- images ----------------------------------------------------------------------------

    def pull(self, node: str, image: str) -> tuple[float, str]:
        """Return how long the next pull takes, 0 where the image is there, and how it fails."""
        if image == MISSING_IMAGE or node in self._without_registry:
            return self.chance.uniform(*_FAILED_PULL_SECONDS), _pull_error(image)
        if not self.world.images_hang or (node, image) in self._pulled:
            return 0.0, ""
        self._pulled.add((node, image))
        return self.chance.uniform(*_PULL_SECONDS), ""

    def until_back_off_seconds(self) -> float:
        """Return how long a kubelet says why a pull failed, before it says that it backs off."""
        return self.chance.uniform(0.5, 2.0)


def _pull_error(image: str) -> str:
    reference = f"docker.io/library/{image}:latest"
    start = f'failed to pull and unpack image "{reference}": failed to resolve image: '
    if image == MISSING_IMAGE:
        return f"{start}{reference}: not found"
    return f"{start}failed to do request: dial tcp: i/o timeout"
