"""Server-side apply: merge by owners of fields, and who owns them in ``managedFields``.

Source: Kubernetes' documentation of server-side apply and ``sigs.k8s.io/structured-merge-diff``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme_lab.embedded.api import field_sets
from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.field_sets import Fields, MergeShape

_UNTRACKED: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


@dataclass(frozen=True, slots=True)
class Manager:
    """The author of a write, as ``managedFields`` names it."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def owns(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry of ``managedFields`` is this manager's."""
        return (
            entry["manager"] == self.name
            and entry["operation"] == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == "Apply" or entry["apiVersion"] == self.api_version)
        )

    def entry(self, fields: Fields, now: str) -> Object:
        entry: Object = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        return entry | ({"subresource": self.subresource} if self.subresource else {})


def track(old: Object | None, new: Object, manager: Manager, shape: MergeShape, now: str) -> Object:
    """Return ``new``, written by an update, with the owners of its fields.

    The manager owns what it changed, and nobody else does any more.
    """
    if old is None:
        fields = field_sets.fields_of(_tracked(new), shape)
        return _with_entries(new, [manager.entry(fields, now)] if fields else [])
    entries = list(old["metadata"].get("managedFields") or ())
    changed, removed = field_sets.changed_fields(_tracked(old), _tracked(new), shape)
    if not changed and not removed:
        return _with_entries(new, entries)
    own: Fields = {}
    others = []
    for entry in entries:
        fields = field_sets.subtract(entry["fieldsV1"], removed)
        if manager.owns(entry):
            own = fields
            continue
        fields = field_sets.subtract(fields, changed)
        if fields:
            others.append({**entry, "fieldsV1": fields})
    own = field_sets.union(own, changed)
    return _with_entries(new, [*others, manager.entry(own, now)] if own else others)


def apply(
    live: Object | None,
    applied: Object,
    manager: Manager,
    shape: MergeShape,
    now: str,
    *,
    is_forced: bool,
) -> Object:
    """Return the object after ``applied`` was applied to ``live``.

    Raises:
        Refusal: 409 for fields that others own and that would change, unless ``is_forced``.
    """
    fields = field_sets.fields_of(_tracked(applied), shape)
    if live is None:
        return _with_entries(applied, [manager.entry(fields, now)])
    entries = list(live["metadata"].get("managedFields") or ())
    previous: Fields = next((e["fieldsV1"] for e in entries if manager.owns(e)), {})
    others = [entry for entry in entries if not manager.owns(entry)]
    merged = merge(live, applied, shape)
    changed, _ = field_sets.changed_fields(_tracked(live), _tracked(merged), shape)
    conflicts = [
        (entry, clash)
        for entry in others
        if (clash := field_sets.overlap(field_sets.overlap(entry["fieldsV1"], fields), changed))
    ]
    if conflicts and not is_forced:
        raise _conflict(conflicts)
    owned_by_others: Fields = {}
    remaining = []
    for entry in others:
        retained = field_sets.subtract(entry["fieldsV1"], field_sets.overlap(fields, changed))
        owned_by_others = field_sets.union(owned_by_others, retained)
        if retained:
            remaining.append({**entry, "fieldsV1": retained})
    dropped = field_sets.subtract(field_sets.subtract(previous, fields), owned_by_others)
    merged = {**field_sets.remove(merged, dropped, shape), "metadata": merged["metadata"]} | {
        "metadata": field_sets.remove(
            merged["metadata"], dropped.get("f:metadata", {}), MergeShape(None, "metadata")
        )
    }
    return _with_entries(merged, [*remaining, manager.entry(fields, now)])


def is_same(old: Object, new: Object) -> bool:
    """Return whether two objects differ at most in the times of their owners' entries."""
    return _timeless(old) == _timeless(new)


def _timeless(obj: Object) -> Object:
    entries = obj["metadata"].get("managedFields") or ()
    bare = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
    bare.sort(key=lambda entry: (entry["manager"], entry["operation"]))
    meta = {**obj["metadata"], "managedFields": bare}
    meta.pop("resourceVersion", None)
    return {**obj, "metadata": meta}


def merge(live: Any, applied: Any, shape: MergeShape) -> Any:
    """Return ``live`` with what ``applied`` states in place of its own, past all owners."""
    previous, current = field_sets.children(live, shape), field_sets.children(applied, shape)
    if previous is None or current is None or type(live) is not type(applied):
        return applied
    merged = {element: each for element, (each, _) in previous.items()}
    for element, (each, of) in current.items():
        merged[element] = merge(merged[element], each, of) if element in merged else each
    if isinstance(applied, list):
        return [merged[element] for element in _merge_order(previous, current)]
    return {element.removeprefix("f:"): each for element, each in merged.items()}


def _merge_order(live: Iterable[str], applied: Iterable[str]) -> list[str]:
    """Return the items of both: the applied ones in their order, those of ``live`` in place.

    Source: ``visitListItems`` in structured-merge-diff's ``typed/merge.go``.
    """
    live, remaining = list(live), list(applied)
    stated, shared = (
        set(remaining),
        iter([element for element in remaining if element in set(live)]),
    )
    expected, order = next(shared, None), []
    for element in live:
        if element not in stated:
            order.append(element)
        elif element == expected:
            end = remaining.index(element) + 1
            order += remaining[:end]
            remaining, expected = remaining[end:], next(shared, None)
    return order + remaining


def _tracked(obj: Object) -> Object:
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in _UNTRACKED}
    rest = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": meta} if meta else rest


def _with_entries(obj: Object, entries: list[Object]) -> Object:
    meta = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": {**meta, "managedFields": entries} if entries else meta}


def _conflict(conflicts: list[tuple[Object, Fields]]) -> ApiRefusal:
    causes = []
    lines = []
    for entry, fields in conflicts:
        by = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
        using = f" using {entry['apiVersion']}" if entry["operation"] == "Update" else ""
        text = f'conflict with "{entry["manager"]}"{by}{using}'
        places = list(field_sets.paths(fields))
        causes += [
            {"reason": "FieldManagerConflict", "message": text, "field": each} for each in places
        ]
        lines.append((text, places))
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {lines[0][0]}: {lines[0][1][0]}"
    else:
        blocks = (f"{text}:\n" + "\n".join(f"- {each}" for each in place) for text, place in lines)
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(blocks)
    return ApiRefusal(409, "Conflict", message, {"causes": causes})
