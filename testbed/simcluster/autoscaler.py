"""The autoscaler of one node pool.

It removes nodes as Karpenter does for static pools: first those still on the way, then nodes
without any pod, and then busy ones, all of them late.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from bireme.kube import quantities
from bireme.testing import a_node
from testbed.fakeapi.answers import owner
from testbed.fakeapi.server import resources
from testbed.fakeapi.store import Object
from testbed.objects.facts import node_manifest
from testbed.scenario.pools import pool_scaler
from testbed.simcluster import objects
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import NODE_POOLS, NODES, PODS, SCALERS
from testbed.simcluster.processes import EPOCH_SECONDS

POOL: Final = "grown"
MAX_NODES: Final = 2
LABELS: Final = {"karpenter.sh/nodepool": POOL}
_DELAY_SECONDS: Final = (2.0, 20.0)


@dataclass(eq=False)
class Autoscaler(Part):
    """Follows the replicas of the NodePool ``POOL``."""

    _made = 0

    def start(self) -> None:
        """Make the pool and its scaler, and begin to look once a second."""
        kinds = {"nodepools": ("NodePool", False)}
        document = resources("karpenter.sh/v1", kinds, ("nodepools",))
        self.server.documents["/apis/karpenter.sh/v1"] = document
        creator = [owner("kubectl-create")]
        spec = {"replicas": self.chance.randint(0, MAX_NODES)}
        pool = {"metadata": {"name": POOL, "managedFields": creator}, "spec": spec}
        self.server.store.create(NODE_POOLS, ("", POOL), {**pool, "kind": "NodePool"})
        scale_in = {"policy": "WhenEmpty", "coolDownSeconds": 60}
        scaler = pool_scaler(POOL, most=MAX_NODES, scaleIn=scale_in, leadSeconds=30)
        self.server.store.create(SCALERS, ("", POOL), {**scaler, "status": self._forecast()})
        self.loop.create_task(self._follow(), context=WORLD.copy())

    def _forecast(self) -> Object:
        """Draw a forecast that may be far beyond what the pool may have."""
        hours = [
            {
                "hour": quantities.format_timestamp(begin),
                "p50": 0.0,
                "upper": self.chance.choice((0, 0, 9)),
            }
            for begin in range(int(EPOCH_SECONDS) // 3600 * 3600, int(EPOCH_SECONDS) + 7200, 3600)
        ]
        return {"forecast": hours, "forecastTime": quantities.format_timestamp(EPOCH_SECONDS)}

    @property
    def _nodes(self) -> list[str]:
        found = self.server.store.collection(NODES).objects.items()
        return [key[1] for key, node in found if is_grown(node)]

    async def _follow(self) -> None:
        on_the_way: list[float] = []
        while True:
            await asyncio.sleep(1.0)
            now = self.loop.time()
            for _ in [due for due in on_the_way if due <= now]:
                self._make()
            on_the_way = [due for due in on_the_way if due > now]
            wanted = int(self.server.store.get(NODE_POOLS, ("", POOL))["spec"]["replicas"])
            missing = wanted - len(self._nodes) - len(on_the_way)
            if missing > 0:
                delays = (self.chance.uniform(*_DELAY_SECONDS) for _ in range(missing))
                on_the_way += [now + delay for delay in delays]
            elif missing < 0:
                # Karpenter gives up nodes that are still on the way before any that is there.
                kept = max(0, len(on_the_way) + missing)
                missing += len(on_the_way) - kept
                on_the_way = on_the_way[:kept]
                await self._remove(-missing)

    def _make(self) -> None:
        self._made += 1
        node = a_node(f"{POOL}-{self._made}", cpu_millis=95_000, labels=LABELS)
        self.server.store.create(NODES, ("", node.name), node_manifest(node))

    async def _remove(self, count: int) -> None:
        if not count:
            return
        await asyncio.sleep(self.chance.uniform(0.0, 5.0))
        pods = self.server.store.collection(PODS).objects.values()
        used = {objects.node_of(pod) for pod in pods}
        nodes = self.chance.sample(self._nodes, len(self._nodes))
        for name in sorted(nodes, key=lambda name: name in used)[:count]:
            self.tell(f"autoscaler removes {name}" + (", which is in use" * (name in used)))
            self.server.store.delete(NODES, ("", name), {})


def is_grown(node: Object) -> bool:
    return LABELS.items() <= (node["metadata"].get("labels") or {}).items()
