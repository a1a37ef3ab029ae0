"""Another scheduler of the same nodes: it takes planned room, and preempts single pods of gangs.

Like a second kube-scheduler it knows what is bound, and nothing of plans.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object
from testbed.history.amounts import GPU, amounts, request_of, total
from testbed.scenario.manifests import annotations, pod
from testbed.simcluster import objects, pod_status
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import NODES, PODS
from testbed.simcluster.planned import on_new_plan
from testbed.simcluster.scheduler import bind
from testbed.simcluster.world import World

SCHEDULER = "other-scheduler"
_SPACE = "others"
_SHARE_OF_PLANS = 0.3
_REACTION_SECONDS = 0.3
_RUN_SECONDS = (5, 60)
_BACKOFF_SECONDS = (0.1, 10.0)
"""Of a pod that has made room: how long nobody may take it."""


@dataclass(eq=False)
class Rivals(Part):
    """``on_loss`` is called with every pod that is preempted."""

    world: World
    on_loss: Callable[[Object], None]
    bound: list[tuple[float, str]] = field(default_factory=list)
    """When a pod was bound, and to which node."""
    _is_over: bool = False
    _made: int = 0

    def start(self) -> None:
        if self.world.others_schedule:
            on_new_plan(self.server.store, self._take_room)

    def clear(self) -> None:
        """Schedule nothing any more; what runs ends by itself."""
        self._is_over = True

    def _take_room(self, nodes: list[str]) -> None:
        if not self._is_over and self.chance.random() < _SHARE_OF_PLANS:
            node, gpus = self.chance.choice(nodes), self.chance.choice((1, 2, 4))
            wait = self.chance.uniform(0.0, _REACTION_SECONDS)
            self.loop.call_later(wait, self._place, node, gpus, context=WORLD)

    def _place(self, node: str, gpus: int) -> None:
        """Make a pod and bind it to ``node`` where it has room; it runs for a while."""
        if self._has_room(node, made := self._make(gpus)):
            key = (_SPACE, made["metadata"]["name"])
            self._bind(key, self.server.store.create(PODS, key, made), node)

    def _make(self, gpus: int) -> Object:
        self._made += 1
        fake = annotations(f"{self.chance.randint(*_RUN_SECONDS)}s")
        return pod(f"rival-{self._made}", gpus, fake=fake, schedulerName=SCHEDULER)

    def _has_room(self, node: str, made: Object) -> bool:
        """Return whether a pod fits beside what is bound to ``node``."""
        store = self.server.store
        offer = store.collection(NODES).objects.get(("", node))
        if offer is None or offer["spec"].get("taints") or offer["spec"].get("unschedulable"):
            return False
        here = [
            request_of(each["spec"])
            for each in store.collection(PODS).objects.values()
            if objects.node_of(each) == node and objects.phase(each) not in objects.ENDED
        ]
        offered = amounts(offer["status"]["allocatable"])
        requested = total([*here, request_of(made["spec"])])
        return all(amount <= offered.get(name, 0) for name, amount in requested.items())

    def _bind(self, key: Key, made: Object, node: str) -> None:
        bind(self.server, key, objects.uid(made), node)
        self.bound.append((self.loop.time(), node))
        gpus = request_of(made["spec"]).get(GPU, 0)
        self.tell(f"{SCHEDULER} binds {key[1]} of {gpus} GPUs to {node}")

    async def run(self) -> None:
        """Preempt a pod now and then, until cancelled."""
        pause = self.chance.uniform(8.0, 40.0)
        while self.world.others_schedule:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            if victims := [key for key in self._victims() if not self._is_leaving(key)]:
                self._preempt(self.chance.choice(victims))

    def _victims(self, node: str = "") -> list[Key]:
        """Return the bound pods of gangs, or those on ``node``."""
        return sorted(
            key
            for key, each in self.server.store.collection(PODS).objects.items()
            if (at := objects.node_of(each)) and node in ("", at)
            if objects.label(each, "pod-group") and objects.phase(each) not in objects.ENDED
        )

    def _is_leaving(self, key: Key) -> bool:
        return objects.is_leaving(self.server.store.get(PODS, key))

    def _preempt(self, key: Key) -> None:
        """Make room on the node of a pod of a gang for a pod of its own, which is nominated."""
        store = self.server.store
        victim = store.get(PODS, key)
        node = objects.node_of(victim)
        made = self._make(int(request_of(victim["spec"]).get(GPU, 0)))
        own = (_SPACE, made["metadata"]["name"])
        created = store.create(PODS, own, made)
        status = {**created.get("status", {}), "phase": "Pending", "nominatedNodeName": node}
        store.update(PODS, own, {**created, "status": status}, "status")
        self._end(key)
        self.loop.create_task(self._follow(own, created, node), context=WORLD.copy())

    def _end(self, key: Key) -> None:
        store = self.server.store
        words = f"{SCHEDULER}: preempting to accommodate a higher priority pod"
        pod_status.disrupt(store, key, "PreemptionByScheduler", words)
        self.on_loss(store.get(PODS, key))
        store.delete(PODS, key, {})
        self.tell(f"{SCHEDULER} preempts {key[1]}")

    async def _follow(self, key: Key, made: Object, node: str) -> None:
        """Bind a nominated pod after its backoff, once its node has room."""
        while not self._is_over:
            await asyncio.sleep(self.chance.uniform(*_BACKOFF_SECONDS))
            if key not in self.server.store.collection(PODS).objects:
                return  # with its node, or by a controller
            if self._has_room(node, made):
                self._bind(key, made, node)
                return
            # A gang that took the room is preempted as the first one was.
            there = self._victims(node)
            if there and not any(map(self._is_leaving, there)):
                self._end(self.chance.choice(there))
        with suppress(ApiRefusal):
            self.server.store.delete(PODS, key, {})
