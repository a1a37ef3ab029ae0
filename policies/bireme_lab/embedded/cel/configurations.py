"""Apply configurations of mutating policies: checked by the schema of a kind, then merged.

Source: ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`` and the validation of
``sigs.k8s.io/structured-merge-diff``.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bireme_lab.embedded.api import apply, field_sets
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.field_sets import MergeShape
from bireme_lab.embedded.api.schemas import Schema

_SCALARS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "integer": ((int, float), "numeric (int or float)"),
    "number": ((int, float), "numeric (int or float)"),
}


class ConfigurationError(ValueError):
    """A configuration does not fit its kind, in the API server's words."""


def merge_configuration(obj: Manifest, configuration: Manifest, schema: Schema) -> Manifest:
    """Return ``obj`` with what ``configuration`` states.

    Raises:
        ConfigurationError: it has a field that the kind has not, or replaces a field whole.
    """
    stated = {**configuration, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    if faults := list(_type_faults(stated, schema, "")):
        text = (
            faults[0] if len(faults) == 1 else "\n".join(["errors:", *(f"  {f}" for f in faults)])
        )
        raise ConfigurationError(f"failed to convert patch object to typed object: {text}")
    shape = MergeShape(schema)
    if atomic := list(_atomic_paths(stated, shape, "")):
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise ConfigurationError(f"invalid ApplyConfiguration: {text}")
    result: Manifest = apply.merge(obj, stated, shape)
    return result


def _atomic_paths(value: Any, shape: MergeShape, path: str) -> Iterator[str]:
    """Yield the paths of all parts that a merge would replace whole."""
    if isinstance(value, dict):
        if shape.is_atomic_map:
            yield path
        for name, item in value.items():
            yield from _atomic_paths(item, shape.field(name), f"{path}.{name}")
    elif isinstance(value, list):
        if not shape.keys and not shape.is_set:
            yield path
        for index, item in enumerate(value):
            yield from _atomic_paths(item, shape.item(), f"{path}[{index}]")


def _type_faults(value: Any, schema: Schema, path: str) -> Iterator[str]:
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
            yield from _type_faults(item, of, f"{path}.{name}")
        elif not is_open:
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
        yield from _type_faults(item, schema.get("items", {}), place)
