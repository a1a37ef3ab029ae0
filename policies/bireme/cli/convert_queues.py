"""Volcano's PodGroups and Queues as Bireme's.

A queue may reclaim its ``deserved`` resources, as with Bireme's ``guaranteed``. Volcano's
``guarantee`` also keeps them idle for the queue, which Bireme does not. The hierarchy in
annotations (``root/eng/prod`` with weights ``1/2/8``) becomes queues with parents.
"""

from typing import Any, Final

from bireme.cli.arguments import Json
from bireme.cli.conversion import Notes, copy_fields, manifest, metadata

_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_MAX_WEIGHT: Final = 1000
_NO_GROUP_COUNTERPART: Final = dict.fromkeys(
    ("networkTopology", "subGroupPolicy"), "the gang is placed as one, as close together as it fits"
)
_NO_QUEUE_COUNTERPART: Final = {
    "priority": "queues share by weight; the order of jobs is theirs (userPriority counts in it)",
    "affinity": "queues own no nodes; give the pods a nodeSelector",
    "extendClusters": "Bireme schedules one cluster",
    "dequeueStrategy": "a gang that fits may start before one that does not, if it delays no gang",
    "type": "has no meaning here",
}


def pod_group(document: Json, notes: Notes) -> list[Json]:
    spec: Json = document.get("spec") or {}
    fields = copy_fields(spec, "minTaskMember", "priorityClassName", "minResources", "queue")
    body = {"minMember": max(1, spec.get("minMember") or 1), **fields}
    notes.lost_of(spec, _NO_GROUP_COUNTERPART)
    return [manifest("PodGroup", metadata(document), body)]


def queues(document: Json, known_names: set[str], notes: Notes) -> list[Json]:
    """Return the queue, after its parents by annotation that are not in ``known_names``."""
    spec: Json = document.get("spec") or {}
    body: Json = {}
    parents = _hierarchy(document, body, known_names, notes)
    if "weight" not in body and spec.get("weight"):
        body["weight"] = _weight(spec["weight"], notes)
    if spec.get("parent") and spec["parent"] != "root":
        body["parent"] = spec["parent"]
    body |= copy_fields(spec, limit="capability", guaranteed="deserved")
    if reserved := (spec.get("guarantee") or {}).get("resource"):
        body.setdefault("guaranteed", reserved)
        notes.changed(
            "spec.guarantee",
            "does not stay idle: other queues may borrow it, and return it when this queue needs "
            "it",
        )
    if spec.get("reclaimable") is False:
        notes.lost(
            "spec.reclaimable",
            "other queues can reclaim what a queue holds above guaranteed; raise guaranteed",
        )
    notes.lost_of(spec, _NO_QUEUE_COUNTERPART)
    return [*parents, manifest("Queue", metadata(document), body)]


def _weight(weight: int, notes: Notes) -> int:
    if weight > _MAX_WEIGHT:
        notes.changed("spec.weight", f"{weight} is above the maximum, {_MAX_WEIGHT}")
    return min(weight, _MAX_WEIGHT)


def _hierarchy(document: Json, body: Json, known_names: set[str], notes: Notes) -> list[Json]:
    """Return queues for the levels below the root; set parent and weight of this one in ``body``.

    Queues in ``known_names`` are left out.
    """
    annotations: dict[str, Any] = (document.get("metadata") or {}).get("annotations") or {}
    levels = [part for part in annotations.get(_HIERARCHY, "").split("/") if part][1:]
    if not levels:
        return []
    weights = [int(part) for part in annotations.get(_WEIGHTS, "").split("/") if part.isdigit()][1:]
    weights += [1] * (len(levels) - len(weights))
    body["weight"] = _weight(weights[len(levels) - 1], notes)
    parents: list[Json] = []
    for depth in range(1, len(levels)):
        name = "-".join(levels[:depth])
        queue: Json = {"weight": _weight(weights[depth - 1], notes)}
        if depth > 1:
            queue["parent"] = "-".join(levels[: depth - 1])
        if name not in known_names:
            parents.append(manifest("Queue", {"name": name}, queue))
        body["parent"] = name
    notes.changed(f"metadata.annotations[{_HIERARCHY}]", "parents and weights are fields here")
    return parents
