"""The site's pages lead where the repository's own links lead."""

import pytest

from tools.docs.site.hooks import linked, page_of, rewritten, uri_of


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("README.md", "index.md"),
        ("docs/guardrails.md", "guardrails.md"),
        ("docs/results/learning", "results/learning/index.md"),
        ("SECURITY.md", "source/SECURITY.md"),
        ("manifests/examples", "source/manifests/examples/index.md"),
        (
            "manifests/examples/01-single-gpu.yaml",
            "source/manifests/examples/01-single-gpu.yaml.md",
        ),
    ],
)
def test_every_file_has_its_place_on_the_site(path: str, uri: str) -> None:
    assert uri_of(path) == uri


def test_the_home_page_finds_what_the_readme_links_to() -> None:
    text = "[a](docs/guardrails.md#fifo) [b](manifests/examples) [c](https://example.com/docs)"
    assert rewritten(text, "README.md") == (
        "[a](guardrails.md#fifo) [b](source/manifests/examples/index.md) [c](https://example.com/docs)"
    )


def test_a_page_finds_code_and_the_readme_outside_docs() -> None:
    text = "[a](../tests/conftest.py) [b](../README.md) [c](#here)"
    assert rewritten(text, "docs/results/../elastic.md") == text.replace(
        "../tests/conftest.py", "source/tests/conftest.py.md"
    ).replace("../README.md", "index.md")


def test_a_link_to_nothing_is_left_for_the_strict_build_to_refuse() -> None:
    assert rewritten("[a](../nowhere.md)", "docs/elastic.md") == "[a](../nowhere.md)"


def test_a_folder_lists_its_files_and_a_folder_with_a_readme_is_that() -> None:
    assert "manifests/examples/01-single-gpu.yaml" in set(
        linked(page_of("manifests/examples"), "manifests/examples")
    )
    assert list(linked("[a](charts/bireme)", "README.md")) == ["charts/bireme/README.md"]
