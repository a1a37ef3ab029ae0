"""Rules of CRDs on small schemas: places, changes, messages, and the values that rules see."""

from typing import Any

import pytest

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.cel import rules, values
from testbed.controlplane.api import Manifest

STRING: Manifest = {"type": "string"}
INTEGER: Manifest = {"type": "integer"}


def ruled(schema: Manifest, *expressions: str, **fields: Any) -> Manifest:
    made = [{"rule": each, "message": "broken", **fields} for each in expressions]
    return {**schema, "x-kubernetes-validations": made}


def struct(**properties: Manifest) -> Manifest:
    return {"type": "object", "properties": properties}


def definition(spec: Manifest) -> Manifest:
    schema = struct(apiVersion=STRING, kind=STRING, metadata={"type": "object"}, spec=spec)
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing"}
    return {"spec": {"group": "example.com", "names": names, "versions": [version]}}


def refusal(spec: Manifest, new: Any, old: Any = None) -> str:
    """Words about ``spec`` after the name of the object; empty where it is accepted."""

    def thing(value: Any) -> Manifest | None:
        return None if value is None else {"metadata": {"name": "x"}, "spec": value}

    made = thing(new)
    assert made is not None
    try:
        rules.judge(definition(spec), made, thing(old))
    except ApiRefusal as refused:
        return refused.message.removeprefix('Thing.example.com "x" is invalid: ')
    return ""


def test_refusal_names_the_field_and_shows_values_of_scalars_alone() -> None:
    items = {"type": "array", "items": ruled(struct(n=ruled(INTEGER, "self > 0")), "self.n != -1")}
    by_name = {"type": "object", "additionalProperties": ruled(STRING, "self != ''")}
    spec = struct(items=items, names=by_name)
    assert refusal(spec, {"items": [{"n": 1}, {"n": 0}]}) == (
        "spec.items[1].n: Invalid value: 0: broken"
    )
    assert refusal(spec, {"names": {"a": "x", "b": ""}}) == (
        'spec.names[b]: Invalid value: "": broken'
    )
    assert refusal(spec, {"items": [{"n": -1}]}) == (
        "[spec.items[0]: Invalid value: broken, spec.items[0].n: Invalid value: -1: broken]"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "spec: Invalid value: broken"),
        ({"fieldPath": ".a.b"}, "spec.a.b: Invalid value: broken"),
        ({"reason": "FieldValueForbidden"}, "spec: Forbidden: broken"),
        ({"reason": "FieldValueRequired"}, "spec: Required value: broken"),
        ({"reason": "FieldValueDuplicate"}, "spec: Duplicate value: broken"),
        ({"message": ""}, "spec: Invalid value: failed rule: false"),
        ({"messageExpression": "'a is ' + string(self.a)"}, "spec: Invalid value: a is 1"),
        ({"messageExpression": "self.z"}, "spec: Invalid value: broken"),
        ({"messageExpression": "' '"}, "spec: Invalid value: broken"),
        ({"messageExpression": r"'a\nb'"}, "spec: Invalid value: broken"),
    ],
)
def test_rule_says_where_and_why(fields: Manifest, words: str) -> None:
    assert refusal(ruled(struct(a=INTEGER), "false", **fields), {"a": 1}) == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("self.z == 1", "no such key: z evaluating rule: broken"),
        (
            "self.a + 'x' == ''",
            (
                "'no such overload': call arguments did not match a supported operator, function or"
                " macro signature for rule: broken"
            ),
        ),
    ],
)
def test_rule_without_a_value_is_an_error_of_its_field(expression: str, words: str) -> None:
    spec = ruled(struct(a=INTEGER), expression)
    assert refusal(spec, {"a": 1}) == f'spec: Invalid value: "object": {words}'


def test_rule_that_does_not_compile_names_what_is_unknown() -> None:
    words = refusal(ruled(struct(a=INTEGER), "ip('::1').family() == 6"), {"a": 1})
    assert words.startswith('spec: Invalid value: "object": rule compile error: ')
    assert "undeclared reference to 'ip'" in words


# --- changes --------------------------------------------------------------------------------------


def test_rule_about_a_change_is_asked_of_changes_alone() -> None:
    spec = ruled(struct(a=INTEGER), "self.a >= oldSelf.a")
    assert refusal(spec, {"a": 1}) == ""
    assert refusal(spec, {"a": 1}, {"a": 1}) == ""
    assert refusal(spec, {"a": 1}, {"a": 2}) == "spec: Invalid value: broken"
    field = struct(a=ruled(INTEGER, "self == oldSelf"))
    assert refusal(field, {"a": 1}, {}) == "", "there was none before"


