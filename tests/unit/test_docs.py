"""Examples on pages of the documentation: code is run, objects are read, tests they name exist."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.kube import names
from bireme.kube.crd import KINDS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if ">>> " in page.read_text())


def test_there_are_pages_that_run() -> None:
    assert "guardrails.md" in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_the_code_does(page: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False)
    assert tried
    assert not failed


def test_every_test_that_a_page_names_exists() -> None:
    tests = DOCS.parent / "tests"
    known = {path.stem for path in tests.rglob("test_*.py")}
    for path in tests.rglob("test_*.py"):
        known |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "SECURITY.md"]
    named = set(re.findall(r"\btest_\w+", "".join(p.read_text() for p in pages)))
    assert len(named) > 10
    assert named - known == set()


def snippets() -> Iterator[Any]:
    """Objects of Bireme that pages show as YAML."""
    for page in sorted(DOCS.glob("*.md")):
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for manifest in (each for block in blocks for each in yaml.safe_load_all(block)):
            if manifest.get("apiVersion") == names.API_VERSION:
                yield pytest.param(manifest, id=f"{page.stem}-{manifest['kind']}")


@pytest.mark.parametrize("manifest", list(snippets()))
def test_an_object_that_a_page_shows_is_valid(manifest: dict[str, Any]) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == manifest["kind"])
    assert kind.model.model_validate(manifest)
