"""Types of applied objects: every field is one of the schema, and of its type.

Source: ``sigs.k8s.io/structured-merge-diff/typed``; its words for values are not all here.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bireme_lab.embedded.api import field_sets, models
from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.field_sets import MergeShape
from bireme_lab.embedded.api.schemas import HEAD, Schema

_SCALARS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "integer": ((int, float), "numeric (int or float)"),
    "number": ((int, float), "numeric (int or float)"),
}


def check(content: Object, schema: Schema | None) -> None:
    """Raise a Refusal, 500 as the API server's, for a field that the schema does not know."""
    faults = list(_head_faults(content.get("metadata") or {}))
    if schema is not None:
        rest = {name: value for name, value in content.items() if name not in HEAD}
        faults += type_faults(rest, schema, "")
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
        yield from type_faults(meta, models.schema_of_model(model), ".metadata")


def type_faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield the faults of types and names, each after its path."""
    kind = schema.get("type")
    if value is None or schema.get("x-kubernetes-int-or-string") or kind is None:
        return
    if kind == "object":
        yield from _faults_of_map(value, schema, path)
    elif kind == "array":
        yield from _faults_of_list(value, schema, path)
    else:
        types, name = _SCALARS[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
            yield f"{path}: expected {name}, got {_literal(value, kind)}"


def _literal(value: Any, kind: str) -> str:
    """Return a value of a wrong type as the library prints it, the type in place of a number."""
    if kind in ("integer", "number"):
        return {str: "string", bool: "bool", list: "[]interface {}"}.get(
            type(value), "map[string]interface {}"
        )
    return (
        f"&value.valueUnstructured{{Value:{json.dumps(value)}}}" if kind == "string" else str(value)
    )


def _faults_of_map(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{value}}}"
        return
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    is_open = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or extra is True
    for name, item in value.items():
        of = properties.get(name, extra)
        if isinstance(of, Mapping):
            yield from type_faults(item, of, f"{path}.{name}")
        elif properties and not is_open:
            yield f"{path}.{name}: field not declared in schema"


def _faults_of_list(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{value}}}"
        return
    keys = MergeShape(schema).keys
    elements: set[str] = set()
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if keys:
            element = field_sets.key_of(item, keys)
            if element is None:
                names = " ".join(f'"{key}"' for key in keys)
                yield (
                    f"{path}: element {index}: associative list with keys has an element that"
                    f" omits all key fields [{names}] (and doesn't have default values for any key"
                    " fields)"
                )
                return
            place = f"{path}{field_sets.element_text(element)}"
            if element in elements:
                yield f"{path}: duplicate entries for key {field_sets.element_text(element)}"
            elements.add(element)
        yield from type_faults(item, schema.get("items", {}), place)
