"""Structural schemas of custom kinds: defaults, pruning, unknown fields, and validation.

Messages are those of Kubernetes 1.37 (``k8s.io/apiextensions-apiserver`` and its copy of
go-openapi's validators).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from bireme_lab.embedded.api.errors import Faults, shown

Schema = Mapping[str, Any]
_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_EMBEDDED_FIELDS: Final = ("apiVersion", "kind", "metadata")
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def with_defaults(value: Any, schema: Schema) -> Any:
    """Return ``value`` with the defaults of the schema; null of a non-nullable field is none."""
    if isinstance(value, dict):
        filled = dict(value)
        for name, of in schema.get("properties", {}).items():
            is_null = name in filled and filled[name] is None and not of.get("nullable")
            if (name not in filled or is_null) and "default" in of:
                filled[name] = deepcopy(of["default"])
            elif is_null:
                del filled[name]
            if name in filled:
                filled[name] = with_defaults(filled[name], of)
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            existing = schema.get("properties", {})
            filled |= {n: with_defaults(v, extra) for n, v in filled.items() if n not in existing}
        return filled
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [with_defaults(each, schema["items"]) for each in value]
    return value


HEAD: Final = ("apiVersion", "kind", "metadata")
"""Fields of every object, which its schema leaves to the API server."""


def complete_root(obj: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return an object without unknown fields and with the defaults of its schema."""
    head = {name: value for name, value in obj.items() if name in HEAD}
    rest = {name: value for name, value in obj.items() if name not in HEAD}
    pruned, _ = prune(with_defaults(rest, schema), schema)
    return {**head, **pruned}


def prune(value: Any, schema: Schema, path: str = "") -> tuple[Any, list[str]]:
    """Return ``value`` without the fields that the schema does not know, and their paths."""
    unknown: list[str] = []
    return _prune(value, schema, path, unknown), unknown


