"""The figure of how A2cScheduler learned: every panel is drawn, beside the rules."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.learning.figures import PANELS, drawn
from bireme_lab.training.runs import LearningCurves

SVG = "{http://www.w3.org/2000/svg}"


def curves_in(folder: Path) -> Path:
    """Three updates, the first and last of which were validated."""
    curves = LearningCurves(folder / "curves.csv")
    measured = {name: 3.0 for name in PANELS if name != "return"}
    curves.add("ppo", 100, 1.0, {"return": -9.0, **measured})
    curves.add("ppo", 200, 2.0, {"return": -8.0})
    curves.add("ppo", 300, 3.0, {"return": -7.0, **measured})
    return curves.path


def texts(drawing: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(drawing).iter(f"{SVG}text")]  # noqa: S314  # our own


def test_all_four_panels_of_the_paper_are_drawn_with_the_rules(tmp_path: Path) -> None:
    words = texts(drawn(curves_in(tmp_path), "a2c"))
    assert set(PANELS.values()) <= set(words)
    assert all(words.count(name) == 3 for name in ("learned", "random", "sjf", "tetris"))


def test_other_recipes_are_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draw those of a2c and a2c-cnn"):
        drawn(curves_in(tmp_path), "testbed.toys.recipe:EchoRecipe")
