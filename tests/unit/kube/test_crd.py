"""CRD generation: what is translated, what is refused, and that the files are not stale."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import Field

from bireme.kube import crd, names
from bireme.kube.api.base import ApiModel, Condition, Resource, Rule
from bireme.kube.crd import KINDS, Schema, ServedKind

EVERY_KIND = [pytest.param(kind, id=kind.plural) for kind in KINDS]


class Leaf(ApiModel):
    """A leaf."""

    label: str = Field(default="x", max_length=8)


class Tree(ApiModel):
    """A tree of one level."""

    leaf: Leaf = Leaf()
    """The main leaf,
    described on two lines."""
    others: tuple[Leaf, ...] = Field(default=(), max_length=3)
    by_name: dict[str, Leaf] = Field(default={}, max_length=3)
    count: int | None = Field(default=None, ge=1)


class Endless(ApiModel):
    """Contains itself."""

    inner: "Endless | None" = None


def structural(model: type[ApiModel]) -> Schema:
    source = model.model_json_schema(schema_generator=crd.Documented)
    return crd.structural(source, source.pop("$defs", {}))


def test_references_are_inlined_and_camel_cased() -> None:
    leaf = {
        "type": "object",
        "description": "A leaf.",
        "properties": {"label": {"type": "string", "default": "x", "maxLength": 8}},
    }

    properties = structural(Tree)["properties"]

    assert properties["leaf"] == {
        **leaf,
        "description": "The main leaf, described on two lines.",
        "default": {},
    }
    assert properties["others"] == {"type": "array", "items": leaf, "maxItems": 3}
    assert properties["byName"] == {
        "type": "object",
        "additionalProperties": leaf,
        "maxProperties": 3,
    }


def test_an_optional_field_is_absent_rather_than_null() -> None:
    assert structural(Tree)["properties"]["count"] == {"type": "integer", "minimum": 1}


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        pytest.param(str, r"\.field: no maxLength", id="unbounded-string"),
        pytest.param(tuple[int, ...], r"\.field: no maxItems", id="unbounded-list"),
        pytest.param(dict[str, int], r"\.field: no maxProperties", id="unbounded-map"),
        pytest.param(int | list[int], r"\.field: a choice of types", id="choice"),
        pytest.param(tuple[int, int], r"\.field: prefixItems has no", id="fixed-tuple"),
        pytest.param(Endless, r"\.inner\.inner.*Endless contains itself", id="recursion"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_path(
    annotation: Any, problem: str
) -> None:
    class Odd(ApiModel):
        field: annotation

    with pytest.raises(crd.SchemaError, match=problem):
        structural(Odd)


def test_a_rule_message_names_values_by_cel_expressions() -> None:
    rule = Rule("self.a < self.b", 'a {self.a} is 100% above "{self.b}"', field=".a")

    assert rule.to_schema() == {
        "rule": "self.a < self.b",
        "messageExpression": r'"a %s is 100%% above \"%s\"".format([self.a, self.b])',
        "fieldPath": ".a",
    }


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Every dictionary inside a schema."""
    if isinstance(schema, list):
        return [node for child in schema for node in nodes(child)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(node for child in schema.values() for node in nodes(child))]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_definition_holds_nothing_an_api_server_refuses(kind: ServedKind) -> None:
    schema = crd.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    for node in nodes(schema):
        assert not node.keys() & {"$ref", "anyOf", "allOf", "oneOf", "const", "prefixItems"}
        assert node.get("additionalProperties", {}) not in (True, False)
        assert node.get("type") != "null"


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_definition_is_small_enough_for_a_plain_apply(kind: ServedKind) -> None:
    # kubectl stores the whole in an annotation, and all annotations of an object have 256 KiB.
    assert len(crd.render()[f"{kind.plural}.yaml"]) < 64_000


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_definition_is_served_as_the_design_says(kind: ServedKind) -> None:
    spec = crd.definition(kind)["spec"]

    assert f"{spec['group']}/{spec['versions'][0]['name']}" == names.API_VERSION
    assert Resource.model_fields["api_version"].default == names.API_VERSION
    assert spec["names"]["categories"] == ["bireme"], "kubectl delete all must not reach them"
    assert spec["names"]["shortNames"] != ["pg"], "that is Volcano's"
    has_status = "status" in kind.model.model_fields
    assert spec["versions"][0].get("subresources") == ({"status": {}} if has_status else None)
    assert spec["versions"][0]["additionalPrinterColumns"][-1]["name"] == "AGE"


def test_lists_of_named_things_merge_entry_by_entry() -> None:
    status = crd.definition(KINDS[0])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    conditions = status["properties"]["status"]["properties"]["conditions"]

    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) >= {"type", "status"}
    assert set(conditions["items"]["properties"]) == {
        field.alias for field in Condition.model_fields.values()
    }


def test_the_chart_holds_the_definitions_of_the_models() -> None:
    assert crd.stale(crd.DIRECTORY) == "", "run `python -m bireme.kube.crd --write`"


def test_check_fails_on_a_stale_a_missing_and_a_stray_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = ["--directory", str(tmp_path)]
    assert crd.main(["--write", *directory]) == 0
    assert crd.main(["--check", *directory]) == 0

    queues = tmp_path / "queues.yaml"
    text = queues.read_text()
    queues.write_text(text.replace("maximum: 100\n", "maximum: 1000\n"))
    assert crd.main(["--check", *directory]) == 1
    shown = capsys.readouterr().err
    assert "-                maximum: 1000\n" in shown
    assert "run `python -m bireme.kube.crd --write`" in shown

    queues.unlink()
    assert crd.main(["--check", *directory]) == 1
    queues.write_text(text)
    (tmp_path / "leftover.yaml").write_text("kind: CustomResourceDefinition\n")
    assert crd.main(["--check", *directory]) == 1


def test_the_yaml_says_what_the_definition_says() -> None:
    texts = crd.render()
    for kind in KINDS:
        text = texts[f"{kind.plural}.yaml"]

        assert yaml.safe_load(text) == json.loads(json.dumps(crd.definition(kind)))
        assert "&id" not in text, "no YAML anchors"
