"""The namespace controller: the content of a namespace goes before it; and default accounts."""

from dataclasses import dataclass, field

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.store import Change
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import Work

_RETRY_SECONDS = 0.2


@dataclass(eq=False)
class Namespaces:
    """Follows namespaces; runs as a task of the cluster's loop."""

    client: Client
    work: Work[str] = field(init=False)

    def __post_init__(self) -> None:
        self.work = Work(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.NAMESPACES, self._changed)

    def _changed(self, change: Change) -> None:
        if change.after is not None:
            self.work.add(change.after["metadata"]["name"])

    def _sync(self, name: str) -> None:
        found = self.client.get(kinds.NAMESPACES, ("", name))
        if found is None:
            return
        if not found["metadata"].get("deletionTimestamp"):
            if self.client.get(kinds.SERVICE_ACCOUNTS, (name, "default")) is None:
                path = f"/api/v1/namespaces/{name}/serviceaccounts"
                self.client.send("POST", path, {"metadata": {"name": "default"}})
            return
        is_empty = True
        for resource in list(self.client.api.resources):
            if not resource.is_namespaced or resource.is_create_only:
                continue
            objects = self.client.api.store.collection(resource.path).objects
            if any(key[0] == name for key in objects):
                is_empty = False
                at = f"{resource.prefix}/namespaces/{name}/{resource.plural}"
                self.client.send("DELETE", at)
        if not is_empty:
            self.work.add_later(_RETRY_SECONDS, name)
            return
        body = {**found, "spec": {"finalizers": []}}
        self.client.send("PUT", f"{kinds.NAMESPACES}/{name}/finalize", body)
