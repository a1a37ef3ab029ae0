"""Scheduler and kubelets of the fake API server: pinned pods get bound, run and end.

They act on the store behind the server's back, as the real ones act behind the operator's, and
keep book of what must never happen: a node over-committed, a replica created twice.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bireme.core.gpus import GPU
from tests.support.fakeapi import FakeApi, Refusal
from tests.support.fakeapi.store import Change, Key, Object

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def succeeds(_: Object) -> str:
    """Every pod ends well."""
    return "Succeeded"


def runs(_: Object) -> str:
    """No pod ends."""
    return "Running"


class FakeKubelets:
    """Runs inside ``async with``.

    ``outcome`` says how a pod ends (``Succeeded``, ``Failed``, or ``Running`` for never).
    """

    def __init__(
        self, api: FakeApi, outcome: Callable[[Object], str] = succeeds, *, binds: bool = True
    ) -> None:
        self.outcome = outcome
        self.binds = binds
        self.created: Counter[str] = Counter()
        """How often a pod of that name was created."""
        self.violations: list[str] = []
        self._api = api
        self._work: asyncio.Queue[Key] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._api.store.collection(PODS).subscribers.append(self._seen)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._api.store.collection(PODS).subscribers.remove(self._seen)
        if self._task is not None:
            self._task.cancel()
            ended = (await asyncio.gather(self._task, return_exceptions=True))[0]
            if isinstance(ended, Exception):
                raise ended

    def end(self, pod: str, phase: str = "Succeeded") -> None:
        """Have a pod of the namespace ``default`` end in ``phase`` now."""
        self._say(("default", pod), phase, "False")

    def _seen(self, change: Change) -> None:
        if change.after is None:
            return
        meta = change.after["metadata"]
        if change.before is None:
            self.created[meta["name"]] += 1
        self._work.put_nowait((meta["namespace"], meta["name"]))

    async def _run(self) -> None:
        while True:
            key = await self._work.get()
            await asyncio.sleep(0)  # others take their turn between any two steps of a pod
            pod = self._api.store.collection(PODS).objects.get(key)
            if pod is not None:
                self._step(key, pod)

    def _step(self, key: Key, pod: Object) -> None:
        """One step further: bound, then running, then ended."""
        phase = pod.get("status", {}).get("phase", "Pending")
        if pod["spec"].get("schedulingGates") or not self.binds:
            return
        if not pod["spec"].get("nodeName"):
            node = _pin(pod)
            if node and ("", node) in self._api.store.collection(NODES).objects:
                bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
                self._api.store.update(PODS, key, bound)
                self._check(node)
        elif phase == "Pending":
            self._say(key, "Running", "True")
        elif phase == "Running" and self.outcome(pod) != "Running":
            self._say(key, self.outcome(pod), "False")

    def _say(self, key: Key, phase: str, ready: str) -> None:
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        self._api.store.update(PODS, key, {"status": status}, "status")

    def _check(self, node: str) -> None:
        used = sum(
            _gpus(p) for p in self._api.store.collection(PODS).objects.values() if _on(p, node)
        )
        try:
            offered = self._api.store.get(NODES, ("", node))["status"]["allocatable"]
        except Refusal:
            return
        if used > int(offered[GPU]):
            self.violations.append(f"node {node} holds {used} of {offered[GPU]} GPUs")


def _pin(pod: Object) -> str:
    """The node that a pod is pinned to; empty when it is not."""
    affinity: dict[str, Any] = pod["spec"].get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for requirement in term.get("matchFields") or ():
            return str(requirement["values"][0])
    return ""


def _on(pod: Object, node: str) -> bool:
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return pod["spec"].get("nodeName") == node and not ended


def _gpus(pod: Object) -> int:
    return sum(
        int((c.get("resources", {}).get("limits") or {}).get(GPU, 0))
        for c in pod["spec"]["containers"]
    )
