"""Label selectors: parsed, and refused in the words of the real API server."""

import pytest

from bireme_lab.embedded.api import label_selectors
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.label_selectors import LabelRequirement
from tests.unit.lab.embedded.requests import an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"


def test_requirements_are_read_one_after_the_other() -> None:
    assert label_selectors.parse("a=b, c in (d,, e),!f,g,h>5,i!=") == [
        LabelRequirement("a", "=", ("b",)),
        LabelRequirement("c", "in", ("d", "", "e")),
        LabelRequirement("f", "!"),
        LabelRequirement("g", "exists"),
        LabelRequirement("h", ">", ("5",)),
        LabelRequirement("i", "!=", ("",)),
    ]
    assert label_selectors.parse("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in ()", "for 'in', 'notin' operators, values set can't be empty"),
        ("a(b", "found '(', expected: in, notin, =, ==, !=, gt, lt"),
        ("a>b", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a@b=c", 'unable to parse requirement: <nil>: Invalid value: "a@b": name part must'),
        ("a=b@c", 'values[0][a]: Invalid value: "b@c": a valid label must be an empty string'),
    ],
)
def test_texts_that_are_no_selectors_are_refused(text: str, words: str) -> None:
    with pytest.raises(ApiRefusal) as refusal:
        label_selectors.parse(text)
    assert refusal.value.status == 400
    assert words in refusal.value.message


def test_numbers_are_compared() -> None:
    api = an_api()
    for name, size in (("a", "4"), ("b", "11"), ("c", "big")):
        done(api, "POST", MAPS, {"metadata": {"name": name, "labels": {"size": size}}})
    listed = done(api, "GET", MAPS, labelSelector="size>5")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (MAPS, '"spec.a" is not a known field selector: only "metadata.name", "metadata.nam'),
        ("/apis/batch/v1/jobs", 'field label "spec.a" not supported for Job'),
        ("/api/v1/pods", "field label not supported: spec.a"),
    ],
)
def test_a_field_that_is_not_selectable_is_refused_in_the_words_of_its_kind(
    path: str, words: str
) -> None:
    answer = ask(an_api(), "GET", path, fieldSelector="spec.a=b")
    assert answer.code == 400
    assert answer.body["message"].startswith(words)
