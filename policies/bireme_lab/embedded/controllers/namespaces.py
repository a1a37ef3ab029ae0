"""The namespace controller: the content of a namespace goes before it; and default accounts."""

from dataclasses import dataclass, field

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.store import StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue

_RETRY_SECONDS = 0.2


@dataclass(eq=False)
class Namespaces:
    """Follows namespaces; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.NAMESPACES, self._changed)

    def _changed(self, change: StoreChange) -> None:
        if change.new is not None:
            self.work.add(change.new["metadata"]["name"])

    def _sync(self, name: str) -> None:
        namespace = self.client.get(kinds.NAMESPACES, ("", name))
        if namespace is None:
            return
        if not namespace["metadata"].get("deletionTimestamp"):
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
                path = f"{resource.prefix}/namespaces/{name}/{resource.plural}"
                self.client.send("DELETE", path)
        if not is_empty:
            self.work.add_later(_RETRY_SECONDS, name)
            return
        body = {**namespace, "spec": {"finalizers": []}}
        self.client.send("PUT", f"{kinds.NAMESPACES}/{name}/finalize", body)
