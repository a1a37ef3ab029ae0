"""The pages of the documentation that show what the code does: they are run, and must say so."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if ">>> " in page.read_text())


def test_there_are_pages_that_run() -> None:
    assert "rails.md" in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_the_code_does(page: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False)
    assert tried
    assert not failed
