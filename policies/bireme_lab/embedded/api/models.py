"""Schemas of Kubernetes' own kinds, from the models of its Python client.

The client's models are generated from the OpenAPI document of the release: names, types,
descriptions and required fields are facts of that document.
"""

import importlib
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.schemas import Schema

_SCALARS: Final[Mapping[type, Mapping[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
# Amounts are texts or numbers in manifests.
_AMOUNTS: Final = ("limits", "requests", "capacity", "allocatable", "hard", "used", "overhead")
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True}


def schema_of(resource: ResourceKind) -> Schema | None:
    """Return the schema of one of Kubernetes' kinds; None where the client has no model."""
    hit = model_of(resource)
    return None if hit is None else schema_of_model(hit)


def model_of(resource: ResourceKind) -> type[BaseModel] | None:
    """Return the client's model of a kind."""
    version = resource.version.title()
    return model(f"{version}{resource.kind}") or model(f"Core{version}{resource.kind}")


@cache
def model(name: str) -> type[BaseModel] | None:
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    module = re.sub(r"^v1(?=[a-z])", "v1_", module)
    try:
        hit = importlib.import_module(f"kubernetes.client.models.{module}")
    except ModuleNotFoundError:
        return None
    of_kind: type[BaseModel] = getattr(hit, name)
    return of_kind


@cache
def schema_of_model(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model."""
    properties: dict[str, Any] = {}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if model.__doc__:
        schema["description"] = model.__doc__.strip()
    required = []
    for name, info in model.model_fields.items():
        wire = info.serialization_alias or info.alias or name
        of = dict(_of_type(info.annotation, wire))
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
