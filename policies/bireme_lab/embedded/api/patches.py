"""Patches of objects: JSON patch, merge patch, and strategic merge patch."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from bireme_lab.embedded.api import json_patches
from bireme_lab.embedded.api.errors import ApiRefusal, Object, bad_request, shown

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_DIRECTIVE: Final = "$patch"
_DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"
_ORDER_PREFIX: Final = "$setElementOrder/"
_RETAIN_KEYS: Final = "$retainKeys"

LIST_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "ownerReferences": "uid",
    "addresses": "type",
    "taints": "key",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
"""Keys by which strategic patches merge lists of Kubernetes' kinds, from the types' tags."""
PRIMITIVE_LISTS: Final = frozenset({"finalizers"})
"""Lists of texts that strategic patches merge as sets."""


_TYPE: Final = ("apiVersion", "kind")
"""Fields that strategic patches may state and cannot change."""
_ALL: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def require_type(kind: str, *, is_custom: bool) -> None:
    """Raise a Refusal, 415, for a content type of no patch; custom kinds have no strategic ones."""
    if kind in _ALL or (kind == STRATEGIC_PATCH and not is_custom):
        return
    text = "415: Unsupported Media Type"
    if is_custom:
        text = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(_ALL)}"
        )
    raise ApiRefusal(415, "UnsupportedMediaType", text)


def decode(body: bytes) -> Any:
    """Return the content of a patch; 400 for one that is no JSON."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request("invalid JSON patch") from error


def patched(target: Object, content: Any, kind: str) -> Any:
    """Return ``target`` after a patch of this content type.

    Raises:
        Refusal: 400; the content is no patch of this type.
    """
    if content is None and kind != MERGE_PATCH:
        return target
    if not isinstance(content, list if kind == JSON_PATCH else dict):
        if content is None:
            raise bad_request("Invalid JSON Patch")
        text = f"json: cannot unmarshal {shown(content)} into Go value"
        is_strategic = kind == STRATEGIC_PATCH
        raise bad_request(text if is_strategic else f"error decoding patch: {text}")
    if kind == JSON_PATCH:
        return patch_json(target, content)
    if kind == MERGE_PATCH:
        return merge(target, content)
    stated = {name: value for name, value in dict(content).items() if name not in _TYPE}
    return merge_strategic(target, stated)


def merge(target: Any, patch: Any) -> Any:
    """Return ``target`` after a merge patch (RFC 7396): null removes, objects merge."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def patch_json(target: Object, operations: Any) -> Object:
    """Return ``target`` after a JSON patch (RFC 6902).

    Raises:
        Refusal: 422 for an operation that fails, such as a test of another value.
    """
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("error decoding patch: it must be a list of objects")
    try:
        patched: Object = json_patches.patch(target, operations)
    except json_patches.JsonPatchError as error:
        message = "the server rejected our request due to an error in our request"
        raise ApiRefusal(422, "Invalid", message) from error
    return patched


def merge_strategic(target: Any, patch: Any, name: str = "") -> Any:
    """Return ``target`` after a strategic merge patch; ``name`` is the field that it is in."""
    if isinstance(patch, list):
        return _merge_list(target if isinstance(target, list) else [], patch, name)
    if not isinstance(patch, dict):
        return deepcopy(patch)
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return {}
    if directive == "replace" or not isinstance(target, dict):
        target = {}
    merged = dict(target)
    if _RETAIN_KEYS in patch:
        _require_list(_RETAIN_KEYS, patch[_RETAIN_KEYS])
        merged = {key: merged[key] for key in merged if key in patch[_RETAIN_KEYS]}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN_KEYS) or key.startswith(_ORDER_PREFIX):
            continue
        if key.startswith(_DELETE_PREFIX):
            _require_list(key, value)
            of = key.removeprefix(_DELETE_PREFIX)
            merged[of] = [each for each in merged.get(of, ()) if each not in value]
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_strategic(merged.get(key), value, key)
    for key, order in patch.items():
        of = key.removeprefix(_ORDER_PREFIX)
        if key.startswith(_ORDER_PREFIX) and isinstance(merged.get(of), list):
            _require_list(key, order)
            merged[of] = _in_order(merged[of], order, of)
    return merged


def _merge_list(target: list[Any], patch: list[Any], name: str) -> list[Any]:
    if name in PRIMITIVE_LISTS:
        return [*target, *(value for value in patch if value not in target)]
    key = LIST_KEYS.get(name)
    directives = [each for each in patch if isinstance(each, dict) and _DIRECTIVE in each]
    if key is None or any(each == {_DIRECTIVE: "replace"} for each in directives):
        return [deepcopy(each) for each in patch if each not in directives]
    if name == "ports" and not all(
        "containerPort" in each for each in (*target, *patch) if isinstance(each, dict)
    ):
        key = "port"  # the ports of a Service
    merged = list(target)
    for each in patch:
        if not isinstance(each, dict) or key not in each:
            raise bad_request(f"map: {each} does not contain declared merge key: {key}")
        index = next((i for i, old in enumerate(merged) if old.get(key) == each[key]), None)
        if each.get(_DIRECTIVE) == "delete":
            merged = [old for old in merged if old.get(key) != each[key]]
        elif index is None:
            merged.append(merge_strategic({}, each))
        else:
            merged[index] = merge_strategic(merged[index], each)
    return merged


def _require_list(directive: str, value: Any) -> None:
    if not isinstance(value, list):
        raise bad_request(f"{directive} must be a list, not {shown(value)}")


def _in_order(items: list[Any], order: list[Any], name: str) -> list[Any]:
    key = LIST_KEYS.get(name)

    def rank(item: Any) -> int:
        element = {key: item.get(key)} if key is not None and isinstance(item, dict) else item
        return order.index(element) if element in order else len(order)

    return sorted(items, key=rank)
