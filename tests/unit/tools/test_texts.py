"""The golden file of all texts has every text, and is what the code says."""

import ast
from pathlib import Path

import pytest

from testbed import messages
from tools.docs.reference import texts

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "messages.txt"


def test_a_change_of_words_is_in_the_golden_file() -> None:
    assert GOLDEN.read_text() == texts.page(), "run make reference, and read the diff"


def test_every_function_of_messages_has_examples_without_gaps() -> None:
    examples = messages.rendered()
    assert list(examples) == messages.functions()
    assert {"lacking", "would_delay", "budget_overridden"} < set(examples)
    assert [name for name, lines in examples.items() if not lines or not all(lines)] == []
    lines = [line for each in examples.values() for line in each]
    assert [line for line in lines if "None" in line or "<" in line] == []


def test_a_function_without_an_example_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "functions", lambda: ["lacking", "a_new_message"])
    with pytest.raises(KeyError, match="a_new_message"):
        messages.rendered()


@pytest.mark.parametrize(
    ("source", "strings"),
    [
        ('raise Error(f"queue {name!r} is closed")', ["queue {} is closed"]),
        ('"""A docstring of three words."""', []),
        ('def f(x: "int | None" = None) -> "str | None": pass', []),
        ('x = f"a {b(1)} z", "two words"', ["a {} z", "two words"]),
        ("say(f\"{y} and {f('an inner text')}\")", ["{} and {}", "an inner text"]),
    ],
)
def test_strings_are_listed_without_docstrings_and_types(source: str, strings: list[str]) -> None:
    assert list(texts._strings(ast.parse(source))) == strings
