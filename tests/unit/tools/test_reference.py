"""Reference pages say what the code says, and what it says is found where a reader looks."""

import dataclasses

import pytest

from bireme_operator.settings import OperatorSettings
from reference import api, settings, values
from reference.tables import table


def row(page: str, name: str) -> list[str]:
    """The cells of the first row about ``name``."""
    line = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_field_of_the_api_has_its_type_default_bounds_and_meaning() -> None:
    told = row(api.page(), "userPriority")
    assert told[1:4] == ["integer", "`50`", "from 0; to 100"]
    assert "combined priority" in told[4]


def test_required_fields_lists_and_choices_are_said() -> None:
    page = api.page()
    assert row(page, "nodeSelector.matchLabels")[2] == "required"
    assert row(page, "mode")[1] == "`ForecastOnly` or `Apply`"
    assert row(page, "tasks")[1] == "list of object"
    assert row(page, "tasks[].replicas")[1] == "integer"


def test_a_setting_has_all_its_spellings_and_the_default_of_the_code() -> None:
    told = row(settings.page(), "nodeLostSeconds")
    assert told[1:4] == ["`BIREME_NODE_LOST_SECONDS`", "number", "`40.0`"]


def test_every_setting_has_its_own_docstring() -> None:
    told = settings.docstrings(OperatorSettings)
    assert list(told) == [field.name for field in dataclasses.fields(OperatorSettings)]
    assert len(set(told.values())) == len(told)


def test_a_setting_without_a_docstring_is_refused() -> None:
    @dataclasses.dataclass
    class Silent:
        quiet: int = 1

    with pytest.raises(KeyError, match="quiet"):
        list(settings.rows(Silent))


def test_a_comment_of_the_values_belongs_to_the_key_below_it() -> None:
    text = "# About nothing.\n\na:\n  # Two\n  # lines.\n  b: 1\n  c: 2\n# Of d.\nd: {}\n"
    assert values.comments(text) == {"a.b": "Two lines.", "d": "Of d."}


def test_a_cell_is_one_line_without_bars_or_tags() -> None:
    told = table(("a",), [("x|y\nz <job> `<b>`",)]).splitlines()[2]
    assert told == "| x\\|y z &lt;job> `<b>` |"
