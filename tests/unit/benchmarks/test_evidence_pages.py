"""Pages of evidence: the words around the tables, and an index over all."""

from pathlib import Path

import msgspec
import numpy as np

from benchmarks.report import Page, Table, page_markdown, write_page
from benchmarks.simulations.figures import tails

PAGE = Page(
    name="guardrails",
    title="The guardrails",
    summary="They help.",
    findings=("The longest wait is halved.",),
    tables=(
        Table(
            title="Waits",
            columns=("guardrails", "max"),
            rows=(("all", 1.234), ("none", 9.0)),
        ),
    ),
    revisions=("abc", "abd"),
    command="python -m benchmarks.simulations guardrails",
    date="2030-01-01",
    figures={"guardrails.svg": "<svg/>"},
)


def test_a_page_has_findings_tables_figures_and_the_command() -> None:
    text = page_markdown(PAGE)
    for part in (
        "* The longest wait is halved.",
        "| all | 1.23 |",
        "![The guardrails](guardrails.svg)",
        "Command: `python -m benchmarks.simulations guardrails`, 2030-01-01, revision abc and abd.",
    ):
        assert part in text


def test_one_page_renews_its_files_and_the_index_keeps_the_others(tmp_path: Path) -> None:
    write_page(tmp_path, msgspec.structs.replace(PAGE, name="muri", title="Muri"))
    write_page(tmp_path, PAGE)
    assert (tmp_path / "guardrails.svg").read_text() == "<svg/>"
    index = (tmp_path / "README.md").read_text()
    assert "| [Muri](muri.md) | They help. | 2030-01-01 |" in index
    assert "| [The guardrails](guardrails.md) | They help. | 2030-01-01 |" in index


def test_a_drawing_has_a_line_and_a_name_for_everyone() -> None:
    several = np.array([1.0, 90.0, 1e5])
    drawing = tails("Waits", {"all": np.array([0.0, 5.0]), "a < b": several})
    assert "a &lt; b" in drawing
    assert ">all<" in drawing
    assert drawing == tails("Waits", {"all": np.array([0.0, 5.0]), "a < b": several})
