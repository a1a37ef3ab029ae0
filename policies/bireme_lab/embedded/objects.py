"""Questions about stored objects that the parts of the cluster ask again and again."""

from typing import Any, Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key

ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod that runs no more."""


def key_of(obj: Object) -> Key:
    """Return namespace and name; the namespace is empty for a cluster-scoped object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def object_path(path: str, key: Key) -> str:
    """Return the request path of one object; ``path`` is that of all objects of its kind."""
    prefix, _, plural = path.rpartition("/")
    return f"{prefix}/namespaces/{key[0]}/{plural}/{key[1]}" if key[0] else f"{path}/{key[1]}"


def phase(pod: Object) -> str:
    """Return the phase of a pod."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_ended(pod: Object) -> bool:
    """Return whether a pod runs no more."""
    return phase(pod) in ENDED


def is_leaving(obj: Object) -> bool:
    """Return whether an object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_ready(obj: Object) -> bool:
    """Return whether the condition Ready of a pod or a node holds."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def controller_of(obj: Object) -> dict[str, Any] | None:
    """Return the owner reference of an object's controller; None without one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)
