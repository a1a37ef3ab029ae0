"""The values of a structural schema as CEL sees them.

Sources: ``k8s.io/apiextensions-apiserver/pkg/apiserver/schema``. Values that the schema itself
refuses, such as numbers out of range, are not refused here.
"""

import re
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object as Manifest

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


def with_types_of_root(schema: Manifest) -> Manifest:
    """Return the schema of a root with the metadata that rules may read: names."""
    return {**schema, "properties": {**schema.get("properties", {}), **_TYPES_OF_ROOT}}


def cel_value(value: Any, schema: Manifest) -> Any:
    """Return ``value`` as CEL sees it: doubles, and fields by their escaped names."""
    if isinstance(value, list):
        return [cel_value(each, schema.get("items", {})) for each in value]
    if isinstance(value, dict):
        if "properties" in schema:
            # Fields that the schema keeps without knowing them are invisible.
            known = schema["properties"]
            return {escape(k): cel_value(v, known[k]) for k, v in value.items() if k in known}
        extra = schema.get("additionalProperties")
        child = extra if isinstance(extra, dict) else {}
        return {key: cel_value(each, child) for key, each in value.items()}
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    if schema.get("format") == "date-time" and isinstance(value, str):
        # The library takes no timestamps in. Reading the field is possible, comparing it is an
        # error: a string in its place would be compared in silence.
        return {"@type": "google.protobuf.Timestamp", "value": value}
    return value


def escape(name: str) -> str:
    """Return the name by which CEL selects a field."""
    if name in _RESERVED:
        return f"__{name}__"
    escaped = _PART.sub(lambda part: _ESCAPES[part[0]], name)
    return escaped if _IDENTIFIER.fullmatch(escaped) else name
