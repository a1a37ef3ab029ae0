"""Objects that go although their work is not over, or stay although they are about to go.

Ended pods that the garbage collector, a TTL or a user removes; PodGroups that are deleted and
created again, as prune and sync of a GitOps tool do; nodes whose deletion a finalizer delays while
their kubelets work.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object
from testbed.simcluster import objects
from testbed.simcluster.network import Part
from testbed.simcluster.objects import GROUPS, NODES, PODS
from testbed.simcluster.world import World

FINALIZER = "karpenter.sh/termination"


@dataclass(eq=False)
class Endings(Part):
    """What the world draws of these, one after another until the calm.

    ``on_loss`` is called with every pod that is removed: no operator may have seen that it ended.
    ``orphans`` are the pods whose gate was lifted when their PodGroup was deleted: while no
    extender answers, each can still be bound where the earlier plan pinned it.
    """

    world: World
    on_loss: Callable[[Object], None]
    orphans: set[Key] = field(default_factory=set)

    def start(self) -> None:
        """Nothing happens before :meth:`run`."""

    async def run(self) -> None:
        """Have something go, or begin to go, now and then, until cancelled."""
        drawn = {
            self._remove_ended_pod: self.world.ended_pods_vanish,
            self._apply_group_again: self.world.groups_are_applied_again,
            self._delete_node_slowly: self.world.nodes_leave_slowly,
        }
        strikes = [strike for strike, is_drawn in drawn.items() if is_drawn]
        pause = self.chance.uniform(1.0, 8.0)
        while strikes:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            await self.chance.choice(strikes)()

    def clear(self) -> None:
        """Let nodes go that are about to; the calm adds them again."""
        for (_, name), node in list(self.server.store.collection(NODES).objects.items()):
            if objects.is_leaving(node):
                self.server.store.delete(NODES, ("", name), {})

    async def _remove_ended_pod(self) -> None:
        pods = self.server.store.collection(PODS).objects
        ended = sorted(k for k, pod in pods.items() if objects.phase(pod) == "Succeeded")
        if ended:
            key = self.chance.choice(ended)
            self.on_loss(pods[key])
            self.server.store.delete(PODS, key, {}, 0)
            self.tell(f"pod GC removes {key[1]}, which has succeeded")

    async def _apply_group_again(self) -> None:
        groups = self.server.store.collection(GROUPS).objects
        applied = sorted(key for key, group in groups.items() if not objects.is_name_taker(group))
        if not applied:
            return
        key = self.chance.choice(applied)
        group = groups[key]
        for pod_key, pod in self.server.store.collection(PODS).objects.items():
            is_member = objects.label(pod, "pod-group") == key[1]
            if is_member and objects.pin_of(pod) and not objects.is_gated(pod):
                self.orphans.add(pod_key)
        self.server.store.delete(GROUPS, key, {})
        self.tell(f"sync deletes PodGroup {key[1]}")
        try:
            await asyncio.sleep(self.chance.choice((0.0, self.chance.uniform(0.0, 5.0))))
        finally:
            self._create_group(key, group)

    def _create_group(self, key: Key, group: Object) -> None:
        made = {"apiVersion": group["apiVersion"], "kind": "PodGroup", "spec": group["spec"]}
        try:
            self.server.store.create(GROUPS, key, {**made, "metadata": {"name": key[1]}})
        except ApiRefusal:
            return
        self.tell(f"sync creates PodGroup {key[1]}")

    async def _delete_node_slowly(self) -> None:
        nodes = self.server.store.collection(NODES).objects
        staying = sorted(name for (_, name), node in nodes.items() if not objects.is_leaving(node))
        if staying:
            name = self.chance.choice(staying)
            node = nodes["", name]
            going = {"deletionTimestamp": self.server.store.now(), "finalizers": [FINALIZER]}
            leaving = {**node, "metadata": {**node["metadata"], **going}}
            self.server.store.update(NODES, ("", name), leaving)
            self.tell(f"{name} is being deleted; its kubelet works on")
