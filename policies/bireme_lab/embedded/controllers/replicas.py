"""Controllers of ``apps/v1``: StatefulSets, ReplicaSets and Deployments."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import (
    controller_of,
    is_ended,
    is_leaving,
    is_ready,
    key_of,
    object_path,
)

_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(eq=False)
class Replicas:
    """Follows the three kinds and pods; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[tuple[str, Key]] = field(init=False)

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        for path in (kinds.STATEFUL_SETS, kinds.REPLICA_SETS, kinds.DEPLOYMENTS):
            self.client.follow(path, partial(self._changed, path))
        self.client.follow(kinds.PODS, self._owned_changed)
        self.client.follow(kinds.REPLICA_SETS, self._owned_changed)

    def _changed(self, path: str, change: StoreChange) -> None:
        if change.new is not None:
            self.work.add((path, key_of(change.new)))

    def _owned_changed(self, change: StoreChange) -> None:
        pod = change.object
        owner = controller_of(pod)
        path = _PATHS.get(owner["kind"]) if owner is not None else None
        if owner is not None and path is not None:
            self.work.add((path, (pod["metadata"]["namespace"], owner["name"])))

    def _sync(self, item: tuple[str, Key]) -> None:
        path, key = item
        obj = self.client.get(path, key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        steps: dict[str, Callable[[Key, Object], None]] = {
            kinds.STATEFUL_SETS: self._stateful_set,
            kinds.REPLICA_SETS: self._replica_set,
            kinds.DEPLOYMENTS: self._deployment,
        }
        steps[path](key, obj)

    def _owned(self, path: str, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [o for o in self.client.objects(path) if (controller_of(o) or {}).get("uid") == uid]

    # --- StatefulSets --------------------------------------------------------------------------

    def _stateful_set(self, key: Key, obj: Object) -> None:
        """Make, replace and remove pods by ordinal: all at once, or each after the one before."""
        spec, replicas = obj["spec"], int(obj["spec"].get("replicas", 1))
        is_parallel = spec.get("podManagementPolicy") == "Parallel"
        pods = {pod["metadata"]["name"]: pod for pod in self._owned(kinds.PODS, obj)}
        names = [f"{key[1]}-{index}" for index in range(replicas)]
        for index, name in enumerate(names):
            pod = pods.get(name)
            if pod is None:
                self._create(obj, kinds.PODS, _stateful_pod(obj, name, index))
                if not is_parallel:
                    break
                continue
            if is_ended(pod) and not is_leaving(pod):
                self._delete(pod)  # it is made again under its name
                if not is_parallel:
                    break
                continue
            if not is_parallel and not is_ready(pod):
                break
        surplus = sorted((n for n in pods if n not in names), key=_ordinal, reverse=True)
        for name in surplus if is_parallel else surplus[:1]:
            if not is_leaving(pods[name]):
                self._delete(pods[name])
        self._write_counts(kinds.STATEFUL_SETS, key, obj, pods.values())

    # --- ReplicaSets ---------------------------------------------------------------------------

    def _replica_set(self, key: Key, obj: Object) -> None:
        replicas = int(obj["spec"].get("replicas", 1))
        pods = self._owned(kinds.PODS, obj)
        active = [p for p in pods if not is_ended(p) and not is_leaving(p)]
        for _ in range(replicas - len(active)):
            self._create(obj, kinds.PODS, _generated_pod(obj))
        by_worth = sorted(active, key=lambda p: (bool(p["spec"].get("nodeName")), is_ready(p)))
        for pod in by_worth[: max(0, len(active) - replicas)]:
            self._delete(pod)
        self._write_counts(kinds.REPLICA_SETS, key, obj, active)

    # --- Deployments ---------------------------------------------------------------------------

    def _deployment(self, key: Key, obj: Object) -> None:
        """Keep one ReplicaSet for the template; those of earlier templates go down to none."""
        spec, digest = obj["spec"], _digest(obj["spec"]["template"])
        replicas = int(spec.get("replicas", 1))
        current = None
        for owned in self._owned(kinds.REPLICA_SETS, obj):
            labels = owned["metadata"].get("labels") or {}
            count = replicas if labels.get("pod-template-hash") == digest else 0
            current = owned if count or current is None else current
            if owned["spec"].get("replicas") != count:
                scaled = {**owned, "spec": {**owned["spec"], "replicas": count}}
                self.client.send("PUT", object_path(kinds.REPLICA_SETS, key_of(owned)), scaled)
        name = f"{key[1]}-{digest}"
        if self.client.get(kinds.REPLICA_SETS, (key[0], name)) is None:
            self._create(obj, kinds.REPLICA_SETS, _replica_set_of(obj, name, digest))
        pods = [
            pod
            for owned in self._owned(kinds.REPLICA_SETS, obj)
            for pod in self._owned(kinds.PODS, owned)
        ]
        self._write_counts(kinds.DEPLOYMENTS, key, obj, pods)

    # --- writes --------------------------------------------------------------------------------

    def _create(self, owner: Object, path: str, obj: Object) -> None:
        meta = owner["metadata"]
        reference = {
            "apiVersion": "apps/v1",
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        obj["metadata"]["ownerReferences"] = [reference]
        prefix, _, plural = path.rpartition("/")
        answer = self.client.send("POST", f"{prefix}/namespaces/{meta['namespace']}/{plural}", obj)
        source = f"{owner['kind'].lower()}-controller"
        if answer.code >= 300 and answer.body.get("reason") != "AlreadyExists":
            text = f"Error creating: {answer.body.get('message')}"
            self.client.post_event(owner, "Warning", "FailedCreate", text, source)
            self.work.add_later(1.0, (_PATHS[owner["kind"]], key_of(owner)))

    def _delete(self, obj: Object) -> None:
        self.client.send("DELETE", object_path(kinds.PODS, key_of(obj)), {})

    def _write_counts(self, path: str, key: Key, obj: Object, pods: Iterable[Object]) -> None:
        alive = [pod for pod in pods if not is_ended(pod)]
        ready = sum(map(is_ready, alive))
        counts: dict[str, Any] = {
            "observedGeneration": obj["metadata"].get("generation", 1),
            "replicas": len(alive),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        if path != kinds.REPLICA_SETS:
            counts["updatedReplicas"] = len(alive)
        if path == kinds.STATEFUL_SETS:
            counts |= {"currentReplicas": len(alive), "collisionCount": 0}
        self.client.set_status(path, key, {**(obj.get("status") or {}), **counts})


_PATHS: Final = {
    "StatefulSet": kinds.STATEFUL_SETS,
    "ReplicaSet": kinds.REPLICA_SETS,
    "Deployment": kinds.DEPLOYMENTS,
}


def _stateful_pod(owner: Object, name: str, index: int) -> Object:
    pod, digest = _pod_of(owner), _digest(owner["spec"]["template"])
    labels = {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(index),
        "controller-revision-hash": f"{owner['metadata']['name']}-{digest}",
    }
    meta = {**pod["metadata"], "name": name, "labels": {**pod["metadata"]["labels"], **labels}}
    spec = {**pod["spec"], "hostname": name}
    if owner["spec"].get("serviceName"):
        spec["subdomain"] = owner["spec"]["serviceName"]
    return {**pod, "metadata": meta, "spec": spec}


def _generated_pod(owner: Object) -> Object:
    pod = _pod_of(owner)
    return {**pod, "metadata": {**pod["metadata"], "generateName": f"{owner['metadata']['name']}-"}}


def _pod_of(owner: Object) -> Object:
    template = owner["spec"]["template"]
    meta = template.get("metadata") or {}
    retained = {name: dict(meta.get(name) or {}) for name in ("labels", "annotations")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": retained, "spec": template["spec"]}


def _replica_set_of(owner: Object, name: str, digest: str) -> Object:
    spec, template = owner["spec"], owner["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), "pod-template-hash": digest}
    selector = spec["selector"]
    matching = {**(selector.get("matchLabels") or {}), "pod-template-hash": digest}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": int(spec.get("replicas", 1)),
            "selector": {**selector, "matchLabels": matching},
            "template": {**template, "metadata": {**meta, "labels": labels}},
        },
    }


def _digest(template: Object) -> str:
    """Return a short name of a template, of the letters that Kubernetes uses."""
    number = int(hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:12], 16)
    letters = []
    for _ in range(9):
        number, rest = divmod(number, len(_CHARACTERS))
        letters.append(_CHARACTERS[rest])
    return "".join(letters)


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
