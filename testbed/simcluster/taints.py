"""Administrators who taint nodes: at any time, and just after something was planned there."""

import asyncio
from dataclasses import dataclass

from testbed.fakeapi.store import Object
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import NODES
from testbed.simcluster.planned import on_new_plan
from testbed.simcluster.world import World

MAINTENANCE = "example.com/maintenance"
TOLERATION: Object = {"key": MAINTENANCE, "operator": "Exists"}
_SHARE_OF_PLANS = 0.2
_LASTS_SECONDS = (1.0, 60.0)


@dataclass(eq=False)
class Taints(Part):
    """Taints that come and go; pods that do not tolerate NoExecute are evicted."""

    world: World
    _is_over: bool = False

    def start(self) -> None:
        if self.world.nodes_are_tainted:
            on_new_plan(self.server.store, self._between_plan_and_bind)

    async def run(self) -> None:
        """Taint a node now and then, until cancelled."""
        pause = self.chance.uniform(8.0, 40.0)
        while self.world.nodes_are_tainted:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            nodes = sorted(name for _, name in self.server.store.collection(NODES).objects)
            if nodes:
                self._taint(self.chance.choice(nodes))

    def clear(self) -> None:
        self._is_over = True
        for _, name in list(self.server.store.collection(NODES).objects):
            self._lift(name)

    def _between_plan_and_bind(self, nodes: list[str]) -> None:
        if not self._is_over and self.chance.random() < _SHARE_OF_PLANS:
            wait = self.chance.uniform(0.0, 0.1)
            self.loop.call_later(wait, self._taint, self.chance.choice(nodes), context=WORLD)

    def _taint(self, name: str) -> None:
        # Half of them keep pods away, half drive them out as well.
        effect = self.chance.choice(("NoSchedule", "NoExecute"))
        lasts = self.chance.uniform(*_LASTS_SECONDS)
        if not self._is_over:
            taint = {"key": MAINTENANCE, "value": "planned", "effect": effect}
            self._set(name, [taint])
            self.tell(f"admin taints {name}: {effect}")
            self.loop.call_later(lasts, self._lift, name, context=WORLD)

    def _lift(self, name: str) -> None:
        self._set(name, [])

    def _set(self, name: str, own: list[Object]) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is None:
            return
        others = [t for t in node["spec"].get("taints", ()) if t["key"] != MAINTENANCE]
        spec = {**node["spec"], "taints": [*others, *own]}
        self.server.store.update(NODES, ("", name), {**node, "spec": spec})
