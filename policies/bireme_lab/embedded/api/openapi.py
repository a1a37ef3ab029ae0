"""OpenAPI documents: what kubectl explains, validates and merges by.

Those of version 3 are whole. That of version 2, by which kubectl checks the items of a List before
it sends them, names no kind, so that the server alone checks them.
"""

import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from bireme_lab.embedded.api import models, patches
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest
from bireme_lab.embedded.api.resources import ResourceKind, ResourceKinds

ROOT: Final = "/openapi/v3"
_VERSION_2: Final = "/openapi/v2"
# The message openapi.v2.Document: swagger, info with title and version, no paths, no definitions.
_EMPTY_DOCUMENT: Final = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.37.1\x42\x00\x4a\x00"
_METADATA: Final = "V1ObjectMeta"
_PARAMETERS: Final = tuple(
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
)


def index(resources: ResourceKinds) -> Object:
    """Return the list of documents, one for each group and version."""
    prefixes = dict.fromkeys(resource.prefix.removeprefix("/") for resource in resources)
    paths = {prefix: {"serverRelativeURL": f"{ROOT}/{prefix}"} for prefix in prefixes}
    return {"paths": paths}


def document(resources: ResourceKinds, path: str) -> Object | None:
    """Return the document at ``path``, such as ``/openapi/v3/apis/batch/v1``; None for none."""
    members = [r for r in resources if f"{ROOT}{r.prefix}" == path]
    if not members:
        return None
    components: dict[str, Object] = {}
    paths: dict[str, Object] = {}
    for resource in members:
        _add_kind(resource, components)
        prefix = (
            f"{resource.prefix}/namespaces/{{namespace}}"
            if resource.is_namespaced
            else (resource.prefix)
        )
        operation = {
            "x-kubernetes-group-version-kind": _kind(resource),
            "parameters": list(_PARAMETERS),
            "responses": {},
        }
        paths[f"{prefix}/{resource.plural}"] = {
            "post": {**operation, "x-kubernetes-action": "post"},
            "get": {**operation, "x-kubernetes-action": "list"},
        }
        paths[f"{prefix}/{resource.plural}/{{name}}"] = {
            "get": {**operation, "x-kubernetes-action": "get"},
            "put": {**operation, "x-kubernetes-action": "put"},
            "patch": {**operation, "x-kubernetes-action": "patch"},
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def answer(resources: ResourceKinds, request: ApiRequest) -> ApiAnswer | None:
    """Answer a request for a document; None for one that asks for something else."""
    path = request.path.rstrip("/")
    if path == _VERSION_2:
        return ApiAnswer(200, _EMPTY_DOCUMENT)
    if path == ROOT:
        return ApiAnswer(200, index(resources))
    body = document(resources, path) if path.startswith(ROOT) else None
    return None if body is None else ApiAnswer(200, body)


def _kind(resource: ResourceKind) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _add_kind(resource: ResourceKind, components: dict[str, Object]) -> None:
    name = f"{resource.group or 'core'}.{resource.version}.{resource.kind}"
    if resource.schema is not None:
        head = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _reference(_METADATA),
        }
        _add_model(models.model(_METADATA), components)
        properties = {**resource.schema.get("properties", {}), **head}
        schema = {**resource.schema, "properties": properties}
    else:
        model = models.model_of(resource)
        if model is None:
            return
        _add_model(model, components)
        schema = components.pop(model.__name__)
    components[name] = {**schema, "x-kubernetes-group-version-kind": [_kind(resource)]}


def _add_model(model: type[BaseModel] | None, components: dict[str, Object]) -> None:
    if model is None or model.__name__ in components:
        return
    components[model.__name__] = {}
    schema = models.schema_of_model(model)
    properties = {}
    for name, info in model.model_fields.items():
        wire = info.serialization_alias or info.alias or name
        properties[wire] = _property(info.annotation, wire, schema["properties"][wire], components)
    components[model.__name__] = {**schema, "properties": properties}


def _property(
    annotation: Any, name: str, schema: Mapping[str, Any], components: dict[str, Object]
) -> Object:
    """Return the schema of a field, with a reference in place of every model."""
    told = {"description": schema["description"]} if "description" in schema else {}
    kind = annotation
    while get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        if len(kinds) == 1:
            return _property(kinds[0], name, schema, components)
        return dict(schema)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        _add_model(kind, components)
        return {"allOf": [_reference(kind.__name__)], "default": {}, **told}
    if get_origin(kind) is list:
        items = _property(get_args(kind)[0], "", schema.get("items", {}), components)
        merged: Object = {}
        if name in patches.LIST_KEYS:
            merged = {
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": patches.LIST_KEYS[name],
            }
        elif name in patches.PRIMITIVE_LISTS:
            merged = {"x-kubernetes-patch-strategy": "merge"}
        return {"type": "array", "items": items, **told, **merged}
    if get_origin(kind) is dict:
        values = _property(
            get_args(kind)[1], "", schema.get("additionalProperties", {}), components
        )
        return {"type": "object", "additionalProperties": values, **told}
    return dict(schema)


def _reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}
