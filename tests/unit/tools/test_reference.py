"""Reference pages say what the code says, and what it says is found where a reader looks."""

import ast
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.core.reasons import Attention, Reason
from bireme.settings_source import section_settings
from bireme_extender.membership import RefusalReason
from bireme_operator.settings import OperatorSettings
from tools.docs.reference import api, reasons, settings, values
from tools.docs.reference.tables import docstrings, table

SHIPPED = [Path(__file__).parents[3] / name for name in ("operator", "extender", "policies")]


def row(page: str, name: str) -> list[str]:
    """The cells of the first row about ``name``."""
    line = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_field_of_the_api_has_its_type_default_bounds_and_meaning() -> None:
    cells = row(api.page(), "userPriority")
    assert cells[1:4] == ["integer", "`50`", "from 0; to 100"]
    assert "combined priority" in cells[4]


def test_required_fields_lists_and_choices_are_shown() -> None:
    page = api.page()
    assert row(page, "nodeSelector.matchLabels")[2] == "required"
    assert row(page, "mode")[1] == "`ForecastOnly` or `Apply`"
    assert row(page, "tasks")[1] == "list of object"
    assert row(page, "tasks[].replicas")[1] == "integer"


def test_a_setting_has_all_its_spellings_and_the_default_of_the_code() -> None:
    cells = row(settings.page(), "nodeLostSeconds")
    assert cells[1:5] == ["`BIREME_NODE_LOST_SECONDS`", "number", "at least 0", "`240.0`"]


def test_every_setting_has_its_own_docstring() -> None:
    meanings = docstrings(OperatorSettings)
    assert list(meanings) == section_settings(OperatorSettings)
    assert len(set(meanings.values())) == len(meanings)


def test_a_setting_without_a_docstring_is_refused() -> None:
    @dataclasses.dataclass
    class Silent:
        quiet: int = 1

    with pytest.raises(KeyError, match="quiet"):
        list(settings.rows(Silent))


def test_every_refusal_says_in_its_own_words_what_it_means() -> None:
    meanings = docstrings(RefusalReason)
    assert list(meanings) == [each.name for each in RefusalReason]
    assert len(set(meanings.values())) == len(meanings)


def test_every_reason_has_a_meaning_and_a_remedy_of_its_own_and_a_row_on_the_page() -> None:
    page = reasons.page()
    for word in (*Reason, *RefusalReason):
        assert page.count(f"\n| `{word.value}` |") == 1, word
    assert len({reason.meaning for reason in Reason}) == len(Reason)
    for reason in Reason:
        assert len(reason.meaning) > 20, reason
        assert reason.meaning.endswith("."), reason
        assert len(reason.remedy) > 10, reason
        assert not reason.remedy.endswith("."), reason  # `bireme why` writes it into a sentence
        assert row(page, reason.value)[3], reason


def test_attention_event_and_remedy_of_a_reason_agree() -> None:
    for reason in Reason:
        is_well = reason.attention is Attention.NOBODY
        assert not (is_well and reason.event == "Warning"), reason
        assert not (reason.attention is Attention.PERSON and reason.remedy.startswith("nothing"))
        if reason.is_configuration_fault:
            assert (reason.attention, reason.event) == (Attention.PERSON, "Warning"), reason


def test_reasons_tell_their_event_and_what_helps() -> None:
    page = reasons.page()
    assert row(page, "NodeLost")[1] == "Warning"
    assert row(page, "WaitingForCapacity")[3].startswith("time, as others end")
    event, text, help_text = row(page, "GangRunning")[1:]
    assert (event, help_text) == ("", "nothing: it runs")
    assert text.startswith("All replicas are ready.")


def test_no_condition_and_no_reason_is_written_that_the_page_does_not_tell() -> None:
    page, found = reasons.page(), set[tuple[str, str]]()
    for folder in SHIPPED:
        for path in folder.rglob("*.py"):
            if "embedded" in path.parts:  # it writes Kubernetes' own
                continue
            module = ".".join(path.relative_to(folder).with_suffix("").parts)
            found |= set(written(path.read_text(), module))
    assert {("Finished", CONDITION), ("Scaling", CONDITION)} < found
    assert [word for word, place in found if place.format(word) not in page] == []


@pytest.mark.parametrize(
    "source",
    ['wanted = {"reason": "New"}', 'wanted["reason"] = "New"', 'with_condition(s, "New", 1)'],
)
def test_a_word_that_is_spelt_out_is_seen(source: str) -> None:
    assert [word for word, _ in written(source, "")] == ["New"]


CONDITION, REASON = "{}: ", "| `{}` |"


def written(source: str, module: str) -> Iterator[tuple[str, str]]:
    """Conditions that a module sets and reasons that it spells out, and how the page has them."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="with_condition"), args=[_, ast.Constant(value=it), *_]):
                yield str(it), CONDITION
            case ast.Call(func=ast.Name(id="with_condition"), args=[_, ast.Name(id=name), *_]):
                yield getattr(importlib.import_module(module), name), CONDITION
            case ast.Call(func=ast.Name(id="with_condition")):
                raise AssertionError(f"{module}: name the condition by a constant")
            case ast.Dict(keys=keys, values=given):
                for key, value in zip(keys, given, strict=True):
                    if isinstance(value, ast.Constant) and is_reason(key):
                        yield str(value.value), REASON
            case ast.Assign(targets=[ast.Subscript(slice=key)], value=ast.Constant(value=it)):
                if is_reason(key):
                    yield str(it), REASON


def is_reason(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value == "reason"


def test_a_comment_of_the_values_belongs_to_the_key_below_it() -> None:
    text = "# About nothing.\n\na:\n  # Two\n  # lines.\n  b: 1\n  c: 2\n# Of d.\nd: {}\n"
    assert values.comments(text) == {"a.b": "Two lines.", "d": "Of d."}


def test_a_cell_is_one_line_without_bars_or_tags() -> None:
    line = table(("a",), [("x|y\nz <job> `<b>`",)]).splitlines()[2]
    assert line == "| x\\|y z &lt;job> `<b>` |"
