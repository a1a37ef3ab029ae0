"""Schemas of Kubernetes' own kinds, from the models of its Python client.

The client's models are generated from the OpenAPI document of the release: names, types,
descriptions and required fields are facts of that document.
"""

import importlib
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, StrictStr, ValidationError, create_model

from bireme_lab.embedded.amounts import QUANTITY, QUANTITY_WORDS
from bireme_lab.embedded.api import list_types
from bireme_lab.embedded.api.errors import shown
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.schemas import Schema

_SCALARS: Final[Mapping[type, Mapping[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
# Amounts are texts or numbers in manifests.
_AMOUNTS: Final = (
    *("limits", "requests", "capacity", "allocatable", "hard", "used", "overhead"),
    *("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"),
)
_SHORT: Final = (
    *("value", "parallelism", "completions", "backoffLimit", "replicas", "priority"),
    *("containerPort", "hostPort", "weight"),
)
"""Fields of 32 bits, which the client's models do not tell from those of 64."""
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True}


def schema_of(resource: ResourceKind) -> Schema | None:
    """Return the schema of one of Kubernetes' kinds; None where the client has no model."""
    model = model_of(resource)
    return None if model is None else schema_of_model(model)


def model_of(resource: ResourceKind) -> type[BaseModel] | None:
    """Return the client's model of a kind."""
    version = resource.version.title()
    return model(f"{version}{resource.kind}") or model(f"Core{version}{resource.kind}")


@cache
def model(name: str) -> type[BaseModel] | None:
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    module = re.sub(r"^v1(?=[a-z])", "v1_", module)
    try:
        source = importlib.import_module(f"kubernetes.client.models.{module}")
    except ModuleNotFoundError:
        return None
    of_kind: type[BaseModel] = getattr(source, name)
    return of_kind


@cache
def head_model() -> type[BaseModel]:
    """Return a model of the fields that objects of all kinds have."""
    meta: Any = model("V1ObjectMeta")
    fields: dict[str, Any] = {
        "apiVersion": (StrictStr | None, None),
        "kind": (StrictStr | None, None),
        "metadata": (meta | None, None),
    }
    return create_model("Head", **fields)


@cache
def metadata_fields() -> frozenset[str]:
    """Return the names of the fields that metadata have."""
    meta = model("V1ObjectMeta")
    return frozenset(() if meta is None else schema_of_model(meta)["properties"])


@dataclass(frozen=True, slots=True)
class TypeFault:
    """A field that has another type than that of its kind.

    Attributes:
        types: Names of the types that it may have.
        words: The server's own words for it, if it has some.
    """

    path: str
    types: tuple[str, ...]
    value: Any
    words: str = ""

    def __str__(self) -> str:
        if self.words:
            return self.words
        return f"{self.path} must be {' or '.join(self.types)}, not {shown(self.value)}"


def type_faults(model: type[BaseModel], value: Any) -> list[TypeFault]:
    """Return the fields of ``value`` with another type than the model's."""
    faults: dict[str, TypeFault] = {}
    for place, kind, part in _errors(model, value):
        if kind in _UNTYPED or (kind == "string" and _is_amount(place, part)):
            continue
        path = _path(place[:-1] if _UNION_MEMBER.match(str(place[-1])) else place)
        types = faults[path].types if path in faults else ()
        faults[path] = TypeFault(path, tuple(dict.fromkeys((*types, _TYPES[kind]))), part)
    return list(faults.values())


def amount_faults(value: Any, path: str = "") -> Iterator[TypeFault]:
    """Yield the amounts of resources that are none, and numbers with more than their 32 bits."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from amount_faults(each, f"{path}[{index}]")
    for name, each in value.items() if isinstance(value, dict) else ():
        if name == "openAPIV3Schema":
            continue  # it has names of fields, and no values
        place = f"{path}.{name}".removeprefix(".")
        if name in _SHORT and isinstance(each, int) and not -(2**31) <= each < 2**31:
            yield TypeFault(place, ("a number of 32 bits",), each)
        if name in _AMOUNTS and isinstance(each, dict):
            for resource, amount in each.items():
                if isinstance(amount, str) and not QUANTITY.fullmatch(amount):
                    path = f"{place}.{resource}"
                    yield TypeFault(path, ("a quantity",), amount, QUANTITY_WORDS)
        else:
            yield from amount_faults(each, place)


def missing_fields(model: type[BaseModel], value: Any) -> list[str]:
    """Return the paths of required fields that ``value`` lacks."""
    return [_path(place) for place, kind, _ in _errors(model, value) if kind == "missing"]


def _errors(model: type[BaseModel], value: Any) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Yield place, first word of pydantic's type of error, and the value there."""
    try:
        model.model_validate_json(msgspec.json.encode(value), strict=True)
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False, include_context=False):
            yield error["loc"], error["type"].partition("_")[0], error["input"]


def _is_amount(place: tuple[Any, ...], value: Any) -> bool:
    return place[-2:-1] != () and place[-2] in _AMOUNTS and type(value) in (int, float)


def _path(place: tuple[Any, ...]) -> str:
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)
    return "".join(parts).removeprefix(".")


_UNTYPED: Final = ("missing", "extra")
"""Errors that are not about types: defaults may fill the one, and pruning drops the other."""
_UNION_MEMBER: Final = re.compile(r"(int|float|str|bytes|bool|(dict|list)\[.*\])$")
_TYPES: Final[Mapping[str, str]] = {
    "string": "a string",
    "bytes": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "datetime": "a time such as 2030-01-01T00:00:00Z",
}
"""Names of types, by the first word of pydantic's type of error."""


@cache
def schema_of_model(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model."""
    properties: dict[str, Any] = {}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        **list_types.of_model(model.__name__),
    }
    if model.__doc__:
        schema["description"] = model.__doc__.strip()
    required = []
    for name, info in model.model_fields.items():
        wire = info.serialization_alias or info.alias or name
        of = {**_of_type(info.annotation, wire), **list_types.of_field(model.__name__, wire)}
        if info.description:
            of["description"] = info.description
        properties[wire] = of
        if info.is_required():
            required.append(wire)
    if required:
        schema["required"] = required
    return schema


def _of_type(annotation: Any, name: str) -> Mapping[str, Any]:
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return _of_type(get_args(annotation)[0], name)
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        if len(kinds) == 1:
            return _of_type(kinds[0], name)
        return _INT_OR_STRING
    if origin is list:
        return {"type": "array", "items": dict(_of_type(get_args(annotation)[0], name))}
    if origin is dict:
        value = _INT_OR_STRING if name in _AMOUNTS else _of_type(get_args(annotation)[1], name)
        return {"type": "object", "additionalProperties": dict(value)}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation.__name__ == "V1JSONSchemaProps":  # schemas contain schemas
            return _ANYTHING
        return schema_of_model(annotation)
    if isinstance(annotation, type) and annotation in _SCALARS:
        return _SCALARS[annotation]
    if getattr(annotation, "__name__", "") == "datetime":
        return {"type": "string", "format": "date-time"}
    return _ANYTHING