def test_items_have_partners_by_their_keys_in_lists_that_are_maps_alone() -> None:
    item = struct(name=STRING, n=ruled(INTEGER, "self == oldSelf"))
    as_map = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    atomic = struct(items={"type": "array", "items": item})
    keyed = struct(items={"type": "array", "items": item, **as_map})
    old = {"items": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}
    moved = {"items": [{"name": "b", "n": 2}, {"name": "a", "n": 1}]}
    changed = {"items": [{"name": "b", "n": 3}]}
    assert refusal(keyed, moved, old) == refusal(atomic, changed, old) == ""
    assert refusal(keyed, changed, old) == "spec.items[0].n: Invalid value: 3: broken"


def test_stored_fault_may_stay_where_nothing_around_it_changes() -> None:
    spec = struct(a=ruled(INTEGER, "self > 0"), b=INTEGER)
    assert refusal(spec, {"a": 0}) != ""
    assert refusal(spec, {"a": 0, "b": 2}, {"a": 0, "b": 1}) == ""
    assert refusal(spec, {"a": -1}, {"a": 0}) != ""
    items = struct(items={"type": "array", "items": ruled(INTEGER, "self > 0")}, b=INTEGER)
    assert refusal(items, {"items": [0], "b": 2}, {"items": [0], "b": 1}) == ""
    assert refusal(items, {"items": [0, 1]}, {"items": [0]}) != ""
    of_change = ruled(struct(a=INTEGER), "self.a != oldSelf.a")
    assert refusal(of_change, {"a": 1}, {"a": 1}) != "", "a rule about a change always counts"


# --- values ---------------------------------------------------------------------------------------


def test_rules_see_an_object_after_pruning_and_defaults() -> None:
    inner = struct(n={**INTEGER, "default": 5})
    spec = ruled(
        struct(
            a=inner,
            b={**inner, "default": {}},
            c={**INTEGER, "default": 1},
            free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        "self.b.n == 5 && self.c == 1 && !has(self.a) && !('z' in self.free)",
    )
    assert refusal(spec, {"c": None, "unknown": 1, "free": {}}) == ""
    kept = rules.judge(
        definition(spec),
        {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"free": {"q": None}, "u": 1}},
    )
    assert kept["spec"] == {"b": {"n": 5}, "c": 1, "free": {"q": None}}
    assert kept["metadata"] == {"name": "x", "labels": {"a": "b"}}


def test_root_rules_see_the_name_and_no_label() -> None:
    made = definition(struct(a=INTEGER))
    schema = rules.schema_of(made)
    schema |= ruled({}, "self.metadata.name == 'y' || !has(self.metadata.labels)")
    thing = {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}}
    rules.judge(made, thing)
    schema |= ruled({}, "self.metadata.name == 'y'")
    with pytest.raises(ApiRefusal) as caught:
        rules.judge(made, thing)
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == 'Thing.example.com "x" is invalid: <nil>: Invalid value: broken'


def test_values_have_the_types_of_their_schema() -> None:
    number = struct(n={"type": "number"}, when={"type": "string", "format": "date-time"})
    made = values.cel_value({"n": 1, "when": "2026-01-01T00:00:00Z"}, number)
    assert isinstance(made["n"], float)
    spec = ruled(number, "has(self.when)", "self.when > '2025'")
    assert "no such overload" in refusal(spec, {"when": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
    ],
)
def test_field_is_selected_by_its_escaped_name(name: str, escaped: str) -> None:
    assert values.escape(name) == escaped
    assert refusal(ruled(struct(**{name: INTEGER}), f"self.{escaped} == 1"), {name: 1}) == ""


def test_keys_of_maps_have_no_escapes() -> None:
    by_name = ruled({"type": "object", "additionalProperties": INTEGER}, "self['a-b'] == 1")
    assert refusal(by_name, {"a-b": 1}) == ""


def test_places_name_every_rule() -> None:
    items = {"type": "array", "items": ruled(struct(n=ruled(INTEGER, "a", "b")), "c")}
    schema = ruled(
        struct(items=items, by={"type": "object", "additionalProperties": ruled({}, "d")}), "e"
    )
    assert list(rules.places(schema)) == [
        ("", 0),
        ("items[]", 0),
        ("items[].n", 0),
        ("items[].n", 1),
        ("by[*]", 0),
    ]
