"""Recipes of CONTRIBUTING.md: their files exist and have the names to look for, and are few."""

import re
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAX_FILES: Final = {
    "A kind of workload": 3,
    "A limit of queues": 6,
    "A reason": 1,
    "A rule for victims": 1,
    "A learned policy": 5,
    "A placement constraint of a gang": 8,
}
"""The limit of source files by recipe."""


def recipes() -> dict[str, str]:
    """Return the text of every recipe by its title."""
    _, _, after = PAGE.partition("## Recipes\n")
    body, _, _ = after.partition("\n## ")
    parts = re.split(r"^### (.+)\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(recipe: str) -> list[tuple[str, str]]:
    """Return the file, and what to write there, of every row of a recipe."""
    return re.findall(r"^\| `([^`]+)` \| (.+) \|$", recipes()[recipe], re.MULTILINE)


def files(pattern: str) -> list[Path]:
    """Return the files of a row; KIND and NAME stand for any name."""
    return list(ROOT.glob(re.sub("KIND|NAME", "*", pattern)))


ROWS: Final = [
    pytest.param(*row, id=f"{title}: {row[0]}") for title in recipes() for row in rows(title)
]


def test_every_recipe_has_a_limit_of_files_and_keeps_it() -> None:
    assert recipes().keys() == MAX_FILES.keys()
    counts = {title: len(rows(title)) for title in recipes()}
    assert all(1 <= counts[title] <= most for title, most in MAX_FILES.items()), counts


@pytest.mark.parametrize(("pattern", "text"), ROWS)
def test_every_file_of_a_recipe_exists_and_has_the_names_to_look_for(
    pattern: str, text: str
) -> None:
    paths = files(pattern)
    assert paths, "there is no such file"
    content = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for name in re.findall(r"`([^`]+)`", text):
        if "/" in name:
            assert (ROOT / name).exists(), name
        elif name.endswith(".py"):
            assert paths[0].with_name(name) in paths, name
        else:
            assert re.search(rf"\b{re.escape(name)}\b", content), name


def test_every_path_in_the_text_of_a_recipe_exists() -> None:
    paths = set(
        chain.from_iterable(re.findall(r"`([\w/]+/[\w.]+)`", t) for t in recipes().values())
    )
    paths = {path for path in paths if not re.search("KIND|NAME", path)}
    assert len(paths) > 10
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_the_constraint_that_a_recipe_shows_is_in_its_files_alone() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("operator", "extender", "policies")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\brole_affinity\b", path.read_text(encoding="utf-8"))
    }
    assert found == {path for path, _ in rows("A placement constraint of a gang")}
