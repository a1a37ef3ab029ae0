"""Bodies of requests: decoded, and checked against the types of the fields of their kind."""

from typing import Any, Final

import msgspec
import yaml
from pydantic import BaseModel

from bireme_lab.embedded.api import models, protobuf
from bireme_lab.embedded.api.errors import Object, bad_request, shown
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
    if not request.body:
        return {}
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
    return typed(decode(request), resource, subresource)


def decode_options(request: ApiRequest) -> Object:
    """Return the options of a deletion, those of the query first."""
    options = _of_model(decode(request), models.model("V1DeleteOptions"), "DeleteOptions", "v1")
    seconds = request.number("gracePeriodSeconds")
    stated: Object = {} if seconds is None else {"gracePeriodSeconds": seconds}
    if "propagationPolicy" in request.query:
        stated["propagationPolicy"] = request.query["propagationPolicy"]
    return {**options, **stated}


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


def _of_model(value: Any, model: type[BaseModel] | None, kind: str, version: str) -> Object:
    phrase = f'{kind} in version "{version}" cannot be handled as a {kind}'
    if not isinstance(value, dict):
        raise bad_request(f"{phrase}: the body must be an object, not {shown(value)}")
    content: Object = _without_nulls(value)
    if model is not None and (faults := models.type_faults(model, content)):
        raise bad_request(f"{phrase}: {'; '.join(map(str, faults))}")
    return content


def _without_nulls(value: Any) -> Any:
    """Return ``value`` without fields that are null; null items of lists stay."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
