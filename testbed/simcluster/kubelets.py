"""Kubelets: they admit pods or reject them, pull images, and run containers to their end.

Annotations of a pod set how long it runs and at which attempts it fails. A node that is lost does
nothing until it is back. What pods ask beyond the node, as after two schedulers chose it at one
time, is rejected as by a real kubelet; other rejections, and images, are those of the cluster's
:class:`~testbed.simcluster.node_faults.NodeFaults`.
"""

import asyncio
from dataclasses import dataclass, field
from fractions import Fraction

from testbed.fakeapi.store import Change, Key, Object
from testbed.history.amounts import Amounts, amounts, request_of, shown, total
from testbed.simcluster import objects, pod_status
from testbed.simcluster.network import WORLD, Part
from testbed.simcluster.node_faults import NodeFaults
from testbed.simcluster.objects import NODES, PODS

_FAKE = "fake.bireme.dev/"
_BACK_OFF_SECONDS = (10.0, 300.0)
"""First and longest pause of a kubelet after a pull that failed; each is twice the last."""


@dataclass(eq=False)
class Kubelets(Part):
    """All kubelets of a cluster."""

    faults: NodeFaults
    lost: dict[str, float] = field(default_factory=dict)
    """Silent nodes, and since when."""
    _admitted: set[str] = field(default_factory=set)
    _back: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        self.server.store.collection(PODS).subscribers.append(self._changed)

    # --- nodes -----------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        self.lost.setdefault(node, self.loop.time())

    def recover(self, node: str, *, rebooted: bool = False) -> None:
        """Have a node back; one that ``rebooted`` lost its containers, and admits pods anew."""
        if self.lost.pop(node, None) is None:
            return
        self._say_ready(node)
        for key, pod in list(self.server.store.collection(PODS).objects.items()):
            if objects.node_of(pod) == node and objects.phase(pod) == "Running":
                if rebooted and not objects.is_leaving(pod):
                    self._reject(key, pod, *self.faults.words("UnexpectedAdmissionError"))
                else:
                    status = pod_status.with_condition(
                        pod["status"], self.server.store.now(), "Ready", "True"
                    )
                    pod_status.write(self.server.store, key, status)
        self._back.set()
        self._back = asyncio.Event()

    def _say_ready(self, name: str) -> None:
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is not None and not objects.is_ready(node):
            words = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
            status = pod_status.with_condition(
                node["status"], self.server.store.now(), "Ready", "True", **words
            )
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
        if refusal := self._exceeds(pod) or self.faults.refusal(pod):
            self._reject(key, pod, *refusal)
            return
        self._admitted.add(objects.uid(pod))
        if not await self._pull(key, pod) or not self._start(key, pod):
            return
        if f"{_FAKE}duration" not in notes:
            return
        await self._pass(node, float(notes[f"{_FAKE}duration"].removesuffix("s")))
        failing = notes.get(f"{_FAKE}fail-attempts", "").split(",")
        self.finish(key, pod, int(objects.label(pod, "attempt") in filter(None, failing)))

    async def _end(self, key: Key, pod: Object) -> None:
        await self._pass(objects.node_of(pod), self.chance.uniform(0.1, 3.0))
        # Kubelets report the end of a pod before it goes, but readers may see the deletion alone.
        if self.chance.random() < 0.5 and self.finish(key, pod, 137, leaving=True):
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))
        now = self.server.store.collection(PODS).objects.get(key)
        if now is not None and objects.uid(now) == objects.uid(pod):
            self.server.store.delete(PODS, key, {}, 0)

    def _start(self, key: Key, pod: Object) -> bool:
        now = self._current(key, pod)
        if now is not None:
            pod_status.write(
                self.server.store, key, pod_status.started(now, self.server.store.now())
            )
        return now is not None

    def finish(self, key: Key, pod: Object, exit_code: int, *, leaving: bool = False) -> bool:
        """Have the containers of a pod end, unless it is gone, has ended, or is about to be."""
        now = self._current(key, pod, leaving=leaving)
        if now is not None:
            status = pod_status.ended(now, self.server.store.now(), exit_code)
            pod_status.write(self.server.store, key, status)
        return now is not None

    def _reject(self, key: Key, pod: Object, reason: str, message: str) -> None:
        if self._current(key, pod) is not None:
            self.tell(f"kubelet of {objects.node_of(pod)} rejects {key[1]}: {reason}")
            pod_status.write(self.server.store, key, pod_status.rejected(reason, message))

    def _current(self, key: Key, pod: Object, *, leaving: bool = False) -> Object | None:
        """Return the pod as it is now, while there is something to report of it."""
        now = pod_status.same(self.server.store, key, pod)
        return None if now is None or objects.is_leaving(now) != leaving else now

    # --- admission and images --------------------------------------------------------------

    def _exceeds(self, pod: Object) -> tuple[str, str] | None:
        """Return why a pod does not fit beside those that the kubelet has admitted."""
        name = objects.node_of(pod)
        node = self.server.store.collection(NODES).objects.get(("", name))
        if node is None:
            return None
        here = [
            each["spec"]
            for each in self.server.store.collection(PODS).objects.values()
            if objects.node_of(each) == name and objects.uid(each) in self._admitted
            if objects.phase(each) not in objects.ENDED
        ]
        used, offered = total(map(request_of, here)), amounts(node["status"]["allocatable"])
        for resource, asked in request_of(pod["spec"]).items():
            if used.get(resource, 0) + asked > offered.get(resource, 0):
                return f"OutOf{resource}", _lacking(resource, pod, used, offered)
        if objects.host_ports(pod["spec"]) & set().union(*map(objects.host_ports, here)):
            words = "node(s) didn't have free ports for the requested pod ports"
            return "NodePorts", f"Predicate NodePorts failed: {words}"
        return None

    async def _pull(self, key: Key, pod: Object) -> bool:
        """Pull the image of a pod; False when the pod has gone before it is there."""
        node, image = objects.node_of(pod), pod["spec"]["containers"][0]["image"]
        pause, most = _BACK_OFF_SECONDS
        while True:
            seconds, words = self.faults.pull(node, image)
            if seconds and not self._wait(key, pod, "ContainerCreating"):
                return False
            if seconds:
                await self._pass(node, seconds)
            if not words:
                return True
            if not self._wait(key, pod, "ErrImagePull", words):
                return False
            await self._pass(node, self.faults.until_back_off_seconds())
            words = f'Back-off pulling image "{image}": ErrImagePull: {words}'
            if not self._wait(key, pod, "ImagePullBackOff", words):
                return False
            await self._pass(node, pause)
            pause = min(2 * pause, most)

    def _wait(self, key: Key, pod: Object, reason: str, message: str = "") -> bool:
        now = self._current(key, pod)
        if now is not None:
            known = (now.get("status") or {}).get("containerStatuses")
            # While it tries again, a kubelet goes on saying how it went before.
            if reason != "ContainerCreating" or not known:
                time = self.server.store.now()
                status = pod_status.waiting(now, time, reason, message)
                pod_status.write(self.server.store, key, status)
        return now is not None


def _lacking(resource: str, pod: Object, used: Amounts, offered: Amounts) -> str:
    scale = 1000 if resource == "cpu" else 1
    asked = request_of(pod["spec"])[resource]
    zero = Fraction(0)
    numbers = {
        "requested": asked,
        "used": used.get(resource, zero),
        "capacity": offered.get(resource, zero),
    }
    words = ", ".join(f"{name}: {shown(number * scale)}" for name, number in numbers.items())
    return f"Node didn't have enough resource: {resource}, {words}"
