"""Structural schemas of CRDs: pruning, defaults, and the values that CEL sees.

Sources: ``k8s.io/apiextensions-apiserver/pkg/apiserver/schema``. Values that the schema itself
refuses, such as numbers out of range, are not refused here.
"""

import copy
import re
from typing import Any, Final

from testbed.controlplane.api import Manifest

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Reserved words of CEL that may not name a field; all else that is no identifier has escapes.
_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void"),
        "while",
    )
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_PART: Final = re.compile("__|[./-]")
_META: Final = {"type": "string"}
_TYPES_OF_ROOT: Final = {
    "apiVersion": _META,
    "kind": _META,
    "metadata": {"type": "object", "properties": {"name": _META, "generateName": _META}},
}


def prune_and_default(value: Manifest, schema: Manifest) -> Manifest:
    """Return a root object without unknown fields and nulls, with all defaults."""
    made = copy.deepcopy(value)
    for name, child in schema["properties"].items():
        if name in _TYPES_OF_ROOT:
            continue
        if made.get(name) is None:
            made.pop(name, None)
            if "default" in child:
                made[name] = copy.deepcopy(child["default"])
        if name in made:
            _complete(made[name], child)
    return {name: child for name, child in made.items() if name in schema["properties"]}


def _complete(value: Any, schema: Manifest) -> None:
    if isinstance(value, list):
        for each in value:
            _complete(each, schema.get("items", {}))
    if not isinstance(value, dict):
        return
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    keeps_all = schema.get("x-kubernetes-preserve-unknown-fields", False)
    for name in list(value):
        child = properties.get(name, additional)
        is_unknown = child is None and not keeps_all
        if is_unknown or (value[name] is None and child and not child.get("nullable")):
            del value[name]
    for name, child in properties.items():
        if name not in value and "default" in child:
            value[name] = copy.deepcopy(child["default"])
    for name, each in value.items():
        _complete(each, properties.get(name, additional) or {})


def with_types_of_root(schema: Manifest) -> Manifest:
    """Return the schema of a root with the metadata that rules may read: names."""
    return {**schema, "properties": {**schema["properties"], **_TYPES_OF_ROOT}}


def cel_value(value: Any, schema: Manifest) -> Any:
    """Return ``value`` as CEL sees it: doubles, and fields by their escaped names.

    Raises:
        NotImplementedError: the schema has a format whose type is not built.
    """
    if isinstance(value, list):
        return [cel_value(each, schema.get("items", {})) for each in value]
    if isinstance(value, dict):
        if "properties" in schema:
            # Fields that the schema keeps without knowing them are invisible.
            known = schema["properties"]
            return {escape(k): cel_value(v, known[k]) for k, v in value.items() if k in known}
        child = schema.get("additionalProperties", {})
        return {key: cel_value(each, child) for key, each in value.items()}
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    match schema.get("format") if isinstance(value, str) else None:
        case "date-time":
            # The library takes no timestamps in. Reading the field is possible, comparing it is an
            # error: a string in its place would be compared in silence.
            return {"@type": "google.protobuf.Timestamp", "value": value}
        case "duration" | "date" | "byte" as name:
            raise NotImplementedError(f"format {name} has no CEL type here; build it in cel_value")
    return value


def escape(name: str) -> str:
    """Return the name by which CEL selects a field."""
    if name in _RESERVED:
        return f"__{name}__"
    escaped = _PART.sub(lambda part: _ESCAPES[part[0]], name)
    return escaped if _IDENTIFIER.fullmatch(escaped) else name
