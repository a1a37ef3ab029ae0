"""Objects that expressions construct: their values, their types, and texts that only look so."""

from typing import Any

import pytest

from bireme.kube.cel import CelError
from bireme_lab.embedded.cel.expression_tokens import ExpressionTokens
from bireme_lab.embedded.cel.messages import compile_messages

NAMES = ("object",)


@pytest.mark.parametrize(
    ("expression", "result_type", "value"),
    [
        ("Object{spec: Object.spec{n: 3, r: 0.5}}", "Object", {"spec": {"n": 3, "r": 0.5}}),
        (
            "Object{a: 'Object.a{b: 1}', // {Object{\n}",
            "Object",
            {"a": "Object.a{b: 1}"},
        ),
        (
            "Object{a: '''it's \"{\" ''', b: r'\\d{2}'}",
            "Object",
            {"a": 'it\'s "{" ', "b": "\\d{2}"},
        ),
        ("Object{?a: object.?none, b: null}", "Object", {"b": None}),
        (
            "Object{list: object.names.map(n, Object.list{name: n})}",
            "Object",
            {"list": [{"name": "x"}, {"name": "y"}]},
        ),
        ("object.names == [] ? Object{} : Object{a: {'k': 'v'}}", "Object", {"a": {"k": "v"}}),
        (
            "[JSONPatch{op: 'add', path: jsonpatch.escapeKey('b/c~'), value: Object.a{n: 1}}]",
            "list(JSONPatch)",
            [{"op": "add", "path": "b~1c~0", "value": {"n": 1}}],
        ),
        ("Object{a: Object.a{b: 2}}.a.b", "dyn", 2),
        ("Object{} == Object{a: 1}", "bool", False),
    ],
)
def test_construction_has_value_and_type(expression: str, result_type: str, value: Any) -> None:
    program = compile_messages(expression, NAMES)
    assert program.result_type == result_type
    assert program.value({"object": {"names": ["x", "y"]}}) == value
    assert not program.misplacements


def test_error_of_the_compiler_shows_the_expression_as_it_was_written() -> None:
    with pytest.raises(CelError) as caught:
        compile_messages("Object{spec:\n  Object.spec{a: nope}}", NAMES)
    assert str(caught.value) == (
        "compilation failed: ERROR: <input>:2:18: undeclared reference to 'nope' (in container"
        " '')\n"
        " |   Object.spec{a: nope}}\n"
        " | .................^"
    )


def test_value_that_json_has_not_is_an_error() -> None:
    with pytest.raises(CelError):
        compile_messages("Object{a: optional.of(1)}", NAMES).value({})


def test_object_is_misplaced_unless_its_type_is_named_after_its_field() -> None:
    expression = "Object{spec: Object.spec{a: [Object.spec.b{}], c: Object.x{}.y}}"
    (fault,) = compile_messages(expression, NAMES).misplacements
    assert fault.startswith('unexpected type name "Object.spec.b", expected "Object.spec.a"')


def test_selections_are_not_read_out_of_texts_and_other_objects() -> None:
    expression = "variables.a + 'variables.b' + object.variables.c // variables.d\n+ variables . e"
    assert [name for name, _ in ExpressionTokens(expression).selections("variables")] == ["a", "e"]
