"""Bodies of requests: decoded, and checked against the types of the fields of their kind."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import yaml
from pydantic import BaseModel

from bireme_lab.embedded.api import models, protobuf
from bireme_lab.embedded.api.errors import ApiRefusal, Faults, Object, bad_request, invalid, shown
from bireme_lab.embedded.api.requests import ApiRequest
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.schemas import HEAD

_OF_SUBRESOURCES: Final = {
    "scale": "Scale",
    "eviction": "Eviction",
    "binding": "Binding",
}


def decode(request: ApiRequest) -> Any:
    """Return the value in the body of a request; 400 for one that cannot be read."""
    if request.content_type == protobuf.CONTENT_TYPE:
        kind = "DeleteOptions" if request.method == "DELETE" else ""
        return protobuf.decode(request.body, kind)
    try:
        if "yaml" in request.content_type:
            return yaml.safe_load(request.body)
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def decode_object(request: ApiRequest, resource: ResourceKind, subresource: str = "") -> Object:
    """Return the object in the body of a request; 400 where it is none of its kind."""
    kind = _OF_SUBRESOURCES.get(subresource, resource.kind)
    phrase = f"the object provided is unrecognized (must be of type {kind}): "
    try:
        value = decode(request)
    except ApiRefusal as refusal:
        raise bad_request(f"{phrase}{refusal.message}") from refusal
    if value is None and not (resource.is_custom and kind == resource.kind):
        value = {}
    if value is not None and not isinstance(value, dict):
        text = "json: cannot unmarshal into Go value of type struct { APIVersion; Kind }"
        raise bad_request(f"{phrase}couldn't get version/kind; json parse error: {text}")
    for name in ("apiVersion", "kind"):
        if value is not None and not isinstance(value.get(name, ""), str):
            text = f"json: cannot unmarshal into Go struct field .{name} of type string"
            raise bad_request(f"{phrase}couldn't get version/kind; json parse error: {text}")
    if kind == resource.kind and resource.is_custom and not (value or {}).get("kind"):
        shown_body = request.body.decode(errors="replace")
        raise bad_request(f"{phrase}Object 'Kind' is missing in '{shown_body}'")
    return typed(value, resource, subresource)


def decode_applied(request: ApiRequest, resource: ResourceKind) -> Object:
    """Return the object in the body of an apply; 400 where it is none of its kind."""
    try:
        value = yaml.safe_load(request.body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    content = value if isinstance(value, dict) else {}
    if value is not None and not isinstance(value, dict):
        raise bad_request(f"error decoding patch: it must be an object, not {shown(value)}")
    version, kind = content.get("apiVersion") or "", content.get("kind") or ""
    if (version, kind) != (resource.group_version, resource.kind):
        separated = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {separated}, Kind={kind}")
    return content


def require_kind(content: Object, resource: ResourceKind) -> None:
    """Raise a Refusal, 422, for an object of a custom kind that states another kind."""
    if content.get("kind") != resource.kind:
        subject = resource.subject((content.get("metadata") or {}).get("name", ""))
        faults = Faults()
        faults.invalid("kind", content.get("kind"), f"must be {resource.kind}")
        raise invalid(replace(subject, kind=str(content.get("kind"))), faults.causes)


def typed_patched(value: Any, resource: ResourceKind, subresource: str) -> Object:
    """Return what a patch has made of an object; 422 where it is none of its kind any more."""
    kind = value.get("kind", resource.kind) if isinstance(value, dict) else resource.kind
    text = f'no kind "{kind}" is registered for version "{resource.group_version}"'
    if kind == resource.kind or resource.is_custom or subresource == "scale":
        try:
            content = typed(value, resource, subresource)
        except ApiRefusal as refusal:
            text = f"json: cannot unmarshal {refusal.message}"
        else:
            if resource.is_custom:
                require_kind(content, resource)
            return content
    raise ApiRefusal(422, "Invalid", f' "" is invalid: patch: Invalid value: "{{}}": {text}')


def typed(value: Any, resource: ResourceKind, subresource: str = "") -> Object:
    """Return an object without nulls, which mean nothing in Kubernetes' own types.

    Raises:
        Refusal: 400; a field has another type than that of the kind. A custom kind has only
            metadata here, since its schema judges the rest.
    """
    if name := _OF_SUBRESOURCES.get(subresource):
        return _of_model(value, models.model(f"V1{name}"), name, "v1")
    if not resource.is_custom:
        return _of_model(value, models.model_of(resource), resource.kind, resource.version)
    if not isinstance(value, dict):
        return _of_model(value, None, resource.kind, resource.version)
    head = {name: value[name] for name in HEAD if name in value}
    rest = {name: each for name, each in value.items() if name not in HEAD}
    return {**_of_model(head, models.head_model(), resource.kind, resource.version), **rest}


def plain_metadata(meta: Object) -> Object:
    """Return metadata as Go writes them: known fields that are not empty, no ``selfLink``."""
    fields = models.metadata_fields()
    return {k: v for k, v in meta.items() if k in fields and k != "selfLink" and v not in ({}, [])}


def _of_model(value: Any, model: type[BaseModel] | None, kind: str, version: str) -> Object:
    phrase = f'{kind} in version "{version}" cannot be handled as a {kind}'
    if not isinstance(value, dict):
        raise bad_request(f"{phrase}: the body must be an object, not {shown(value)}")
    content: Object = without_nulls(_with_texts(value))
    faults = [] if model is None else models.type_faults(model, content)
    faults = faults or list(models.amount_faults(content))
    if faults:
        raise bad_request(f"{phrase}: {'; '.join(map(str, faults))}")
    return content


def _with_texts(value: Object) -> Object:
    """Return an object whose labels and annotations have empty texts in place of nulls."""
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        return value
    texts = {
        name: {k: "" if v is None else v for k, v in meta[name].items()}
        for name in ("labels", "annotations")
        if isinstance(meta.get(name), dict)
    }
    return {**value, "metadata": {**meta, **texts}}


def without_nulls(value: Any) -> Any:
    """Return ``value`` without fields that are null; null items of lists stay."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
