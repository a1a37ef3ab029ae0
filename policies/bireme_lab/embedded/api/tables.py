"""Tables of objects: what ``kubectl get`` prints, computed by the server."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from bireme_lab.embedded.api import kinds, printers
from bireme_lab.embedded.api.durations import age
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.resources import ResourceKind, TableColumn

_TOKEN: Final = re.compile(
    r"""\.([A-Za-z_][\w-]*)|\['((?:[^'\\]|\\.)*)'\]|\[(\d+|\*)\]|\[\?\(@\.([\w.]+)\s*==\s*['"]([^'"]*)['"]\)\]"""
)

_NAME: Final = TableColumn("Name", "string", ".metadata.name")
_WIDE_NAME: Final = TableColumn("Name", "string", ".metadata.name", 1)
T = TypeVar("T")


def at_path(obj: Any, path: str) -> list[Any]:
    """Return the values at a JSON path of the kind that columns of definitions have."""
    values = [obj]
    for name, quoted, index, key, desired in _TOKEN.findall(path.replace("\\.", "\0")):
        following: list[Any] = []
        for value in values:
            field = (name or quoted.replace("\\", "")).replace("\0", ".")
            if field and isinstance(value, dict) and field in value:
                following.append(value[field])
            elif index == "*" and isinstance(value, list):
                following += value
            elif index and isinstance(value, list) and int(index) < len(value):
                following.append(value[int(index)])
            elif key and isinstance(value, list):
                following += [each for each in value if str(each.get(key)) == desired]
        values = following
    return values


def table(
    resource: ResourceKind,
    objects: Iterable[Object],
    now: float,
    include: str = "Metadata",
    version: str = "",
) -> Object:
    """Return the Table of ``objects``; ``include`` is None, Metadata or Object, as requested."""
    definitions = [
        {
            "name": column.name,
            "type": "string" if column.type == "date" else column.type,
            "format": "name" if column.name == "Name" else "",
            "description": column.description,
            "priority": column.priority,
        }
        for column in _with_name(resource, _columns(resource), _NAME, _WIDE_NAME)
    ]
    rows = []
    for obj in objects:
        name = obj["metadata"]["name"]
        row: Object = {"cells": _with_name(resource, _cells(resource, obj, now), name, name)}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version} if version else {},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _with_name(resource: ResourceKind, rest: Sequence[T], name: T, wide: T) -> list[T]:
    """Return a row with the name first; those of events come last, and only with ``-o wide``."""
    return [*rest, wide] if resource.path == kinds.EVENTS else [name, *rest]


def _columns(resource: ResourceKind) -> Sequence[TableColumn]:
    return resource.columns or (TableColumn("Age", "date", ".metadata.creationTimestamp"),)


def _cells(resource: ResourceKind, obj: Object, now: float) -> list[Any]:
    special = printers.cells_of(resource, obj, now)
    if special is not None:
        return special
    return [_cell(obj, column, now) for column in _columns(resource)]


def _cell(obj: Object, column: TableColumn, now: float) -> Any:
    values = [value for value in at_path(obj, column.path) if value is not None]
    if column.type == "date":
        return age(values[0], now) if values else None
    if not values:
        return None
    value = values[0]
    if column.type == "integer":
        return int(value) if isinstance(value, int | float) else None
    if column.type == "number":
        return value if isinstance(value, int | float) else None
    if isinstance(value, bool):
        return value if column.type == "boolean" else str(value).lower()
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return str(value)
