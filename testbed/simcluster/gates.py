"""Another controller that holds pods back: admission gates them, and it lifts the gate later."""

from dataclasses import dataclass

from testbed.fakeapi.store import Change, Key, Object
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.objects import PODS
from testbed.simcluster.world import World

GATE: Object = {"name": "example.com/checked"}
_SOON_SECONDS = (0.1, 15.0)
_LATE_SECONDS = (30.0, 200.0)


@dataclass(eq=False)
class Gates(Part):
    """Gates on the pods of ``namespace``, or on some of them, until the calm."""

    world: World
    namespace: str
    _is_over: bool = False

    def start(self) -> None:
        if not self.world.pods_are_gated:
            return
        # Of other controllers alone, or also on those that Bireme makes.
        self._on_jobs = self.chance.random() < 0.5
        self._share = self.chance.choice((0.3, 1.0))
        self._in_dry_runs = self.chance.random() < 0.5
        self._seconds = self.chance.choice((_SOON_SECONDS, _SOON_SECONDS, _LATE_SECONDS))
        store = self.server.store
        store.admission.setdefault("Pod", []).append(self._admit)
        store.collection(PODS).subscribers.append(self._changed)

    async def run(self) -> None:
        """Gates come with pods alone."""

    def clear(self) -> None:
        self._is_over = True
        for key in list(self.server.store.collection(PODS).objects):
            self._lift(key)

    def _admit(self, pod: Object, is_dry_run: bool) -> None:
        is_foreign = bool(pod["spec"].get("schedulingGates"))
        is_here = pod["metadata"]["namespace"] == self.namespace
        if self._is_over or not is_here or not (is_foreign or self._on_jobs):
            return
        if is_dry_run and not self._in_dry_runs:
            return
        if self.chance.random() < self._share:
            pod["spec"]["schedulingGates"] = [*pod["spec"].get("schedulingGates", ()), GATE]

    def _changed(self, change: Change) -> None:
        pod = change.after
        if change.before is None and pod is not None and _is_held(pod):
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            lasts = self.chance.uniform(*self._seconds)
            self.loop.call_later(lasts, self._lift, key, context=WORLD)

    def _lift(self, key: Key) -> None:
        store = self.server.store
        pod = store.collection(PODS).objects.get(key)
        if pod is not None and _is_held(pod):
            gates = [gate for gate in pod["spec"]["schedulingGates"] if gate != GATE]
            store.update(PODS, key, {**pod, "spec": {**pod["spec"], "schedulingGates": gates}})
            self.tell(f"the gate {GATE['name']} of {key[1]} is lifted")


def _is_held(pod: Object) -> bool:
    return GATE in (pod["spec"].get("schedulingGates") or ())
