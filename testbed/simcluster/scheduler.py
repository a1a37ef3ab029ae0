"""kube-scheduler in miniature: one pod at a time, from caches that lag, with the extender.

Its rules are those that matter to Bireme: gates, taints, cordons, pins, host ports, volumes, rules
over other pods, room beside what is bound and assumed; an ``ignorable`` extender; a binding that
the API server may refuse. Where no node is left it says so on the pod.
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Change, Key, Object
from testbed.history.amounts import Amounts, amounts, request_of, total
from testbed.simcluster import objects, pod_rules, volumes
from testbed.simcluster.network import WORLD, ApiServer, Part
from testbed.simcluster.objects import NODES, PODS
from testbed.simcluster.processes import ExtenderProcess

SCHEDULERS = ("bireme", "default-scheduler")
_PATIENCE_SECONDS = 2.0
"""Timeout of the extender in the scheduler's configuration."""
_FLUSH_SECONDS = 300.0
_HARD = ("NoSchedule", "NoExecute")
_NO_POD: Object = {"metadata": {}}


@dataclass(slots=True)
class _Waiting:
    uid: str
    tries: int = 0
    not_before: float = 0.0


@dataclass(eq=False)
class Scheduler(Part):
    """One scheduler with two profiles, ``bireme`` (with the extender) and the default."""

    extender: ExtenderProcess
    _pods: dict[Key, Object] = field(default_factory=dict)
    _nodes: dict[Key, Object] = field(default_factory=dict)
    _assumed: dict[str, tuple[str, Object]] = field(default_factory=dict)
    _queue: dict[Key, _Waiting] = field(default_factory=dict)
    _on_the_way: deque[tuple[str, Change]] = field(default_factory=deque)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _passed_over: Key | None = None
    _latest = 0.0
    _life = 0
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with nothing but what the API server lists."""
        self._life += 1
        self._queue.clear()
        self._assumed.clear()
        self._on_the_way.clear()
        store = self.server.store
        self._nodes = dict(store.collection(NODES).objects)
        self._pods = dict(store.collection(PODS).objects)
        for key, pod in self._pods.items():
            self._consider(key, pod)
        life = self._life
        for resource in (NODES, PODS):
            store.collection(resource).subscribers.append(partial(self._changed, life, resource))
        self._task = self.loop.create_task(self._run(), context=WORLD.copy())

    def stop(self) -> None:
        """Die; bindings under way still arrive."""
        self._life += 1
        if self._task is not None:
            self._task.cancel()

    def passes_over(self, gang: Key | None) -> None:
        """Say nothing of the pods of ``gang`` from now on; None for serving all."""
        self._passed_over = gang
        self._woken.set()

    def _served(self) -> dict[Key, _Waiting]:
        """Return what waits and is not passed over."""
        gang = self._passed_over
        if gang is None:
            return self._queue
        return {
            key: waiting
            for key, waiting in self._queue.items()
            if (key[0], objects.label(self._pods.get(key, _NO_POD), "pod-group")) != gang
        }

    # --- caches ----------------------------------------------------------------------------

    def _changed(self, life: int, resource: str, change: Change) -> None:
        if life == self._life:
            lag = self.server.conditions.watch_lag_seconds("scheduler")
            self._latest = max(self._latest, self.loop.time() + lag)
            self._on_the_way.append((resource, change))
            self.loop.call_at(self._latest, self._see, life, context=WORLD)

    def _see(self, life: int) -> None:
        """Take in the next change: in order, even of those that arrive at the same moment."""
        if life != self._life:
            return
        resource, change = self._on_the_way.popleft()
        seen = change.after or change.before or {}
        key = (seen["metadata"].get("namespace", ""), seen["metadata"]["name"])
        cache = self._nodes if resource == NODES else self._pods
        if change.after is None:
            cache.pop(key, None)
        else:
            cache[key] = change.after
        if resource == PODS:
            self._consider(key, change.after)
        for waiting in self._queue.values():  # any event may have made room
            waiting.not_before = min(waiting.not_before, self.loop.time() + _pause(waiting.tries))
        self._woken.set()

    def _consider(self, key: Key, pod: Object | None) -> None:
        if pod is None or objects.node_of(pod) or objects.is_leaving(pod) or objects.is_gated(pod):
            self._queue.pop(key, None)
            if pod is not None and objects.node_of(pod):
                self._assumed.pop(objects.uid(pod), None)
            return
        known = self._queue.get(key)
        ours = pod["spec"].get("schedulerName", SCHEDULERS[1]) in SCHEDULERS
        if ours and (known is None or known.uid != objects.uid(pod)):
            self._queue[key] = _Waiting(objects.uid(pod))

    # --- the cycle -------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            now = self.loop.time()
            served = self._served()
            due = [key for key, waiting in served.items() if waiting.not_before <= now]
            if not due:
                wait = min((w.not_before for w in served.values()), default=now + 60) - now
                try:
                    async with asyncio.timeout(max(wait, 0.001)):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                continue
            await self._schedule(due[0])

    async def _schedule(self, key: Key) -> None:
        waiting, pod = self._queue[key], self._pods[key]
        waiting.tries += 1
        # As unschedulable pods: tried again after an event, or at the latest after five minutes.
        waiting.not_before = self.loop.time() + _FLUSH_SECONDS
        request = request_of(pod["spec"])
        words = {name: self._against(pod, request, node) for (_, name), node in self._nodes.items()}
        names = [name for name, why in words.items() if not why]
        if names and pod["spec"].get("schedulerName") == SCHEDULERS[0]:
            names, refused = await self._filtered(pod, names)
            words |= refused
        if not names:
            self._say(key, pod, words)
        await asyncio.sleep(self.chance.uniform(0.001, 0.01))
        if names and self._queue.get(key) is waiting:
            del self._queue[key]
            # By name: the order in which the extender answers must not change what a seed draws.
            node = self.chance.choice(sorted(names))
            self._assumed[objects.uid(pod)] = (node, pod)
            self.loop.create_task(self._bind(key, pod, node, waiting), context=WORLD.copy())

    def _against(self, pod: Object, request: Amounts, node: Object) -> str:
        """Return the first filter's words against ``node``; empty where it is free."""
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        taints = [t for t in node["spec"].get("taints", ()) if t["effect"] in _HARD]
        if not all(objects.tolerates(pod, taint) for taint in taints):
            return "node(s) had untolerated taint(s)"
        if not objects.may_be_on(pod, node):
            return "node(s) didn't match Pod's node affinity/selector"
        bound = [
            p["spec"]
            for p in self._pods.values()
            if objects.node_of(p) == name and objects.phase(p) not in objects.ENDED
        ]
        here = bound + [each["spec"] for at, each in self._assumed.values() if at == name]
        if objects.host_ports(pod["spec"]) & set().union(*map(objects.host_ports, here)):
            return "node(s) didn't have free ports for the requested pod ports"
        if pod["spec"].get("volumes"):
            others = [
                p["spec"]
                for p in self._pods.values()
                if objects.node_of(p) and objects.phase(p) not in objects.ENDED
            ]
            others += [each["spec"] for _, each in self._assumed.values()]
            if words := volumes.against(self.server.store, pod, node, others, here):
                return words
        if words := pod_rules.against(pod, node, list(self._nodes.values()), self._placed()):
            return words
        offered = amounts(node["status"]["allocatable"])
        asked = total([*map(request_of, here), request])
        lacking = [n for n, v in asked.items() if v > offered.get(n, 0)]
        return ", ".join(f"Insufficient {n}" for n in lacking)

    def _placed(self) -> list[pod_rules.Placed]:
        """Return the pods that hold a node or are assumed there, each with the node."""
        found = list(self._assumed.values())
        found += [
            (objects.node_of(pod), pod)
            for pod in self._pods.values()
            if objects.node_of(pod) and objects.phase(pod) not in objects.ENDED
        ]
        return [(node, pod) for name, pod in found if (node := self._nodes.get(("", name)))]

    def _say(self, key: Key, pod: Object, words: dict[str, str]) -> None:
        """Write onto the pod that no node is left; the way there takes its time."""
        counts = Counter(words.values())
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
        message = f"0/{len(words)} nodes are available: {reasons}."
        network, store, uid = self.server.conditions, self.server.store, objects.uid(pod)

        def write() -> None:
            now = store.collection(PODS).objects.get(key)
            if network.is_down or now is None or objects.uid(now) != uid or objects.node_of(now):
                return
            status = now.get("status") or {}
            conditions = {each["type"]: each for each in status.get("conditions", ())}
            before = conditions.get("PodScheduled") or {"lastTransitionTime": store.now()}
            said = {"status": "False", "reason": "Unschedulable", "message": message}
            conditions["PodScheduled"] = {**before, "type": "PodScheduled", **said}
            status = {"phase": "Pending", **status, "conditions": list(conditions.values())}
            store.update(PODS, key, {"status": status}, "status")

        self.loop.call_later(network.way_seconds(), write, context=WORLD)

    async def _filtered(self, pod: Object, names: list[str]) -> tuple[list[str], dict[str, str]]:
        """Return what the extender leaves of ``names`` (all, when it fails), and its words."""
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                reply = await self.extender.ask("filter", body)
        except (ConnectionError, TimeoutError):
            return names, {}
        answer: dict[str, Any] = msgspec.json.decode(reply)
        passed: list[str] = answer["NodeNames"]
        refused: dict[str, str] = answer["FailedAndUnresolvableNodes"]
        if not passed:
            self.tell(f"extender refuses {pod['metadata']['name']}: {min(refused.values())}")
        return passed, refused

    async def _bind(self, key: Key, pod: Object, node: str, waiting: _Waiting) -> None:
        conditions, life = self.server.conditions, self._life
        await asyncio.sleep(conditions.way_seconds())
        fault = conditions.fault("POST")
        try:
            if conditions.is_down or (fault is not None and not fault.drop_answer):
                raise ApiRefusal(503, "ServiceUnavailable", "no binding")
            volumes.bind(self.server.store, pod, node)
            bind(self.server, key, objects.uid(pod), node)
        except ApiRefusal:
            await asyncio.sleep(conditions.way_seconds(back=True))
            self._assumed.pop(objects.uid(pod), None)
            now = self._pods.get(key)
            # The scheduler may have restarted meanwhile, or another pod have that name.
            if life == self._life and now is not None and objects.uid(now) == waiting.uid:
                waiting.not_before = self.loop.time() + _pause(waiting.tries)
                if not (objects.node_of(now) or objects.is_leaving(now)):
                    self._queue[key] = waiting
                    self._woken.set()


def bind(server: ApiServer, key: Key, uid: str, node: str) -> None:
    """Bind as the API server does; Refusal when the pod is another one, bound, leaving or gated."""
    pod = server.store.get(PODS, key)
    if objects.uid(pod) != uid or objects.node_of(pod) or objects.is_leaving(pod):
        raise ApiRefusal(409, "Conflict", "the pod cannot be bound any more")
    if objects.is_gated(pod):
        raise ApiRefusal(422, "Invalid", "the pod is gated")
    server.store.update(PODS, key, {**pod, "spec": {**pod["spec"], "nodeName": node}})


def _pause(tries: int) -> float:
    return float(min(2 ** max(tries - 1, 0), 10))
