"""Administrators who announce the maintenance of nodes, carry it out, or call it off."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bireme.kube import names, quantities
from testbed.fakeapi.store import Object
from testbed.simcluster import objects
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import NODES, PODS
from testbed.simcluster.processes import EPOCH_SECONDS
from testbed.simcluster.world import World

_AHEAD_SECONDS = (5.0, 90.0)
_LASTS_SECONDS = (10.0, 60.0)
_SHARE_CALLED_OFF = 0.2


@dataclass(eq=False)
class Maintenance(Part):
    """Windows of one node after another: announced, begun by a cordon and a drain, and ended."""

    world: World
    disturb: Callable[[Object], None]
    """Notes a pod that is taken away."""
    _is_over: bool = False

    def start(self) -> None:
        """Nothing is drawn before the first announcement."""

    async def run(self) -> None:
        """Announce a window now and then, until cancelled."""
        pause = self.chance.uniform(20.0, 60.0)
        while self.world.nodes_are_maintained:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            nodes = sorted(name for _, name in self.server.store.collection(NODES).objects)
            if nodes:
                self._announce(self.chance.choice(nodes))

    def clear(self) -> None:
        self._is_over = True
        for _, name in list(self.server.store.collection(NODES).objects):
            self._end(name)

    def _announce(self, name: str) -> None:
        ahead, lasts = self.chance.uniform(*_AHEAD_SECONDS), self.chance.uniform(*_LASTS_SECONDS)
        begins = EPOCH_SECONDS + self.loop.time() + ahead
        window = "/".join(quantities.format_timestamp(at) for at in (begins, begins + lasts))
        self._set(name, window, cordoned=False)
        self.tell(f"admin announces maintenance of {name} in {ahead:.0f} s for {lasts:.0f} s")
        if self.chance.random() < _SHARE_CALLED_OFF:
            self.loop.call_later(ahead * self.chance.random(), self._end, name, context=WORLD)
            return
        self.loop.call_later(ahead, self._begin, name, context=WORLD)
        self.loop.call_later(ahead + lasts, self._end, name, context=WORLD)

    def _begin(self, name: str) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if self._is_over or node is None or self._window(node) is None:
            return
        self._set(name, self._window(node), cordoned=True)
        self.tell(f"admin drains {name} for maintenance")
        for key, pod in list(self.server.store.collection(PODS).objects.items()):
            if objects.node_of(pod) == name and objects.phase(pod) not in objects.ENDED:
                self.disturb(pod)
                self.server.store.delete(PODS, key, {})

    def _end(self, name: str) -> None:
        self._set(name, None, cordoned=False)

    @staticmethod
    def _window(node: Object) -> str | None:
        return (node["metadata"].get("annotations") or {}).get(names.MAINTENANCE)

    def _set(self, name: str, window: str | None, *, cordoned: bool) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is None:
            return
        annotations = dict(node["metadata"].get("annotations") or {})
        annotations.pop(names.MAINTENANCE, None)
        if window is not None:
            annotations[names.MAINTENANCE] = window
        meta = {**node["metadata"], "annotations": annotations}
        spec = {**node["spec"], "unschedulable": cordoned}
        self.server.store.update(NODES, ("", name), {**node, "metadata": meta, "spec": spec})
