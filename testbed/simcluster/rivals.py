"""Another scheduler of the same nodes: it takes planned room, and preempts single pods of gangs.

Like a second kube-scheduler it knows what is bound, and nothing of plans.
"""

import asyncio
from collections.abc import Callable
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
        """Bind a pod to ``node`` where it has room beside what is bound; it runs for a while."""
        store = self.server.store
        offer = store.collection(NODES).objects.get(("", node))
        if offer is None or offer["spec"].get("taints") or offer["spec"].get("unschedulable"):
            return
        self._made += 1
        fake = annotations(f"{self.chance.randint(*_RUN_SECONDS)}s")
        made = pod(f"rival-{self._made}", gpus, fake=fake, schedulerName=SCHEDULER)
        here = [
            request_of(each["spec"])
            for each in store.collection(PODS).objects.values()
            if objects.node_of(each) == node and objects.phase(each) not in objects.ENDED
        ]
        offered = amounts(offer["status"]["allocatable"])
        asked = total([*here, request_of(made["spec"])])
        if any(amount > offered.get(name, 0) for name, amount in asked.items()):
            return
        key = (_SPACE, made["metadata"]["name"])
        created = store.create(PODS, key, made)
        bind(self.server, key, objects.uid(created), node)
        self.bound.append((self.loop.time(), node))
        self.tell(f"{SCHEDULER} binds {key[1]} of {gpus} GPUs to {node}")

    async def run(self) -> None:
        """Preempt a pod now and then, until cancelled."""
        pause = self.chance.uniform(8.0, 40.0)
        while self.world.others_schedule:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            pods = self.server.store.collection(PODS).objects.items()
            victims = sorted(
                key
                for key, each in pods
                if objects.node_of(each) and objects.label(each, "pod-group")
                if objects.phase(each) not in objects.ENDED and not objects.is_leaving(each)
            )
            if victims:
                self._preempt(self.chance.choice(victims))

    def _preempt(self, key: Key) -> None:
        store = self.server.store
        victim = store.get(PODS, key)
        words = f"{SCHEDULER}: preempting to accommodate a higher priority pod"
        pod_status.disrupt(store, key, "PreemptionByScheduler", words)
        self.on_loss(victim)
        store.delete(PODS, key, {})
        self.tell(f"{SCHEDULER} preempts {key[1]}")
        gpus = request_of(victim["spec"]).get(GPU, 0)
        self.loop.create_task(self._follow(key, victim, int(gpus)), context=WORLD.copy())

    async def _follow(self, key: Key, victim: Object, gpus: int) -> None:
        """Take the place of a victim once it has gone."""
        while not self._is_over:
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))
            try:
                if objects.uid(self.server.store.get(PODS, key)) == objects.uid(victim):
                    continue
            except ApiRefusal:
                pass
            self._place(objects.node_of(victim), gpus)
            return
