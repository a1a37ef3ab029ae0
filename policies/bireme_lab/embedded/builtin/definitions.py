"""CustomResourceDefinitions: their status, and the faults of the schemas that they carry."""

import re
from collections.abc import Mapping
from typing import Any, Final

from bireme.kube import cel
from bireme_lab.embedded.api import models, schemas
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.api.schemas import Schema
from bireme_lab.embedded.cel.rules import REASONS

_LIST_TYPES: Final = ("atomic", "map", "set")
_WITHOUT_CEL: Final = ("byte", "date", "duration")
"""Formats whose values CEL would see as other types than strings, which are not built here."""


def complete(obj: Object, old: Object | None) -> Object:
    """Establish a new definition at once: its names conflict with nobody's."""
    if old is not None:
        return obj
    since, spec = obj["metadata"]["creationTimestamp"], obj.get("spec") or {}
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    versions = [each.get("name", "") for each in spec.get("versions") or () if each.get("storage")]
    names = spec.get("names") or {}
    status = {"conditions": conditions, "acceptedNames": names, "storedVersions": versions}
    return {**obj, "status": status}


def validate(obj: Object, _: Object | None, faults: Faults) -> None:
    if faults.causes:
        return  # the checks below read the fields that lack
    spec, name = obj["spec"], obj["metadata"]["name"]
    if name != f"{spec['names']['plural']}.{spec['group']}":
        faults.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if spec["scope"] not in ("Cluster", "Namespaced"):
        faults.unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    if sum(bool(version["storage"]) for version in spec["versions"]) != 1:
        text = "must have exactly one version marked as storage version"
        faults.invalid("spec.versions", spec["versions"], text)
    for index, version in enumerate(spec["versions"]):
        place = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            faults.required(place, "schemas are required")
        elif schema.get("type") != "object":
            faults.invalid(f"{place}.type", schema.get("type", ""), "must be object at the root")
        else:
            _validate_schema(schema, faults, place, has_rules=False)


def _validate_schema(schema: Any, faults: Faults, path: str, *, has_rules: bool) -> None:
    """Add the faults of a schema; ``has_rules`` says that a schema around it has rules of CEL."""
    model = models.model("V1JSONSchemaProps")
    if model is None or not isinstance(schema, dict):
        faults.invalid(path, schema, "must be a schema")
        return
    mistyped = models.type_faults(model, schema)
    for fault in mistyped:
        faults.invalid(f"{path}.{fault.path}", fault.value, str(fault))
    if mistyped:
        return
    has_rules = has_rules or bool(schema.get("x-kubernetes-validations"))
    _validate_node(schema, faults, path, has_rules=has_rules)
    for name, each in (schema.get("properties") or {}).items():
        _validate_schema(each, faults, f"{path}.properties[{name}]", has_rules=has_rules)
    for index, each in enumerate(schema.get("allOf") or ()):
        _validate_schema(each, faults, f"{path}.allOf[{index}]", has_rules=has_rules)
    for name in ("items", "additionalProperties"):
        if name in schema and not isinstance(schema[name], bool):
            _validate_schema(schema[name], faults, f"{path}.{name}", has_rules=has_rules)


def _validate_node(schema: Schema, faults: Faults, path: str, *, has_rules: bool) -> None:
    if "type" in schema and schema["type"] not in schemas.TYPES:
        faults.unsupported(f"{path}.type", schema["type"], sorted(schemas.TYPES))
    if "pattern" in schema:
        try:
            schemas.compile_pattern(schema["pattern"])
        except re.error as error:
            faults.invalid(
                f"{path}.pattern",
                schema["pattern"],
                f"must be a valid regular expression, but isn't: {error}",
            )
    list_type = schema.get("x-kubernetes-list-type")
    if list_type not in (None, *_LIST_TYPES):
        faults.unsupported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
    if list_type == "map" and not schema.get("x-kubernetes-list-map-keys"):
        text = "must not be empty if x-kubernetes-list-type is map"
        faults.required(f"{path}.x-kubernetes-list-map-keys", text)
    if has_rules and schema.get("format") in _WITHOUT_CEL:
        text = "rules of CEL over values of this format are not built; leave the format out"
        faults.forbidden(f"{path}.format", text)
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        _validate_rule(rule, faults, f"{path}.x-kubernetes-validations[{index}]")


def _validate_rule(rule: Mapping[str, Any], faults: Faults, path: str) -> None:
    if not rule.get("rule", "").strip():
        faults.required(f"{path}.rule")
        return
    for name in ("rule", "messageExpression"):
        if name in rule:
            try:
                cel.compile_expression(rule[name], ("self", "oldSelf"))
            except cel.CelError as error:
                faults.invalid(f"{path}.{name}", rule[name], str(error))
    if rule.get("reason") not in (None, *REASONS):
        faults.unsupported(f"{path}.reason", rule["reason"], sorted(REASONS))
    if rule.get("optionalOldSelf"):
        faults.forbidden(f"{path}.optionalOldSelf", "it is not built; write the rule without")
