"""Volcano's PodGroups and Queues to Bireme's.

``deserved`` is what a queue may take back from others, and so is Bireme's ``guaranteed``;
Volcano's ``guarantee`` besides keeps resources idle for it, which nothing does here. The
hierarchy in annotations (``root/eng/prod`` with weights ``1/2/8``) becomes queues with parents.
"""

from collections.abc import Iterable
from typing import Any, Final

from bireme.kube import names
from bireme.migration.jobs import metadata
from bireme.migration.notes import Notes
from bireme.migration.tasks import Json

_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_MOST_WEIGHT: Final = 1000
_NO_QUEUE_COUNTERPART: Final = {
    "priority": "queues share by weight; the order of jobs is theirs (userPriority counts in it)",
    "affinity": "queues own no nodes; give the pods a nodeSelector",
    "extendClusters": "one cluster is scheduled",
    "dequeueStrategy": "a gang that fits starts before one that does not, where it delays nobody",
    "type": "has no meaning here",
}


def pod_group(document: Json, notes: Notes) -> list[Json]:
    """The PodGroup of the same name."""
    spec: Json = document.get("spec") or {}
    body: Json = {"minMember": max(1, spec.get("minMember") or 1)}
    for field in ("minTaskMember", "priorityClassName", "minResources", "queue"):
        if spec.get(field):
            body[field] = spec[field]
    for field in ("networkTopology", "subGroupPolicy"):
        if spec.get(field):
            notes.lost(f"spec.{field}", "the gang is placed as one, as close together as it fits")
    head = {"apiVersion": names.API_VERSION, "kind": "PodGroup"}
    return [{**head, "metadata": metadata(document), "spec": body}]


def queues(document: Json, known: Iterable[str], notes: Notes) -> list[Json]:
    """The queue, after those above it that only its annotations name and ``known`` lacks."""
    spec: Json = document.get("spec") or {}
    about = metadata(document)
    body: Json = {}
    above = _hierarchy(document, body, set(known), notes)
    if "weight" not in body and spec.get("weight"):
        body["weight"] = _weight(spec["weight"], notes)
    if spec.get("parent") and spec["parent"] != "root":
        body["parent"] = spec["parent"]
    if spec.get("capability"):
        body["limit"] = spec["capability"]
    _guaranteed(spec, body, notes)
    if spec.get("reclaimable") is False:
        notes.lost(
            "spec.reclaimable",
            "what a queue holds beyond its guaranteed can be taken back; raise guaranteed",
        )
    for field, instead in _NO_QUEUE_COUNTERPART.items():
        if spec.get(field):
            notes.lost(f"spec.{field}", instead)
    return [*above, _queue(about, body)]


def _queue(about: Json, body: Json) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": about, "spec": body}


def _guaranteed(spec: Json, body: Json, notes: Notes) -> None:
    reserved = (spec.get("guarantee") or {}).get("resource")
    if spec.get("deserved"):
        body["guaranteed"] = spec["deserved"]
    if reserved:
        body.setdefault("guaranteed", reserved)
        notes.changed(
            "spec.guarantee",
            "is not kept idle: others may use it, and give it back when the queue asks",
        )


def _weight(weight: int, notes: Notes) -> int:
    if weight > _MOST_WEIGHT:
        notes.changed("spec.weight", f"{weight} is above the most, {_MOST_WEIGHT}")
    return min(weight, _MOST_WEIGHT)


def _hierarchy(document: Json, body: Json, known: set[str], notes: Notes) -> list[Json]:
    """Queues for the levels between the root and this one; sets its own parent and weight."""
    annotations: dict[str, Any] = (document.get("metadata") or {}).get("annotations") or {}
    levels = [part for part in annotations.get(_HIERARCHY, "").split("/") if part][1:]
    if not levels:
        return []
    weights = [int(part) for part in annotations.get(_WEIGHTS, "").split("/") if part.isdigit()][1:]
    weights += [1] * (len(levels) - len(weights))
    body["weight"] = _weight(weights[len(levels) - 1], notes)
    above: list[Json] = []
    for depth in range(1, len(levels)):
        name = "-".join(levels[:depth])
        queue: Json = {"weight": _weight(weights[depth - 1], notes)}
        if depth > 1:
            queue["parent"] = "-".join(levels[: depth - 1])
        if name not in known:
            above.append(_queue({"name": name}, queue))
        body["parent"] = name
    notes.changed(f"metadata.annotations[{_HIERARCHY}]", "parents and weights are fields here")
    return above
