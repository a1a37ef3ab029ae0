"""The node life-cycle controller: taints of nodes that are not ready, and pods of lost nodes."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import is_leaving, is_ready, key_of, object_path

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_GONE_SECONDS: Final = 20.0
"""After this time the pod collector removes pods of a node that no longer exists."""


@dataclass(eq=False)
class Nodes:
    """Follows nodes and pods; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[str] = field(init=False)
    evictions: KeyQueue[Key] = field(init=False)
    _gone: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work, self.evictions = KeyQueue(self._sync), KeyQueue(self._evict)

    def start(self) -> None:
        self.client.follow(kinds.NODES, self._changed)
        self.client.follow(kinds.PODS, self._pod_changed)

    def _changed(self, change: StoreChange) -> None:
        node = change.object
        self.work.add(node["metadata"]["name"])

    def _pod_changed(self, change: StoreChange) -> None:
        node = (change.new or {}).get("spec", {}).get("nodeName")
        if change.new is not None and node:
            if self.client.get(kinds.NODES, ("", node)) is None:
                self.work.add(node)
            else:
                self.evictions.add(key_of(change.new))

    def _sync(self, name: str) -> None:
        node = self.client.get(kinds.NODES, ("", name))
        if node is None:
            self._collect(name)
            return
        self._gone.pop(name, None)
        taints = [t for t in node["spec"].get("taints") or () if t["key"] != _NOT_READY]
        if not is_ready(node):
            now = self.client.timestamp()
            had = [t for t in node["spec"].get("taints") or () if t["key"] == _NOT_READY]
            taints += had or [
                {"key": _NOT_READY, "effect": "NoSchedule", "timeAdded": now},
                {"key": _NOT_READY, "effect": "NoExecute", "timeAdded": now},
            ]
        if taints != list(node["spec"].get("taints") or ()):
            spec = {**node["spec"], "taints": taints}
            self.client.send("PUT", f"{kinds.NODES}/{name}", {**node, "spec": spec})
        for pod in self._pods_on(name):
            self.evictions.add(key_of(pod))

    def _pods_on(self, name: str) -> list[Object]:
        return [p for p in self.client.objects(kinds.PODS) if p["spec"].get("nodeName") == name]

    def _evict(self, key: Key) -> None:
        """Delete a pod whose node has a taint that it does not tolerate any longer."""
        pod = self.client.get(kinds.PODS, key)
        if pod is None or is_leaving(pod):
            return
        node = self.client.get(kinds.NODES, ("", pod["spec"].get("nodeName", "")))
        for taint in (node or {"spec": {}})["spec"].get("taints") or ():
            if taint["effect"] != "NoExecute":
                continue
            remaining = self._tolerated_seconds(pod, taint)
            if remaining is None:
                continue
            if remaining > 0:
                self.evictions.add_later(remaining, key)
                continue
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
            }
            self.client.set_pod_condition(key, pod["metadata"]["uid"], condition)
            self.client.send("DELETE", object_path(kinds.PODS, key), {})
            return

    def _tolerated_seconds(self, pod: Object, taint: Object) -> float | None:
        """Return how long a pod may stay under a taint; None for ever."""
        tolerating = [
            each
            for each in pod["spec"].get("tolerations") or ()
            if each.get("key") in (None, "", taint["key"])
            and each.get("effect") in (None, "", "NoExecute")
            and (
                each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", "")
            )
        ]
        if not tolerating:
            return 0.0
        limits = [each["tolerationSeconds"] for each in tolerating if "tolerationSeconds" in each]
        if len(limits) < len(tolerating):
            return None
        since = _seconds(taint.get("timeAdded")) or self.client.now
        return since + float(min(limits)) - self.client.now

    def _collect(self, name: str) -> None:
        """Remove the pods of a node that has not existed for a while."""
        pods = self._pods_on(name)
        if not pods:
            self._gone.pop(name, None)
            return
        since = self._gone.setdefault(name, self.client.clock())
        remaining = since + _GONE_SECONDS - self.client.clock()
        if remaining > 0:
            self.work.add_later(remaining, name)
            return
        for pod in pods:
            key = key_of(pod)
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            self.client.set_pod_condition(key, pod["metadata"]["uid"], condition)
            path = object_path(kinds.PODS, key)
            self.client.send("DELETE", path, {"gracePeriodSeconds": 0})


def _seconds(timestamp: str | None) -> float | None:
    return None if not timestamp else datetime.fromisoformat(timestamp).timestamp()
