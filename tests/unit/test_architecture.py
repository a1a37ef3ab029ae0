"""docs/architecture.md names every package, and no file that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_package_and_every_module_beside_them_is_named() -> None:
    library = ROOT / "policies" / "bireme"
    names = {path.stem for path in library.iterdir() if path.suffix == ".py" or path.is_dir()}
    expected = {f"bireme.{name}" for name in names if not name.startswith("__")}
    expected |= {"bireme_operator", "bireme_extender"}
    assert sorted(name for name in expected if f"`{name}`" not in PAGE) == []


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:policies|operator|extender)/[\w/]+\.py)`", PAGE))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_it_fits_into_one_reading() -> None:
    assert len(PAGE.splitlines()) <= 120