def _prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return value
        return [_prune(v, items, f"{path}[{i}]", unknown) for i, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    is_open = bool(schema.get(_UNKNOWN)) or extra is True
    result = {}
    for name, each in value.items():
        place = f"{path}.{name}" if path else name
        if name in properties:
            result[name] = _prune(each, properties[name], place, unknown)
        elif isinstance(extra, Mapping):
            result[name] = _prune(each, extra, place, unknown)
        elif is_open or (schema.get(_EMBEDDED) and name in _EMBEDDED_FIELDS):
            result[name] = each
        else:
            unknown.append(place)
    return result


def validate(value: Any, schema: Schema, faults: Faults, path: str = "") -> None:
    """Add the faults of ``value`` by ``schema`` to ``faults``."""
    if value is None and schema.get("nullable"):
        return
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    _validate_type(value, schema, faults, path)
    if "enum" in schema and value not in schema["enum"]:
        faults.unsupported(path, value, schema["enum"])
    if isinstance(value, str):
        _validate_text(value, schema, faults, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        _validate_number(value, schema, faults, path)
    elif isinstance(value, list):
        _validate_list(value, schema, faults, path)
    elif isinstance(value, dict):
        _validate_object(value, schema, faults, path)


def _validate_type(value: Any, schema: Schema, faults: Faults, path: str) -> None:
    if schema.get(_INT_OR_STRING):
        if not isinstance(value, int | str) or isinstance(value, bool):
            phrase = f'{path} in body must be of type integer,string: "{_type_name(value)}"'
            faults.add(path, "FieldValueTypeInvalid", f"Invalid value: {_typed(value)}: {phrase}")
        return
    desired = schema.get("type", "")
    if not desired:
        return
    is_right = isinstance(value, TYPES[desired])
    if isinstance(value, bool) and desired != "boolean":
        is_right = False
    if desired == "integer" and isinstance(value, float) and abs(value) < 2**63:
        is_right = value.is_integer()
    if not is_right:
        phrase = f'{path} in body must be of type {desired}: "{_type_name(value)}"'
        faults.add(path, "FieldValueTypeInvalid", f"Invalid value: {_typed(value)}: {phrase}")
    if not is_right and desired == "integer" and isinstance(value, float):
        text = f"Checked value must be of type integer (default format) in {path}"
        faults.add("<nil>", "FieldValueInvalid", f'Invalid value: "": {text}')


def _typed(value: Any) -> str:
    return f'"{_type_name(value)}"'


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    for name in ("boolean", "string", "integer", "number", "array", "object"):
        if isinstance(value, TYPES[name]):
            return name
    return type(value).__name__


def _validate_text(value: str, schema: Schema, faults: Faults, path: str) -> None:
    maximum, minimum = schema.get("maxLength"), schema.get("minLength")
    if maximum is not None and len(value) > maximum:
        faults.too_long(path, maximum)
    if minimum is not None and len(value) < minimum:
        phrase = f"{path} in body should be at least {minimum} chars long"
        faults.invalid(path, value, phrase)
    pattern = schema.get("pattern")
    if pattern is not None and not compile_pattern(pattern).search(value):
        faults.invalid(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        faults.invalid(path, value, f'{path} in body must be of type date-time: "{value}"')


_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the pattern of a schema, which is one of RE2, in Python's form."""
    # RE2's \z is Python's \Z; the other constructs in use are alike.
    return re.compile(pattern.replace(r"\z", r"\Z"))


def _validate_number(value: float, schema: Schema, faults: Faults, path: str) -> None:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None:
        is_exclusive = bool(schema.get("exclusiveMinimum"))
        if value < minimum or (is_exclusive and value == minimum):
            than = "greater than" if is_exclusive else "greater than or equal to"
            faults.invalid(path, value, f"{path} in body should be {than} {minimum}")
    if maximum is not None:
        is_exclusive = bool(schema.get("exclusiveMaximum"))
        if value > maximum or (is_exclusive and value == maximum):
            than = "less than" if is_exclusive else "less than or equal to"
            faults.invalid(path, value, f"{path} in body should be {than} {maximum}")
    limit = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""))
    if limit is not None and isinstance(value, int) and not -limit <= value < limit:
        phrase = f'{path} in body must be of type {schema["format"]}: "{value}"'
        faults.invalid(path, value, phrase)


def _validate_list(value: Sequence[Any], schema: Schema, faults: Faults, path: str) -> None:
    maximum, minimum = schema.get("maxItems"), schema.get("minItems")
    if maximum is not None and len(value) > maximum:
        faults.too_many(path, len(value), maximum)
    if minimum is not None and len(value) < minimum:
        phrase = f"{path} in body should have at least {minimum} items"
        faults.invalid(path, len(value), phrase)
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, each in enumerate(value):
            validate(each, items, faults, f"{path}[{index}]")
    _validate_uniqueness(value, schema, faults, path)


def _validate_uniqueness(value: Sequence[Any], schema: Schema, faults: Faults, path: str) -> None:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        read_rule: list[Any] = []
        for index, each in enumerate(value):
            if each in read_rule:
                faults.duplicate(f"{path}[{index}]", each)
            read_rule.append(each)
    elif kind == "map":
        names = schema["x-kubernetes-list-map-keys"]
        keys: list[tuple[Any, ...]] = []
        for index, each in enumerate(value):
            if not isinstance(each, dict):
                continue
            key = tuple(each.get(name) for name in names)
            if keys.count(key) == 1:
                shown_key = {n: v for n, v in zip(names, key, strict=True) if v is not None}
                faults.duplicate(f"{path}[{index}]", shown_key)
            keys.append(key)


def _validate_object(value: Mapping[str, Any], schema: Schema, faults: Faults, path: str) -> None:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            faults.required(_join(path, name))
    maximum = schema.get("maxProperties")
    if maximum is not None and len(value) > maximum:
        faults.too_many(path, len(value), maximum)
    minimum = schema.get("minProperties")
    if minimum is not None and len(value) < minimum:
        phrase = f"{path} in body should have at least {minimum} properties"
        faults.invalid(path, len(value), phrase)
    for name, each in value.items():
        if name in properties:
            validate(each, properties[name], faults, _join(path, name))
        elif isinstance(extra, Mapping):
            validate(each, extra, faults, _join(path, name))
    for branch in schema.get("allOf", ()):
        _validate_object(value, branch, faults, path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def rules(schema: Schema, value: Any, path: str = "") -> Iterator[tuple[str, Schema, Any]]:
    """Yield every part of ``value`` with rules of CEL: its path, its schema, the part."""
    if schema.get("x-kubernetes-validations") and value is not None:
        yield path, schema, value
    if isinstance(value, dict):
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
        for name, each in value.items():
            if name in properties:
                yield from rules(properties[name], each, _join(path, name))
            elif isinstance(extra, Mapping):
                yield from rules(extra, each, f"{path}[{shown(name)}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, each in enumerate(value):
            yield from rules(schema["items"], each, f"{path}[{index}]")


def rules_of(schema: Schema) -> Iterator[Any]:
    """Yield the rules of CEL in a schema."""
    yield from schema.get("x-kubernetes-validations", ())
    children = [*schema.get("properties", {}).values()]
    children += [schema.get("items"), schema.get("additionalProperties")]
    for child in children:
        if isinstance(child, Mapping):
            yield from rules_of(child)
