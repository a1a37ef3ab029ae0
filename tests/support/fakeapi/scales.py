"""The ``/scale`` of any object with ``spec.replicas``, and who is on record for that field.

As a real API server (1.37) does it for custom resources: a merge-patch takes the field over from
anybody; a server-side apply without force is refused, with the names of the owners, where it would
change what others set, and answered with 500 where it would go through.
"""

from collections.abc import Mapping
from typing import Any

from tests.support.fakeapi.store import Key, Object, Refusal, Store

_FIELD: Object = {"f:spec": {"f:replicas": {}}}
_CREATOR: Object = {"manager": "kubectl-create", "operation": "Update", "fieldsV1": _FIELD}


def owner(manager: str, operation: str = "Update", subresource: str = "") -> Object:
    """An entry of ``metadata.managedFields`` that is on record for the replicas."""
    entry: Object = {"manager": manager, "operation": operation, "fieldsV1": _FIELD}
    return entry | ({"subresource": subresource} if subresource else {})


def scale_of(found: Object) -> Object:
    """The Scale of an object."""
    replicas = (found.get("spec") or {}).get("replicas")
    if replicas is None:
        raise Refusal(
            500, "InternalError", 'the spec replicas field ".spec.replicas" does not exist'
        )
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {name: found["metadata"][name] for name in kept if name in found["metadata"]},
        "spec": {"replicas": replicas},
        "status": {"replicas": 0},
    }


def patch_scale(
    store: Store, resource: str, key: Key, query: Mapping[str, str], content: Any, *, applies: bool
) -> Object:
    """Set the replicas, or refuse."""
    old = store.get(resource, key)
    wanted, manager = content["spec"]["replicas"], query["fieldManager"]
    if applies:
        _try_apply(old, wanted)
    meta = {**old["metadata"], "managedFields": [owner(manager, subresource="scale")]}
    meta["resourceVersion"] = content.get("metadata", {}).get(
        "resourceVersion", meta["resourceVersion"]
    )
    new = {**old, "metadata": meta, "spec": {**old["spec"], "replicas": wanted}}
    return scale_of(store.update(resource, key, new))


def _try_apply(old: Object, wanted: int) -> None:
    owners = old["metadata"].get("managedFields", [_CREATOR])
    if owners and wanted != old["spec"]["replicas"]:
        said = "".join(f"\n{_conflict(entry)}:\n- .spec.replicas" for entry in owners)
        raise Refusal(409, "Conflict", f"Apply failed with {len(owners)} conflicts:{said}")
    raise Refusal(500, "Unknown", "failed to convert live object to proper version")


def _conflict(entry: Object) -> str:
    by = f' with subresource "{entry["subresource"]}"' if "subresource" in entry else ""
    using = " using autoscaling/v1" if entry["operation"] == "Update" else ""
    return f'conflict with "{entry["manager"]}"{by}{using}'
