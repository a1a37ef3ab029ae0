"""An embedded cluster: the API server with all its kinds, and the controllers beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import Answer, Request
from bireme_lab.embedded.api.resources import Resources, custom_resources
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.store import Change
from bireme_lab.embedded.builtin.kinds import behaviours
from bireme_lab.embedded.builtin.priorities import SYSTEM_CLASSES, priority_admission

_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


def make_api(now: Callable[[], float]) -> ApiServer:
    """Return an API server with Kubernetes' kinds, its first objects, and definitions at work."""
    api = ApiServer(now, Resources(kinds.KINDS), behaviours=behaviours())
    api.mutators.append(priority_admission(api.store))
    api.store.collection(kinds.DEFINITIONS).subscribers.append(Definitions(api).changed)
    api.documents |= dict.fromkeys(("/healthz", "/livez", "/readyz"), _healthy)
    for name in _NAMESPACES:
        put(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    for name, value in SYSTEM_CLASSES.items():
        put(api, kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    return api


def put(api: ApiServer, path: str, obj: Object) -> Object:
    """Create an object as the administrator; ``path`` is that of its collection."""
    answer = api.answer(Request("POST", path, body=msgspec.json.encode(obj), user_agent="embedded"))
    assert isinstance(answer, Answer) and answer.code == 201, answer
    created: Object = answer.body
    return created


def _healthy(_: Request) -> Answer:
    return Answer(200, "ok")


@dataclass(eq=False)
class Definitions:
    """Serves the kinds of CustomResourceDefinitions while these exist."""

    api: ApiServer
    _served: dict[str, list[str]] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        """Follow a change of a definition."""
        found = change.after or change.before
        if found is None:
            return
        name = found["metadata"]["name"]
        for path in self._served.pop(name, []):
            self.api.resources.remove(path)
        if change.after is None:
            return
        served = list(custom_resources(change.after))
        for resource in served:
            self.api.resources.add(resource)
        self._served[name] = [resource.path for resource in served]
        if not (change.after.get("status") or {}).get("conditions"):
            self._establish(change.after)

    def _establish(self, definition: Object) -> None:
        at = definition["metadata"]["creationTimestamp"]
        names = definition["spec"]["names"]
        conditions = [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": at,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        stored = [v["name"] for v in definition["spec"]["versions"] if v.get("storage")]
        status: Any = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}
        key = ("", definition["metadata"]["name"])
        self.api.store.write(kinds.DEFINITIONS, key, {**definition, "status": status})


def wall_clock() -> float:
    return time.time()
