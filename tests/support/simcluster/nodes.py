"""Kubelets, the controllers of nodes and pods, and the autoscaler of one node pool.

Annotations of a pod set how long it runs and at which attempts it fails. A node that is lost does
nothing until it is back. The autoscaler removes nodes as Karpenter does for static pools: first
those still on the way, then nodes without any pod, and then busy ones, all of them late.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bireme.kube import quantities
from bireme.testing import a_node
from tests.support.fakeapi.answers import owner
from tests.support.fakeapi.server import resources
from tests.support.fakeapi.store import Change, Key, Object
from tests.support.objects.facts import node_manifest
from tests.support.scenario.pools import pool_scaler
from tests.support.simcluster import objects
from tests.support.simcluster.network import WORLD, Part
from tests.support.simcluster.objects import (
    BUDGETS,
    JOBS,
    NODE_POOLS,
    NODES,
    PODS,
    SCALERS,
    SERVICES,
)
from tests.support.simcluster.processes import EPOCH_SECONDS

NOT_READY_SECONDS = 40.0
EVICTED_SECONDS = 300.0
_FAKE = "fake.bireme.dev/"


@dataclass(eq=False)
class Kubelets(Part):
    """All kubelets, and node life cycle, garbage collection and disruption controllers.

    ``on_loss`` is called with every pod that goes with its node.
    """

    on_loss: Callable[[Object], None]
    lost: dict[str, float] = field(default_factory=dict)
    """Silent nodes, and since when."""
    _back: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        self.server.store.collection(PODS).subscribers.append(self._changed)
        self.loop.create_task(self._look_around(), context=WORLD.copy())

    # --- nodes -----------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        self.lost.setdefault(node, self.loop.time())

    def recover(self, node: str) -> None:
        if self.lost.pop(node, None) is not None:
            self._say_ready(node, is_ready=True)
            self._back.set()
            self._back = asyncio.Event()

    def _say_ready(self, name: str, *, is_ready: bool) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is not None and objects.is_ready(node) != is_ready:
            conditions = [{"type": "Ready", "status": "True" if is_ready else "Unknown"}]
            status = {**node["status"], "conditions": conditions}
            self.server.store.update(NODES, ("", name), {"status": status}, "status")

    # --- pods ------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        before, pod = change.before, change.after
        if pod is None or not objects.node_of(pod):
            return
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if before is None or not objects.node_of(before):
            self.loop.create_task(self._run(key, pod), context=WORLD.copy())
        if objects.is_leaving(pod) and (before is None or not objects.is_leaving(before)):
            self.loop.create_task(self._end(key, pod), context=WORLD.copy())

    async def _pass(self, node: str, seconds: float) -> None:
        """Wait for ``seconds``, and until the node is there."""
        await asyncio.sleep(seconds)
        while node in self.lost:
            await self._back.wait()

    async def _run(self, key: Key, pod: Object) -> None:
        node, notes = objects.node_of(pod), pod["metadata"].get("annotations") or {}
        await self._pass(node, self.chance.uniform(0.2, 2.0))
        if not self._say(key, pod, "Running", "True") or f"{_FAKE}duration" not in notes:
            return
        await self._pass(node, float(notes[f"{_FAKE}duration"].removesuffix("s")))
        failing = notes.get(f"{_FAKE}fail-attempts", "").split(",")
        fails = objects.label(pod, "attempt") in filter(None, failing)
        self._say(key, pod, "Failed" if fails else "Succeeded", "False")

    async def _end(self, key: Key, pod: Object) -> None:
        await self._pass(objects.node_of(pod), self.chance.uniform(0.1, 3.0))
        # Kubelets report the end of a pod before it goes, but readers may see the deletion alone.
        if self.chance.random() < 0.5 and self._say(key, pod, "Failed", "False", leaving=True):
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))
        self.remove(key, pod)

    def _say(self, key: Key, pod: Object, phase: str, ready: str, *, leaving: bool = False) -> bool:
        """Report a phase, unless the pod is another one, gone, ended, or about to be ended."""
        now = self.server.store.collection(PODS).objects.get(key)
        if now is None or objects.uid(now) != objects.uid(pod):
            return False
        if objects.phase(now) in objects.ENDED or objects.is_leaving(now) != leaving:
            return False
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        self.server.store.update(PODS, key, {"status": status}, "status")
        return True

    def remove(self, key: Key, pod: Object) -> None:
        now = self.server.store.collection(PODS).objects.get(key)
        if now is not None and objects.uid(now) == objects.uid(pod):
            self.server.store.delete(PODS, key, {}, 0)

    # --- controllers -----------------------------------------------------------------------

    async def _look_around(self) -> None:
        gone: dict[str, float] = {}
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5))
            self._judge_nodes()
            self._collect_orphans()
            self._collect_from_deleted_nodes(gone)
            self._count_budgets()

    def _judge_nodes(self) -> None:
        now = self.loop.time()
        for node, since in list(self.lost.items()):
            if now - since > NOT_READY_SECONDS:
                self._say_ready(node, is_ready=False)
            if now - since > NOT_READY_SECONDS + EVICTED_SECONDS:
                for key, pod in list(self.server.store.collection(PODS).objects.items()):
                    if objects.node_of(pod) == node and not objects.is_leaving(pod):
                        self.on_loss(pod)
                        self.server.store.delete(PODS, key, {})

    def _collect_orphans(self) -> None:
        """The garbage collector, background propagation."""
        uids = {objects.uid(job) for job in self.server.store.collection(JOBS).objects.values()}
        for resource in (PODS, SERVICES):
            for key, obj in list(self.server.store.collection(resource).objects.items()):
                owners = obj["metadata"].get("ownerReferences") or ()
                owned = [o["uid"] for o in owners if o["kind"] == "TrainingJob"]
                if owned and not uids & set(owned) and not objects.is_leaving(obj):
                    self.server.store.delete(resource, key, {})

    def _collect_from_deleted_nodes(self, gone: dict[str, float]) -> None:
        """The pod garbage collector, 20 s after a node was deleted."""
        nodes = {name for _, name in self.server.store.collection(NODES).objects}
        for key, pod in list(self.server.store.collection(PODS).objects.items()):
            node = objects.node_of(pod)
            if node and node not in nodes:
                if self.loop.time() - gone.setdefault(node, self.loop.time()) > 20:
                    self.on_loss(pod)
                    self.remove(key, pod)
            else:
                # A node that came back under its name has 20 s again.
                gone.pop(node, None)

    def _count_budgets(self) -> None:
        pods = self.server.store.collection(PODS).objects
        for key, budget in list(self.server.store.collection(BUDGETS).objects.items()):
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            healthy = sum(
                objects.phase(pod) == "Running" and not objects.is_leaving(pod)
                for pod in pods.values()
                if wanted <= (pod["metadata"].get("labels") or {}).items()
            )
            allowed = max(0, healthy - budget["spec"]["minAvailable"])
            status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
            self.server.store.update(BUDGETS, key, {"status": status}, "status")


POOL: Final = "grown"
MOST_NODES: Final = 2
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
        spec = {"replicas": self.chance.randint(0, MOST_NODES)}
        pool = {"metadata": {"name": POOL, "managedFields": creator}, "spec": spec}
        self.server.store.create(NODE_POOLS, ("", POOL), {**pool, "kind": "NodePool"})
        scale_in = {"policy": "WhenEmpty", "coolDownSeconds": 60}
        scaler = pool_scaler(POOL, most=MOST_NODES, scaleIn=scale_in, leadSeconds=30)
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
