"""The site's pages lead where the repository's own links lead."""

from pathlib import Path

import pytest

from tools.docs.website.pages import faults, linked, page_of, rewritten, uri_of, write


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


def test_the_folder_of_pages_has_the_home_page_pictures_and_linked_files(tmp_path: Path) -> None:
    write(tmp_path)
    home = (tmp_path / "index.md").read_text()
    assert "](pictures/demo.webp)" in home
    assert (tmp_path / "pictures/demo.webp").is_file()
    assert "](source/CONTRIBUTING.md)" in home
    assert (tmp_path / "source/CONTRIBUTING.md").is_file()


def test_what_the_strict_build_lets_pass_is_refused_by_name(tmp_path: Path) -> None:
    for page in ("index.md", "lost.md", "results/scale.md"):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text("![a plot](plot.svg) ![another](https://example.com/a.svg)\n")
    (tmp_path / "results/plot.svg").touch()
    (tmp_path / "plot.svg").touch()
    assert list(faults(tmp_path, [{"Home": "index.md"}, {"Use": [{"Gone": "gone.md"}]}])) == [
        "mkdocs.yml: nav names 'gone.md', which does not exist; correct or remove it",
        "mkdocs.yml: nav lacks 'lost.md'; add it, so that readers find the page",
    ]
    (tmp_path / "results/plot.svg").unlink()
    assert list(faults(tmp_path, ["index.md", "lost.md"])) == [
        "results/scale.md: the picture 'plot.svg' does not exist; correct or remove it"
    ]
