"""Rules of CRDs (``x-kubernetes-validations``): the verdict of the API server on an object.

Source: ``k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go``.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bireme.kube import cel
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.schemas import complete_root
from bireme_lab.embedded.cel import values as cel_values

_OLD: Final = re.compile(r"\boldSelf\b")
REASONS: Final = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
"""Words of the reasons that a rule may give."""
_MAX_MESSAGE_BYTES: Final = 5 * 1024


@dataclass(frozen=True)
class BrokenRule:
    """One rule that an object breaks.

    Attributes:
        rule: Place of the rule: the path of its schema, and its number there.
    """

    path: str
    body: str
    rule: tuple[str, int]

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


def schema_of(definition: Manifest) -> Manifest:
    """Return the schema of the only version of a CRD."""
    (version,) = definition["spec"]["versions"]
    schema: Manifest = version["schema"]["openAPIV3Schema"]
    return schema


def judge(definition: Manifest, new: Manifest, old: Manifest | None = None) -> Manifest:
    """Return ``new`` as the API server stores it.

    Args:
        definition: The CRD.
        new: The object of the request.
        old: The stored object, for an update.

    Raises:
        Refusal: it breaks rules.
    """
    schema = schema_of(definition)
    made = complete_root(new, schema)
    broken = list(faults(schema, made, old))
    if broken:
        kind = f"{definition['spec']['names']['kind']}.{definition['spec']['group']}"
        texts = list(dict.fromkeys(map(str, broken)))
        words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        name = made["metadata"]["name"]
        raise ApiRefusal(422, "Invalid", f"{kind} {json.dumps(name)} is invalid: {words}")
    return made


def faults(schema: Manifest, new: Any, old: Any = None) -> Iterator[BrokenRule]:
    """Yield what of a stored root object breaks a rule."""
    root = cel_values.with_types_of_root(schema)
    is_same = old is not None and new == old
    yield from _own_faults(root, _Place("", ""), new, old, is_same=is_same)
    yield from _faults_of_children(schema, _Place("", ""), new, old, is_same=is_same)


def places(schema: Manifest, place: str = "") -> Iterator[tuple[str, int]]:
    """Yield the place of every rule in a schema, as :class:`BrokenRule` names it."""
    for index, _ in enumerate(schema.get("x-kubernetes-validations", ())):
        yield place, index
    for name, child in schema.get("properties", {}).items():
        yield from places(child, f"{place}.{name}".removeprefix("."))
    for key, suffix in (("items", "[]"), ("additionalProperties", "[*]")):
        if isinstance(schema.get(key), dict):
            yield from places(schema[key], f"{place}{suffix}")


@dataclass(frozen=True)
class _Place:
    """Path of a value, and of its schema."""

    path: str
    schema: str

    def item(self, index: int) -> "_Place":
        return _Place(f"{self.path}[{index}]", f"{self.schema}[]")

    def field(self, name: str) -> "_Place":
        path, schema = (f"{each}.{name}".removeprefix(".") for each in (self.path, self.schema))
        return _Place(path, schema)

    def entry(self, key: str) -> "_Place":
        return _Place(f"{self.path}[{key}]", f"{self.schema}[*]")


def _faults(
    schema: Manifest, place: _Place, new: Any, old: Any, *, is_same: bool
) -> Iterator[BrokenRule]:
    """Yield faults of a node and all below it; ``is_same`` says that an ancestor is unchanged."""
    if new is None:
        return
    is_same = new == old if old is not None else is_same
    yield from _own_faults(schema, place, new, old, is_same=is_same)
    yield from _faults_of_children(schema, place, new, old, is_same=is_same)


def _faults_of_children(
    schema: Manifest, place: _Place, new: Any, old: Any, *, is_same: bool
) -> Iterator[BrokenRule]:
    if isinstance(new, list) and "items" in schema:
        partners = _by_key(schema, old)
        for index, each in enumerate(new):
            partner = partners.get(_key(schema, each))
            yield from _faults(schema["items"], place.item(index), each, partner, is_same=is_same)
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name in sorted(new):
            child, where = schema.get("properties", {}).get(name), place.field(name)
            if child is None:
                child, where = schema.get("additionalProperties"), place.entry(name)
            if isinstance(child, dict):  # additionalProperties may be true
                yield from _faults(child, where, new[name], before.get(name), is_same=is_same)


def _by_key(schema: Manifest, old: Any) -> dict[Any, Any]:
    """Return old items by their key; only those of lists that are maps have partners."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_key(schema, each): each for each in old}


def _key(schema: Manifest, item: Any) -> tuple[Any, ...]:
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return tuple(item.get(key) for key in keys) if isinstance(item, dict) else ()


def _own_faults(
    schema: Manifest, place: _Place, new: Any, old: Any, *, is_same: bool
) -> Iterator[BrokenRule]:
    rules = schema.get("x-kubernetes-validations", ())
    if not rules:
        return
    values = {"self": cel_values.cel_value(new, schema)}
    if old is not None:
        values["oldSelf"] = cel_values.cel_value(old, schema)
    for index, rule in enumerate(rules):
        is_transition = bool(_OLD.search(rule["rule"]))
        if is_transition and old is None:
            continue
        fault = _fault(rule, schema, place.path, new, values)
        # An object that was stored with the fault may keep it where it does not change.
        if fault is not None and (is_transition or not is_same):
            yield BrokenRule(*fault, (place.schema, index))


def _fault(
    rule: Manifest, schema: Manifest, path: str, new: Any, values: dict[str, Any]
) -> tuple[str, str] | None:
    """Return path and words of the refusal by a rule; None if the value keeps it."""
    text = rule["rule"].strip()
    said = rule.get("message", "").strip()
    kind = str(schema.get("type", ""))
    try:
        if _evaluate(rule["rule"], values) is True:
            return None
    except cel.CelError as error:
        if str(error).startswith("compilation failed"):
            detail = f"rule compile error: {error}"
        elif str(error).startswith("no such overload"):
            detail = (
                f"'{error}': call arguments did not match a supported operator, function or macro"
                f" signature for rule: {said or text}"
            )
        else:
            detail = f"{error} evaluating rule: {said or text}"
        return path or "<nil>", f"Invalid value: {json.dumps(kind)}: {detail}"
    detail = _message(rule, values) or said or f"failed rule: {text}"
    word = REASONS[rule.get("reason", "FieldValueInvalid")]
    shows_value = word in ("Invalid value", "Duplicate value") and kind not in ("object", "array")
    value = f": {json.dumps(new, ensure_ascii=False)}" if shows_value else ""
    field = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
    return field or "<nil>", f"{word}{value}: {detail}"


def _message(rule: Manifest, values: dict[str, Any]) -> str:
    if "messageExpression" not in rule:
        return ""
    try:
        message = _evaluate(rule["messageExpression"], values)
    except cel.CelError:
        return ""  # as the API server does, which only logs it
    text = message.strip() if isinstance(message, str) else ""
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


def _evaluate(expression: str, values: dict[str, Any]) -> Any:
    return cel.compile_expression(expression, ("self", "oldSelf")).value(values)
