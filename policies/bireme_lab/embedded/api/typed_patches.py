"""Types of applied objects: every field is one of the schema, and of its type.

Source: ``sigs.k8s.io/structured-merge-diff/typed``; its phrase for values are not kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bireme_lab.embedded.api import models
from bireme_lab.embedded.api.errors import ApiRefusal, Object, shown
from bireme_lab.embedded.api.patches import LIST_KEYS
from bireme_lab.embedded.api.schemas import HEAD, Schema

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_UNTYPED: Final = "x-kubernetes-int-or-string"
_WORDS: Final[Mapping[str, str]] = {
    "object": "map",
    "array": "list",
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}


def check(content: Object, schema: Schema | None) -> None:
    """Raise a Refusal, 500 as the API server's, for a field that the schema does not know."""
    faults = list(_head_faults(content.get("metadata") or {}))
    if schema is not None:
        rest = {name: value for name, value in content.items() if name not in HEAD}
        faults += _faults(rest, schema, "")
    if not faults:
        return
    meta, version = content.get("metadata") or {}, content["apiVersion"]
    separated = version if "/" in version else f"/{version}"
    name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    phrase = f"failed to create typed patch object ({name}; {separated}, Kind={content['kind']}): "
    text = faults[0] if len(faults) == 1 else "errors:" + "".join(f"\n  {item}" for item in faults)
    raise ApiRefusal(500, "", phrase + text)


def _head_faults(meta: Any) -> Iterator[str]:
    model = models.model("V1ObjectMeta")
    if model is not None:
        yield from _faults(meta, models.schema_of_model(model), ".metadata")


def _faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    kind = schema.get("type", "")
    if value is None or schema.get(_UNTYPED) or not kind:
        return
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{path}: expected {_WORDS[kind]}, got {shown(value)}"
        return
    if isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value if isinstance(items, Mapping) else ()):
            yield from _faults(item, items or {}, f"{path}[{_element(item, schema, path, index)}]")
    elif isinstance(value, dict):
        yield from _field_faults(value, schema, path)


def _element(item: Any, schema: Schema, path: str, index: int) -> str:
    """Return an item of a list as paths name it: by its keys, or by its number."""
    key = LIST_KEYS.get(path.rpartition(".")[2])
    keys = schema.get("x-kubernetes-list-map-keys") or ([key] if key else [])
    if not keys or not isinstance(item, dict):
        return str(index)
    return ",".join(f"{key}={shown(item.get(key))}" for key in keys)


def _field_faults(value: Object, schema: Schema, path: str) -> Iterator[str]:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], f"{path}.{name}")
        elif isinstance(extra, Mapping):
            yield from _faults(item, extra, f"{path}.{name}")
        elif properties and not schema.get(_OPEN):
            yield f"{path}.{name}: field not declared in schema"
