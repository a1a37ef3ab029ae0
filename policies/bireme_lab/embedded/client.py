"""Access of the cluster's own programs to the API server: as one user, without HTTP."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, ApiUser
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.objects import object_path

_EMPTY: Final[Mapping[str, str]] = {}


@dataclass(eq=False)
class Client:
    """Requests of ``user``; ``clock`` is monotonic seconds."""

    api: ApiServer
    user: ApiUser
    clock: Callable[[], float]

    @property
    def now(self) -> float:
        """POSIX seconds."""
        return self.api.now()

    def timestamp(self) -> str:
        return self.api.timestamp()

    def send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] = _EMPTY,
    ) -> ApiAnswer:
        """Send a request and return its answer, which may be a refusal."""
        answer = self.api.answer(
            ApiRequest(
                method,
                path,
                query=query,
                user=self.user,
                content_type=content_type,
                user_agent=self.user.name.rpartition(":")[2],
                body=b"" if body is None else msgspec.json.encode(body),
            )
        )
        if not isinstance(answer, ApiAnswer):
            raise TypeError(f"{method} {path} starts a watch; use follow")
        return answer

    def follow(self, path: str, changed: Callable[[StoreChange], None]) -> None:
        """Call ``changed`` for every object of a resource, and from now on for every change."""
        collection = self.api.store.collection(path)
        for obj in list(collection.objects.values()):
            changed(StoreChange(int(obj["metadata"]["resourceVersion"]), None, obj))
        collection.subscribers.append(changed)

    def get(self, path: str, key: Key) -> Object | None:
        """Return a stored object, or None; nobody may edit it."""
        return self.api.store.get(path, key)

    def objects(self, path: str) -> list[Object]:
        """Return all objects of a resource."""
        return list(self.api.store.collection(path).objects.values())

    def namespace_labels(self) -> dict[str, Mapping[str, str]]:
        """Return the labels of every namespace."""
        return {
            obj["metadata"]["name"]: obj["metadata"].get("labels") or {}
            for obj in self.objects(kinds.NAMESPACES)
        }

    def set_pod_condition(self, key: Key, uid: str, condition: Object) -> None:
        """Set a condition of a pod, unless it is another pod by now or has it already."""
        pod = self.get(kinds.PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        status = pod.get("status") or {}
        conditions = list(status.get("conditions") or ())
        old: Object = next((c for c in conditions if c["type"] == condition["type"]), {})
        same = all(old.get(name) == value for name, value in condition.items())
        if same:
            return
        changed = old.get("status") != condition["status"]
        since = self.timestamp() if changed else old.get("lastTransitionTime", self.timestamp())
        new = {"lastProbeTime": None, "lastTransitionTime": since, **condition}
        others = [c for c in conditions if c["type"] != condition["type"]]
        self.set_status(kinds.PODS, key, {**status, "conditions": [*others, new]})

    def set_status(self, path: str, key: Key, status: Mapping[str, Any]) -> None:
        """Replace the status of an object, if it still exists."""
        obj = self.get(path, key)
        if obj is None or obj.get("status") == status:
            return
        meta = {"name": key[1], "uid": obj["metadata"]["uid"]}
        body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta}
        self.send("PUT", f"{object_path(path, key)}/status", {**body, "status": dict(status)})

    def post_event(self, about: Object, kind: str, reason: str, message: str, source: str) -> None:
        """Post an event about an object; a repeated one counts up."""
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        text = f"{meta['uid']}{reason}{message}{source}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        key = (namespace, f"{meta['name'][:200]}.{digest}")
        existing = self.get(kinds.EVENTS, key)
        now = self.timestamp()
        path = f"/api/v1/namespaces/{namespace}/events"
        if existing is not None:
            counted = {**existing, "count": existing.get("count", 1) + 1, "lastTimestamp": now}
            self.send("PUT", f"{path}/{key[1]}", counted)
            return
        involved = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        } | ({"namespace": meta["namespace"]} if meta.get("namespace") else {})
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": key[1], "namespace": namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.send("POST", path, event)
