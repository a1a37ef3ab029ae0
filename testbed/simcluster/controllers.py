"""The controllers of nodes and pods: node life cycle, taint eviction, garbage, budgets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from testbed.fakeapi.store import Key, Object
from testbed.simcluster import objects, pod_status
from testbed.simcluster.kubelets import Kubelets
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import BUDGETS, JOBS, NODES, PODS, SERVICES

NOT_READY_SECONDS = 40.0
EVICTED_SECONDS = 300.0
UNREACHABLE = "node.kubernetes.io/unreachable"
_UNREACHABLE_TAINTS = tuple(
    {"key": UNREACHABLE, "value": "", "effect": effect} for effect in ("NoSchedule", "NoExecute")
)


@dataclass(eq=False)
class Controllers(Part):
    """``on_loss`` is called with every pod that goes with its node."""

    kubelets: Kubelets
    on_loss: Callable[[Object], None]

    def start(self) -> None:
        self.loop.create_task(self._look_around(), context=WORLD.copy())

    async def _look_around(self) -> None:
        gone: dict[str, float] = {}
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5))
            self._judge_nodes()
            self._evict_by_taints()
            self._collect_orphans()
            self._collect_from_deleted_nodes(gone)
            self._count_budgets()

    # --- nodes -----------------------------------------------------------------------------

    def _judge_nodes(self) -> None:
        now, lost = self.loop.time(), self.kubelets.lost
        for node, since in list(lost.items()):
            if now - since > NOT_READY_SECONDS:
                self._say_unknown(node)
            if now - since > NOT_READY_SECONDS + EVICTED_SECONDS:
                self._evict(node)
        for key, found in list(self.server.store.collection(NODES).objects.items()):
            self._taint(key, found)

    def _say_unknown(self, name: str) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is None or not objects.is_ready(node):
            return
        words = {
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        status = pod_status.with_condition(
            node["status"], self.server.store.now(), "Ready", "Unknown", **words
        )
        self.server.store.update(NODES, ("", name), {"status": status}, "status")
        for key, pod in self._pods_on(name):
            if objects.phase(pod) == "Running":
                status = pod_status.with_condition(
                    pod["status"], self.server.store.now(), "Ready", "False"
                )
                pod_status.write(self.server.store, key, status)

    def _taint(self, key: Key, node: Object) -> None:
        """Keep the taints of a node as its condition Ready asks."""
        others = [t for t in node["spec"].get("taints", ()) if t["key"] != UNREACHABLE]
        wanted = others if objects.is_ready(node) else [*others, *_UNREACHABLE_TAINTS]
        if wanted != node["spec"].get("taints", []):
            spec = {**node["spec"], "taints": wanted}
            self.server.store.update(NODES, key, {**node, "spec": spec})

    def _evict(self, node: str) -> None:
        """Evict all pods, as their tolerations of an unreachable node are over."""
        for key, pod in self._pods_on(node):
            if not objects.is_leaving(pod):
                self.on_loss(pod)
                self._delete_by_taint(key)

    def _evict_by_taints(self) -> None:
        """Evict pods from nodes with a NoExecute taint that they do not tolerate."""
        for (_, name), node in list(self.server.store.collection(NODES).objects.items()):
            taints = [t for t in node["spec"].get("taints", ()) if t["effect"] == "NoExecute"]
            # Admission has every pod tolerate this one for minutes.
            taints = [taint for taint in taints if taint["key"] != UNREACHABLE]
            for key, pod in self._pods_on(name) if taints else ():
                tolerated = all(objects.tolerates(pod, taint) for taint in taints)
                if not tolerated and not objects.is_leaving(pod):
                    self.on_loss(pod)
                    self._delete_by_taint(key)

    def _delete_by_taint(self, key: Key) -> None:
        words = "Taint manager: deleting due to NoExecute taint"
        pod_status.disrupt(self.server.store, key, "DeletionByTaintManager", words)
        self.server.store.delete(PODS, key, {})

    def _pods_on(self, node: str) -> list[tuple[Key, Object]]:
        pods = self.server.store.collection(PODS).objects.items()
        return [(key, pod) for key, pod in pods if objects.node_of(pod) == node]

    # --- what is left over -----------------------------------------------------------------

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
                    self._forget(key, pod)
            else:
                # A node that came back under its name has 20 s again.
                gone.pop(node, None)

    def _forget(self, key: Key, pod: Object) -> None:
        store = self.server.store
        if pod_status.same(store, key, pod) is not None:
            words = "PodGC: node no longer exists"
            pod_status.disrupt(store, key, "DeletionByPodGC", words)
            pod_status.write(store, key, {**store.get(PODS, key)["status"], "phase": "Failed"})
        store.delete(PODS, key, {}, 0)

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
