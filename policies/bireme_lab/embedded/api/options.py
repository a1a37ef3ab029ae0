"""Options of requests: dry runs, managers of fields, checks of fields, and how to delete."""

import json
from collections.abc import Mapping
from typing import Any, Final

from bireme_lab.embedded.api import errors, models, protobuf
from bireme_lab.embedded.api.bodies import decode
from bireme_lab.embedded.api.errors import Faults, Object, bad_request
from bireme_lab.embedded.api.patches import APPLY_PATCH
from bireme_lab.embedded.api.requests import ApiRequest

_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_MAX_MANAGER: Final = 128
_CHECKS: Final = ("", "Ignore", "Strict", "Warn")
_PROPAGATION: Final = ("Foreground", "Background", "Orphan")
_GO_TYPES: Final[Mapping[str, str]] = {
    "gracePeriodSeconds": "int64",
    "orphanDependents": "bool",
    "propagationPolicy": "v1.DeletionPropagation",
    "preconditions": "v1.Preconditions",
    "dryRun": "[]string",
}


def check_write(request: ApiRequest) -> None:
    """Raise a Refusal, 422, for options of a write that do not exist or do not fit."""
    faults, is_apply = Faults(), request.content_type == APPLY_PATCH
    if is_apply and not request.query.get("fieldManager"):
        faults.required("fieldManager", "is required for apply patch")
    if request.method == "PATCH" and not is_apply and "force" in request.query:
        faults.forbidden("force", "may not be specified for non-apply patch")
    _check_manager(request.query.get("fieldManager", ""), faults)
    if request.is_dry_run:
        _check_dry_run([request.query["dryRun"]], faults)
    checks = request.query.get("fieldValidation", "")
    if checks not in _CHECKS:
        faults.unsupported("fieldValidation", checks, _CHECKS)
    _refuse(_KINDS.get(request.method, ""), faults)


def decode_deletion(request: ApiRequest) -> Object:
    """Return the options of a deletion: those in the body, or else those of the query.

    Raises:
        Refusal: 400 or 422 for options that cannot be read, or do not exist.
    """
    options = _decoded(request) if request.body else _of_query(request)
    faults, policy = Faults(), options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        faults.invalid("propagationPolicy", policy, text)
    elif policy is not None and policy not in _PROPAGATION:
        faults.unsupported("propagationPolicy", policy, (*_PROPAGATION, "nil"))
    _check_dry_run(options.get("dryRun") or [], faults)
    _refuse("DeleteOptions", faults)
    return options


def _decoded(request: ApiRequest) -> Object:
    options = decode(request)
    if not isinstance(options, dict):
        text = "json: cannot unmarshal into Go value of type struct { APIVersion; Kind }"
        raise bad_request(f"couldn't get version/kind; json parse error: {text}")
    kind, version = options.get("kind", ""), options.get("apiVersion", "")
    if kind not in ("", "DeleteOptions") and request.content_type != protobuf.CONTENT_TYPE:
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" {scheme}')
    content: Object = {name: value for name, value in options.items() if value is not None}
    model = models.model("V1DeleteOptions")
    for fault in () if model is None else models.type_faults(model, content):
        name = fault.path.partition(".")[0].partition("[")[0]
        raise bad_request(
            f"json: cannot unmarshal {_go_kind(fault.value)} into Go struct field "
            f"DeleteOptions.{fault.path} of type {_GO_TYPES.get(name, 'string')}"
        )
    return content


def _of_query(request: ApiRequest) -> Object:
    options: Object = {}
    if (seconds := request.number("gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = seconds
    if request.query.get("propagationPolicy"):
        options["propagationPolicy"] = request.query["propagationPolicy"]
    if request.is_dry_run:
        options["dryRun"] = [request.query["dryRun"]]
    return options


def _check_manager(name: str, faults: Faults) -> None:
    if len(name.encode()) > _MAX_MANAGER:
        faults.too_long("fieldManager", _MAX_MANAGER)
    for index, character in enumerate(name):
        if not character.isprintable():
            text = f"invalid character U+{ord(character):04X} (at position {index})"
            quoted = json.dumps(name).replace("\\u00", "\\x")
            faults.add("fieldManager", "FieldValueInvalid", f"Invalid value: {quoted}: {text}")


def _check_dry_run(values: Any, faults: Faults) -> None:
    if any(value != "All" for value in values):
        text = f'Unsupported value: {json.dumps(values)}: supported values: "All"'
        faults.add("dryRun", "FieldValueNotSupported", text)


def _refuse(kind: str, faults: Faults) -> None:
    if faults.causes:
        raise errors.invalid(errors.Subject(kind, "meta.k8s.io", "", ""), faults.causes)


def _go_kind(value: Any) -> str:
    """Return the kind of a JSON value as Go's decoder names it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
